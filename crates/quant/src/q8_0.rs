//! Q8_0: 8-bit codes with a scale per 32 weights, 34 bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `d`, the scale, f16 |
//! | 2..34 | codes, i8, in order |
//!
//! `weight = code * d`.

use crate::block::{block_format, extreme};
use crate::half_float::{F16_MAX, f32_to_scale, inverse, scale_at};

block_format!(Q8_0, Q8_0);

/// Offset of the scale `d`, f16.
pub const D: usize = 0;
/// Offset of the codes, i8.
pub const QS: usize = 2;

/// The codes of a block, in order of weights.
#[inline]
pub fn codes(block: &[u8; BLOCK_BYTES]) -> [i8; BLOCK_LEN] {
    std::array::from_fn(|j| block[QS + j] as i8)
}

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = scale_at(block, D);
    for (out, q) in out.iter_mut().zip(codes(block)) {
        *out = f32::from(q) * d;
    }
}

/// The largest magnitude gets code 127 or -127; halves round away from zero. Bit-equal to ggml's reference.
fn encode_block(x: &[f32; BLOCK_LEN], _: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let d = (extreme(x).abs() / 127.0).min(F16_MAX);
    let id = inverse(d);
    let mut block = [0; BLOCK_BYTES];
    block[D..D + 2].copy_from_slice(&f32_to_scale(d));
    for (q, v) in block[QS..].iter_mut().zip(x) {
        *q = ((v * id).round() as i32).clamp(-127, 127) as u8;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_away_from_zero() {
        let mut x = [2.5; BLOCK_LEN];
        (x[1], x[30], x[31]) = (-127.0, -2.5, 0.25);
        let block = encode_block(&x, None);
        let q = codes(&block);
        assert_eq!(scale_at(&block, D), 1.0);
        assert_eq!((q[0], q[1], q[30], q[31]), (3, -127, -3, 0));
        let mut back = [0.0; BLOCK_LEN];
        decode_block(&block, &mut back);
        assert_eq!((back[0], back[1], back[31]), (3.0, -127.0, 0.0));
    }
}
