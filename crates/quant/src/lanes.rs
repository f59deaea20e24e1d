//! Arithmetic of the encoders' searches, shaped so that compilers turn it into vector code.

/// The nearest whole number, ties to even, for magnitudes below 2^22.
#[inline(always)]
pub(crate) fn nearest(v: f32) -> f32 {
    // At 1.5 * 2^23 the spacing of f32 is 1, so the sum is rounded to a whole number.
    const WHOLE: f32 = 12_582_912.0;
    (v + WHOLE) - WHOLE
}

/// Adds up `N` terms for each of `L` weights (a multiple of 8), in eight partial sums.
#[inline(always)]
pub(crate) fn sum<const L: usize, const N: usize>(x: &[f32; L], term: impl Fn(f32) -> [f32; N]) -> [f32; N] {
    const { assert!(L.is_multiple_of(8)) };
    let mut lanes = [[0.0f32; 8]; N];
    for x in x.as_chunks::<8>().0 {
        for (l, &v) in x.iter().enumerate() {
            for (lanes, t) in lanes.iter_mut().zip(term(v)) {
                lanes[l] += t;
            }
        }
    }
    lanes.map(|l| l.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_breaks_ties_to_even() {
        for (v, want) in [(0.5, 0.0), (1.5, 2.0), (-2.5, -2.0), (62.51, 63.0), (-0.4, 0.0), (4e6, 4e6)] {
            assert_eq!(nearest(v), want);
        }
    }

    #[test]
    fn every_weight_is_counted_once() {
        let x: [f32; 24] = std::array::from_fn(|i| i as f32);
        assert_eq!(sum(&x, |v| [v, 1.0]), [276.0, 24.0]);
    }
}
