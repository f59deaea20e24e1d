//! Q5_0: 5-bit codes with a scale per 32 weights, 22 bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `d`, the scale, f16 |
//! | 2..6 | bit 4 of code `j` in bit `j` of a little-endian word |
//! | 6..22 | byte `j`: low bits of code `j` in the low nibble, of code `j + 16` in the high one |
//!
//! `weight = (code - 16) * d`, with `code` in 0..=31.

use crate::block::{block_format, extreme};
use crate::half_float::{F16_MAX, f32_to_scale, inverse, scale_at};
use crate::nibbles;
use crate::symmetric::{self, Whole};

block_format!(Q5_0, Q5_0);

/// Offset of the scale `d`, f16.
pub const D: usize = 0;
/// Offset of the codes' fifth bits, a little-endian word.
pub const QH: usize = 2;
/// Offset of the codes' low four bits.
pub const QS: usize = 6;

/// The codes of a block, in order of weights.
#[inline]
pub fn codes(block: &[u8; BLOCK_BYTES]) -> [u8; BLOCK_LEN] {
    let qh = u32::from_le_bytes([block[QH], block[QH + 1], block[QH + 2], block[QH + 3]]);
    nibbles::unpack_5(&std::array::from_fn(|j| block[QS + j]), qh)
}

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = scale_at(block, D);
    for (out, q) in out.iter_mut().zip(codes(block)) {
        *out = f32::from(q as i8 - 16) * d;
    }
}

/// The weight of largest magnitude gets code 0, which reaches one step further than code 31.
/// Bit-equal to ggml's reference. With importances the scale is searched for.
fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let (d, q) = if importance.is_some() {
        let (d, levels) = symmetric::encode_alone::<Whole<16>, BLOCK_LEN>(x, importance);
        (d, levels.map(|level| (level + 16) as u8))
    } else {
        let d = (extreme(x) / -16.0).clamp(-F16_MAX, F16_MAX);
        let id = inverse(d);
        (f32_to_scale(d), x.map(|v| ((v * id + 16.5) as i32).clamp(0, 31) as u8))
    };
    let mut block = [0; BLOCK_BYTES];
    block[D..D + 2].copy_from_slice(&d);
    block[QH..QH + 4].copy_from_slice(&nibbles::pack_bit_4(&q).to_le_bytes());
    block[QS..].copy_from_slice(&nibbles::pack(&q));
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extreme_is_kept_and_the_other_side_is_clipped() {
        let mut x = [0.6; BLOCK_LEN];
        (x[3], x[20]) = (-16.0, 16.0);
        let block = encode_block(&x, None);
        let q = codes(&block);
        assert_eq!(scale_at(&block, D), 1.0);
        assert_eq!((q[3], q[20], q[0]), (0, 31, 17));
        let mut back = [0.0; BLOCK_LEN];
        decode_block(&block, &mut back);
        assert_eq!((back[3], back[20], back[0]), (-16.0, 15.0, 1.0));
    }
}
