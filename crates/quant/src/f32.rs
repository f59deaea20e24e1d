//! F32: IEEE 754 binary32, little-endian.

use crate::{Codec, Type};

/// Codec of [`Type::F32`].
#[derive(Clone, Copy, Debug)]
pub struct F32;

impl Codec for F32 {
    fn ty(&self) -> Type {
        Type::F32
    }

    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        for (bytes, out) in bytes.as_chunks().0.iter().zip(out) {
            *out = f32::from_le_bytes(*bytes);
        }
    }

    fn encode(&self, x: &[f32], _: Option<&[f32]>, out: &mut Vec<u8>) {
        out.extend(x.iter().flat_map(|v| v.to_le_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_pass_through() {
        let x = [1.5, -0.0, f32::MIN_POSITIVE / 2.0, f32::INFINITY, f32::from_bits(0xffc1_2345)];
        let (mut bytes, mut back) = (vec![], [0.0; 5]);
        F32.encode(&x, None, &mut bytes);
        F32.decode(&bytes, &mut back);
        assert_eq!(bytes[..8], [0, 0, 0xc0, 0x3f, 0, 0, 0, 0x80]);
        assert_eq!(back.map(f32::to_bits), x.map(f32::to_bits));
    }
}
