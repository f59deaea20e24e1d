//! Q5_K: 5-bit codes with a 6-bit scale and minimum per 32 weights, 176 bytes per 256.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `d`, the scales' factor, f16 |
//! | 2..4 | `dmin`, the minimums' factor, f16 |
//! | 4..16 | eight 6-bit scales and minimums, see [`scale_min_k4`](crate::scale_min_k4) |
//! | 16..48 | fifth bits: bit `g` of byte `j` belongs to code `j` of group `g` |
//! | 48..176 | low four bits: byte `32 * p + j` has code `j` of group `2p` low, of group `2p + 1` high |
//!
//! `weight = (d * scale) * code - (dmin * min)`, with `code` in 0..=31; each operation rounds to f32.

use crate::affine;
use crate::block::block_format;
use crate::head::{HEAD_BYTES, head, limits, lines};

pub use crate::head::{D, DMIN, GROUP_LEN, GROUPS, SCALES, scales};

block_format!(Q5K, Q5_K);

/// Offset of the codes' fifth bits, 32 bytes.
pub const QH: usize = 16;
/// Offset of the codes' low four bits, 128 bytes.
pub const QS: usize = 48;

/// The codes of a block, by group.
#[inline]
pub fn codes(block: &[u8; BLOCK_BYTES]) -> [[u8; GROUP_LEN]; GROUPS] {
    let mut codes = [[0; GROUP_LEN]; GROUPS];
    for (g, codes) in codes.iter_mut().enumerate() {
        for (j, code) in codes.iter_mut().enumerate() {
            let low = block[QS + g / 2 * GROUP_LEN + j] >> (g % 2 * 4) & 15;
            *code = low | (block[QH + j] >> g & 1) << 4;
        }
    }
    codes
}

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let (out, _) = out.as_chunks_mut::<GROUP_LEN>();
    for ((out, codes), (scale, min)) in out.iter_mut().zip(codes(block)).zip(lines(block)) {
        for (out, code) in out.iter_mut().zip(codes) {
            *out = scale * f32::from(code) - min;
        }
    }
}

fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let encoded = affine::encode(x, importance, limits(31));
    let mut block = [0; BLOCK_BYTES];
    block[..HEAD_BYTES].copy_from_slice(&head(&encoded));
    for (g, group) in encoded.groups.iter().enumerate() {
        for (j, code) in group.codes.iter().enumerate() {
            block[QS + g / 2 * GROUP_LEN + j] |= (code & 15) << (g % 2 * 4);
            block[QH + j] |= (code >> 4) << g;
        }
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_documented() {
        let mut block = [0; BLOCK_BYTES];
        block[D..DMIN + 2].copy_from_slice(&[0, 0x3c, 0, 0x40]); // 1 and 2
        block[SCALES + 2] = 3; // scale of group 2
        block[SCALES + 4 + 2] = 5; // its minimum
        block[QS + 32 + 7] = 0xa4; // code 7 of groups 2 and 3
        block[QH + 7] = 1 << 2; // fifth bit of code 7 of group 2
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        assert_eq!((x[71], x[70], x[103]), (50.0, -10.0, 0.0));
        assert_eq!(codes(&block)[3][7], 10);
        assert_eq!(scales(&block)[2], (3, 5));
    }

    #[test]
    fn what_the_format_holds_is_found() {
        // Every group uses all its codes; scales 63 and 21, minimums 63 and 42, factors 2^-6.
        let x: [f32; BLOCK_LEN] = std::array::from_fn(|i| {
            let (scale, min) = if (i / 32).is_multiple_of(2) { (63.0, 63.0) } else { (21.0, 42.0) };
            (scale * (i * 5 % 32) as f32 - min) / 64.0
        });
        let mut back = [0.0; BLOCK_LEN];
        decode_block(&encode_block(&x, None), &mut back);
        assert_eq!(back, x);
    }
}
