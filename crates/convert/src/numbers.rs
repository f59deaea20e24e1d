//! Stored numbers as f32.

use cera_quant::{Type, decode, f16_to_f32, f32_to_f16};

use crate::safetensors::Dtype;

/// What is done to each number on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Each {
    Same,
    /// It is stored as the distance from this.
    Plus(f32),
}

impl Each {
    pub fn apply(self, numbers: &mut [f32]) {
        match self {
            Self::Same => {}
            Self::Plus(more) => numbers.iter_mut().for_each(|x| *x += more),
        }
    }
}

/// Reads as many numbers as `out` has places. False where the type is none of weights or `bytes` are not as many.
pub(crate) fn read(dtype: Dtype, bytes: &[u8], out: &mut [f32]) -> bool {
    if Some(bytes.len()) != out.len().checked_mul(dtype.bytes() as usize) {
        return false;
    }
    let plain = |ty, out: &mut [f32]| decode(ty, bytes, out).is_ok();
    match dtype {
        Dtype::F32 => plain(Type::F32, out),
        Dtype::F16 => plain(Type::F16, out),
        Dtype::Bf16 => plain(Type::BF16, out),
        Dtype::F64 => {
            for (x, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                *x = f64::from_le_bytes(*bytes) as f32;
            }
            true
        }
        Dtype::F8E4M3 => {
            out.iter_mut().zip(bytes).for_each(|(x, &byte)| *x = e4m3(byte));
            true
        }
        Dtype::F8E5M2 => {
            // The upper byte of an f16.
            out.iter_mut().zip(bytes).for_each(|(x, &byte)| *x = f16_to_f32(u16::from(byte) << 8));
            true
        }
        Dtype::U8 | Dtype::Other(_) => false,
    }
}

/// Encodes numbers. What is no number, or beyond what the type can hold, is refused with a reason.
pub(crate) fn encode(ty: Type, numbers: &[f32]) -> Result<Vec<u8>, String> {
    if let Some(bad) = numbers.iter().find(|x| !x.is_finite()) {
        return Err(format!("one of its numbers is {bad}"));
    }
    if ty == Type::F16
        && let Some(large) = numbers.iter().find(|x| f16_to_f32(f32_to_f16(**x)).is_infinite())
    {
        return Err(format!("{large} is beyond what F16 can hold"));
    }
    cera_quant::encode(ty, numbers).map_err(|e| e.to_string())
}

/// A byte of E4M3 (Micikevicius et al. 2022, arXiv:2209.05433): exponents are off by 7, and all ones is no number.
fn e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (byte >> 3 & 15, f32::from(byte & 7));
    let magnitude = match exponent {
        15 if mantissa == 7.0 => f32::NAN,
        0 => mantissa / 512.0,
        // 2^(e - 7), exact.
        e => f32::from_bits((u32::from(e) + 120) << 23) * (1.0 + mantissa / 8.0),
    };
    if byte > 127 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bits() {
        // From the table in the paper: greatest, least normal, greatest and least subnormal.
        for (byte, value) in
            [(0x7e, 448.0), (0x08, 0.015625), (0x07, 0.013671875), (0x01, 0.001953125), (0x38, 1.0)]
        {
            assert_eq!(e4m3(byte), value);
            assert_eq!(e4m3(byte | 0x80), -value);
        }
        assert!(e4m3(0x7f).is_nan() && e4m3(0xff).is_nan());
        let mut out = [0.0; 4];
        assert!(read(Dtype::F8E5M2, &[0x7b, 0x04, 0x01, 0xbc], &mut out));
        assert_eq!(out, [57344.0, 1.0 / 16384.0, 1.0 / 65536.0, -1.0]);
    }

    #[test]
    fn what_is_no_weight_is_not_read() {
        assert!(!read(Dtype::Other(8), &[0; 8], &mut [0.0]));
        assert!(!read(Dtype::F32, &[0; 5], &mut [0.0]));
        let mut out = [0.0];
        assert!(read(Dtype::F64, &0.1f64.to_le_bytes(), &mut out));
        assert_eq!(out, [0.1]);
    }
}
