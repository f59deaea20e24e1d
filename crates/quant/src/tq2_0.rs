//! TQ2_0: -1, 0 and 1, four to a byte, with a scale per 256 weights, 66 bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 0..64 | codes: byte `32 * h + l` has, in bits `2p` and `2p + 1`, that of weight `128 * h + 32 * p + l` |
//! | 64..66 | `d`, the scale, f16 |
//!
//! `weight = (code - 1) * d`, with `code` in 0..=2; 3 decodes too and is not made.

use crate::block::block_format;
use crate::half_float::scale_at;
use crate::{pairs, ternary};

block_format!(Tq2_0, TQ2_0);

/// Offset of the codes, 64 bytes.
pub const QS: usize = 0;
/// Offset of the scale `d`, f16.
pub const D: usize = 64;

/// The codes of a block, in order of weights.
#[inline]
pub fn codes(block: &[u8; BLOCK_BYTES]) -> [u8; BLOCK_LEN] {
    pairs::unpack(block, QS)
}

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = scale_at(block, D);
    for (out, code) in out.iter_mut().zip(codes(block)) {
        *out = f32::from(code as i8 - 1) * d;
    }
}

fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let (d, codes) = ternary::encode(x, importance);
    let mut block = [0; BLOCK_BYTES];
    block[QS..D].copy_from_slice(&pairs::pack(&codes));
    block[D..].copy_from_slice(&d);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_documented() {
        let mut block = [0; BLOCK_BYTES];
        block[D..].copy_from_slice(&[0, 0x40]); // 2
        block[QS + 32 + 20] = 0b11_10_01_00; // weights 148, 180, 212 and 244
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        assert_eq!((x[148], x[180], x[212], x[244], x[149]), (-2.0, 0.0, 2.0, 4.0, -2.0));
    }

    #[test]
    fn what_the_format_holds_is_found() {
        let x: [f32; BLOCK_LEN] = std::array::from_fn(|i| [0.0, 0.375, -0.375][i * 7 % 3]);
        let mut back = [0.0; BLOCK_LEN];
        decode_block(&encode_block(&x, None), &mut back);
        assert_eq!(back, x);
    }
}
