//! IQ2_S: magnitudes in eights out of 1,024, a sign for each weight, a 4-bit scale per 16, 82 bytes per 256.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `d`, the scales' factor, f16 |
//! | 2..34 | the low eight bits of each eight's code |
//! | 34..66 | the signs of each eight: bit `j` is set where weight `j` is negative |
//! | 66..74 | the high two bits of four codes a byte, from the lowest bits up |
//! | 74..82 | the scales of two groups a byte, the first in the low nibble |
//!
//! `weight = (d * (scale + 0.5) / 4) * ±magnitude`, with `scale` in 0..=15 and magnitudes of 8, 25 and 43 as [`POINTS`] has
//! them; all of it is exact.

use crate::block::block_format;
use crate::codebook::{self, Scales};
use crate::grids::eights_1024::GRID;
use crate::half_float::scale_at;
use crate::signed::{OfEight, Signed, signed};

block_format!(Iq2S, IQ2_S);

/// Weights that share a scale.
pub const GROUP_LEN: usize = 16;
/// Groups in a block.
pub const GROUPS: usize = BLOCK_LEN / GROUP_LEN;
/// Offset of the scales' factor `d`, f16.
pub const D: usize = 0;
/// Offset of the codes' low bits, 32 bytes.
pub const QS: usize = 2;
/// Offset of the signs, 32 bytes.
pub const SIGNS: usize = 34;
/// Offset of the codes' high bits, 8 bytes.
pub const QH: usize = 66;
/// Offset of the scales, 8 bytes.
pub const SCALES: usize = 74;

/// What the magnitudes' levels stand for.
pub const LEVELS: [i8; 3] = [8, 25, 43];
/// The magnitudes of eight weights, by code.
pub static POINTS: [[i8; 8]; 1024] = GRID.points(LEVELS);

const BOOK: Signed<OfEight<1024>> =
    Signed { magnitudes: OfEight { grid: &GRID, points: &POINTS, levels: LEVELS }, even: false };

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = scale_at(block, D);
    for (e, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let high = block[QH + e / 4] >> (e % 4 * 2) & 3;
        let code = u16::from_le_bytes([block[QS + e], high]);
        let scale = d * (f32::from(block[SCALES + e / 4] >> (e / 2 % 2 * 4) & 15) + 0.5) * 0.25;
        *out = signed(POINTS[usize::from(code)], block[SIGNS + e]).map(|v| scale * v);
    }
}

fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let encoded = codebook::encode::<_, 2, GROUPS>(&BOOK, Scales { top: 15, units: 8.0 }, x, importance);
    let mut block = [0; BLOCK_BYTES];
    block[D..QS].copy_from_slice(&encoded.d);
    for (g, group) in encoded.groups.iter().enumerate() {
        block[SCALES + g / 2] |= group.step << (g % 2 * 4);
        for (e, code) in (2 * g..).zip(&group.codes) {
            let [low, high] = code.magnitudes.to_le_bytes();
            block[QS + e] = low;
            block[QH + e / 4] |= high << (e % 4 * 2);
            block[SIGNS + e] = code.signs;
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
        block[QS + 22] = 900u16 as u8; // of eight 22
        block[QH + 5] = (900u16 >> 8 << 4) as u8;
        block[SIGNS + 22] = 0b1000_0100;
        block[SCALES + 5] = 0x30; // of groups 10 and 11
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        let mut want = POINTS[900].map(|v| 1.75 * f32::from(v));
        (want[2], want[7]) = (-want[2], -want[7]);
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
