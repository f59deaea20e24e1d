//! Q3_K: 3-bit codes with a 6-bit scale per 16 weights, 110 bytes per 256.
//!
//! | bytes | what |
//! |---|---|
//! | 0..32 | third bits: bit `r` of byte `l` is that of weight `32 * r + l` |
//! | 32..96 | low two bits: byte `32 * h + l` has, in bits `2p` and `2p + 1`, those of weight `128 * h + 32 * p + l` |
//! | 96..108 | sixteen 6-bit scales, see [`scales`] |
//! | 108..110 | `d`, the scales' factor, f16 |
//!
//! `weight = (d * (scale - 32)) * (code - 4)`, with `scale` in 0..=63 and `code` in 0..=7; each operation rounds to f32.

use crate::block::block_format;
use crate::half_float::scale_at;
use crate::pairs;
use crate::symmetric::{self, Whole};

block_format!(Q3K, Q3_K);

/// Weights that share a scale.
pub const GROUP_LEN: usize = 16;
/// Groups in a block.
pub const GROUPS: usize = BLOCK_LEN / GROUP_LEN;
/// Offset of the codes' third bits, 32 bytes.
pub const QH: usize = 0;
/// Offset of the codes' low two bits, 64 bytes.
pub const QS: usize = 32;
/// Offset of the packed scales, 12 bytes.
pub const SCALES: usize = 96;
/// Offset of the scales' factor `d`, f16.
pub const D: usize = 108;

/// The codes of a block plus 4 (0..=7), in order of weights.
#[inline]
pub fn codes(block: &[u8; BLOCK_BYTES]) -> [u8; BLOCK_LEN] {
    let mut codes = pairs::unpack(block, QS);
    for (run, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (code, byte) in codes.iter_mut().zip(&block[QH..QS]) {
            *code |= (byte >> run & 1) << 2;
        }
    }
    codes
}

/// The scales of a block less 32 (-32..=31), in order of groups.
///
/// Groups 0 to 7 have their low four bits in the low nibbles of bytes 0 to 7, groups 8 to 15 theirs in the high ones.
/// The high two bits of group `g` are bits `2 (g / 4)` and above of byte `8 + g % 4`.
#[inline]
pub fn scales(block: &[u8; BLOCK_BYTES]) -> [i8; GROUPS] {
    std::array::from_fn(|g| {
        let low = block[SCALES + g % 8] >> (g / 8 * 4) & 15;
        let high = block[SCALES + 8 + g % 4] >> (g / 4 * 2) & 3;
        (low | high << 4) as i8 - 32
    })
}

/// The inverse of [`scales`].
fn pack_scales(scales: &[i8; GROUPS]) -> [u8; 12] {
    let mut packed = [0; 12];
    for (g, scale) in scales.iter().enumerate() {
        let scale = (scale + 32) as u8;
        packed[g % 8] |= (scale & 15) << (g / 8 * 4);
        packed[8 + g % 4] |= (scale >> 4) << (g / 4 * 2);
    }
    packed
}

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = scale_at(block, D);
    let codes = codes(block);
    let groups = out.as_chunks_mut::<GROUP_LEN>().0.iter_mut().zip(codes.as_chunks::<GROUP_LEN>().0);
    for ((out, codes), scale) in groups.zip(scales(block)) {
        let scale = d * f32::from(scale);
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = scale * f32::from(code as i8 - 4);
        }
    }
}

fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let encoded = symmetric::encode::<Whole<4>, GROUP_LEN, GROUPS>(x, importance, 32);
    let mut block = [0; BLOCK_BYTES];
    let mut codes = [0; BLOCK_LEN];
    for (code, level) in codes.iter_mut().zip(encoded.levels.as_flattened()) {
        *code = (level + 4) as u8;
    }
    for (run, codes) in codes.as_chunks::<32>().0.iter().enumerate() {
        for (byte, code) in block[QH..QS].iter_mut().zip(codes) {
            *byte |= (code >> 2) << run;
        }
    }
    block[QS..SCALES].copy_from_slice(&pairs::pack(&codes));
    block[SCALES..D].copy_from_slice(&pack_scales(&encoded.steps));
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
        block[SCALES + 1] = 0x50; // low bits of the scale of weights 144 to 159
        block[SCALES + 9] = 0b11 << 4; // its high bits: 53 - 32 = 21
        block[QS + 32 + 20] = 0b10; // weight 128 + 20
        block[QH + 20] = 1 << 4; // its third bit
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        assert_eq!((x[148], x[149], x[160]), (42.0, -84.0, 128.0));
        assert_eq!((codes(&block)[148], scales(&block)[9], scales(&block)[10]), (6, 21, -32));
    }

    #[test]
    fn six_bit_scales_survive_packing() {
        let scales: [i8; GROUPS] = std::array::from_fn(|g| (g * 29 % 64) as i8 - 32);
        let mut block = [0; BLOCK_BYTES];
        block[SCALES..D].copy_from_slice(&pack_scales(&scales));
        assert_eq!(super::scales(&block), scales);
    }

    #[test]
    fn what_the_format_holds_is_found() {
        let x: [f32; BLOCK_LEN] = std::array::from_fn(|i| {
            let scale = if (i / GROUP_LEN).is_multiple_of(2) { -32.0 } else { 16.0 };
            scale * ((i * 13 + i / 16) % 8) as f32 / 64.0 - scale / 16.0
        });
        let mut back = [0.0; BLOCK_LEN];
        decode_block(&encode_block(&x, None), &mut back);
        assert_eq!(back, x);
    }
}
