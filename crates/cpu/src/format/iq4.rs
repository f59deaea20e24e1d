//! IQ4_NL (`d * LEVELS[q]`, blocks of 32) and IQ4_XS (`d * sc * LEVELS[q]`, blocks of 256 with signed 6-bit scales of
//! 32 numbers each).

use cera_quant::Type;
use cera_quant::iq4_nl::{self, LEVELS};
use cera_quant::iq4_xs::{D, QS, SCALES_HIGH};

use super::{
    ActGroup, Format, NIBBLES, PANEL, biased, get_half, get_nibbles, high_pair, join_halves, load_byte,
    load_halves, load_nibbles, look_up, put_half, put_nibbles, scaled, split_halves,
};
use crate::simd::{STEPS, Simd};

/// The levels of a group, as [`Simd::dot_signed`] takes them.
#[inline(always)]
fn load_levels<S: Simd>(s: S, panel: &[u8], first: usize) -> [S::B; STEPS] {
    let table = const { &biased(&LEVELS, S::BIAS) };
    look_up(s, table, load_nibbles(s, panel, first))
}

/// Panel block: nibbles, then 16 scales.
pub struct Iq4Nl;

impl Format for Iq4Nl {
    const TYPE: Type = Type::IQ4_NL;
    type Group<S: Simd> = ([S::B; STEPS], S::F);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        put_half(&block[iq4_nl::D..], row, &mut panel[NIBBLES..]);
        put_nibbles(&split_halves(&block[iq4_nl::QS..]), row, panel);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        get_half(&panel[NIBBLES..], row, &mut block[iq4_nl::D..]);
        join_halves(&get_nibbles(panel, row), &mut block[iq4_nl::QS..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], _g: usize, first: usize) -> Self::Group<S> {
        (load_levels(s, panel, first), load_halves(s, &panel[NIBBLES..], first))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, d): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        scaled(s, s.dot_signed(w, &a.q, a.start.minus128), *d, a, acc)
    }
}

/// Panel block: 8 groups of nibbles, 2 x 16 bytes of the scales' high bits and 4 x 16 of their low ones, 16 `d`.
pub struct Iq4Xs;

const SCALES_AT: usize = 8 * NIBBLES;
const SCALE_BYTES: usize = QS - SCALES_HIGH;
const D_AT: usize = SCALES_AT + SCALE_BYTES * PANEL;
/// Bytes of a group's codes in the file.
const CODES: usize = 16;

impl Format for Iq4Xs {
    const TYPE: Type = Type::IQ4_XS;
    type Group<S: Simd> = ([S::B; STEPS], S::F);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        for g in 0..Self::GROUPS {
            put_nibbles(&split_halves(&block[QS + CODES * g..]), row, &mut panel[g * NIBBLES..]);
        }
        for i in 0..SCALE_BYTES {
            panel[SCALES_AT + PANEL * i + row] = block[SCALES_HIGH + i];
        }
        put_half(&block[D..], row, &mut panel[D_AT..]);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        for g in 0..Self::GROUPS {
            join_halves(&get_nibbles(&panel[g * NIBBLES..], row), &mut block[QS + CODES * g..]);
        }
        for i in 0..SCALE_BYTES {
            block[SCALES_HIGH + i] = panel[SCALES_AT + PANEL * i + row];
        }
        get_half(&panel[D_AT..], row, &mut block[D..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> Self::Group<S> {
        let part = &panel[SCALES_AT..];
        let low = load_byte(s, part, 2 + g / 2, first);
        let low = if g.is_multiple_of(2) { s.and_i(low, s.splat_i(15)) } else { s.shr_i::<4>(low) };
        let scale =
            s.sub_i(s.or_i(low, high_pair(s, load_byte(s, part, g / 4, first), g % 4)), s.splat_i(32));
        // 11 bits by 6: exact.
        let d = s.mul(load_halves(s, &panel[D_AT..], first), s.to_f(scale));
        (load_levels(s, &panel[g * NIBBLES..], first), d)
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, d): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        scaled(s, s.dot_signed(w, &a.q, a.start.minus128), *d, a, acc)
    }
}
