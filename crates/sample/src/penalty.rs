//! Penalties on tokens that have occurred: the window of the last n and what it does to logits.

use crate::Params;
use crate::row::Row;
use std::collections::{HashMap, VecDeque};

/// The last `limit` accepted tokens and how often each occurs among them.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    /// `None`: every token counts, for ever.
    limit: Option<usize>,
    tokens: VecDeque<u32>,
    counts: HashMap<u32, u32>,
}

impl Window {
    /// `last_n` as in [`Params::repeat_last_n`]; negative is unlimited. Memory grows only with accepted tokens.
    pub(crate) fn new(last_n: i32) -> Self {
        Self { limit: usize::try_from(last_n).ok(), tokens: VecDeque::new(), counts: HashMap::new() }
    }

    pub(crate) fn push(&mut self, token: u32) {
        let Some(limit) = self.limit else {
            // Without a limit nothing ever leaves, so the counts alone are the window.
            let count = self.counts.entry(token).or_default();
            *count = count.saturating_add(1);
            return;
        };
        if limit == 0 {
            return;
        }
        if self.tokens.len() == limit
            && let Some(old) = self.tokens.pop_front()
            && let Some(count) = self.counts.get_mut(&old)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&old);
            }
        }
        self.tokens.push_back(token);
        *self.counts.entry(token).or_default() += 1;
    }

    /// Applies the three penalties. A token without a logit has nothing to penalise.
    pub(crate) fn penalise(&self, p: &Params, row: &mut Row<'_>) {
        if !p.penalises() {
            return;
        }
        // Each token is touched once and alone, so the map's order cannot show in the result.
        for (&token, &count) in &self.counts {
            row.adjust(token, |logit| {
                let logit = if logit > 0.0 { logit / p.repeat_penalty } else { logit * p.repeat_penalty };
                logit - (count as f32 * p.frequency_penalty + p.presence_penalty)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params() -> Params {
        Params { repeat_penalty: 2.0, frequency_penalty: 0.5, presence_penalty: 0.25, ..Params::default() }
    }

    fn penalise(w: &Window, p: &Params, logits: &mut [f32]) {
        w.penalise(p, &mut Row::new(logits, &mut Vec::new()));
    }

    #[test]
    fn each_penalty_counts_what_it_says() {
        let mut w = Window::new(8);
        [1, 1, 2, 9].into_iter().for_each(|t| w.push(t));
        let mut logits = [4.0, 4.0, -1.0, 4.0];
        penalise(&w, &params(), &mut logits);
        // 4/2 - 2*0.5 - 0.25; -1*2 - 0.5 - 0.25; token 9 has no logit.
        assert_eq!(logits, [4.0, 0.75, -2.75, 4.0]);
    }

    #[test]
    fn tokens_leave_the_window() {
        let mut w = Window::new(2);
        [0, 1, 2].into_iter().for_each(|t| w.push(t));
        let mut logits = [1.0; 4];
        penalise(&w, &params(), &mut logits);
        assert_eq!(logits, [1.0, -0.25, -0.25, 1.0]);
        assert_eq!(w.counts.len(), 2, "a count of zero must not linger");
    }

    #[test]
    fn zero_sees_nothing_and_minus_one_everything() {
        let (mut none, mut all) = (Window::new(0), Window::new(-1));
        for t in 0..1000 {
            none.push(t % 2);
            all.push(t % 2);
        }
        let p = Params { repeat_penalty: 1.0, frequency_penalty: 1.0, presence_penalty: 0.0, ..params() };
        let (mut a, mut b) = ([0.0; 2], [0.0; 2]);
        penalise(&none, &p, &mut a);
        penalise(&all, &p, &mut b);
        assert_eq!((a, b), ([0.0; 2], [-500.0; 2]));
    }
}
