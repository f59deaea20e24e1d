//! Q2_K (`d * sc * q - dmin * m`): blocks of 256, 4-bit scales and minima of 16 numbers each.

use cera_quant::Type;
use cera_quant::q2_k::{D, DMIN, QS, SCALES};

use super::pairs::{get_pairs, load_pairs, put_pairs, read_pairs, write_pairs};
use super::{ActGroup, Format, HALVES, PANEL, PLANE, get_half, load_byte, load_halves, put_half, scaled};
use crate::simd::Simd;

/// Panel block: 8 groups of pairs of bits, 16 x 16 bytes of scales and minima, 16 `d`, 16 `dmin`.
pub struct Q2K;

const GROUP_BYTES: usize = 2 * PLANE;
const SCALES_AT: usize = 8 * GROUP_BYTES;
const D_AT: usize = SCALES_AT + 16 * PANEL;
const DMIN_AT: usize = D_AT + HALVES;

/// A group in registers.
#[derive(Clone, Copy)]
pub struct Group<S: Simd> {
    /// The numbers, with their scales.
    w: S::Folded,
    /// The minima of the two halves, as i16.
    minima: S::I,
    d: S::F,
    minus_dmin: S::F,
}

impl Format for Q2K {
    const TYPE: Type = Type::Q2_K;
    type Group<S: Simd> = Group<S>;

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        for g in 0..Self::GROUPS {
            put_pairs(&read_pairs(&block[QS..], g), row, &mut panel[g * GROUP_BYTES..]);
        }
        for i in 0..16 {
            panel[SCALES_AT + PANEL * i + row] = block[SCALES + i];
        }
        put_half(&block[D..], row, &mut panel[D_AT..]);
        put_half(&block[DMIN..], row, &mut panel[DMIN_AT..]);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        block[QS..D].fill(0);
        for g in 0..Self::GROUPS {
            write_pairs(&mut block[QS..], g, &get_pairs(&panel[g * GROUP_BYTES..], row));
        }
        for i in 0..16 {
            block[SCALES + i] = panel[SCALES_AT + PANEL * i + row];
        }
        get_half(&panel[D_AT..], row, &mut block[D..]);
        get_half(&panel[DMIN_AT..], row, &mut block[DMIN..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> Group<S> {
        let w = load_pairs(s, &panel[g * GROUP_BYTES..], first);
        let low = load_byte(s, &panel[SCALES_AT..], 2 * g, first);
        let high = load_byte(s, &panel[SCALES_AT..], 2 * g + 1, first);
        let low4 = s.splat_i(15);
        Group {
            w: s.fold::<0>(w, s.and_i(low, low4), s.and_i(high, low4)),
            minima: s.or_i(s.shr_i::<4>(low), s.shl_i::<16>(s.shr_i::<4>(high))),
            d: load_halves(s, &panel[D_AT..], first),
            minus_dmin: s.mul(load_halves(s, &panel[DMIN_AT..], first), s.splat(-1.0)),
        }
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, w: &Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        let isum = s.dot_folded::<0>(&w.w, &a.q, a.start.minus128, a.start.halves.pair);
        let acc = scaled(s, isum, w.d, a, acc);
        let minimum = s.dot_pair(w.minima, s.splat_i(a.start.halves.pair));
        scaled(s, minimum, w.minus_dmin, a, acc)
    }
}
