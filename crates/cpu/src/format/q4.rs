//! Q4_0 (`d * (q - 8)`) and Q4_1 (`d * q + m`): blocks of 32.

use cera_quant::Type;

use super::{
    ActGroup, Format, HALVES, NIBBLES, get_half, get_nibbles, join_halves, load_halves, load_nibbles,
    put_half, put_nibbles, scaled, split_halves,
};
use crate::simd::{STEPS, Simd};

/// Panel block: nibbles, then 16 scales.
pub struct Q4_0;

impl Format for Q4_0 {
    const TYPE: Type = Type::Q4_0;
    type Group<S: Simd> = ([S::B; STEPS], S::F);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        put_half(block, row, &mut panel[NIBBLES..]);
        put_nibbles(&split_halves(&block[2..]), row, panel);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        get_half(&panel[NIBBLES..], row, block);
        join_halves(&get_nibbles(panel, row), &mut block[2..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], _g: usize, first: usize) -> Self::Group<S> {
        (load_nibbles(s, panel, first), load_halves(s, &panel[NIBBLES..], first))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, d): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        scaled(s, s.dot_unsigned::<15>(w, &a.q, a.start.minus8), *d, a, acc)
    }
}

/// Panel block: nibbles, then 16 scales, then 16 minima.
pub struct Q4_1;

impl Format for Q4_1 {
    const TYPE: Type = Type::Q4_1;
    type Group<S: Simd> = ([S::B; STEPS], S::F, S::F);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        put_half(block, row, &mut panel[NIBBLES..]);
        put_half(&block[2..], row, &mut panel[NIBBLES + HALVES..]);
        put_nibbles(&split_halves(&block[4..]), row, panel);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        get_half(&panel[NIBBLES..], row, block);
        get_half(&panel[NIBBLES + HALVES..], row, &mut block[2..]);
        join_halves(&get_nibbles(panel, row), &mut block[4..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], _g: usize, first: usize) -> Self::Group<S> {
        let d = load_halves(s, &panel[NIBBLES..], first);
        let m = load_halves(s, &panel[NIBBLES + HALVES..], first);
        (load_nibbles(s, panel, first), d, m)
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, d, m): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        let acc = scaled(s, s.dot_unsigned::<15>(w, &a.q, 0), *d, a, acc);
        s.fma(*m, s.splat(a.sum_scaled), acc)
    }
}
