//! Q4_1: 4-bit codes with a scale and a minimum per 32 weights, 20 bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `d`, the scale, f16 |
//! | 2..4 | `m`, the minimum, f16 |
//! | 4..20 | byte `j`: code `j` in the low nibble, code `j + 16` in the high one |
//!
//! `weight = code * d + m`, with `code` in 0..=15.

use crate::affine;
use crate::block::{block_format, range};
use crate::half_float::{F16_MAX, f32_to_scale, inverse, scale_at};
use crate::importance::Weighed;
use crate::nibbles;

block_format!(Q4_1, Q4_1);

/// Offset of the scale `d`, f16.
pub const D: usize = 0;
/// Offset of the minimum `m`, f16.
pub const M: usize = 2;
/// Offset of the codes' nibbles.
pub const QS: usize = 4;

/// The codes of a block, in order of weights.
#[inline]
pub fn codes(block: &[u8; BLOCK_BYTES]) -> [u8; BLOCK_LEN] {
    nibbles::unpack(&std::array::from_fn(|j| block[QS + j]))
}

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let (d, m) = (scale_at(block, D), scale_at(block, M));
    for (out, q) in out.iter_mut().zip(codes(block)) {
        *out = f32::from(q) * d + m;
    }
}

/// The scale spans the block's range. Bit-equal to ggml's reference. With importances both numbers are searched for.
fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let (d, min, q) = if let Some(w) = importance {
        affine::encode_alone(Weighed { x, w }, 15)
    } else {
        let (min, max) = range(x);
        let min = min.clamp(-F16_MAX, F16_MAX);
        let d = ((max - min) / 15.0).min(F16_MAX);
        let id = inverse(d);
        let q = x.map(|v| (((v - min) * id + 0.5) as i32).clamp(0, 15) as u8);
        (f32_to_scale(d), f32_to_scale(min), q)
    };
    let mut block = [0; BLOCK_BYTES];
    block[D..D + 2].copy_from_slice(&d);
    block[M..M + 2].copy_from_slice(&min);
    block[QS..].copy_from_slice(&nibbles::pack(&q));
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_the_range_are_kept() {
        let mut x = [0.25; BLOCK_LEN];
        (x[3], x[20]) = (-1.0, 14.0);
        let block = encode_block(&x, None);
        let q = codes(&block);
        assert_eq!((scale_at(&block, D), scale_at(&block, M)), (1.0, -1.0));
        assert_eq!((q[3], q[20], q[0]), (0, 15, 1));
        let mut back = [0.0; BLOCK_LEN];
        decode_block(&block, &mut back);
        assert_eq!((back[3], back[20], back[0]), (-1.0, 14.0, 0.0));
    }
}
