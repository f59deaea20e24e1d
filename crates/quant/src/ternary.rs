//! The search behind TQ1_0 and TQ2_0: `weight = d * t` with `t` of -1, 0 and 1, and one `d` for a block.
//!
//! Under any scale the weights that are not 0 are those with magnitudes above half of it, so they are the largest ones,
//! however many. The best scale for some weights is the mean of their magnitudes by importance. So the best of all is
//! found by going through the weights in order of magnitude.

use crate::QK_K;
use crate::half_float::{f16_to_f32, f32_to_scale};
use crate::importance::or_alike;

/// Encodes 256 finite weights: `d`, f16, little-endian, and each weight's `t + 1`.
pub(crate) fn encode(x: &[f32; QK_K], importance: Option<&[f32; QK_K]>) -> ([u8; 2], [u8; QK_K]) {
    let w = or_alike(importance);
    let mut order: [usize; QK_K] = std::array::from_fn(|i| i);
    order.sort_unstable_by(|&a, &b| x[b].abs().total_cmp(&x[a].abs()));
    let (mut sum, mut count) = (0.0f64, 0.0f64);
    let (mut best, mut gain) = (0.0, 0.0);
    for i in order {
        sum += f64::from(w[i]) * f64::from(x[i].abs());
        count += f64::from(w[i]);
        // The squared error is sum(x * x) minus this.
        let g = sum * (sum / count);
        if g > gain {
            (best, gain) = (sum / count, g);
        }
    }
    let d = f32_to_scale(best as f32);
    let half = f16_to_f32(u16::from_le_bytes(d)) / 2.0;
    (d, x.map(|v| 1 + u8::from(v > half) - u8::from(v < -half)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ternary_weights_are_kept() {
        let x: [f32; QK_K] = std::array::from_fn(|i| [0.0, 0.375, -0.375][i * 7 % 3]);
        let (d, t) = encode(&x, None);
        assert_eq!(d, [0, 0x36]);
        assert!(t.iter().zip(x).all(|(&t, x)| (f32::from(t) - 1.0) * 0.375 == x));
    }

    #[test]
    fn an_outlier_does_not_set_the_scale() {
        let mut x = [1.0; QK_K];
        x[9] = 5.0;
        let (d, t) = encode(&x, None);
        assert!((f16_to_f32(u16::from_le_bytes(d)) - 1.0).abs() < 0.02);
        assert_eq!(t, [2; QK_K]);
        // Unless it is what matters.
        let mut importance = [1e-6; QK_K];
        importance[9] = 1.0;
        assert_eq!(encode(&x, Some(&importance)).0, [0, 0x45]);
    }
}
