//! IQ1_M: shifted -1, 0 and 1 in eights out of 2,048, a shift for each eight, a 3-bit scale per 16, 56 bytes per 256.
//!
//! | bytes | what |
//! |---|---|
//! | 0..32 | the low eight bits of each eight's code |
//! | 32..48 | two eights a byte, the first in the low nibble: the code's high three bits, and one that is set if the shift is down |
//! | 48..56 | four little-endian words of 16 bits: four scales each from the lowest bits up, a nibble of `d` on top |
//!
//! The nibbles make up `d`, the scales' factor, f16, the first word's being the lowest.
//!
//! `weight = (d * (2 * scale + 1)) * (value ± 1/8)`, with `scale` in 0..=7 and values as [`POINTS`] has them; all of it is
//! exact.

use crate::block::block_format;
use crate::codebook::{self, Scales};
use crate::half_float::f16_to_f32;
use crate::shifted::{Shifted, shifted};

pub use crate::shifted::{POINTS, SHIFT};

block_format!(Iq1M, IQ1_M);

/// Weights that share a scale.
pub const GROUP_LEN: usize = 16;
/// Groups in a block.
pub const GROUPS: usize = BLOCK_LEN / GROUP_LEN;
/// Offset of the codes' low bits, 32 bytes.
pub const QS: usize = 0;
/// Offset of the codes' high bits and the shifts, 16 bytes.
pub const QH: usize = 32;
/// Offset of the scales and their factor, 8 bytes.
pub const SCALES: usize = 48;

/// The words with the scales and the factor.
#[inline]
fn words(block: &[u8; BLOCK_BYTES]) -> [u16; 4] {
    std::array::from_fn(|i| u16::from_le_bytes([block[SCALES + 2 * i], block[SCALES + 2 * i + 1]]))
}

/// The scales' factor `d` of a block.
#[inline]
pub fn factor(block: &[u8; BLOCK_BYTES]) -> f32 {
    f16_to_f32(words(block).iter().rev().fold(0, |d, word| d << 4 | word >> 12))
}

/// The scales of a block (0..=7), in order of groups.
#[inline]
pub fn scales(block: &[u8; BLOCK_BYTES]) -> [u8; GROUPS] {
    let words = words(block);
    std::array::from_fn(|g| (words[g / 4] >> (g % 4 * 3) & 7) as u8)
}

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let (d, scales) = (factor(block), scales(block));
    for (e, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let high = block[QH + e / 2] >> (e % 2 * 4);
        let point = u16::from_le_bytes([block[QS + e], high & 7]);
        let scale = d * f32::from(2 * scales[e / 2] + 1);
        *out = shifted(point, high & 8 != 0).map(|v| scale * v);
    }
}

fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let (book, scales) = (Shifted { together: false }, Scales { top: 7, units: 1.0 });
    let encoded = codebook::encode::<_, 2, GROUPS>(&book, scales, x, importance);
    let mut block = [0; BLOCK_BYTES];
    let d = u16::from_le_bytes(encoded.d);
    let mut words = [0, 4, 8, 12].map(|shift| d >> shift << 12);
    for (g, group) in encoded.groups.iter().enumerate() {
        words[g / 4] |= u16::from(group.step) << (g % 4 * 3);
        for (e, code) in (2 * g..).zip(&group.codes) {
            let [low, high] = code.point.to_le_bytes();
            block[QS + e] = low;
            block[QH + e / 2] |= (high | u8::from(code.down) << 3) << (e % 2 * 4);
        }
    }
    for (bytes, word) in block[SCALES..].as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
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
        block[SCALES + 1] = 0x50; // d is 0x4005
        block[SCALES + 7] = 0x40;
        block[SCALES + 5] = 0b110; // the scale of group 11: bits 9 to 11 of the third word
        block[QS + 22] = 1500u16 as u8; // of eight 22
        block[QH + 11] = (1500u16 >> 8) as u8 | 8;
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        let d = f16_to_f32(0x4005);
        assert_eq!((factor(&block), scales(&block)[11]), (d, 3));
        assert_eq!(x[176..184], POINTS[1500].map(|v| 7.0 * d * (f32::from(v) - 0.125)));
        // Code 0 is all -1.
        assert_eq!((x[175], x[184]), (-0.875 * d, -0.875 * 7.0 * d));
    }

    #[test]
    fn what_the_format_holds_is_found() {
        for seed in [12, 13] {
            let set = |block: &mut [u8; BLOCK_BYTES]| {
                for (word, nibble) in [7, 0, 12, 2].into_iter().enumerate() {
                    let byte = &mut block[SCALES + 2 * word + 1];
                    *byte = *byte & 15 | nibble << 4;
                }
            };
            assert_kept(seed, set, decode_block, encode_block);
        }
    }
}
