//! What several measurements of one thing gave.

/// Measurements, rising.
#[derive(Clone, PartialEq, Debug)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// In any order.
    pub fn new(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Samples(samples)
    }

    /// All of them, rising.
    pub fn all(&self) -> &[f64] {
        &self.0
    }

    /// The least.
    pub fn least(&self) -> f64 {
        self.at(0)
    }

    /// The middle one; of an even number the mean of the two in the middle.
    pub fn median(&self) -> f64 {
        let n = self.0.len();
        (self.at(n.saturating_sub(1) / 2) + self.at(n / 2)) / 2.0
    }

    /// The greatest.
    pub fn most(&self) -> f64 {
        self.at(self.0.len().saturating_sub(1))
    }

    fn at(&self, i: usize) -> f64 {
        self.0.get(i).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let summary = |samples: &[f64]| {
            let s = Samples::new(samples.to_vec());
            [s.least(), s.median(), s.most()]
        };
        assert_eq!(summary(&[9.0, 1.0, 2.0]), [1.0, 2.0, 9.0]);
        assert_eq!(summary(&[4.0, 1.0, 9.0, 2.0]), [1.0, 3.0, 9.0]);
        assert_eq!(summary(&[5.0]), [5.0, 5.0, 5.0]);
    }
}
