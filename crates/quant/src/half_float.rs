//! Conversions between binary16 and binary32.

/// The value of the binary16 with these bits; exact, and NaN stays NaN.
///
/// Without branches or subnormal arithmetic, so that a loop over it becomes vector code on any target.
#[inline]
pub const fn f16_to_f32(bits: u16) -> f32 {
    const EXPONENT_BIAS: u32 = (127 - 15) << 23;
    let magnitude = (bits as u32 & 0x7fff) << 13;
    // A subnormal half has no hidden bit: give it one at 2^-14, then subtract that again.
    let subnormal =
        f32::from_bits(magnitude + EXPONENT_BIAS + (1 << 23)) - f32::from_bits(EXPONENT_BIAS + (1 << 23));
    let value = if magnitude < 0x400 << 13 {
        subnormal.to_bits()
    } else if magnitude < 0x7c00 << 13 {
        magnitude + EXPONENT_BIAS
    } else {
        magnitude | 0x7f80_0000
    };
    f32::from_bits(value | (bits as u32 & 0x8000) << 16)
}

/// The bits of the nearest binary16, ties to even; beyond the largest finite one it is infinite.
#[inline]
pub fn f32_to_f16(value: f32) -> u16 {
    half::f16::from_f32(value).to_bits()
}

/// The largest finite binary16.
pub(crate) const F16_MAX: f32 = 65504.0;

/// [`f32_to_f16`] for a block's scale or minimum: clipped to the largest finite value, since an infinite scale would
/// turn the block into infinities and NaN.
#[inline]
pub(crate) fn f32_to_scale(value: f32) -> [u8; 2] {
    f32_to_f16(value.clamp(-F16_MAX, F16_MAX)).to_le_bytes()
}

/// A factor that binary16 holds for a block whose integers are as large as they can be at `ideal`: the nearest, but
/// among the subnormals, which are far apart, the next one up. A larger factor with smaller integers under it still
/// represents the weights; a smaller one clips them.
#[inline]
pub(crate) fn reaching_factor(ideal: f32) -> f32 {
    const STEP: f32 = 1.0 / (1 << 24) as f32;
    const SMALLEST_NORMAL: f32 = 1.0 / (1 << 14) as f32;
    let magnitude = ideal.abs();
    if magnitude == 0.0 {
        0.0
    } else if magnitude < SMALLEST_NORMAL {
        ((magnitude / STEP).ceil() * STEP).copysign(ideal)
    } else {
        f16_to_f32(u16::from_le_bytes(f32_to_scale(ideal)))
    }
}

/// The binary16 at byte `at` of a block, as f32.
#[inline]
pub(crate) fn scale_at<const B: usize>(block: &[u8; B], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// `1 / d`, or 0 where that is not finite: a block whose scale vanishes has no use for codes.
#[inline]
pub(crate) fn inverse(d: f32) -> f32 {
    let id = 1.0 / d;
    if id.is_finite() { id } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_has_the_value_that_the_half_crate_gives() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(bits), half::f16::from_bits(bits).to_f32());
            if theirs.is_nan() {
                assert!(ours.is_nan(), "{bits:#06x}");
            } else {
                assert_eq!(ours.to_bits(), theirs.to_bits(), "{bits:#06x}");
            }
        }
    }

    #[test]
    fn scales_stay_finite() {
        for (value, want) in [(1e9, F16_MAX), (f32::NEG_INFINITY, -F16_MAX), (65519.0, F16_MAX), (0.5, 0.5)] {
            assert_eq!(f16_to_f32(u16::from_le_bytes(f32_to_scale(value))), want);
        }
    }

    #[test]
    fn factors_reach_the_weights() {
        let step = 2f32.powi(-24);
        let cases = [
            (1e-12, step),
            (-1.1 * step, -2.0 * step),
            (-0.0, 0.0),
            (3.0 * step, 3.0 * step),
            (0.1, 0.099975586),
        ];
        for (ideal, want) in cases {
            assert_eq!(reaching_factor(ideal).to_bits(), f32::to_bits(want));
        }
    }

    #[test]
    fn an_inverse_is_finite() {
        assert_eq!(inverse(4.0), 0.25);
        for d in [0.0, -0.0, 1e-40, f32::NAN] {
            assert_eq!(inverse(d), 0.0);
        }
    }
}
