//! What a file says of YaRN (Peng et al. 2023, arXiv:2309.00071), and the rope that follows from it.

use cera_plan::{Rope, Yarn};

/// The keys of a file whose `rope.scaling.type` is `yarn`.
#[derive(Clone, Copy)]
pub(crate) struct Scaling {
    /// How many times longer texts are than those that the model first learned from.
    pub factor: f32,
    /// How long those were, in positions.
    pub original: usize,
    /// A pair that turns as often in such a text is not scaled.
    pub fast: f32,
    /// A pair that turns as often, or less, is scaled in full.
    pub slow: f32,
    /// What cosines and sines are multiplied with, where the file gives it.
    pub magnitude: Option<f32>,
    /// What they are multiplied with besides.
    pub extra: f32,
    /// The part of their growth that they leave to the scores (`mscale_all_dim` of the model's configuration).
    pub shared: f32,
}

impl Scaling {
    /// By how much attention is sharpened in longer texts: the paper's `0.1 ln(factor) + 1`, its logarithm times `by`.
    pub fn growth(&self, by: f32) -> f64 {
        let factor = f64::from(self.factor);
        if factor <= 1.0 { 1.0 } else { 0.1 * f64::from(by) * libm::log(factor) + 1.0 }
    }

    /// A rope scaled so, its cosines and sines by the file's factor or `growth`. The pairs that the ramp runs between
    /// are whole numbers where it is `rounded`, as models are trained but for gpt-oss.
    pub fn apply(&self, rope: Rope, rounded: bool, growth: f64) -> Rope {
        let magnitude = self.magnitude.map_or(growth, f64::from) * f64::from(self.extra);
        Rope {
            scale: 1.0 / self.factor,
            yarn: Some(self.ramp(rope.dims, f64::from(rope.base), rounded)),
            magnitude: magnitude as f32,
            ..rope
        }
    }

    /// The paper's equations 17 to 19, solved for the pair. What llama.cpp and transformers do where they say
    /// nothing: from 0 to the last element, and a ramp of no length is a thousandth long.
    fn ramp(&self, dims: usize, base: f64, rounded: bool) -> Yarn {
        let last = dims as f64;
        let pair = |turns: f32| {
            let wavelength = self.original as f64 / (f64::from(turns) * 2.0 * std::f64::consts::PI);
            last * libm::log(wavelength) / (2.0 * libm::log(base))
        };
        let (mut low, mut high) = (pair(self.fast), pair(self.slow));
        if rounded {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(last - 1.0));
        Yarn { low: low as f32, high: high.max(low + 0.001) as f32 }
    }
}

#[cfg(test)]
mod tests {
    use cera_plan::RopeStyle;

    use super::*;

    #[test]
    fn the_ramp_runs_between_the_pairs_that_turn_so_often() {
        let scaling = Scaling {
            factor: 4.0,
            original: 1024,
            fast: 32.0,
            slow: 1.0,
            magnitude: None,
            extra: 1.0,
            shared: 0.0,
        };
        let rope = Rope {
            style: RopeStyle::Halved,
            dims: 64,
            base: 10_000.0,
            scale: 1.0,
            yarn: None,
            magnitude: 1.0,
            factors: None,
        };
        // Pair i turns 1024 / (2 pi 10000^(i / 32)) times: 31.9 times at 5.6538, once at 17.695.
        let turns = |pair: f64| 1024.0 / (2.0 * std::f64::consts::PI * 10_000f64.powf(pair / 32.0));
        let exact = scaling.apply(rope, false, 1.0).yarn.unwrap();
        assert!((turns(f64::from(exact.low)) - 32.0).abs() < 1e-4);
        assert!((turns(f64::from(exact.high)) - 1.0).abs() < 1e-5);
        let grown = scaling.apply(rope, true, scaling.growth(1.0));
        assert_eq!(grown.yarn, Some(Yarn { low: exact.low.floor(), high: exact.high.ceil() }));
        assert_eq!((grown.stretch(0), grown.stretch(31)), (1.0, 0.25));
        assert!((f64::from(grown.magnitude) - (1.0 + 0.1 * 4f64.ln())).abs() < 1e-7);
    }
}
