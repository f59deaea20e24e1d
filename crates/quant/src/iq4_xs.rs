//! IQ4_XS: 4-bit codes into IQ4_NL's table, with a 6-bit scale per 32 weights, 136 bytes per 256.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `d`, the scales' factor, f16 |
//! | 2..4 | high two bits of the scales: bits `2g` and `2g + 1` of a little-endian word are group `g`'s |
//! | 4..8 | low four bits of the scales: byte `p` has group `2p`'s low, group `2p + 1`'s high |
//! | 8..136 | codes: of the 16 bytes of group `g`, byte `j` has code `j` low, code `j + 16` high |
//!
//! `weight = (d * (scale - 32)) * LEVELS[code]`, with `scale` in 0..=63 and [`LEVELS`] those of IQ4_NL; each operation
//! rounds to f32.

use crate::block::block_format;
use crate::half_float::scale_at;
use crate::iq4_nl::{LEVELS, Uneven, codes_of};
use crate::{nibbles, symmetric};

block_format!(Iq4Xs, IQ4_XS);

/// Weights that share a scale.
pub const GROUP_LEN: usize = 32;
/// Groups in a block.
pub const GROUPS: usize = BLOCK_LEN / GROUP_LEN;
/// Offset of the scales' factor `d`, f16.
pub const D: usize = 0;
/// Offset of the scales' high bits, a little-endian word of 16 bits.
pub const SCALES_HIGH: usize = 2;
/// Offset of the scales' low bits, 4 bytes.
pub const SCALES_LOW: usize = 4;
/// Offset of the codes' nibbles, 128 bytes.
pub const QS: usize = 8;

/// The codes of a block, by group.
#[inline]
pub fn codes(block: &[u8; BLOCK_BYTES]) -> [[u8; GROUP_LEN]; GROUPS] {
    std::array::from_fn(|g| nibbles::unpack(&std::array::from_fn(|j| block[QS + 16 * g + j])))
}

/// The scales of a block less 32 (-32..=31), in order of groups.
#[inline]
pub fn scales(block: &[u8; BLOCK_BYTES]) -> [i8; GROUPS] {
    std::array::from_fn(|g| {
        let low = block[SCALES_LOW + g / 2] >> (g % 2 * 4) & 15;
        let high = block[SCALES_HIGH + g / 4] >> (g % 4 * 2) & 3;
        (low | high << 4) as i8 - 32
    })
}

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let d = scale_at(block, D);
    let (out, _) = out.as_chunks_mut::<GROUP_LEN>();
    for ((out, codes), scale) in out.iter_mut().zip(codes(block)).zip(scales(block)) {
        let scale = d * f32::from(scale);
        for (out, code) in out.iter_mut().zip(codes) {
            *out = scale * f32::from(LEVELS[usize::from(code & 15)]);
        }
    }
}

fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let encoded = symmetric::encode::<Uneven, GROUP_LEN, GROUPS>(x, importance, 32);
    let mut block = [0; BLOCK_BYTES];
    block[D..D + 2].copy_from_slice(&encoded.d);
    for (g, step) in encoded.steps.iter().enumerate() {
        let scale = (step + 32) as u8;
        block[SCALES_LOW + g / 2] |= (scale & 15) << (g % 2 * 4);
        block[SCALES_HIGH + g / 4] |= (scale >> 4) << (g % 4 * 2);
    }
    for (bytes, levels) in block[QS..].as_chunks_mut().0.iter_mut().zip(&encoded.levels) {
        *bytes = nibbles::pack(&codes_of(levels));
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_documented() {
        let mut block = [0x88; BLOCK_BYTES];
        block[D..SCALES_HIGH].copy_from_slice(&[0, 0x3c]); // 1
        block[SCALES_HIGH..QS].fill(0);
        block[SCALES_HIGH + 1] = 0b11 << 2; // high bits of the scale of group 5
        block[SCALES_LOW + 2] = 0x50; // its low bits: 53 - 32 = 21
        block[QS + 16 * 5 + 3] = 0xf0; // codes 3 and 19 of group 5
        let mut x = [0.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        assert_eq!((x[163], x[179], x[160], x[192]), (21.0 * -127.0, 21.0 * 113.0, 21.0, -32.0));
        assert_eq!((scales(&block)[5], codes(&block)[5][19]), (21, 15));
    }

    #[test]
    fn what_the_format_holds_is_found() {
        let x: [f32; BLOCK_LEN] = std::array::from_fn(|i| {
            let scale = if (i / GROUP_LEN).is_multiple_of(2) { -32.0 } else { 16.0 };
            scale * f32::from(LEVELS[i * 5 % 16]) / 64.0
        });
        let mut back = [0.0; BLOCK_LEN];
        decode_block(&encode_block(&x, None), &mut back);
        assert_eq!(back, x);
    }
}
