//! Q6_K: 6-bit codes with an 8-bit scale per 16 weights, 210 bytes per 256.
//!
//! | bytes | what |
//! |---|---|
//! | 0..128 | `ql`, low four bits of the codes |
//! | 128..192 | `qh`, high two bits of the codes |
//! | 192..208 | sixteen scales, i8 |
//! | 208..210 | `d`, the scales' factor, f16 |
//!
//! Each half `h` of 128 weights has 64 bytes of `ql` and 32 of `qh`. Its weight `32 * p + l` (`p` in 0..4, `l` in
//! 0..32) has its low bits in `ql[64 * h + 32 * (p % 2) + l]`, in the low nibble for `p < 2` and else the high one,
//! and its high bits in bits `2p` and `2p + 1` of `qh[32 * h + l]`.
//!
//! `weight = (d * scale) * (code - 32)`, with `code` in 0..=63; each operation rounds to f32.

use crate::block::block_format;
use crate::half_float::scale_at;
use crate::pairs;
use crate::symmetric::{self, Whole};

block_format!(Q6K, Q6_K);

/// Weights that share a scale.
pub const GROUP_LEN: usize = 16;
/// Groups in a block.
pub const GROUPS: usize = BLOCK_LEN / GROUP_LEN;

/// Offset of the codes' low four bits, 128 bytes.
pub const QL: usize = 0;
/// Offset of the codes' high two bits, 64 bytes.
pub const QH: usize = 128;
/// Offset of the scales, 16 bytes, i8.
pub const SCALES: usize = 192;
/// Offset of the scales' factor `d`, f16.
pub const D: usize = 208;

/// The codes of a block plus 32 (0..=63), in order of weights.
#[inline]
pub fn codes(block: &[u8; BLOCK_BYTES]) -> [u8; BLOCK_LEN] {
    let mut codes = pairs::unpack(block, QH);
    for (run, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (h, p) = (run / 4, run % 4);
        for (l, code) in codes.iter_mut().enumerate() {
            let low = block[QL + 64 * h + 32 * (p % 2) + l] >> (p / 2 * 4) & 15;
            *code = low | *code << 4;
        }
    }
    codes
}

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = scale_at(block, D);
    let codes = codes(block);
    let groups = out.as_chunks_mut::<GROUP_LEN>().0.iter_mut().zip(codes.as_chunks::<GROUP_LEN>().0);
    for ((out, codes), &scale) in groups.zip(&block[SCALES..D]) {
        let scale = d * f32::from(scale as i8);
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = scale * f32::from(code as i8 - 32);
        }
    }
}

fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let encoded = symmetric::encode::<Whole<32>, GROUP_LEN, GROUPS>(x, importance, 128);
    let mut block = [0; BLOCK_BYTES];
    let mut high = [0; BLOCK_LEN];
    for (i, level) in encoded.levels.as_flattened().iter().enumerate() {
        let (h, p, l) = (i / 128, i / 32 % 4, i % 32);
        let code = (level + 32) as u8;
        block[QL + 64 * h + 32 * (p % 2) + l] |= (code & 15) << (p / 2 * 4);
        high[i] = code >> 4;
    }
    block[QH..SCALES].copy_from_slice(&pairs::pack(&high));
    for (byte, step) in block[SCALES..D].iter_mut().zip(encoded.steps) {
        *byte = step as u8;
    }
    block[D..].copy_from_slice(&encoded.d);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_documented() {
        let mut block = [0; BLOCK_BYTES];
        block[D..].copy_from_slice(&[0, 0x3c]); // 1
        block[SCALES + 15] = -2i8 as u8; // weights 240 to 255
        block[QL + 64 + 32 + 20] = 0x50; // low bits of weight 128 + 96 + 20
        block[QH + 32 + 20] = 0b11 << 6; // its high bits
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        assert_eq!((x[244], x[245], x[239]), (-42.0, 64.0, 0.0));
        assert_eq!(codes(&block)[244], 53);
    }

    #[test]
    fn what_the_format_holds_is_found() {
        let x: [f32; BLOCK_LEN] = std::array::from_fn(|i| {
            let scale = if (i / GROUP_LEN).is_multiple_of(2) { -128.0 } else { 64.0 };
            scale * ((i * 13 + i / 16) % 16 * 4) as f32 / 64.0 - scale / 2.0
        });
        let mut back = [0.0; BLOCK_LEN];
        decode_block(&encode_block(&x, None), &mut back);
        assert_eq!(back, x);
    }
}
