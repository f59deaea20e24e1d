//! Q1_0: signs alone, with a scale per 128 weights, 18 bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `d`, the scale, f16 |
//! | 2..18 | signs: bit `j % 8` of byte `j / 8` is set where weight `j` is positive |
//!
//! `weight = d` or `-d`.

use crate::block::block_format;
use crate::half_float::{f32_to_scale, scale_at};

block_format!(Q1_0, Q1_0);

/// Offset of the scale `d`, f16.
pub const D: usize = 0;
/// Offset of the signs.
pub const QS: usize = 2;

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = scale_at(block, D);
    for (out, byte) in out.as_chunks_mut::<8>().0.iter_mut().zip(&block[QS..]) {
        for (j, out) in out.iter_mut().enumerate() {
            *out = if byte >> j & 1 == 1 { d } else { -d };
        }
    }
}

/// The scale is the mean magnitude, which leaves the least squared error. Bit-equal to ggml's reference.
fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let mean = match importance {
        None => x.iter().map(|v| v.abs()).sum::<f32>() / BLOCK_LEN as f32,
        Some(w) => x.iter().zip(w).map(|(v, w)| v.abs() * w).sum::<f32>() / w.iter().sum::<f32>(),
    };
    let mut block = [0; BLOCK_BYTES];
    block[D..QS].copy_from_slice(&f32_to_scale(mean));
    for (byte, x) in block[QS..].iter_mut().zip(x.as_chunks::<8>().0) {
        *byte = x.iter().rev().fold(0, |byte, &v| byte << 1 | u8::from(v >= 0.0));
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
        block[QS + 3] = 1 << 5;
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        assert_eq!((x[29], x[28], x[127]), (2.0, -2.0, -2.0));
    }

    #[test]
    fn the_scale_is_the_mean_by_importance() {
        let x: [f32; BLOCK_LEN] = std::array::from_fn(|j| if j < 64 { -1.0 } else { 3.0 });
        let mut back = [0.0; BLOCK_LEN];
        decode_block(&encode_block(&x, None), &mut back);
        assert_eq!((back[63], back[64]), (-2.0, 2.0));
        let importance = std::array::from_fn(|j| if j < 64 { 1.5 } else { 0.5 });
        decode_block(&encode_block(&x, Some(&importance)), &mut back);
        assert_eq!((back[63], back[64]), (-1.5, 1.5));
    }
}
