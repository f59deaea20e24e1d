//! Mirostat's second version (Basu et al. 2020): keeps a text's surprise near a target by moving the bound above which
//! tokens are left out.

use crate::row::Row;
use crate::{Error, Params, select};

/// The bound, in bits: it begins at twice the target and moves with every token drawn.
#[derive(Debug, Clone)]
pub(crate) struct Mirostat {
    on: bool,
    bound: f64,
    target: f64,
    rate: f64,
}

impl Mirostat {
    pub(crate) fn new(p: &Params) -> Self {
        let target = f64::from(p.mirostat_tau);
        Self { on: p.mirostat == 2, bound: 2.0 * target, target, rate: f64::from(p.mirostat_eta) }
    }

    /// Keeps the tokens within the bound.
    pub(crate) fn narrow(&self, row: &mut Row<'_>) -> Result<(), Error> {
        if self.on {
            let (kept, best) = row.list()?;
            select::surprise(kept, self.bound, best);
        }
        Ok(())
    }

    /// A token was drawn that had this probability among those within the bound.
    pub(crate) fn observe(&mut self, probability: f64) {
        if self.on {
            self.bound -= self.rate * (-libm::log2(probability) - self.target);
        }
    }
}
