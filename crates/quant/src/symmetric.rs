//! The search behind Q6_K: sixteen groups of 16 weights, each with a signed 8-bit scale under one f16 factor,
//! `weight = (d * scale) * code` with `code` in -32..=31.
//!
//! 1. Each group alone: try about forty spreads of the codes, on both sides, solve for the scale that suits those
//!    codes best, and keep the best. The codes reach one step further down than up, and a scale may be negative, so
//!    the side matters.
//! 2. Choose `d` so that the scale of largest magnitude is -128.
//! 3. Round every group's scale to eight bits: of the nearest integer and its neighbours, the one with the least
//!    true error.
//! 4. Solve for the `d` that suits all these integers best, and go to 3 while that helps.

use crate::QK_K;
use crate::block::extreme;
use crate::half_float::{f32_to_scale, inverse, reaching_factor};
use crate::lanes::Lanes;

/// Weights that share a scale.
pub const GROUP_LEN: usize = 16;
/// Groups in a super-block.
pub const GROUPS: usize = QK_K / GROUP_LEN;

/// An encoded super-block, before its bits are laid out.
pub(crate) struct SuperBlock {
    /// `d`, f16, little-endian.
    pub d: [u8; 2],
    /// Signed scale of each group.
    pub scales: [i8; GROUPS],
    /// The codes plus 32, 0..=63, by group.
    pub codes: [[u8; GROUP_LEN]; GROUPS],
}

/// Encodes 256 finite weights.
pub(crate) fn encode(x: &[f32; QK_K]) -> SuperBlock {
    let (groups, _) = x.as_chunks::<GROUP_LEN>();
    let mut fitted = [0.0; GROUPS];
    for (fitted, x) in fitted.iter_mut().zip(groups) {
        *fitted = fit(x);
    }
    let mut d = reaching_factor(extreme(&fitted) / -128.0);
    let (mut scales, mut error) = choose_all(groups, &fitted, d);
    for _ in 0..REFINEMENTS {
        let better = refit(groups, &scales, d);
        let (new_scales, new_error) = choose_all(groups, &fitted, better);
        if new_error >= error {
            break;
        }
        (d, scales, error) = (better, new_scales, new_error);
    }
    let mut stored = [[32; GROUP_LEN]; GROUPS];
    for ((stored, x), &scale) in stored.iter_mut().zip(groups).zip(&scales) {
        let id = inverse(d * f32::from(scale));
        for (stored, v) in stored.as_chunks_mut().0.iter_mut().zip(Lanes::of(x)) {
            *stored = (codes(v, id) + 32.0).array().map(|q| q as u8);
        }
    }
    SuperBlock { d: f32_to_scale(d), scales, codes: stored }
}

/// Rounds of step 4: nearly all blocks settle in fewer.
const REFINEMENTS: usize = 4;

/// The codes nearest to weights, as whole f32; `id` is the inverse of the scale.
#[inline(always)]
fn codes(v: Lanes, id: f32) -> Lanes {
    (v * id).nearest_within(-32.0, 31.0)
}

/// The squared error of a group under a scale.
fn squared_error(x: &[f32; GROUP_LEN], scale: f32) -> f32 {
    let id = inverse(scale);
    let mut sum = Lanes::default();
    for v in Lanes::of(x) {
        let error = codes(v, id) * scale - v;
        sum += error * error;
    }
    sum.total()
}

/// `(sum of weight * code, sum of code * code)`: their quotient is the best scale for these codes.
fn moments(x: &[f32; GROUP_LEN], id: f32) -> (f32, f32) {
    let (mut xq, mut qq) = (Lanes::default(), Lanes::default());
    for v in Lanes::of(x) {
        let q = codes(v, id);
        xq += v * q;
        qq += q * q;
    }
    (xq.total(), qq.total())
}

/// Step 1: the best scale for a group by itself, 0 for a group of zeros.
fn fit(x: &[f32; GROUP_LEN]) -> f32 {
    let largest = extreme(x);
    let (mut best, mut gain) = (0.0, 0.0);
    for side in [-32.0, 31.0] {
        for spread in -9..=9i8 {
            let id = (side + 0.1 * f32::from(spread)) / largest;
            if !id.is_finite() {
                continue;
            }
            let (xq, qq) = moments(x, id);
            // The squared error is sum(x * x) minus this.
            let g = xq * (xq / qq);
            if g > gain {
                (best, gain) = (xq / qq, g);
            }
        }
    }
    best
}

/// Step 3 for every group, and the error of the whole super-block.
fn choose_all(groups: &[[f32; GROUP_LEN]], fitted: &[f32; GROUPS], d: f32) -> ([i8; GROUPS], f32) {
    let mut scales = [0; GROUPS];
    let mut total = 0.0;
    for ((chosen, x), fitted) in scales.iter_mut().zip(groups).zip(fitted) {
        let nearest = (fitted * inverse(d)).round() as i32;
        let mut least = f32::INFINITY;
        for step in [0, -1, 1] {
            let scale = (nearest + step).clamp(-128, 127) as i8;
            let error = squared_error(x, d * f32::from(scale));
            if error < least {
                (*chosen, least) = (scale, error);
            }
        }
        total += least;
    }
    (scales, total)
}

/// Step 4: the factor of least squared error for the integers that `scales` and `d` give.
fn refit(groups: &[[f32; GROUP_LEN]], scales: &[i8; GROUPS], d: f32) -> f32 {
    let (mut xa, mut aa) = (0.0f64, 0.0f64);
    for (x, &scale) in groups.iter().zip(scales) {
        let (xq, qq) = moments(x, inverse(d * f32::from(scale)));
        let scale = f64::from(scale);
        xa += scale * f64::from(xq);
        aa += scale * scale * f64::from(qq);
    }
    if aa > 0.0 { reaching_factor((xa / aa) as f32) } else { d }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_found_exactly_on_either_side() {
        for sign in [1.0, -1.0] {
            let x: [f32; GROUP_LEN] = std::array::from_fn(|j| sign * 0.25 * (j as f32 * 4.0 - 32.0));
            let scale = fit(&x);
            assert_eq!(scale, sign * 0.25);
            assert_eq!(squared_error(&x, scale), 0.0);
        }
    }

    #[test]
    fn zeros_have_no_scale() {
        assert_eq!(fit(&[0.0; GROUP_LEN]), 0.0);
        let block = encode(&[0.0; QK_K]);
        assert_eq!((block.d, block.scales, block.codes), ([0; 2], [0; GROUPS], [[32; GROUP_LEN]; GROUPS]));
    }
}
