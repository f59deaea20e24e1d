//! The search behind Q3_K, Q6_K and IQ4_XS (and, one group alone, IQ4_NL, Q2_0, and Q4_0 and Q5_0 with importances): a
//! scale of either sign for each group, `weight = scale * level`, with a level for each code. In the super-blocks the
//! scales are integers under one f16 factor, `scale = d * step`.
//!
//! 1. Each group alone: try about forty spreads of the levels, on both sides, solve for the scale that suits those
//!    levels best, and keep the best. The levels reach further on one side, and a scale may be negative, so the side
//!    matters.
//! 2. Choose `d` so that the scale of largest magnitude gets the lowest step, which reaches one further than the
//!    highest.
//! 3. Round every group's scale to a step: of the nearest integer and its neighbours, the one with the least
//!    true error.
//! 4. Solve for the `d` that suits all these integers best, and go to 3 while that helps.
//!
//! Errors count by the importance of their weights.

use crate::QK_K;
use crate::block::extreme;
use crate::half_float::{f16_to_f32, f32_to_scale, inverse, reaching_factor};
use crate::importance::{Weighed, groups, or_alike};
use crate::lanes::Lanes;

/// The levels that a format's codes stand for.
pub(crate) trait Levels {
    /// The lowest and the highest.
    const ENDS: [f32; 2];
    /// How far apart they are towards the ends.
    const SPACING: f32;
    /// The nearest levels.
    fn nearest(v: Lanes) -> Lanes;
}

/// Whole numbers from `-LIMIT` to `LIMIT - 1`.
pub(crate) struct Whole<const LIMIT: i8>;

impl<const LIMIT: i8> Levels for Whole<LIMIT> {
    const ENDS: [f32; 2] = [-(LIMIT as f32), LIMIT as f32 - 1.0];
    const SPACING: f32 = 1.0;

    #[inline(always)]
    fn nearest(v: Lanes) -> Lanes {
        v.nearest_within(Self::ENDS[0], Self::ENDS[1])
    }
}

/// An encoded super-block of `G` groups of `L` weights, before its bits are laid out.
pub(crate) struct SuperBlock<const L: usize, const G: usize> {
    /// `d`, f16, little-endian.
    pub d: [u8; 2],
    /// Each group's step.
    pub steps: [i8; G],
    /// The levels, by group.
    pub levels: [[i8; L]; G],
}

/// Encodes 256 finite weights, `G` groups of `L`, with steps from `-limit` to `limit - 1`.
pub(crate) fn encode<V: Levels, const L: usize, const G: usize>(
    x: &[f32; QK_K],
    importance: Option<&[f32; QK_K]>,
    limit: i32,
) -> SuperBlock<L, G> {
    let w = or_alike(importance);
    let groups: [Weighed<L>; G] = groups(x, &w);
    let fitted = groups.map(fit::<V, L>);
    let mut d = reaching_factor(extreme(&fitted) / -(limit as f32));
    let (mut steps, mut error) = choose_all::<V, L, G>(&groups, &fitted, d, limit);
    for _ in 0..REFINEMENTS {
        let better = refit::<V, L>(&groups, &steps, d);
        let (new_steps, new_error) = choose_all::<V, L, G>(&groups, &fitted, better, limit);
        if new_error >= error {
            break;
        }
        (d, steps, error) = (better, new_steps, new_error);
    }
    let mut levels = [[0; L]; G];
    for ((levels, group), &step) in levels.iter_mut().zip(groups).zip(&steps) {
        *levels = nearest::<V, L>(group.x, d * f32::from(step));
    }
    SuperBlock { d: f32_to_scale(d), steps, levels }
}

/// Encodes `L` finite weights with a scale of their own: `d`, f16, little-endian, and the levels.
pub(crate) fn encode_alone<V: Levels, const L: usize>(
    x: &[f32; L],
    importance: Option<&[f32; L]>,
) -> ([u8; 2], [i8; L]) {
    let d = f32_to_scale(fit::<V, L>(Weighed { x, w: &or_alike(importance) }));
    (d, nearest::<V, L>(x, f16_to_f32(u16::from_le_bytes(d))))
}

/// The levels nearest to a group's weights under a scale.
fn nearest<V: Levels, const L: usize>(x: &[f32; L], scale: f32) -> [i8; L] {
    let id = inverse(scale);
    let mut levels = [0; L];
    for (levels, v) in levels.as_chunks_mut().0.iter_mut().zip(Lanes::of(x)) {
        *levels = V::nearest(v * id).array().map(|level| level as i8);
    }
    levels
}

/// Rounds of step 4: nearly all blocks settle in fewer.
const REFINEMENTS: usize = 4;

/// The squared error of a group under a scale.
fn squared_error<V: Levels, const L: usize>(group: Weighed<L>, scale: f32) -> f32 {
    let id = inverse(scale);
    let mut sum = Lanes::default();
    for (v, w) in group.lanes() {
        let error = V::nearest(v * id) * scale - v;
        sum += error * error * w;
    }
    sum.total()
}

/// `(sum of weight * level, sum of level * level)`, each by importance: their quotient is the best scale for the levels.
fn moments<V: Levels, const L: usize>(group: Weighed<L>, id: f32) -> (f32, f32) {
    let (mut xq, mut qq) = (Lanes::default(), Lanes::default());
    for (v, w) in group.lanes() {
        let q = V::nearest(v * id);
        xq += v * q * w;
        qq += q * q * w;
    }
    (xq.total(), qq.total())
}

/// Step 1: the best scale for a group by itself, 0 for a group of zeros.
fn fit<V: Levels, const L: usize>(group: Weighed<L>) -> f32 {
    let largest = extreme(group.x);
    let (mut best, mut gain) = (0.0, 0.0);
    for side in V::ENDS {
        for spread in -9..=9i8 {
            let id = (side + 0.1 * V::SPACING * f32::from(spread)) / largest;
            if !id.is_finite() {
                continue;
            }
            let (xq, qq) = moments::<V, L>(group, id);
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
fn choose_all<V: Levels, const L: usize, const G: usize>(
    groups: &[Weighed<L>; G],
    fitted: &[f32; G],
    d: f32,
    limit: i32,
) -> ([i8; G], f32) {
    let mut steps = [0; G];
    let mut total = 0.0;
    for ((chosen, &group), fitted) in steps.iter_mut().zip(groups).zip(fitted) {
        let nearest = (fitted * inverse(d)).round() as i32;
        let mut least = f32::INFINITY;
        for aside in [0, -1, 1] {
            let step = (nearest + aside).clamp(-limit, limit - 1) as i8;
            let error = squared_error::<V, L>(group, d * f32::from(step));
            if error < least {
                (*chosen, least) = (step, error);
            }
        }
        total += least;
    }
    (steps, total)
}

/// Step 4: the factor of least squared error for the integers that `steps` and `d` give.
fn refit<V: Levels, const L: usize>(groups: &[Weighed<L>], steps: &[i8], d: f32) -> f32 {
    let (mut xa, mut aa) = (0.0f64, 0.0f64);
    for (&group, &step) in groups.iter().zip(steps) {
        let (xq, qq) = moments::<V, L>(group, inverse(d * f32::from(step)));
        let step = f64::from(step);
        xa += step * f64::from(xq);
        aa += step * step * f64::from(qq);
    }
    if aa > 0.0 { reaching_factor((xa / aa) as f32) } else { d }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_found_exactly_on_either_side() {
        for sign in [1.0, -1.0] {
            let x: [f32; 16] = std::array::from_fn(|j| sign * 0.25 * (j as f32 * 4.0 - 32.0));
            let group = Weighed { x: &x, w: &[1.0; 16] };
            let scale = fit::<Whole<32>, 16>(group);
            assert_eq!(scale, sign * 0.25);
            assert_eq!(squared_error::<Whole<32>, 16>(group, scale), 0.0);
        }
    }

    #[test]
    fn zeros_have_no_scale() {
        assert_eq!(fit::<Whole<32>, 16>(Weighed { x: &[0.0; 16], w: &[1.0; 16] }), 0.0);
        let block = encode::<Whole<32>, 16, 16>(&[0.0; QK_K], None, 128);
        assert_eq!((block.d, block.steps, block.levels), ([0; 2], [0; 16], [[0; 16]; 16]));
    }
}
