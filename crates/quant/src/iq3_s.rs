//! IQ3_S: magnitudes in fours out of 512, a sign for each weight, a 4-bit scale per 32, 110 bytes per 256.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `d`, the scales' factor, f16 |
//! | 2..66 | the low eight bits of each four's code |
//! | 66..74 | the ninth bits of the codes of a group a byte, from the lowest bit up |
//! | 74..106 | the signs of each eight: bit `j` is set where weight `j` is negative |
//! | 106..110 | the scales of two groups a byte, the first in the low nibble |
//!
//! `weight = (d * (2 * scale + 1)) * ±magnitude`, with `scale` in 0..=15 and magnitudes as [`POINTS`] has them, odd numbers
//! from 1 to 15; all of it is exact.

use crate::block::block_format;
use crate::codebook::{self, Scales};
use crate::grids::fours_512::GRID;
use crate::half_float::scale_at;
use crate::signed::{Magnitudes, OfFour, Signed, signed};

block_format!(Iq3S, IQ3_S);

/// Weights that share a scale.
pub const GROUP_LEN: usize = 32;
/// Groups in a block.
pub const GROUPS: usize = BLOCK_LEN / GROUP_LEN;
/// Offset of the scales' factor `d`, f16.
pub const D: usize = 0;
/// Offset of the codes' low bits, 64 bytes.
pub const QS: usize = 2;
/// Offset of the codes' ninth bits, 8 bytes.
pub const QH: usize = 66;
/// Offset of the signs, 32 bytes.
pub const SIGNS: usize = 74;
/// Offset of the scales, 4 bytes.
pub const SCALES: usize = 106;

/// What the magnitudes' levels stand for.
pub const LEVELS: [i8; 8] = [1, 3, 5, 7, 9, 11, 13, 15];
/// The magnitudes of four weights, by code.
pub static POINTS: [[i8; 4]; 512] = GRID.points(LEVELS);

const BOOK: Signed<OfFour<512>> =
    Signed { magnitudes: OfFour { grid: &GRID, points: &POINTS, levels: LEVELS }, even: false };

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = scale_at(block, D);
    for (e, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let codes = [2 * e, 2 * e + 1].map(|four| {
            let high = block[QH + four / 8] >> (four % 8) & 1;
            u16::from_le_bytes([block[QS + four], high])
        });
        let scale = d * f32::from(2 * (block[SCALES + e / 8] >> (e / 4 % 2 * 4) & 15) + 1);
        *out = signed(BOOK.magnitudes.of(codes), block[SIGNS + e]).map(|v| scale * v);
    }
}

fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let encoded = codebook::encode::<_, 4, GROUPS>(&BOOK, Scales { top: 15, units: 1.0 }, x, importance);
    let mut block = [0; BLOCK_BYTES];
    block[D..QS].copy_from_slice(&encoded.d);
    for (g, group) in encoded.groups.iter().enumerate() {
        block[SCALES + g / 2] |= group.step << (g % 2 * 4);
        for (e, code) in (4 * g..).zip(&group.codes) {
            for (four, code) in (2 * e..).zip(code.magnitudes) {
                let [low, high] = code.to_le_bytes();
                block[QS + four] = low;
                block[QH + four / 8] |= high << (four % 8);
            }
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
        block[QS + 44] = 200; // the fours of eight 22, which is eight 2 of group 5
        block[QS + 45] = 7;
        block[QH + 5] = 1 << 5; // the second's ninth bit
        block[SIGNS + 22] = 0b1000_0100;
        block[SCALES + 2] = 0x30; // of groups 4 and 5
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        let mut want = BOOK.magnitudes.of([200, 263]).map(|v| 14.0 * f32::from(v));
        (want[2], want[7]) = (-want[2], -want[7]);
        assert_eq!(x[176..184], want);
        assert_eq!((x[175], x[184], x[159]), (14.0, 14.0, 2.0));
    }

    #[test]
    fn what_the_format_holds_is_found() {
        for seed in [12, 13] {
            let set = |block: &mut [u8; BLOCK_BYTES]| block[D..D + 2].copy_from_slice(&[7, 0x2c]);
            assert_kept(seed, set, decode_block, encode_block);
        }
    }
}
