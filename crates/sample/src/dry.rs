//! DRY, "don't repeat yourself": a penalty on tokens that would go on with a repetition. Its inventor, p-e-w, describes it
//! in text-generation-webui's pull request 5677.
//!
//! Where the last `n` tokens have occurred before, the token that came after them then would make the repetition longer by
//! one. It is penalised by `multiplier * base^(n - allowed)` if `n` is at least what is allowed. Texts can break
//! repetitions: only tokens behind the last of them count.

use crate::row::Row;
use crate::{Params, Vocabulary};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The tokens that are searched, and what is needed to search them.
#[derive(Clone)]
pub(crate) struct Dry {
    /// What breakers are found in.
    vocabulary: Option<Arc<dyn Vocabulary>>,
    on: bool,
    breakers: Vec<Vec<u8>>,
    /// `None`: all tokens.
    limit: Option<usize>,
    /// Oldest first.
    tokens: VecDeque<u32>,
    /// Tokens since one completed a breaker.
    since: usize,
    /// The last bytes of the text, one fewer than the longest breaker has.
    tail: Vec<u8>,
    /// Scratch: lengths of repetitions, and the longest by the token that comes next.
    lengths: Vec<usize>,
    longest: HashMap<u32, usize>,
}

impl Dry {
    /// `vocabulary` may be absent where no breaker has to be found in tokens.
    pub(crate) fn new(p: &Params, vocabulary: Option<Arc<dyn Vocabulary>>) -> Self {
        Self {
            vocabulary,
            on: p.uses_dry(),
            breakers: p.dry_sequence_breakers.iter().map(|b| b.as_bytes().to_vec()).collect(),
            limit: usize::try_from(p.dry_penalty_last_n).ok(),
            tokens: VecDeque::new(),
            since: 0,
            tail: Vec::new(),
            lengths: Vec::new(),
            longest: HashMap::new(),
        }
    }

    pub(crate) fn push(&mut self, token: u32) {
        if !self.on {
            return;
        }
        self.tokens.push_back(token);
        if self.limit.is_some_and(|limit| self.tokens.len() > limit) {
            self.tokens.pop_front();
        }
        self.since = if self.breaks(token) { 0 } else { self.since.saturating_add(1) };
    }

    /// Whether the text behind this token has a breaker that ends within it.
    fn breaks(&mut self, token: u32) -> bool {
        let Some(vocabulary) = &self.vocabulary else { return false };
        let before = self.tail.len();
        self.tail.extend_from_slice(vocabulary.piece(token));
        let breaks = self.breakers.iter().any(|b| {
            // What ends in the text before has been seen already.
            let from = (before + 1).saturating_sub(b.len());
            holds(self.tail.get(from..).unwrap_or_default(), b)
        });
        let longest = self.breakers.iter().map(Vec::len).max().unwrap_or(0);
        self.tail.drain(..self.tail.len().saturating_sub(longest.saturating_sub(1)));
        breaks
    }

    /// Whether the token is a breaker all by itself: it is never penalised.
    fn is_breaker(&self, token: u32) -> bool {
        let piece = self.vocabulary.as_deref().map_or(&[][..], |v| v.piece(token));
        self.breakers.iter().any(|b| holds(piece, b))
    }

    pub(crate) fn penalise(&mut self, p: &Params, row: &mut Row<'_>) {
        let n = self.tokens.len();
        let allowed = usize::try_from(p.dry_allowed_length).unwrap_or(usize::MAX);
        let limit = self.since.min(n);
        if !self.on || n <= allowed || limit < allowed {
            return;
        }
        self.measure();
        self.longest.clear();
        for (k, &length) in self.lengths.iter().enumerate().skip(1) {
            let length = length.min(limit);
            // What the repetition that ended `k` tokens ago was followed by.
            let next = self.tokens.get(n - k);
            if let Some(&next) = next.filter(|_| length >= allowed) {
                let longest = self.longest.entry(next).or_default();
                *longest = length.max(*longest);
            }
        }
        // Each token is touched once and alone, so the map's order cannot show in the result.
        for (&token, &length) in &self.longest {
            if self.is_breaker(token) {
                continue;
            }
            let penalty = penalty(p, length - allowed);
            row.adjust(token, |logit| logit - penalty);
        }
    }

    /// Fills `lengths`: how many tokens at the end, read backwards, are also what lies before `k` tokens from the end.
    ///
    /// The Z-function of the reversed tokens, in time linear in their number: `start..end` is the match found so far that
    /// reaches furthest, and within it the numbers are copied from the beginning that it equals.
    fn measure(&mut self) {
        let n = self.tokens.len();
        let back = |i: usize| self.tokens.get(n.wrapping_sub(1).wrapping_sub(i));
        self.lengths.clear();
        self.lengths.resize(n, 0);
        let (mut start, mut end) = (0, 0);
        for k in 1..n {
            let known = self.lengths.get(k - start).copied().unwrap_or(0);
            let mut length = if k < end { known.min(end - k) } else { 0 };
            while k + length < n && back(length) == back(k + length) {
                length += 1;
            }
            if k + length > end {
                (start, end) = (k, k + length);
            }
            if let Some(place) = self.lengths.get_mut(k) {
                *place = length;
            }
        }
    }
}

/// What a token loses with which a repetition would become `over` tokens longer than is allowed. Infinite where that is
/// past all numbers: the token is ruled out.
fn penalty(p: &Params, over: usize) -> f32 {
    (f64::from(p.dry_multiplier) * libm::pow(f64::from(p.dry_base), over as f64)) as f32
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len().max(1)).any(|w| w == part)
}

impl std::fmt::Debug for Dry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { on, tokens, since, .. } = self;
        f.debug_struct("Dry").field("on", on).field("tokens", tokens).field("since", since).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Letters;

    /// Tokens 0 to 25 are letters, 26 is a colon, 27 and 28 are the halves of `=>`, 29 is `x:y`.
    impl Vocabulary for Letters {
        fn piece(&self, token: u32) -> &[u8] {
            const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz:";
            match token {
                27 => b"=",
                28 => b"> ",
                29 => b"x:y",
                _ => LETTERS.get(token as usize..=token as usize).unwrap_or_default(),
            }
        }
    }

    fn penalties(p: &Params, tokens: &[u32]) -> Vec<f32> {
        let mut dry = Dry::new(p, Some(Arc::new(Letters)));
        tokens.iter().for_each(|t| dry.push(*t));
        let (mut logits, mut kept) = (vec![0.0; 30], Vec::new());
        dry.penalise(p, &mut Row::new(&mut logits, &mut kept));
        logits.into_iter().map(|l| -l).collect()
    }

    fn params() -> Params {
        Params {
            dry_multiplier: 0.5,
            dry_base: 2.0,
            dry_allowed_length: 2,
            dry_penalty_last_n: -1,
            dry_sequence_breakers: vec![":".into(), "=>".into()],
            ..Params::default()
        }
    }

    /// The lengths by their definition.
    fn lengths(tokens: &[u32]) -> Vec<usize> {
        let back: Vec<u32> = tokens.iter().rev().copied().collect();
        let common = |k: usize| back.iter().zip(&back[k..]).take_while(|(a, b)| a == b).count();
        (0..back.len()).map(|k| if k == 0 { 0 } else { common(k) }).collect()
    }

    #[test]
    fn the_token_that_came_next_is_penalised_by_the_length() {
        let text = |s: &str| s.bytes().map(|b| u32::from(b - b'a')).collect::<Vec<_>>();
        // `abc` came before `c`, `c` alone before `b`, `bc` before `y`.
        let got = penalties(&params(), &text("abccbcyabc"));
        let mut expected = vec![0.0; 30];
        expected[2] = 0.5 * 2.0;
        expected[24] = 0.5;
        assert_eq!(got, expected);
    }

    #[test]
    fn lengths_are_those_of_the_definition() {
        let mut x = 12345u64;
        for n in 0..60 {
            let tokens: Vec<u32> = (0..n)
                .map(|_| {
                    x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (x >> 61) as u32 % 3
                })
                .collect();
            let mut dry = Dry::new(&params(), None);
            tokens.iter().for_each(|t| dry.push(*t));
            dry.measure();
            assert_eq!(dry.lengths, lengths(&tokens), "{tokens:?}");
        }
    }

    #[test]
    fn breakers_end_repetitions_and_are_spared() {
        let none = vec![0.0; 30];
        // The repetition is `a:`, of which nothing lies behind the breaker.
        assert_eq!(penalties(&params(), &[0, 26, 0, 26]), none);
        // Behind it, `ab` repeats; the colon that followed is a breaker and spared.
        assert_eq!(penalties(&params(), &[0, 1, 26, 0, 1]), none);
        assert_eq!(penalties(&params(), &[0, 1, 29, 0, 1]), none);
        let mut c = none.clone();
        c[2] = 0.5;
        assert_eq!(penalties(&params(), &[0, 1, 2, 26, 0, 1]), c);
        // A breaker of two tokens ends it at the second.
        assert_eq!(penalties(&params(), &[27, 28, 0, 5, 27, 28, 0]), none);
        let whole = Params { dry_sequence_breakers: Vec::new(), ..params() };
        assert_eq!(penalties(&whole, &[27, 28, 0, 5, 27, 28, 0])[5], 1.0);
        // One half is no breaker.
        assert_eq!(penalties(&params(), &[27, 0, 5, 27, 0])[5], 0.5);
    }

    #[test]
    fn the_window_ends_somewhere_and_penalties_may_rule_tokens_out() {
        let p = Params { dry_penalty_last_n: 5, ..params() };
        assert_eq!(penalties(&p, &[0, 1, 2, 3, 0, 1])[2], 0.0);
        assert_eq!(penalties(&params(), &[0, 1, 2, 3, 0, 1])[2], 0.5);
        let steep = Params { dry_base: 1e30, ..params() };
        assert_eq!(penalties(&steep, &[0; 9])[0], f32::INFINITY);
    }
}
