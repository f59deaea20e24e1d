//! IQ1_S: shifted -1, 0 and 1 in eights out of 2,048, a 3-bit scale and a shift per 32 weights, 50 bytes per 256.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `d`, the scales' factor, f16 |
//! | 2..34 | the low eight bits of each eight's code |
//! | 34..50 | a little-endian word of 16 bits for each group |
//!
//! Bits `3e..3e + 3` of the word are the high ones of the code of eight `e`. Bits 12 to 14 are the scale, and bit 15 is set
//! if the shift is down.
//!
//! `weight = (d * (2 * scale + 1)) * (value ± 1/8)`, with `scale` in 0..=7 and values as [`POINTS`] has them; all of it is
//! exact.

use crate::block::block_format;
use crate::codebook::{self, Scales};
use crate::half_float::scale_at;
use crate::shifted::{Shifted, shifted};

pub use crate::shifted::{POINTS, SHIFT};

block_format!(Iq1S, IQ1_S);

/// Weights that share a scale and a shift.
pub const GROUP_LEN: usize = 32;
/// Groups in a block.
pub const GROUPS: usize = BLOCK_LEN / GROUP_LEN;
/// Offset of the scales' factor `d`, f16.
pub const D: usize = 0;
/// Offset of the codes' low bits, 32 bytes.
pub const QS: usize = 2;
/// Offset of the groups' words, 16 bytes.
pub const QH: usize = 34;

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = scale_at(block, D);
    let groups = out.as_chunks_mut::<GROUP_LEN>().0.iter_mut().zip(block[QH..].as_chunks().0);
    for (g, (out, word)) in groups.enumerate() {
        let word = u16::from_le_bytes(*word);
        let scale = d * f32::from(2 * (word >> 12 & 7) + 1);
        for (e, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let point = u16::from(block[QS + 4 * g + e]) | (word >> (3 * e) & 7) << 8;
            *out = shifted(point, word >> 15 == 1).map(|v| scale * v);
        }
    }
}

fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let (book, scales) = (Shifted { together: true }, Scales { top: 7, units: 1.0 });
    let encoded = codebook::encode::<_, 4, GROUPS>(&book, scales, x, importance);
    let mut block = [0; BLOCK_BYTES];
    block[D..QS].copy_from_slice(&encoded.d);
    for (g, group) in encoded.groups.iter().enumerate() {
        let mut word = u16::from(group.step) << 12 | u16::from(group.codes[0].down) << 15;
        for (e, code) in group.codes.iter().enumerate() {
            block[QS + 4 * g + e] = code.point as u8;
            word |= code.point >> 8 << (3 * e);
        }
        block[QH + 2 * g..QH + 2 * g + 2].copy_from_slice(&word.to_le_bytes());
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
        block[QS + 22] = 1500u16 as u8; // of eight 22, which is eight 2 of group 5
        let word: u16 = 1500 >> 8 << 6 | 3 << 12 | 1 << 15;
        block[QH + 10..QH + 12].copy_from_slice(&word.to_le_bytes());
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        assert_eq!(x[176..184], POINTS[1500].map(|v| 14.0 * (f32::from(v) - 0.125)));
        // Code 0 is all -1.
        assert_eq!((x[175], x[184], x[159]), (-15.75, -15.75, -1.75));
    }

    #[test]
    fn what_the_format_holds_is_found() {
        for seed in [12, 13] {
            let set = |block: &mut [u8; BLOCK_BYTES]| block[D..D + 2].copy_from_slice(&[7, 0x2c]);
            assert_kept(seed, set, decode_block, encode_block);
        }
    }
}
