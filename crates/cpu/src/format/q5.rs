//! Q5_0 (`d * (q - 16)`) and Q5_1 (`d * q + m`): blocks of 32, the fifth bits in a u32 of their own.

use cera_quant::Type;

use super::{
    ActGroup, Format, HALVES, NIBBLES, PLANE, Steps, add_bits, get_bits, get_half, get_nibbles, join_halves,
    load_halves, load_nibbles, put_bits, put_half, put_nibbles, put_word, scaled, split_halves, word,
};
use crate::simd::{STEPS, Simd};

/// Where the scales lie in a panel's block: behind the nibbles and the fifth bits.
const SCALES: usize = NIBBLES + PLANE;

/// Bit `i` of `high` as bit 4 of number `i`.
fn spread(high: u32) -> Steps {
    std::array::from_fn(|j| ((((high >> (4 * j)) & 15) * 0x0020_4081) & 0x0101_0101) << 4)
}

/// The inverse of [`spread`].
fn gather(steps: &Steps) -> u32 {
    let bit = |i: usize| (steps[i / 4] >> (8 * (i % 4) + 4)) & 1;
    (0..32).fold(0, |v, i| v | bit(i) << i)
}

/// Stores the 20 bytes of fifth bits and nibbles that both formats share.
fn pack_numbers(bytes: &[u8], row: usize, panel: &mut [u8]) {
    put_nibbles(&split_halves(&bytes[4..]), row, panel);
    put_bits(&spread(word(bytes, 0)), row, &mut panel[NIBBLES..]);
}

fn unpack_numbers(panel: &[u8], row: usize, bytes: &mut [u8]) {
    join_halves(&get_nibbles(panel, row), &mut bytes[4..]);
    put_word(bytes, 0, gather(&get_bits(&panel[NIBBLES..], row)));
}

#[inline(always)]
fn load_numbers<S: Simd>(s: S, panel: &[u8], first: usize) -> [S::B; STEPS] {
    let mut w = load_nibbles(s, panel, first);
    add_bits(s, &mut w, &panel[NIBBLES..], first);
    w
}

/// Panel block: nibbles, fifth bits, then 16 scales.
pub struct Q5_0;

impl Format for Q5_0 {
    const TYPE: Type = Type::Q5_0;
    type Group<S: Simd> = ([S::B; STEPS], S::F);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        put_half(block, row, &mut panel[SCALES..]);
        pack_numbers(&block[2..], row, panel);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        get_half(&panel[SCALES..], row, block);
        unpack_numbers(panel, row, &mut block[2..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], _g: usize, first: usize) -> Self::Group<S> {
        (load_numbers(s, panel, first), load_halves(s, &panel[SCALES..], first))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, d): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        scaled(s, s.dot_unsigned::<31>(w, &a.q, a.start.minus16), *d, a, acc)
    }
}

/// Panel block: nibbles, fifth bits, 16 scales, then 16 minima.
pub struct Q5_1;

impl Format for Q5_1 {
    const TYPE: Type = Type::Q5_1;
    type Group<S: Simd> = ([S::B; STEPS], S::F, S::F);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        put_half(block, row, &mut panel[SCALES..]);
        put_half(&block[2..], row, &mut panel[SCALES + HALVES..]);
        pack_numbers(&block[4..], row, panel);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        get_half(&panel[SCALES..], row, block);
        get_half(&panel[SCALES + HALVES..], row, &mut block[2..]);
        unpack_numbers(panel, row, &mut block[4..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], _g: usize, first: usize) -> Self::Group<S> {
        let d = load_halves(s, &panel[SCALES..], first);
        let m = load_halves(s, &panel[SCALES + HALVES..], first);
        (load_numbers(s, panel, first), d, m)
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, d, m): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        let acc = scaled(s, s.dot_unsigned::<31>(w, &a.q, 0), *d, a, acc);
        s.fma(*m, s.splat(a.sum_scaled), acc)
    }
}
