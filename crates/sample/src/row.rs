//! The tokens that are still in the running: at first the whole row of logits, after a filter a list.

use crate::{Error, select};

/// A token and its logit, as the chain has left it so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) token: u32,
    pub(crate) logit: f32,
}

/// A row on its way through the chain.
pub(crate) struct Row<'a> {
    logits: &'a mut [f32],
    /// Once listed: the tokens left, in order of id, so that a filter that removes nothing changes nothing.
    kept: &'a mut Vec<Candidate>,
    listed: bool,
    /// What the temperature has taken from all logits alike: only the repetition penalty asks where 0 was.
    offset: f32,
    /// The best token left, until logits change.
    best: Option<Candidate>,
}

impl<'a> Row<'a> {
    /// A row of logits (`[vocabulary]`); `kept` is room for the list.
    pub(crate) fn new(logits: &'a mut [f32], kept: &'a mut Vec<Candidate>) -> Self {
        kept.clear();
        Self { logits, kept, listed: false, offset: 0.0, best: None }
    }

    /// The best token left: larger logit first, then smaller id. Refuses NaN, `+inf` and a row with nothing to choose.
    pub(crate) fn best(&mut self) -> Result<Candidate, Error> {
        if let Some(best) = self.best {
            return Ok(best);
        }
        let best = if self.listed {
            // A penalty that knows no bounds may have ruled tokens out behind a filter.
            self.kept.retain(|c| c.logit != f32::NEG_INFINITY);
            select::best_of(self.kept, self.logits.len())?
        } else {
            select::best(self.logits)?
        };
        self.best = Some(best);
        Ok(best)
    }

    /// The tokens left, in order of id and without those at `-inf`, and the best of them. The order must stay, and the
    /// best too, unless [`changed`](Self::changed) is told.
    pub(crate) fn list(&mut self) -> Result<(&mut Vec<Candidate>, Candidate), Error> {
        let best = self.best()?;
        if !self.listed {
            select::top_k(self.logits, 0, self.kept);
            self.listed = true;
        }
        Ok((self.kept, best))
    }

    /// The `k` best tokens; all of them for `k` = 0.
    pub(crate) fn top_k(&mut self, k: u32) -> Result<(), Error> {
        if k > 0 {
            self.best()?;
            if self.listed {
                select::cut(self.kept, k);
            } else {
                select::top_k(self.logits, k, self.kept);
                self.listed = true;
            }
        }
        Ok(())
    }

    /// The best may be another one now.
    pub(crate) fn changed(&mut self) {
        self.best = None;
    }

    /// Changes the logit of one token, where it is still in the running.
    pub(crate) fn adjust(&mut self, token: u32, change: impl Fn(f32) -> f32) {
        self.best = None;
        let logit = if self.listed {
            let place = self.kept.binary_search_by_key(&token, |c| c.token).ok();
            place.and_then(|i| self.kept.get_mut(i)).map(|c| &mut c.logit)
        } else {
            usize::try_from(token).ok().and_then(|i| self.logits.get_mut(i))
        };
        if let Some(logit) = logit {
            *logit = change(*logit + self.offset) - self.offset;
        }
    }

    /// Divides the distances from the best logit by `temperature`; 0 leaves the best token alone.
    pub(crate) fn heat(&mut self, temperature: f32) -> Result<(), Error> {
        let (kept, best) = self.list()?;
        if temperature == 0.0 {
            kept.retain(|c| c.token == best.token);
            return Ok(());
        }
        if temperature == 1.0 {
            return Ok(());
        }
        for c in kept.iter_mut() {
            c.logit = (c.logit - best.logit) / temperature;
        }
        kept.retain(|c| c.logit != f32::NEG_INFINITY);
        self.offset = (best.logit + self.offset) / temperature;
        self.best = Some(Candidate { logit: 0.0, ..best });
        Ok(())
    }
}
