//! The search behind Q2_K, Q4_K and Q5_K (and, one group alone, Q4_1 and Q5_1 with importances): groups of weights,
//! each with an integer scale and an integer minimum under two f16 factors, `weight = (d * scale) * code - (dmin *
//! min)`. It looks for the encoding of 256 weights with the least squared error:
//! 1. Each group alone: spread the codes over the range a little wider or narrower than it is, solve for the scale
//!    and minimum that suit those codes best (linear least squares), and keep the best of about twenty spreads.
//! 2. Choose `d` and `dmin` so that the largest scale and minimum are as large as they can be.
//! 3. Round every group's scale and minimum to integers. The best pair is rarely the two nearest integers, since an
//!    error in one can make up for an error in the other, so the neighbours are tried too, against the true error.
//! 4. Solve for the `d` and `dmin` that suit all these integers best, and go to 3 while that helps.
//!
//! Errors count by the importance of their weights.

use crate::QK_K;
use crate::block::range;
use crate::half_float::{f16_to_f32, f32_to_scale, inverse, reaching_factor};
use crate::importance::{Weighed, groups, or_alike};
use crate::lanes::Lanes;

/// The largest integers that a format stores.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Of a code.
    pub code: u8,
    /// Of a scale and of a minimum.
    pub step: u8,
}

/// One encoded group of `L` weights.
#[derive(Clone, Copy)]
pub(crate) struct Group<const L: usize> {
    /// The scale.
    pub scale: u8,
    /// The minimum.
    pub min: u8,
    /// The codes.
    pub codes: [u8; L],
}

/// An encoded super-block of `G` groups of `L` weights, before its bits are laid out.
pub(crate) struct SuperBlock<const L: usize, const G: usize> {
    /// `d`, f16, little-endian.
    pub d: [u8; 2],
    /// `dmin`, f16, little-endian.
    pub dmin: [u8; 2],
    /// The groups in order.
    pub groups: [Group<L>; G],
}

/// The two factors as f32 with f16 values.
#[derive(Clone, Copy)]
struct Factors {
    d: f32,
    dmin: f32,
}

/// Scale and minimum of a group, integers under [`Factors`].
#[derive(Clone, Copy, Default)]
struct Steps {
    scale: u8,
    min: u8,
}

/// A group's scale and minimum, or their product with the factors: `weight = scale * code - min`, neither negative.
#[derive(Clone, Copy, Default)]
struct Line {
    scale: f32,
    min: f32,
}

/// Sums over a group, given its codes, each by importance.
struct Moments {
    n: f32,
    q: f32,
    qq: f32,
    x: f32,
    xq: f32,
}

/// Encodes 256 finite weights, `G` groups of `L`.
pub(crate) fn encode<const L: usize, const G: usize>(
    x: &[f32; QK_K],
    importance: Option<&[f32; QK_K]>,
    limits: Limits,
) -> SuperBlock<L, G> {
    let w = or_alike(importance);
    let weighed: [Weighed<L>; G] = groups(x, &w);
    let top = f32::from(limits.code);
    let lines = weighed.map(|group| fit(group, top));
    let mut largest = Line::default();
    for line in &lines {
        largest = Line { scale: largest.scale.max(line.scale), min: largest.min.max(line.min) };
    }
    let step = f32::from(limits.step);
    let mut factors = Factors::rounded(largest.scale / step, largest.min / step);
    let (mut steps, mut error) = choose_all(&weighed, &lines, factors, limits);
    for _ in 0..REFINEMENTS {
        let better = refit(&weighed, &steps, factors, top);
        let (new_steps, new_error) = choose_all(&weighed, &lines, better, limits);
        if new_error >= error {
            break;
        }
        (factors, steps, error) = (better, new_steps, new_error);
    }
    let mut groups = [Group { scale: 0, min: 0, codes: [0; L] }; G];
    for ((group, weighed), steps) in groups.iter_mut().zip(weighed).zip(steps) {
        let line = factors.line(steps);
        let id = inverse(line.scale);
        (group.scale, group.min) = (steps.scale, steps.min);
        for (stored, v) in group.codes.as_chunks_mut().0.iter_mut().zip(Lanes::of(weighed.x)) {
            *stored = codes(v, line.min, id, top).array().map(|q| q as u8);
        }
    }
    SuperBlock { d: f32_to_scale(factors.d), dmin: f32_to_scale(factors.dmin), groups }
}

/// Encodes `L` finite weights with a scale and a minimum of their own, `weight = d * code + m`: `d` and `m`, f16,
/// little-endian, and the codes, up to `top`. The line of step 1 and its codes alternate while that helps.
pub(crate) fn encode_alone<const L: usize>(group: Weighed<L>, top: u8) -> ([u8; 2], [u8; 2], [u8; L]) {
    let top = f32::from(top);
    // Around the middle of the range no minimum is negative.
    let (lo, hi) = range(group.x);
    let middle = lo + (hi - lo) / 2.0;
    let centred = group.x.map(|v| v - middle);
    let centred = Weighed { x: &centred, w: group.w };
    let mut line = fit(centred, top);
    let mut error = squared_error(centred, line, top);
    for _ in 0..REFINEMENTS {
        let Some(better) = moments(centred, line.min, inverse(line.scale), top).line() else { break };
        let new_error = squared_error(centred, better, top);
        if new_error >= error {
            break;
        }
        (line, error) = (better, new_error);
    }
    let (d, m) = (f32_to_scale(line.scale), f32_to_scale(middle - line.min));
    let [scale, min] = [d, m].map(|half| f16_to_f32(u16::from_le_bytes(half)));
    let mut chosen = [0; L];
    for (chosen, v) in chosen.as_chunks_mut().0.iter_mut().zip(Lanes::of(group.x)) {
        *chosen = codes(v, -min, inverse(scale), top).array().map(|q| q as u8);
    }
    (d, m, chosen)
}

/// Rounds of step 4, and of what [`encode_alone`] does like it: nearly all blocks settle in fewer.
const REFINEMENTS: usize = 4;

impl Factors {
    /// The nearest factors that f16 holds.
    fn rounded(d: f32, dmin: f32) -> Self {
        Factors { d: reaching_factor(d), dmin: reaching_factor(dmin) }
    }

    /// What a decoder multiplies codes by and subtracts.
    fn line(self, steps: Steps) -> Line {
        Line { scale: self.d * f32::from(steps.scale), min: self.dmin * f32::from(steps.min) }
    }
}

/// The codes nearest to weights, as whole f32 in 0..=top; `id` is the inverse of the scale.
#[inline(always)]
fn codes(v: Lanes, min: f32, id: f32, top: f32) -> Lanes {
    ((v + min) * id).nearest_within(0.0, top)
}

/// The squared error of a group under a line.
fn squared_error<const L: usize>(group: Weighed<L>, line: Line, top: f32) -> f32 {
    let id = inverse(line.scale);
    let mut sum = Lanes::default();
    for (v, w) in group.lanes() {
        let error = codes(v, line.min, id, top) * line.scale - line.min - v;
        sum += error * error * w;
    }
    sum.total()
}

/// Sums over the codes that `min` and the inverse scale `id` give.
fn moments<const L: usize>(group: Weighed<L>, min: f32, id: f32, top: f32) -> Moments {
    let [mut n, mut q, mut qq, mut x, mut xq] = [Lanes::default(); 5];
    for (v, w) in group.lanes() {
        let code = codes(v, min, id, top);
        n += w;
        q += code * w;
        qq += code * code * w;
        x += v * w;
        xq += v * code * w;
    }
    Moments { n: n.total(), q: q.total(), qq: qq.total(), x: x.total(), xq: xq.total() }
}

impl Moments {
    /// The line of least squared error for these codes; `None` where all codes are equal.
    fn line(&self) -> Option<Line> {
        let det = self.n * self.qq - self.q * self.q;
        if det <= 0.0 {
            return None;
        }
        let scale = (self.n * self.xq - self.x * self.q) / det;
        let min = (self.q * self.xq - self.qq * self.x) / det;
        // The format only subtracts: where it should add, the best line goes through zero.
        Some(if min < 0.0 { Line { scale: self.xq / self.qq, min: 0.0 } } else { Line { scale, min } })
    }
}

/// Step 1: the best line for a group by itself.
fn fit<const L: usize>(group: Weighed<L>, top: f32) -> Line {
    let lo = group.x.iter().fold(0.0f32, |lo, &v| lo.min(v));
    let hi = group.x.iter().fold(f32::NEG_INFINITY, |hi, &v| hi.max(v));
    if hi <= lo {
        return Line { scale: 0.0, min: -lo };
    }
    let mut best = Line { scale: (hi - lo) / top, min: -lo };
    let mut error = squared_error(group, best, top);
    for spread in -10..=10i8 {
        let id = (top + 0.1 * f32::from(spread)) / (hi - lo);
        if !id.is_finite() {
            break;
        }
        if let Some(line) = moments(group, -lo, id, top).line() {
            let e = squared_error(group, line, top);
            if e < error {
                (best, error) = (line, e);
            }
        }
    }
    best
}

/// Step 3 for every group, and the error of the whole super-block.
fn choose_all<const L: usize, const G: usize>(
    groups: &[Weighed<L>; G],
    lines: &[Line; G],
    factors: Factors,
    limits: Limits,
) -> ([Steps; G], f32) {
    let mut steps = [Steps::default(); G];
    let mut total = 0.0;
    for ((steps, &group), line) in steps.iter_mut().zip(groups).zip(lines) {
        let (chosen, error) = choose(group, *line, factors, limits);
        *steps = chosen;
        total += error;
    }
    (steps, total)
}

/// Step 3: the best scale and minimum near those of `line`, and their squared error.
fn choose<const L: usize>(group: Weighed<L>, line: Line, factors: Factors, limits: Limits) -> (Steps, f32) {
    let near = |value: f32, factor: f32| {
        let nearest = (value * inverse(factor) + 0.5) as i32;
        let within = |step: i32| step.clamp(0, i32::from(limits.step)) as u8;
        within(nearest - 1)..=within(nearest + 1)
    };
    let mut best = (Steps::default(), f32::INFINITY);
    for min in near(line.min, factors.dmin) {
        for scale in near(line.scale, factors.d) {
            let steps = Steps { scale, min };
            let error = squared_error(group, factors.line(steps), f32::from(limits.code));
            if error < best.1 {
                best = (steps, error);
            }
        }
    }
    best
}

/// Step 4: the factors of least squared error for the integers that `steps` and `factors` give.
///
/// With `a = scale * code` and `b = min`, weights are `d * a - dmin * b`: two unknowns, solved in f64 because the
/// determinant is a small difference of large sums.
fn refit<const L: usize>(groups: &[Weighed<L>], steps: &[Steps], factors: Factors, top: f32) -> Factors {
    let (mut aa, mut ab, mut bb, mut xa, mut xb) = (0.0f64, 0.0f64, 0.0f64, 0.0f64, 0.0f64);
    for (&group, &steps) in groups.iter().zip(steps) {
        let line = factors.line(steps);
        let m = moments(group, line.min, inverse(line.scale), top);
        let (scale, min) = (f64::from(steps.scale), f64::from(steps.min));
        aa += scale * scale * f64::from(m.qq);
        ab += scale * min * f64::from(m.q);
        bb += min * min * f64::from(m.n);
        xa += scale * f64::from(m.xq);
        xb += min * f64::from(m.x);
    }
    let det = aa * bb - ab * ab;
    let (d, dmin) = if det > 0.0 {
        ((xa * bb - xb * ab) / det, (xa * ab - xb * aa) / det)
    } else if aa > 0.0 {
        (xa / aa, 0.0)
    } else {
        return factors;
    };
    Factors::rounded(d.max(0.0) as f32, dmin.max(0.0) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_exactly() {
        let x: [f32; 32] = std::array::from_fn(|j| (j % 16) as f32 * 0.5 - 3.0);
        let group = Weighed { x: &x, w: &[1.0; 32] };
        let line = fit(group, 15.0);
        assert!((line.scale - 0.5).abs() < 1e-6 && (line.min - 3.0).abs() < 1e-5);
        assert!(squared_error(group, line, 15.0) < 1e-9);
    }

    #[test]
    fn flat_groups_keep_their_value() {
        for (value, want) in [(0.0, 0.0), (-2.0, 2.0)] {
            let line = fit(Weighed { x: &[value; 32], w: &[1.0; 32] }, 15.0);
            assert_eq!((line.scale, line.min), (0.0, want));
        }
        let line = fit(Weighed { x: &[3.0; 32], w: &[1.0; 32] }, 15.0);
        assert!((line.scale * 15.0 - 3.0).abs() < 1e-6 && line.min == 0.0);
    }
}
