//! MXFP4: 4-bit floats (E2M1) with a power of two (E8M0) per 32 weights, 17 bytes. The OCP Microscaling Formats
//! specification, version 1.0, has the elements and the scale; the order of the codes is ggml's.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | `e`, the scale's exponent plus 127 |
//! | 1..17 | byte `j`: code `j` in the low nibble, code `j + 16` in the high one |
//!
//! `weight = 2^(e - 127) * value`, with the sign of `value` in bit 3 of the code and its magnitude, 0, 0.5, 1, 1.5, 2, 3,
//! 4 or 6, in the others. It is computed as [`half_scale`] times twice the value, a whole number of [`LEVELS`]. As in
//! ggml an exponent of 255, which the specification makes NaN, is a scale like the others, and there is no negative
//! zero.

use crate::block::block_format;
use crate::e2m1;
use crate::importance::{Weighed, or_alike};
use crate::nibbles;

pub use crate::e2m1::LEVELS;

block_format!(Mxfp4, MXFP4);

/// Offset of the scale's exponent.
pub const E: usize = 0;
/// Offset of the codes' nibbles.
pub const QS: usize = 1;

/// Half of the scale, `2^(e - 128)`; below an `e` of 2 that is a subnormal number.
#[inline]
pub const fn half_scale(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 1 << 21 << e } else { (e as u32 - 1) << 23 })
}

/// The codes of a block, in order of weights.
#[inline]
pub fn codes(block: &[u8; BLOCK_BYTES]) -> [u8; BLOCK_LEN] {
    nibbles::unpack(&std::array::from_fn(|j| block[QS + j]))
}

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let scale = half_scale(block[E]);
    for (out, code) in out.iter_mut().zip(codes(block)) {
        *out = f32::from(LEVELS[usize::from(code & 15)]) * scale;
    }
}

/// The specification's exponent puts the largest magnitude into 4..8, of which what is above 6 is clipped. The next one
/// clips nothing and has steps twice as wide. The better of the two is taken.
fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let largest = x.iter().fold(0.0f32, |largest, v| largest.max(v.abs()));
    // The exponent of `largest`, biased by 127, less 2; the weights are far below what 254 reaches.
    let clipping = ((largest.to_bits() >> 23) as u8).saturating_sub(2);
    let magnitudes = |e: u8| x.map(|v| v.abs() / half_scale(e));
    let w = or_alike(importance);
    let error = |e: u8| e2m1::squared_error(Weighed { x: &magnitudes(e), w: &w });
    // The second error is in units twice as large.
    let reaches = 4.0 * error(clipping + 1) < error(clipping);
    let e = if reaches { clipping + 1 } else { clipping };
    let codes = e2m1::codes(x, &magnitudes(e));
    let mut block = [0; BLOCK_BYTES];
    block[E] = e;
    block[QS..].copy_from_slice(&nibbles::pack(&codes));
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_documented() {
        let mut block = [0; BLOCK_BYTES];
        block[E] = 128;
        block[QS + 3] = 0xf5;
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        assert_eq!((x[3], x[19], x[0]), (6.0, -12.0, 0.0));
    }

    #[test]
    fn scales_are_powers_of_two() {
        for e in 0..=u8::MAX {
            assert_eq!(f64::from(half_scale(e)), 2f64.powi(i32::from(e) - 128));
        }
    }

    #[test]
    fn what_the_format_holds_is_found() {
        for power in [-126, -20, 0, 20] {
            let x: [f32; BLOCK_LEN] =
                std::array::from_fn(|j| f32::from(LEVELS[j * 5 % 16]) * 2f32.powi(power));
            let mut back = [0.0; BLOCK_LEN];
            decode_block(&encode_block(&x, None), &mut back);
            assert_eq!(back, x);
        }
    }

    #[test]
    fn the_scale_with_less_error_is_taken() {
        // One weight above 6, the others on levels of the finer scale; then all above 6.
        let mut x = [0.5; BLOCK_LEN];
        x[7] = 6.5;
        assert_eq!(encode_block(&x, None)[E], 127);
        let block = encode_block(&[-7.5; BLOCK_LEN], None);
        assert_eq!((block[E], codes(&block)), (128, [14; BLOCK_LEN]));
    }
}
