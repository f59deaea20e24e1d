//! NVFP4: 4-bit floats (E2M1) with an 8-bit float (E4M3) per 16 weights, 36 bytes per 64. The elements are the OCP
//! specification's; the order of the codes, and that the scales' sign is left out, is ggml's.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | the groups' scales, E4M3 without a sign |
//! | 4..36 | of the 8 bytes of group `g`, byte `j` has code `j` low, code `j + 8` high |
//!
//! `weight = scale * value`, computed as [`half_scale`] times twice the value, a whole number of [`LEVELS`]; exact. A
//! model's factor for a whole tensor, if it has one, is a tensor of its own and none of this format's business.

use crate::block::block_format;
use crate::e2m1;
use crate::importance::{Weighed, groups, or_alike};

pub use crate::e2m1::LEVELS;

block_format!(Nvfp4, NVFP4);

/// Weights that share a scale.
pub const GROUP_LEN: usize = 16;
/// Groups in a block.
pub const GROUPS: usize = BLOCK_LEN / GROUP_LEN;
/// Offset of the scales, 4 bytes.
pub const SCALES: usize = 0;
/// Offset of the codes' nibbles, 32 bytes.
pub const QS: usize = 4;

/// Half of the scale with these bits: four of exponent, biased by 7, three of mantissa. Below an exponent of 1 it is a
/// subnormal number. Of the code 127, which E4M3 makes NaN, ggml makes 0; bit 7 says nothing, but that 255 is a number.
#[inline]
pub const fn half_scale(code: u8) -> f32 {
    let (exponent, mantissa) = ((code >> 3 & 15) as u32, (code & 7) as f32);
    if code == 127 {
        0.0
    } else if exponent == 0 {
        mantissa / 1024.0
    } else {
        // 2^(exponent - 8) * (1 + mantissa / 8)
        f32::from_bits((exponent + 127 - 8) << 23) * (1.0 + mantissa / 8.0)
    }
}

/// The codes of a block, by group.
#[inline]
pub fn codes(block: &[u8; BLOCK_BYTES]) -> [[u8; GROUP_LEN]; GROUPS] {
    std::array::from_fn(|g| std::array::from_fn(|j| block[QS + 8 * g + j % 8] >> (j / 8 * 4) & 15))
}

#[inline]
fn decode_block(block: &[u8; BLOCK_BYTES], out: &mut [f32; BLOCK_LEN]) {
    let groups = out.as_chunks_mut::<GROUP_LEN>().0.iter_mut().zip(codes(block));
    for ((out, codes), &scale) in groups.zip(&block[SCALES..QS]) {
        let scale = half_scale(scale);
        for (out, code) in out.iter_mut().zip(codes) {
            *out = f32::from(LEVELS[usize::from(code & 15)]) * scale;
        }
    }
}

fn encode_block(x: &[f32; BLOCK_LEN], importance: Option<&[f32; BLOCK_LEN]>) -> [u8; BLOCK_BYTES] {
    let w = or_alike(importance);
    let mut block = [0; BLOCK_BYTES];
    for (g, group) in groups::<GROUP_LEN, GROUPS, BLOCK_LEN>(x, &w).into_iter().enumerate() {
        let scale = scale_of(group);
        let codes = e2m1::codes(group.x, &magnitudes(group.x, scale));
        block[SCALES + g] = scale;
        for j in 0..8 {
            block[QS + 8 * g + j] = codes[j] | codes[j + 8] << 4;
        }
    }
    block
}

/// The numbers that scales can be, but 0, halved; their codes begin at 1.
const HALF_SCALES: [f32; 126] = {
    let mut scales = [0.0; 126];
    let mut code = 1;
    while code <= scales.len() {
        scales[code - 1] = half_scale(code as u8);
        code += 1;
    }
    scales
};

/// The scale of least error, out of those about the one that makes the largest magnitude the largest value, 6.
fn scale_of(group: Weighed<GROUP_LEN>) -> u8 {
    let largest = group.x.iter().fold(0.0f32, |largest, v| largest.max(v.abs()));
    let reaching = HALF_SCALES.partition_point(|scale| 12.0 * scale < largest) as u8 + 1;
    let (mut best, mut least) = (0, f32::INFINITY);
    for code in reaching.saturating_sub(3).max(1)..=(reaching + 4).min(HALF_SCALES.len() as u8) {
        let scaled = Weighed { x: &magnitudes(group.x, code), w: group.w };
        let error = half_scale(code) * half_scale(code) * e2m1::squared_error(scaled);
        if error < least {
            (best, least) = (code, error);
        }
    }
    best
}

/// Magnitudes in units of half a scale.
fn magnitudes(x: &[f32; GROUP_LEN], code: u8) -> [f32; GROUP_LEN] {
    x.map(|v| v.abs() / half_scale(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_documented() {
        let mut block = [0; BLOCK_BYTES];
        block[SCALES + 2] = 8 << 3 | 4; // 2 * 1.5
        block[QS + 16 + 3] = 0xf5;
        let mut x = [1.0; BLOCK_LEN];
        decode_block(&block, &mut x);
        assert_eq!((x[35], x[43], x[32], x[3]), (9.0, -18.0, 0.0, 0.0));
    }

    #[test]
    fn scales_are_those_of_e4m3() {
        let cases =
            [(1, 1.0 / 512.0), (7, 7.0 / 512.0), (8, 1.0 / 64.0), (56, 1.0), (126, 448.0), (255, 480.0)];
        for (code, want) in cases {
            assert_eq!(2.0 * half_scale(code), want);
        }
        assert_eq!((half_scale(0), half_scale(127), half_scale(128)), (0.0, 0.0, 0.0));
        assert!(HALF_SCALES.is_sorted());
    }

    #[test]
    fn what_the_format_holds_is_found() {
        for scale in [1u8, 9, 60, 126] {
            let x: [f32; BLOCK_LEN] =
                std::array::from_fn(|j| f32::from(LEVELS[j * 5 % 16]) * half_scale(scale));
            let mut back = [0.0; BLOCK_LEN];
            decode_block(&encode_block(&x, None), &mut back);
            assert_eq!(back, x);
        }
    }
}
