//! The codebooks of IQ2 and IQ3: magnitudes from a grid, and a sign for each.
//!
//! Some formats spend seven bits on eight signs: an even number of them is negative, so the eighth follows. Where the
//! weights have it otherwise one sign has to be wrong. Which one, and which magnitudes, is decided together.

use crate::codebook::{Codebook, Group};
use crate::grid::{Found, Grid, halves, halves_with_one};

/// The magnitudes of eight weights.
pub(crate) trait Magnitudes {
    /// Names them.
    type Code: Copy;
    /// The largest.
    fn largest(&self) -> i8;
    /// The best ones, with all signs right or with one wrong.
    fn nearest(&self, eight: &Eight, one_wrong: bool) -> Self::Code;
    /// The magnitudes of a code.
    fn of(&self, code: Self::Code) -> [i8; 8];
}

/// What is to be encoded: magnitudes, their importances, and the scale.
pub(crate) struct Eight<'a> {
    x: [f32; 8],
    w: &'a [f32; 8],
    scale: f32,
}

impl Eight<'_> {
    /// The best point of a grid of `D` coordinates, for those of the eight from `from` on.
    #[inline(always)]
    fn point<const D: usize, const H: usize, const K: usize>(
        &self,
        grid: &Grid<H>,
        levels: &[i8; K],
        from: usize,
        one_wrong: bool,
    ) -> Found {
        let levels = levels.map(|level| self.scale * f32::from(level));
        let cost = |i: usize, v: f32| self.w[from + i] * (self.x[from + i] - v) * (self.x[from + i] - v);
        let costs: [[f32; K]; D] = std::array::from_fn(|i| levels.map(|v| cost(i, v)));
        let (lower, upper) = costs.split_at(D / 2);
        if !one_wrong {
            return grid.cheaper(&halves(upper), &halves(lower), Found::NONE);
        }
        let wrong: [[f32; K]; D] = std::array::from_fn(|i| levels.map(|v| cost(i, -v)));
        let (wrong_lower, wrong_upper) = wrong.split_at(D / 2);
        let in_lower = grid.cheaper(&halves(upper), &halves_with_one(wrong_lower, lower), Found::NONE);
        grid.cheaper(&halves_with_one(wrong_upper, upper), &halves(lower), in_lower)
    }
}

/// One point for eight weights, out of `N`.
pub(crate) struct OfEight<const N: usize> {
    pub grid: &'static Grid<81>,
    pub points: &'static [[i8; 8]; N],
    pub levels: [i8; 3],
}

impl<const N: usize> Magnitudes for OfEight<N> {
    type Code = u16;

    fn largest(&self) -> i8 {
        self.levels[2]
    }

    fn nearest(&self, eight: &Eight, one_wrong: bool) -> u16 {
        self.grid.code(eight.point::<8, _, _>(self.grid, &self.levels, 0, one_wrong))
    }

    fn of(&self, code: u16) -> [i8; 8] {
        self.points[usize::from(code)]
    }
}

/// Two points for four weights each, out of `N`.
pub(crate) struct OfFour<const N: usize> {
    pub grid: &'static Grid<64>,
    pub points: &'static [[i8; 4]; N],
    pub levels: [i8; 8],
}

impl<const N: usize> Magnitudes for OfFour<N> {
    type Code = [u16; 2];

    fn largest(&self) -> i8 {
        self.levels[7]
    }

    fn nearest(&self, eight: &Eight, one_wrong: bool) -> [u16; 2] {
        let point = |from, one_wrong| eight.point::<4, _, _>(self.grid, &self.levels, from, one_wrong);
        let mut points = [point(0, false), point(4, false)];
        if one_wrong {
            let other = [point(0, true), point(4, true)];
            if other[0].cost + points[1].cost < points[0].cost + other[1].cost {
                points[0] = other[0];
            } else {
                points[1] = other[1];
            }
        }
        points.map(|point| self.grid.code(point))
    }

    fn of(&self, [first, second]: [u16; 2]) -> [i8; 8] {
        let [a, b, c, d] = self.points[usize::from(first)];
        let [e, f, g, h] = self.points[usize::from(second)];
        [a, b, c, d, e, f, g, h]
    }
}

/// Magnitudes and signs.
pub(crate) struct Signed<M> {
    pub magnitudes: M,
    /// Whether the number of negative signs must be even.
    pub even: bool,
}

/// Names eight signed values.
#[derive(Clone, Copy)]
pub(crate) struct SignedCode<C> {
    pub magnitudes: C,
    /// Bit `j` is set where value `j` is negative.
    pub signs: u8,
}

impl<M: Magnitudes> Codebook for Signed<M> {
    type Code = SignedCode<M::Code>;

    fn largest(&self) -> f32 {
        f32::from(self.magnitudes.largest())
    }

    fn nearest<const E: usize>(&self, group: Group<E>, scale: f32) -> [Self::Code; E] {
        std::array::from_fn(|e| {
            let (x, w) = (&group.x[e], &group.w[e]);
            let mut signs = (0..8).fold(0, |signs, j| signs | u8::from(x[j] < 0.0) << j);
            let one_wrong = self.even && signs.count_ones() % 2 == 1;
            let eight = Eight { x: x.map(f32::abs), w, scale };
            let magnitudes = self.magnitudes.nearest(&eight, one_wrong);
            if one_wrong {
                // What a wrong sign adds to the squared error is four times this times the scale.
                let levels = self.magnitudes.of(magnitudes);
                let adds = |j: usize| w[j] * eight.x[j] * f32::from(levels[j]);
                signs ^= 1 << (1..8).fold(0, |least, j| if adds(j) < adds(least) { j } else { least });
            }
            SignedCode { magnitudes, signs }
        })
    }

    fn values(&self, code: Self::Code) -> [f32; 8] {
        signed(self.magnitudes.of(code.magnitudes), code.signs)
    }
}

/// Magnitudes with their signs, of which bit `j` is set where value `j` is negative.
#[inline]
pub(crate) fn signed(magnitudes: [i8; 8], signs: u8) -> [f32; 8] {
    std::array::from_fn(|j| f32::from(if signs >> j & 1 == 0 { magnitudes[j] } else { -magnitudes[j] }))
}

/// Eight signs from seven: the number of negative ones is even.
#[inline]
pub(crate) const fn eighth_sign(seven: u8) -> u8 {
    let seven = seven & 127;
    let eighth = seven.count_ones() as u8 % 2;
    seven | eighth << 7
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{iq2_xxs, iq3_xxs};

    #[test]
    fn an_even_number_of_signs_is_negative() {
        for seven in 0..128 {
            let eight = eighth_sign(seven);
            assert_eq!((eight & 127, eight.count_ones() % 2), (seven, 0));
        }
        assert_eq!(signed([1, 2, 3, 4, 5, 6, 7, 8], 0x81), [-1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -8.0]);
    }

    /// The least squared error that any code leaves of eight weights, gone through one by one.
    fn least(x: &[f32; 8], w: &[f32; 8], scale: f32, all: impl Iterator<Item = [i8; 8]>) -> f32 {
        let negative = (0..8).fold(0, |signs, j| signs | u8::from(x[j] < 0.0) << j);
        let mut least = f32::INFINITY;
        for magnitudes in all {
            // No sign wrong, or one.
            for wrong in [0, 1, 2, 4, 8, 16, 32, 64, 128] {
                let signs: u8 = negative ^ wrong;
                if signs.count_ones().is_multiple_of(2) {
                    least = least.min(error(x, w, scale, signed(magnitudes, signs)));
                }
            }
        }
        least
    }

    fn error(x: &[f32; 8], w: &[f32; 8], scale: f32, values: [f32; 8]) -> f32 {
        (0..8).map(|j| w[j] * (scale * values[j] - x[j]).powi(2)).sum()
    }

    fn found_is_least<M: Magnitudes>(book: &Signed<M>, all: impl Iterator<Item = [i8; 8]> + Clone) {
        for seed in 1..9 {
            let number = |i: usize| (i * i * 7919 * seed + i * 104_729) % 1009;
            let x = std::array::from_fn(|j| number(j) as f32 / 504.5 - 1.0);
            let w = std::array::from_fn(|j| number(j + 8) as f32 / 1009.0 + 0.1);
            let scale = 1.0 / book.largest();
            let [code] = book.nearest(Group { x: &[x], w: &[w] }, scale);
            assert_eq!(code.signs.count_ones() % 2, 0);
            let (found, least) = (error(&x, &w, scale, book.values(code)), least(&x, &w, scale, all.clone()));
            assert!((found - least).abs() <= 1e-5 * least, "{found} for {least}");
        }
    }

    #[test]
    fn the_best_code_is_found_even_if_a_sign_has_to_be_wrong() {
        found_is_least(&iq2_xxs::BOOK, iq2_xxs::POINTS.iter().copied());
        let points = &iq3_xxs::POINTS;
        let all = (0..65_536).map(|both| [points[both % 256], points[both / 256]]);
        found_is_least(&iq3_xxs::BOOK, all.map(|[[a, b, c, d], [e, f, g, h]]| [a, b, c, d, e, f, g, h]));
    }
}
