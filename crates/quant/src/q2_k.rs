//! Q2_K: 2-bit codes with a 4-bit scale and minimum per 16 weights, 84 bytes per 256.
//!
//! | bytes | what |
//! |---|---|
//! | 0..16 | group by group: the scale in the low nibble, the minimum in the high one |
//! | 16..80 | codes: byte `32 * h + l` has, in bits `2p` and `2p + 1`, that of weight `128 * h + 32 * p + l` |
//! | 80..82 | `d`, the scales' factor, f16 |
//! | 82..84 | `dmin`, the minimums' factor, f16 |
//!
//! `weight = (d * scale) * code - (dmin * min)`, with `code` in 0..=3; each operation rounds to f32.

use crate::affine::{self, Limits};
use crate::block::block_format;
use crate::half_float::scale_at;
use crate::pairs;

block_format!(Q2K, Q2_K);

/// Weights that share a scale and a minimum.
pub const GROUP_LEN: usize = 16;
/// Groups in a block.
pub const GROUPS: usize = BLOCK_LEN / GROUP_LEN;
/// Offset of the scales and minimums, 16 bytes.
pub const SCALES: usize = 0;
/// Offset of the codes, 64 bytes.
pub const QS: usize = 16;
/// Offset of the scales' factor `d`, f16.
pub const D: usize = 80;
/// Offset of the minimums' factor `dmin`, f16.
pub const DMIN: usize = 82;

/// The codes of a block, in order of weights.
#[inline]
pub fn codes(block: &[u8; BLOCK_BYTES]) -> [u8; BLOCK_LEN] {
    pairs::unpack(block, QS)
}

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let (d, dmin) = (scale_at(block, D), scale_at(block, DMIN));
    let codes = codes(block);
    let groups = out.as_chunks_mut::<GROUP_LEN>().0.iter_mut().zip(codes.as_chunks::<GROUP_LEN>().0);
    for ((out, codes), &both) in groups.zip(&block[SCALES..QS]) {
        let (scale, min) = (d * f32::from(both & 15), dmin * f32::from(both >> 4));
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = scale * f32::from(code) - min;
        }
    }
}

fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let encoded = affine::encode::<GROUP_LEN, GROUPS>(x, importance, Limits { code: 3, step: 15 });
    let mut block = [0; BLOCK_BYTES];
    let mut codes = [0; BLOCK_LEN];
    for ((g, group), codes) in encoded.groups.iter().enumerate().zip(codes.as_chunks_mut().0) {
        block[SCALES + g] = group.scale | group.min << 4;
        *codes = group.codes;
    }
    block[QS..D].copy_from_slice(&pairs::pack(&codes));
    block[D..DMIN].copy_from_slice(&encoded.d);
    block[DMIN..].copy_from_slice(&encoded.dmin);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_documented() {
        let mut block = [0; BLOCK_BYTES];
        block[D..].copy_from_slice(&[0, 0x3c, 0, 0x40]); // 1 and 2
        block[SCALES + 9] = 0x53; // scale and minimum of weights 144 to 159
        block[QS + 32 + 20] = 0b10; // weight 128 + 20
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        assert_eq!((x[148], x[149], x[143], x[160]), (-4.0, -10.0, 0.0, 0.0));
        assert_eq!(codes(&block)[148], 2);
    }

    #[test]
    fn what_the_format_holds_is_found() {
        // Every group uses all its codes; scales 15 and 5, minimums 15 and 10, factors 2^-6.
        let x: [f32; BLOCK_LEN] = std::array::from_fn(|i| {
            let (scale, min) = if (i / GROUP_LEN).is_multiple_of(2) { (15.0, 15.0) } else { (5.0, 10.0) };
            (scale * (i * 5 % 4) as f32 - min) / 64.0
        });
        let mut back = [0.0; BLOCK_LEN];
        decode_block(&encode_block(&x, None), &mut back);
        assert_eq!(back, x);
    }
}
