//! IQ2_XXS: magnitudes in eights out of 256, seven signs for eight weights, a 4-bit scale per 32, 66 bytes per 256.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `d`, the scales' factor, f16 |
//! | 2..66 | group by group: four bytes, the eights' codes, then a little-endian word |
//!
//! Bits `7e..7e + 7` of the word are the signs of eight `e`, one each for its first seven weights; the number of negative
//! ones of the eight is even. Its top four bits are the group's scale.
//!
//! `weight = (d * (scale + 0.5) / 4) * ±magnitude`, with `scale` in 0..=15 and magnitudes of 8, 25 and 43 as [`POINTS`] has
//! them; all of it is exact.

use crate::block::block_format;
use crate::codebook::{self, Scales};
use crate::grids::eights_256::GRID;
use crate::half_float::scale_at;
use crate::signed::{OfEight, Signed, eighth_sign, signed};

block_format!(Iq2Xxs, IQ2_XXS);

/// Weights that share a scale.
pub const GROUP_LEN: usize = 32;
/// Groups in a block.
pub const GROUPS: usize = BLOCK_LEN / GROUP_LEN;
/// Offset of the scales' factor `d`, f16.
pub const D: usize = 0;
/// Offset of the groups, 8 bytes each.
pub const QS: usize = 2;

/// What the magnitudes' levels stand for.
pub const LEVELS: [i8; 3] = [8, 25, 43];
/// The magnitudes of eight weights, by code.
pub static POINTS: [[i8; 8]; 256] = GRID.points(LEVELS);

pub(crate) const BOOK: Signed<OfEight<256>> =
    Signed { magnitudes: OfEight { grid: &GRID, points: &POINTS, levels: LEVELS }, even: true };
const SCALES: Scales = Scales { top: 15, units: 8.0 };

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = scale_at(block, D);
    let groups = block[QS..].as_chunks::<8>().0;
    for (out, &[a, b, c, d4, e, f, g, h]) in out.as_chunks_mut::<GROUP_LEN>().0.iter_mut().zip(groups) {
        let word = u32::from_le_bytes([e, f, g, h]);
        let scale = d * (f32::from((word >> 28) as u8) + 0.5) * 0.25;
        for ((e, out), code) in out.as_chunks_mut::<8>().0.iter_mut().enumerate().zip([a, b, c, d4]) {
            let signs = eighth_sign((word >> (7 * e)) as u8);
            *out = signed(POINTS[usize::from(code)], signs).map(|v| scale * v);
        }
    }
}

fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let encoded = codebook::encode::<_, 4, GROUPS>(&BOOK, SCALES, x, importance);
    let mut block = [0; BLOCK_BYTES];
    block[D..QS].copy_from_slice(&encoded.d);
    for (bytes, group) in block[QS..].as_chunks_mut::<8>().0.iter_mut().zip(&encoded.groups) {
        let mut word = u32::from(group.step) << 28;
        for (e, code) in group.codes.iter().enumerate() {
            bytes[e] = code.magnitudes as u8;
            word |= u32::from(code.signs & 127) << (7 * e);
        }
        bytes[4..].copy_from_slice(&word.to_le_bytes());
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::assert_kept;

    #[test]
    fn fields_lie_where_documented() {
        let mut block = [0; BLOCK_BYTES];
        block[D..QS].copy_from_slice(&[0, 0x40]); // 2
        let group = QS + 8 * 5;
        block[group + 2] = 200; // the code of its eight 2
        // That one's signs, of which two are negative, and the scale.
        let word: u32 = 0b100_0001 << 14 | 3 << 28;
        block[group + 4..group + 8].copy_from_slice(&word.to_le_bytes());
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        let mut want = POINTS[200].map(|v| 1.75 * f32::from(v));
        (want[0], want[6]) = (-want[0], -want[6]);
        assert_eq!(x[176..184], want);
        assert_eq!((x[175], x[184], x[0]), (14.0, 14.0, 2.0));
    }

    #[test]
    fn what_the_format_holds_is_found() {
        for seed in [12, 13] {
            let set = |block: &mut [u8; BLOCK_BYTES]| block[D..D + 2].copy_from_slice(&[7, 0x2c]);
            assert_kept(seed, set, decode_block, encode_block);
        }
    }
}
