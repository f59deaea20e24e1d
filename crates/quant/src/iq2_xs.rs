//! IQ2_XS: magnitudes in eights out of 512, seven signs for eight weights, a 4-bit scale per 16, 74 bytes per 256.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `d`, the scales' factor, f16 |
//! | 2..66 | a little-endian word of 16 bits for each eight: its code in the low nine bits, signs in the others |
//! | 66..74 | the scales of two groups a byte, the first in the low nibble |
//!
//! The signs are those of the first seven weights of the eight; the number of negative ones of the eight is even.
//!
//! `weight = (d * (scale + 0.5) / 4) * ±magnitude`, with `scale` in 0..=15 and magnitudes of 8, 25 and 43 as [`POINTS`] has
//! them; all of it is exact.

use crate::block::block_format;
use crate::codebook::{self, Scales};
use crate::grids::eights_512::GRID;
use crate::half_float::scale_at;
use crate::signed::{OfEight, Signed, eighth_sign, signed};

block_format!(Iq2Xs, IQ2_XS);

/// Weights that share a scale.
pub const GROUP_LEN: usize = 16;
/// Groups in a block.
pub const GROUPS: usize = BLOCK_LEN / GROUP_LEN;
/// Offset of the scales' factor `d`, f16.
pub const D: usize = 0;
/// Offset of the eights' words, 64 bytes.
pub const QS: usize = 2;
/// Offset of the scales, 8 bytes.
pub const SCALES: usize = 66;

/// What the magnitudes' levels stand for.
pub const LEVELS: [i8; 3] = [8, 25, 43];
/// The magnitudes of eight weights, by code.
pub static POINTS: [[i8; 8]; 512] = GRID.points(LEVELS);

const BOOK: Signed<OfEight<512>> =
    Signed { magnitudes: OfEight { grid: &GRID, points: &POINTS, levels: LEVELS }, even: true };

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = scale_at(block, D);
    for (e, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let word = u16::from_le_bytes([block[QS + 2 * e], block[QS + 2 * e + 1]]);
        let scale = d * (f32::from(block[SCALES + e / 4] >> (e / 2 % 2 * 4) & 15) + 0.5) * 0.25;
        let signs = eighth_sign((word >> 9) as u8);
        *out = signed(POINTS[usize::from(word & 511)], signs).map(|v| scale * v);
    }
}

fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let encoded = codebook::encode::<_, 2, GROUPS>(&BOOK, Scales { top: 15, units: 8.0 }, x, importance);
    let mut block = [0; BLOCK_BYTES];
    block[D..QS].copy_from_slice(&encoded.d);
    for (g, group) in encoded.groups.iter().enumerate() {
        block[SCALES + g / 2] |= group.step << (g % 2 * 4);
        for (e, code) in group.codes.iter().enumerate() {
            let word = code.magnitudes | u16::from(code.signs & 127) << 9;
            let at = QS + 2 * (2 * g + e);
            block[at..at + 2].copy_from_slice(&word.to_le_bytes());
        }
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
        let word: u16 = 300 | 0b100_0001 << 9; // of eight 22, with two negative signs
        block[QS + 44..QS + 46].copy_from_slice(&word.to_le_bytes());
        block[SCALES + 5] = 0x30; // of groups 10 and 11
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        let mut want = POINTS[300].map(|v| 1.75 * f32::from(v));
        (want[0], want[6]) = (-want[0], -want[6]);
        assert_eq!(x[176..184], want);
        assert_eq!((x[175], x[184], x[192]), (2.0, 14.0, 2.0));
    }

    #[test]
    fn what_the_format_holds_is_found() {
        for seed in [12, 13] {
            let set = |block: &mut [u8; BLOCK_BYTES]| block[D..D + 2].copy_from_slice(&[7, 0x2c]);
            assert_kept(seed, set, decode_block, encode_block);
        }
    }
}
