//! Q3_K (`d * sc * (q - 4)`): blocks of 256, signed 6-bit scales of 16 numbers each.

use cera_quant::Type;
use cera_quant::q3_k::{D, QH, QS, SCALES};

use super::pairs::{get_pairs, load_pairs, put_pairs, read_pairs, write_pairs};
use super::{
    ActGroup, Format, PANEL, PLANE, Steps, get_bits, get_half, high_pair, load_byte, load_halves, put_bits,
    put_half, put_word, scaled, word,
};
use crate::simd::{STEPS, Simd};

/// Panel block: 8 groups of pairs of bits and of third bits, 12 x 16 bytes of scales, 16 `d`.
pub struct Q3K;

const GROUP_BYTES: usize = 3 * PLANE;
const THIRD_AT: usize = 2 * PLANE;
const SCALES_AT: usize = 8 * GROUP_BYTES;
const SCALE_BYTES: usize = D - SCALES;
const D_AT: usize = SCALES_AT + SCALE_BYTES * PANEL;

/// Adds the third bits to the pairs.
#[inline(always)]
fn add_third<S: Simd>(s: S, w: &mut [S::B; STEPS], plane: &[u8], first: usize) {
    let v = s.load_b(&plane[4 * first..4 * (first + S::LANES)]);
    let bit = s.splat_b(4);
    w[0] = s.or_b(w[0], s.and_b(s.shl_b::<2>(v), bit));
    w[1] = s.or_b(w[1], s.and_b(s.shl_b::<1>(v), bit));
    w[2] = s.or_b(w[2], s.and_b(v, bit));
    w[3] = s.or_b(w[3], s.and_b(s.shr_b::<1>(v), bit));
    w[4] = s.or_b(w[4], s.and_b(s.shr_b::<2>(v), bit));
    w[5] = s.or_b(w[5], s.and_b(s.shr_b::<3>(v), bit));
    w[6] = s.or_b(w[6], s.and_b(s.shr_b::<4>(v), bit));
    w[7] = s.or_b(w[7], s.and_b(s.shr_b::<5>(v), bit));
}

/// `32 - scale` of half `half` (0..16) of a block, the six bits of the scale being in two pieces: -31..=32.
#[inline(always)]
fn load_scale<S: Simd>(s: S, part: &[u8], half: usize, first: usize) -> S::I {
    let low = load_byte(s, part, half % 8, first);
    let low = if half < 8 { s.and_i(low, s.splat_i(15)) } else { s.shr_i::<4>(low) };
    s.sub_i(s.splat_i(32), s.or_i(low, high_pair(s, load_byte(s, part, 8 + half % 4, first), half / 4)))
}

impl Format for Q3K {
    const TYPE: Type = Type::Q3_K;
    /// Numbers with the negated scales, and `-d`.
    type Group<S: Simd> = (S::Folded, S::F);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let part = &mut panel[g * GROUP_BYTES..];
            put_pairs(&read_pairs(&block[QS..], g), row, part);
            // Where `put_bits` wants them.
            let third: Steps = std::array::from_fn(|j| ((word(&block[QH..], j) >> g) & 0x0101_0101) << 4);
            put_bits(&third, row, &mut part[THIRD_AT..]);
        }
        for i in 0..SCALE_BYTES {
            panel[SCALES_AT + PANEL * i + row] = block[SCALES + i];
        }
        put_half(&block[D..], row, &mut panel[D_AT..]);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        block[..SCALES].fill(0);
        for g in 0..Self::GROUPS {
            let part = &panel[g * GROUP_BYTES..];
            write_pairs(&mut block[QS..], g, &get_pairs(part, row));
            for (j, third) in get_bits(&part[THIRD_AT..], row).into_iter().enumerate() {
                let v = word(&block[QH..], j) | (third >> 4) << g;
                put_word(&mut block[QH..], j, v);
            }
        }
        for i in 0..SCALE_BYTES {
            block[SCALES + i] = panel[SCALES_AT + PANEL * i + row];
        }
        get_half(&panel[D_AT..], row, &mut block[D..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> Self::Group<S> {
        let part = &panel[g * GROUP_BYTES..(g + 1) * GROUP_BYTES];
        let mut w = load_pairs(s, part, first);
        add_third(s, &mut w, &part[THIRD_AT..], first);
        // Products with the scales themselves reach 128, which no signed byte holds; with the negated ones, -128.
        let low = load_scale(s, &panel[SCALES_AT..], 2 * g, first);
        let high = load_scale(s, &panel[SCALES_AT..], 2 * g + 1, first);
        (s.fold::<4>(w, low, high), s.mul(load_halves(s, &panel[D_AT..], first), s.splat(-1.0)))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, d): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        let isum = s.dot_folded::<4>(w, &a.q, a.start.minus128, a.start.halves.pair);
        scaled(s, isum, *d, a, acc)
    }
}
