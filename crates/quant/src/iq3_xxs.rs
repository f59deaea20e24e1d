//! IQ3_XXS: magnitudes in fours out of 256, seven signs for eight weights, a 4-bit scale per 32, 98 bytes per 256.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `d`, the scales' factor, f16 |
//! | 2..66 | the code of each four |
//! | 66..98 | a little-endian word for each group |
//!
//! Bits `7e..7e + 7` of the word are the signs of eight `e`, one each for its first seven weights; the number of negative
//! ones of the eight is even. Its top four bits are the group's scale.
//!
//! `weight = (d * (scale + 0.5) / 2) * ±magnitude`, with `scale` in 0..=15 and magnitudes as [`POINTS`] has them, even
//! numbers from 4 to 62; all of it is exact.

use crate::block::block_format;
use crate::codebook::{self, Scales};
use crate::grids::fours_256::GRID;
use crate::half_float::scale_at;
use crate::signed::{Magnitudes, OfFour, Signed, eighth_sign, signed};

block_format!(Iq3Xxs, IQ3_XXS);

/// Weights that share a scale.
pub const GROUP_LEN: usize = 32;
/// Groups in a block.
pub const GROUPS: usize = BLOCK_LEN / GROUP_LEN;
/// Offset of the scales' factor `d`, f16.
pub const D: usize = 0;
/// Offset of the codes, 64 bytes.
pub const QS: usize = 2;
/// Offset of the groups' signs and scales, 32 bytes.
pub const SIGNS: usize = 66;

/// What the magnitudes' levels stand for.
pub const LEVELS: [i8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];
/// The magnitudes of four weights, by code.
pub static POINTS: [[i8; 4]; 256] = GRID.points(LEVELS);

pub(crate) const BOOK: Signed<OfFour<256>> =
    Signed { magnitudes: OfFour { grid: &GRID, points: &POINTS, levels: LEVELS }, even: true };

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = scale_at(block, D);
    let groups = out.as_chunks_mut::<GROUP_LEN>().0.iter_mut().zip(block[SIGNS..].as_chunks().0);
    for (g, (out, word)) in groups.enumerate() {
        let word = u32::from_le_bytes(*word);
        let scale = d * (f32::from((word >> 28) as u8) + 0.5) * 0.5;
        for (e, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let codes = [0, 1].map(|half| u16::from(block[QS + 8 * g + 2 * e + half]));
            let signs = eighth_sign((word >> (7 * e)) as u8);
            *out = signed(BOOK.magnitudes.of(codes), signs).map(|v| scale * v);
        }
    }
}

fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let encoded = codebook::encode::<_, 4, GROUPS>(&BOOK, Scales { top: 15, units: 4.0 }, x, importance);
    let mut block = [0; BLOCK_BYTES];
    block[D..QS].copy_from_slice(&encoded.d);
    for (g, group) in encoded.groups.iter().enumerate() {
        let mut word = u32::from(group.step) << 28;
        for (e, code) in group.codes.iter().enumerate() {
            let at = QS + 8 * g + 2 * e;
            block[at..at + 2].copy_from_slice(&code.magnitudes.map(|code| code as u8));
            word |= u32::from(code.signs & 127) << (7 * e);
        }
        block[SIGNS + 4 * g..SIGNS + 4 * g + 4].copy_from_slice(&word.to_le_bytes());
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
        block[QS + 44] = 200; // the fours of eight 22, which is eight 2 of group 5
        block[QS + 45] = 7;
        let word: u32 = 0b100_0001 << 14 | 3 << 28;
        block[SIGNS + 20..SIGNS + 24].copy_from_slice(&word.to_le_bytes());
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        let mut want = BOOK.magnitudes.of([200, 7]).map(|v| 3.5 * f32::from(v));
        (want[0], want[6]) = (-want[0], -want[6]);
        assert_eq!(x[176..184], want);
        assert_eq!((x[175], x[184], x[192]), (14.0, 14.0, 2.0));
    }

    #[test]
    fn what_the_format_holds_is_found() {
        for seed in [12, 13] {
            let set = |block: &mut [u8; BLOCK_BYTES]| block[D..D + 2].copy_from_slice(&[7, 0x2c]);
            assert_kept(seed, set, decode_block, encode_block);
        }
    }
}
