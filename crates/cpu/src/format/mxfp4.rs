//! MXFP4 (`2^(e - 128) * LEVELS[q]`): blocks of 32.

use cera_quant::Type;
use cera_quant::mxfp4::{E, LEVELS, QS};

use super::{
    ActGroup, Format, NIBBLES, biased, get_nibbles, join_halves, load_byte, load_nibbles, look_up,
    put_nibbles, scaled, split_halves,
};
use crate::simd::{STEPS, Simd};

/// Panel block: nibbles, then 16 exponents.
pub struct Mxfp4;

/// `2^(e - 128)`, below an `e` of 2 a subnormal number.
#[inline(always)]
fn half_scale<S: Simd>(s: S, e: S::I) -> S::F {
    let one = s.splat_i(1);
    let normal = s.shl_i::<23>(s.sub_i(e, one));
    // As bits: right for 0 and 1, where the other is below it, and below the other from 2 on.
    let subnormal = s.shl_i::<21>(s.add_i(e, one));
    s.float_of(s.max_i(normal, subnormal))
}

impl Format for Mxfp4 {
    const TYPE: Type = Type::MXFP4;
    type Group<S: Simd> = ([S::B; STEPS], S::F);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        panel[NIBBLES + row] = block[E];
        put_nibbles(&split_halves(&block[QS..]), row, panel);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        block[E] = panel[NIBBLES + row];
        join_halves(&get_nibbles(panel, row), &mut block[QS..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], _g: usize, first: usize) -> Self::Group<S> {
        // Levels are -12..=12; with 16 added they have no sign and five bits.
        let w = look_up(s, const { &biased(&LEVELS, 16) }, load_nibbles(s, panel, first));
        (w, half_scale(s, load_byte(s, &panel[NIBBLES..], 0, first)))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, scale): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        scaled(s, s.dot_unsigned::<31>(w, &a.q, a.start.minus16), *scale, a, acc)
    }
}
