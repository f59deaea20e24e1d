//! BF16: the upper half of a binary32, little-endian. Encoding rounds to nearest, ties to even.

use crate::{Codec, Type};

/// Codec of [`Type::BF16`].
#[derive(Clone, Copy, Debug)]
pub struct Bf16;

impl Codec for Bf16 {
    fn ty(&self) -> Type {
        Type::BF16
    }

    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        for (bytes, out) in bytes.as_chunks().0.iter().zip(out) {
            *out = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
        }
    }

    fn encode(&self, x: &[f32], _: Option<&[f32]>, out: &mut Vec<u8>) {
        out.extend(x.iter().flat_map(|&v| half::bf16::from_f32(v).to_le_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_rounds_to_nearest_even_and_keeps_nan() {
        let x = [0x3f80_8000, 0x3f81_8000, 0x3f80_8001, 0x7f7f_ffff, 0x7f80_0001, 0xff80_0000]
            .map(f32::from_bits);
        let mut bytes = vec![];
        Bf16.encode(&x, None, &mut bytes);
        let halves: Vec<u16> = bytes.as_chunks().0.iter().map(|b| u16::from_le_bytes(*b)).collect();
        assert_eq!(halves, [0x3f80, 0x3f82, 0x3f81, 0x7f80, 0x7fc0, 0xff80]);
    }

    #[test]
    fn every_value_survives() {
        let all: Vec<u8> =
            (0..=u16::MAX).filter(|h| h & 0x7fff <= 0x7f80).flat_map(u16::to_le_bytes).collect();
        let (mut x, mut again) = (vec![0.0; all.len() / 2], vec![]);
        Bf16.decode(&all, &mut x);
        Bf16.encode(&x, None, &mut again);
        assert_eq!(all, again);
    }
}
