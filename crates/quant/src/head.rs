//! The first sixteen bytes of a Q4_K or Q5_K block: the factors, and the eight groups' scales and minimums.

use crate::QK_K;
use crate::affine::{Group, Limits, SuperBlock};
use crate::half_float::scale_at;

/// Offset of the scales' factor `d`, f16.
pub const D: usize = 0;
/// Offset of the minimums' factor `dmin`, f16.
pub const DMIN: usize = 2;
/// Offset of the packed scales and minimums, 12 bytes, see [`scale_min_k4`].
pub const SCALES: usize = 4;
/// Bytes of all three.
pub(crate) const HEAD_BYTES: usize = 16;
/// Weights that share a scale and a minimum.
pub const GROUP_LEN: usize = 32;
/// Groups in a block.
pub const GROUPS: usize = QK_K / GROUP_LEN;

/// What six bits hold, beside codes up to `code`.
pub(crate) const fn limits(code: u8) -> Limits {
    Limits { code, step: 63 }
}

/// The 6-bit scale and minimum of group `i` (taken modulo 8) from the twelve bytes of a Q4_K or Q5_K block.
///
/// Groups 0 to 3 have their scale in the low six bits of bytes 0 to 3 and their minimum in those of bytes 4 to 7.
/// Groups 4 to 7 have the low four bits of both in bytes 8 to 11 (scale low, minimum high) and the high two in the
/// bits that the first eight bytes have left.
#[inline]
pub const fn scale_min_k4(scales: &[u8; 12], i: usize) -> (u8, u8) {
    let i = i % GROUPS;
    if i < 4 {
        (scales[i] & 63, scales[i + 4] & 63)
    } else {
        (scales[i + 4] & 15 | scales[i - 4] >> 6 << 4, scales[i + 4] >> 4 | scales[i] >> 6 << 4)
    }
}

/// The inverse of [`scale_min_k4`]; scales and minimums are below 64.
fn pack_scales(groups: &[Group<GROUP_LEN>; GROUPS]) -> [u8; 12] {
    std::array::from_fn(|byte| {
        let (first, second) = (&groups[byte % 4], &groups[byte % 4 + 4]);
        match byte / 4 {
            0 => first.scale | second.scale >> 4 << 6,
            1 => first.min | second.min >> 4 << 6,
            _ => second.scale & 15 | (second.min & 15) << 4,
        }
    })
}

/// The eight `(scale, min)` pairs of a block.
#[inline]
pub fn scales<const B: usize>(block: &[u8; B]) -> [(u8, u8); GROUPS] {
    let packed = std::array::from_fn(|j| block[SCALES + j]);
    std::array::from_fn(|g| scale_min_k4(&packed, g))
}

/// The same with the factors multiplied in: what a decoder multiplies a group's codes by and subtracts.
#[inline]
pub(crate) fn lines<const B: usize>(block: &[u8; B]) -> [(f32, f32); GROUPS] {
    let (d, dmin) = (scale_at(block, D), scale_at(block, DMIN));
    scales(block).map(|(scale, min)| (d * f32::from(scale), dmin * f32::from(min)))
}

/// The head of an encoded block.
pub(crate) fn head(encoded: &SuperBlock<GROUP_LEN, GROUPS>) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[D..D + 2].copy_from_slice(&encoded.d);
    head[DMIN..DMIN + 2].copy_from_slice(&encoded.dmin);
    head[SCALES..].copy_from_slice(&pack_scales(&encoded.groups));
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(scale: u8, min: u8) -> Group<GROUP_LEN> {
        Group { scale, min, codes: [0; GROUP_LEN] }
    }

    #[test]
    fn six_bit_pairs_survive_packing() {
        let groups: [Group<GROUP_LEN>; GROUPS] =
            std::array::from_fn(|g| group((g * 9 + 1) as u8 & 63, (63 - g * 5) as u8 & 63));
        let packed = pack_scales(&groups);
        for (g, want) in groups.iter().enumerate() {
            assert_eq!(scale_min_k4(&packed, g), (want.scale, want.min));
        }
    }

    #[test]
    fn six_bit_pairs_lie_where_documented() {
        let mut groups = [group(0, 0); GROUPS];
        groups[5] = group(0b10_0110, 0b01_1001);
        assert_eq!(pack_scales(&groups), [0, 0b1000_0000, 0, 0, 0, 0b0100_0000, 0, 0, 0, 0b1001_0110, 0, 0]);
        groups[5] = group(0, 0);
        groups[2] = group(63, 1);
        assert_eq!(pack_scales(&groups), [0, 0, 63, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    }
}
