//! Q5_K: Q4_K with a fifth bit of each number.

use cera_quant::Type;

use super::q4_k::{KGroup, accumulate, load_scales, pack_scales, read_nibbles, unpack_scales, write_nibbles};
use super::{
    ActGroup, Format, NIBBLES, PLANE, add_bits, get_bits, get_nibbles, load_nibbles, put_bits, put_nibbles,
    put_word, word,
};
use crate::simd::Simd;

/// Panel block: 8 groups of nibbles and fifth bits, 12 x 16 bytes of scales, 16 `d`, 16 `dmin`.
pub struct Q5K;

const GROUP_BYTES: usize = NIBBLES + PLANE;
const SCALES_AT: usize = 8 * GROUP_BYTES;
/// In the file: bit `g` of byte `i` belongs to number `i` of group `g`.
const HIGH: std::ops::Range<usize> = 16..48;
const LOW: std::ops::RangeFrom<usize> = 48..;

impl Format for Q5K {
    const TYPE: Type = Type::Q5_K;
    type Group<S: Simd> = KGroup<S>;

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        pack_scales(block, row, &mut panel[SCALES_AT..]);
        for g in 0..Self::GROUPS {
            let part = &mut panel[g * GROUP_BYTES..];
            put_nibbles(&read_nibbles(&block[LOW], g), row, part);
            let high = std::array::from_fn(|j| ((word(&block[HIGH], j) >> g) & 0x0101_0101) << 4);
            put_bits(&high, row, &mut part[NIBBLES..]);
        }
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        unpack_scales(&panel[SCALES_AT..], row, block);
        block[16..].fill(0);
        for g in 0..Self::GROUPS {
            let part = &panel[g * GROUP_BYTES..];
            write_nibbles(&mut block[LOW], g, &get_nibbles(part, row));
            for (j, high) in get_bits(&part[NIBBLES..], row).into_iter().enumerate() {
                let v = word(&block[HIGH], j) | (high >> 4) << g;
                put_word(&mut block[HIGH], j, v);
            }
        }
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> KGroup<S> {
        let (d, m) = load_scales(s, &panel[SCALES_AT..], g, first);
        let part = &panel[g * GROUP_BYTES..(g + 1) * GROUP_BYTES];
        let mut w = load_nibbles(s, part, first);
        add_bits(s, &mut w, &part[NIBBLES..], first);
        (w, d, m)
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, d, m): &KGroup<S>, a: &ActGroup, acc: S::F) -> S::F {
        accumulate(s, s.dot_unsigned::<31>(w, &a.q, 0), *d, *m, a, acc)
    }
}
