//! Eight f32 at a time for the encoders' searches: each operation is a loop over an array, which compilers turn into
//! one or two vector instructions on any target.

use std::ops::{Add, AddAssign, Mul, Sub};

/// Eight numbers side by side.
#[derive(Clone, Copy, Default)]
pub(crate) struct Lanes([f32; 8]);

impl Lanes {
    /// A group of `L` weights (a multiple of 8), eight by eight.
    #[inline(always)]
    pub fn of<const L: usize>(x: &[f32; L]) -> impl Iterator<Item = Lanes> {
        const { assert!(L.is_multiple_of(8)) };
        x.as_chunks::<8>().0.iter().map(|&x| Lanes(x))
    }

    /// One number eight times.
    #[inline(always)]
    pub fn of_all(v: f32) -> Lanes {
        Lanes([v; 8])
    }

    #[inline(always)]
    fn with(self, other: Lanes, f: impl Fn(f32, f32) -> f32) -> Lanes {
        let mut out = self;
        for (out, other) in out.0.iter_mut().zip(other.0) {
            *out = f(*out, other);
        }
        out
    }

    /// The nearest whole numbers within `lo..=hi`, themselves whole and below 2^22; ties go to even.
    #[inline(always)]
    pub fn nearest_within(self, lo: f32, hi: f32) -> Lanes {
        // At 1.5 * 2^23 the spacing of f32 is 1, so the sum is rounded to a whole number.
        const WHOLE: f32 = 12_582_912.0;
        let above = self.with(Lanes([lo; 8]), |v, lo| if v > lo { v } else { lo });
        let within = above.with(Lanes([hi; 8]), |v, hi| if v < hi { v } else { hi });
        within + WHOLE - WHOLE
    }

    /// 1 where a number is above `limit`, else 0.
    #[inline(always)]
    pub fn above(self, limit: f32) -> Lanes {
        self.with(Lanes([limit; 8]), |v, limit| if v > limit { 1.0 } else { 0.0 })
    }

    /// The numbers themselves.
    pub fn array(self) -> [f32; 8] {
        self.0
    }

    /// The sum of the eight.
    #[inline(always)]
    pub fn total(self) -> f32 {
        let [a, b, c, d, e, f, g, h] = self.0;
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }
}

impl From<[f32; 8]> for Lanes {
    #[inline(always)]
    fn from(v: [f32; 8]) -> Lanes {
        Lanes(v)
    }
}

macro_rules! operation {
    ($trait:ident, $method:ident, $operator:tt) => {
        impl $trait for Lanes {
            type Output = Lanes;
            #[inline(always)]
            fn $method(self, other: Lanes) -> Lanes {
                self.with(other, |a, b| a $operator b)
            }
        }

        impl $trait<f32> for Lanes {
            type Output = Lanes;
            #[inline(always)]
            fn $method(self, other: f32) -> Lanes {
                self.with(Lanes([other; 8]), |a, b| a $operator b)
            }
        }
    };
}

operation!(Add, add, +);
operation!(Sub, sub, -);
operation!(Mul, mul, *);

impl AddAssign for Lanes {
    #[inline(always)]
    fn add_assign(&mut self, other: Lanes) {
        *self = *self + other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_breaks_ties_to_even_and_stays_within() {
        let v = Lanes([0.5, 1.5, -2.5, 62.51, -0.4, 1e30, -1e30, 31.4]);
        assert_eq!(v.nearest_within(-32.0, 63.0).array(), [0.0, 2.0, -2.0, 63.0, 0.0, 63.0, -32.0, 31.0]);
    }

    #[test]
    fn every_weight_is_counted_once() {
        let x: [f32; 24] = std::array::from_fn(|i| i as f32);
        let mut sum = Lanes::default();
        for v in Lanes::of(&x) {
            sum += v * 2.0 - v + 1.0;
        }
        assert_eq!(sum.total(), 276.0 + 24.0);
    }
}
