//! Q2_0: 2-bit codes with a scale per 64 weights, 18 bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `d`, the scale, f16 |
//! | 2..18 | codes: bits `2 (j % 4)` and above of byte `j / 4` are that of weight `j` |
//!
//! `weight = (code - 1) * d`, with `code` in 0..=3.

use crate::block::block_format;
use crate::half_float::scale_at;
use crate::symmetric::{self, Whole};

block_format!(Q2_0, Q2_0);

/// Offset of the scale `d`, f16.
pub const D: usize = 0;
/// Offset of the codes.
pub const QS: usize = 2;

/// The codes of a block, in order of weights.
#[inline]
pub fn codes(block: &[u8; BLOCK_BYTES]) -> [u8; BLOCK_LEN] {
    std::array::from_fn(|j| block[QS + j / 4] >> (j % 4 * 2) & 3)
}

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = scale_at(block, D);
    for (out, code) in out.iter_mut().zip(codes(block)) {
        *out = f32::from(code as i8 - 1) * d;
    }
}

/// The levels -1 to 2 under `d` are -2 to 1 under `-d`.
fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let (negated, levels) = symmetric::encode_alone::<Whole<2>, BLOCK_LEN>(x, importance);
    let mut block = [0; BLOCK_BYTES];
    block[D..QS].copy_from_slice(&[negated[0], negated[1] ^ 0x80]);
    for (j, level) in levels.iter().enumerate() {
        let code = (1 - level) as u8;
        block[QS + j / 4] |= code << (j % 4 * 2);
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_documented() {
        let mut block = [0; BLOCK_BYTES];
        block[D..QS].copy_from_slice(&[0, 0x40]); // 2
        block[QS + 3] = 0b11_10_01_00;
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        assert_eq!(x[11..17], [-2.0, -2.0, 0.0, 2.0, 4.0, -2.0]);
    }

    #[test]
    fn what_the_format_holds_is_found_on_either_side() {
        for sign in [1.0, -1.0] {
            let x: [f32; BLOCK_LEN] = std::array::from_fn(|j| sign * 0.25 * ((j * 5 % 4) as f32 - 1.0));
            let mut back = [0.0; BLOCK_LEN];
            decode_block(&encode_block(&x, None), &mut back);
            assert_eq!(back, x);
        }
    }
}
