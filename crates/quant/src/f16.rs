//! F16: IEEE 754 binary16, little-endian. Encoding rounds to nearest, ties to even, and overflows to infinity.

use crate::{Codec, Type};
use crate::{f16_to_f32, f32_to_f16};

/// Codec of [`Type::F16`].
#[derive(Clone, Copy, Debug)]
pub struct F16;

impl Codec for F16 {
    fn ty(&self) -> Type {
        Type::F16
    }

    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        for (bytes, out) in bytes.as_chunks().0.iter().zip(out) {
            *out = f16_to_f32(u16::from_le_bytes(*bytes));
        }
    }

    fn encode(&self, x: &[f32], _: Option<&[f32]>, out: &mut Vec<u8>) {
        out.extend(x.iter().flat_map(|&v| f32_to_f16(v).to_le_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_rounds_to_nearest_even() {
        let x =
            [1.0, 1.0 + 1.0 / 2048.0, 1.0 + 3.0 / 2048.0, 65519.0, 65520.0, -1e-8, 3e-8, f32::NEG_INFINITY];
        let mut bytes = vec![];
        F16.encode(&x, None, &mut bytes);
        let halves: Vec<u16> = bytes.as_chunks().0.iter().map(|b| u16::from_le_bytes(*b)).collect();
        assert_eq!(halves, [0x3c00, 0x3c00, 0x3c02, 0x7bff, 0x7c00, 0x8000, 1, 0xfc00]);
    }

    #[test]
    fn every_value_survives() {
        let all: Vec<u8> =
            (0..=u16::MAX).filter(|h| h & 0x7fff <= 0x7c00).flat_map(u16::to_le_bytes).collect();
        let (mut x, mut again) = (vec![0.0; all.len() / 2], vec![]);
        F16.decode(&all, &mut x);
        F16.encode(&x, None, &mut again);
        assert_eq!(all, again);
    }
}
