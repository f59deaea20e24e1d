//! Q6_K (`d * sc * (q - 32)`): blocks of 256, signed 8-bit scales of 16 numbers each.

use cera_quant::Type;

use super::pairs::{get_pairs, put_pairs, read_pairs, write_pairs};
use super::{
    ActGroup, Format, NIBBLES, PANEL, PLANE, get_half, get_nibbles, load_halves, load_nibbles, put_half,
    put_nibbles, put_word, scaled, word,
};
use crate::simd::{HalfScales, STEPS, Simd};

/// Panel block: 8 groups of nibbles and pairs of high bits, 16 x 16 scales, 16 `d`.
pub struct Q6K;

const GROUP_BYTES: usize = NIBBLES + 2 * PLANE;
const SCALES_AT: usize = 8 * GROUP_BYTES;
const D_AT: usize = SCALES_AT + 16 * PANEL;

/// Where the file keeps the parts of a block.
const FILE_HIGH: usize = 128;
const FILE_SCALES: usize = 192;
const FILE_D: usize = 208;

/// Word `j` of the nibbles of group `g` in the file, and their shift: a half block of 128 numbers keeps four groups in
/// 64 bytes.
fn place(g: usize, j: usize) -> (usize, usize) {
    let (half, q) = (g / 4, g % 4);
    (16 * half + 8 * (q % 2) + j, 4 * (q / 2))
}

impl Format for Q6K {
    const TYPE: Type = Type::Q6_K;
    type Group<S: Simd> = ([S::B; STEPS], HalfScales<S>, S::F);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let nibbles = std::array::from_fn(|j| {
                let (at, shift) = place(g, j);
                word(block, at) >> shift
            });
            let part = &mut panel[g * GROUP_BYTES..];
            put_nibbles(&nibbles, row, part);
            put_pairs(&read_pairs(&block[FILE_HIGH..], g), row, &mut part[NIBBLES..]);
        }
        for i in 0..16 {
            panel[SCALES_AT + PANEL * i + row] = block[FILE_SCALES + i];
        }
        put_half(&block[FILE_D..], row, &mut panel[D_AT..]);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        block[..FILE_SCALES].fill(0);
        for g in 0..Self::GROUPS {
            let part = &panel[g * GROUP_BYTES..];
            for (j, nibbles) in get_nibbles(part, row).into_iter().enumerate() {
                let (at, shift) = place(g, j);
                let v = word(block, at) | nibbles << shift;
                put_word(block, at, v);
            }
            write_pairs(&mut block[FILE_HIGH..], g, &get_pairs(&part[NIBBLES..], row));
        }
        for i in 0..16 {
            block[FILE_SCALES + i] = panel[SCALES_AT + PANEL * i + row];
        }
        get_half(&panel[D_AT..], row, &mut block[FILE_D..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> Self::Group<S> {
        let part = &panel[g * GROUP_BYTES..(g + 1) * GROUP_BYTES];
        let mut w = load_nibbles(s, part, first);
        let bits = s.splat_b(0x30);
        for h in 0..2 {
            let at = NIBBLES + PLANE * h;
            let v = s.load_b(&part[at + 4 * first..at + 4 * (first + S::LANES)]);
            let w = &mut w[4 * h..4 * h + 4];
            w[0] = s.or_b(w[0], s.and_b(s.shl_b::<4>(v), bits));
            w[1] = s.or_b(w[1], s.and_b(s.shl_b::<2>(v), bits));
            w[2] = s.or_b(w[2], s.and_b(v, bits));
            w[3] = s.or_b(w[3], s.and_b(s.shr_b::<2>(v), bits));
        }
        let scales = &panel[SCALES_AT + 2 * PANEL * g..SCALES_AT + 2 * PANEL * (g + 1)];
        let low = &scales[first..first + S::LANES];
        let high = &scales[PANEL + first..PANEL + first + S::LANES];
        (w, HalfScales::load(s, low, high), load_halves(s, &panel[D_AT..], first))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, sc, d): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        scaled(s, s.dot_halves(w, &a.q, sc, &a.start.halves), *d, a, acc)
    }
}
