//! How much the error of each weight counts.
//!
//! An importance is a number beside each weight, such as the mean square of the activations that meet its column
//! (what an "importance matrix" holds). Searches minimise `sum(importance * error^2)`, and without importances the
//! plain sum of squares; that of `codebook.rs` counts large weights more in either.

use crate::lanes::Lanes;

/// The least importance in units of the block's mean: a weight that never mattered in the sample that importances were
/// taken from is still kept near where it was.
const LEAST: f32 = 1e-6;

/// Some weights, `x`, and how much each one's error counts, `w`.
#[derive(Clone, Copy)]
pub(crate) struct Weighed<'a, const L: usize> {
    pub x: &'a [f32; L],
    pub w: &'a [f32; L],
}

impl<const L: usize> Weighed<'_, L> {
    /// The pairs of weight and importance, eight by eight.
    #[inline(always)]
    pub fn lanes(&self) -> impl Iterator<Item = (Lanes, Lanes)> {
        Lanes::of(self.x).zip(Lanes::of(self.w))
    }
}

/// A block of `N` weights as `G` groups of `L`.
pub(crate) fn groups<'a, const L: usize, const G: usize, const N: usize>(
    x: &'a [f32; N],
    w: &'a [f32; N],
) -> [Weighed<'a, L>; G] {
    const { assert!(L * G == N) };
    std::array::from_fn(|g| Weighed { x: &x.as_chunks().0[g], w: &w.as_chunks().0[g] })
}

/// The importances of a block, or the same for all.
pub(crate) fn or_alike<const N: usize>(importance: Option<&[f32; N]>) -> [f32; N] {
    importance.copied().unwrap_or([1.0; N])
}

/// A block's importances in units of their mean, which keeps sums in the range of f32: between [`LEAST`] and `N`. All
/// are 1 where the mean is 0 or no number.
pub(crate) fn relative<const N: usize>(importance: &[f32; N]) -> [f32; N] {
    let mean = importance.iter().map(|&v| f64::from(v)).sum::<f64>() / N as f64;
    importance.map(|v| {
        let relative = (f64::from(v) / mean) as f32;
        if mean > 0.0 { relative.max(LEAST).min(N as f32) } else { 1.0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn importances_are_relative_to_their_mean() {
        assert_eq!(relative(&[2e-30, 6e-30, 0.0, 0.0]), [1.0, 3.0, LEAST, LEAST]);
        assert_eq!(relative(&[f32::MAX; 8]), [1.0; 8]);
    }

    #[test]
    fn importances_that_say_nothing_are_alike() {
        for nothing in [[0.0; 4], [-1.0, 0.0, 0.5, 0.0], [1.0, f32::NAN, 1.0, 1.0]] {
            assert_eq!(relative(&nothing), [1.0; 4]);
        }
        assert!(relative(&[1.0, f32::INFINITY, -3.0, 1.0]).iter().all(|w| (LEAST..=4.0).contains(w)));
        assert_eq!(or_alike::<2>(None), [1.0; 2]);
    }

    #[test]
    fn groups_keep_weights_beside_their_importance() {
        let x: [f32; 32] = std::array::from_fn(|i| i as f32);
        let w = x.map(|v| v + 100.0);
        let groups: [Weighed<16>; 2] = groups(&x, &w);
        assert_eq!((groups[1].x[3], groups[1].w[3]), (19.0, 119.0));
        assert_eq!(groups[1].lanes().count(), 2);
    }
}
