//! Speculation: tokens guessed ahead, put through the model in one step with the last known one, and taken as far as they
//! are what would have been chosen anyway (Leviathan et al. 2023, "Fast Inference from Transformers via Speculative
//! Decoding"; the guesses are Saxena's prompt lookup, 2023).
//!
//! A guess is right where the same sampler, in the same state, chooses the same token from the same logits. So an answer is
//! token for token what it would be without guesses, greedy or sampled; they only change how many steps it takes.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::decoding::Decoding;
use crate::request::Speculation;
use crate::{Error, Finish, Sequence, Token, Want};

/// Tokens in a row that must have come before, for those behind them to be guessed.
const RUN: usize = 3;
/// Guesses at first.
const FIRST: usize = 4;
/// How much of an answer's time guesses may cost on balance before they pause.
const LOSS: f64 = 0.02;

/// Guesses what comes next from what came before.
pub(crate) struct Guesser {
    /// The most guesses of a step.
    most: usize,
    always: bool,
    /// Where each run was last seen: the position behind it.
    seen: HashMap<[u32; RUN], usize>,
    /// Positions that runs in `seen` begin at.
    indexed: usize,
    /// How many to guess next.
    length: usize,
    /// Seconds of a step without guesses, about.
    plain: Option<f64>,
    /// Seconds that guesses have saved, less those that they cost.
    saved: f64,
    /// Seconds of all steps.
    total: f64,
    pub guessed: usize,
    pub right: usize,
}

impl Guesser {
    pub fn new(speculation: Speculation) -> Self {
        let (most, always) = match speculation {
            Speculation::Off => (0, false),
            Speculation::Ngram { most, always } => (most, always),
        };
        Self {
            most,
            always,
            seen: HashMap::new(),
            indexed: 0,
            length: FIRST.min(most),
            plain: None,
            saved: 0.0,
            total: 0.0,
            guessed: 0,
            right: 0,
        }
    }

    /// Guesses at most `most` tokens that follow `tokens`, of which none is ever taken back between two calls.
    pub fn guess(&mut self, tokens: &[u32], most: usize) -> Vec<u32> {
        if self.most == 0 {
            return Vec::new();
        }
        while let Some(run) = tokens.get(self.indexed..).and_then(<[u32]>::first_chunk::<RUN>)
            // The run at the end is the one that is looked for.
            && self.indexed + RUN < tokens.len()
        {
            self.seen.insert(*run, self.indexed + RUN);
            self.indexed += 1;
        }
        let pays = self.always || self.saved >= -LOSS * self.total;
        let last = tokens.last_chunk::<RUN>().filter(|_| pays);
        let Some(&from) = last.and_then(|run| self.seen.get(run)) else { return Vec::new() };
        let common = tokens.iter().rev().zip(tokens.iter().take(from).rev()).take_while(|(a, b)| a == b);
        // Two places that have more in common go on alike for longer.
        let count = self.length.min(most).min(2 * common.take(self.most).count());
        let mut guesses = Vec::with_capacity(count);
        for at in from..from + count {
            // What repeats itself up to the end is taken to go on so.
            let token = tokens.get(at).or_else(|| guesses.get(at.saturating_sub(tokens.len()))).copied();
            guesses.extend(token);
        }
        guesses
    }

    /// A step took so long, in which so many tokens were guessed and so many of them were right.
    pub fn learn(&mut self, guessed: usize, right: usize, time: Duration) {
        let time = time.as_secs_f64();
        self.total += time;
        if guessed == 0 {
            self.plain = Some(self.plain.map_or(time, |plain| plain + (time - plain) / 8.0));
            return;
        }
        self.guessed += guessed;
        self.right += right;
        self.saved += self.plain.unwrap_or(time) * (1 + right) as f64 - time;
        self.length = if right == guessed {
            (2 * self.length).min(self.most)
        } else {
            (right + 1).clamp(FIRST.min(self.most), self.most)
        };
    }

    /// No guesses from here on.
    pub fn stop(&mut self) {
        self.most = 0;
    }
}

/// What a step is asked for that has `guesses` behind the last known token.
pub(crate) fn want(decoding: &Decoding, guesses: usize) -> Want {
    match decoding.want() {
        Want::Token if guesses > 0 => Want::Tokens(guesses + 1),
        Want::Logits if guesses > 0 => Want::LogitsOf(guesses + 1),
        want => want,
    }
}

/// Takes what a step gave for the last of a sequence's first `known` tokens and for the guesses behind them: the greatest
/// logit of each row and, where they were wanted, all (`[rows, vocabulary]`). Only tokens that were chosen are left in the
/// sequence, the last of them pending. Gives how many guesses were right, and the answer's end where it came.
///
/// `on` is told of each token, and may break off.
pub(crate) fn take(
    sequence: &mut Sequence,
    decoding: &mut Decoding,
    known: usize,
    best: &[u32],
    logits: &mut [f32],
    vocabulary: usize,
    on: &mut dyn FnMut(Token) -> ControlFlow<()>,
) -> Result<(usize, Option<Finish>), Error> {
    let guesses = sequence.tokens().get(known..).unwrap_or_default().to_vec();
    let mut rows = logits.chunks_exact_mut(vocabulary.max(1));
    for row in 0..=guesses.len() {
        let logits = rows.next().unwrap_or_default();
        let chosen = match best.get(row) {
            Some(&best) => decoding.choose(best, logits),
            None => Err(Error::Request("the backend gave no token".into())),
        };
        let (id, logprobs) = match chosen {
            Ok(chosen) => chosen,
            Err(error) => {
                sequence.rewind(known + row);
                return Err(error);
            }
        };
        let right = guesses.get(row) == Some(&id);
        let taken = decoding.take(id, logprobs, known + row + 1, sequence.context());
        let mut end = !right;
        let result = match taken {
            Ok((token, finish)) => {
                let broken_off = on(token).is_break();
                let cancelled = broken_off.then_some(Finish::Cancelled);
                Ok((row + usize::from(right), finish.or(cancelled)))
            }
            Err(error) => Err(error),
        };
        end |= !matches!(result, Ok((_, None)));
        if end {
            sequence.rewind(known + row);
            sequence.append(&[id])?;
            return result;
        }
    }
    Ok((guesses.len(), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guesser(most: usize) -> Guesser {
        Guesser::new(Speculation::Ngram { most, always: false })
    }

    #[test]
    fn guesses_are_what_followed_the_same_tokens_before() {
        let mut g = guesser(8);
        assert_eq!(g.guess(&[1, 2, 3, 4, 5, 6], 8), []);
        assert_eq!(g.guess(&[1, 2, 3, 4, 5, 6, 1, 2], 8), []);
        assert_eq!(g.guess(&[1, 2, 3, 4, 5, 6, 1, 2, 3], 8), [4, 5, 6, 1]);
        assert_eq!(g.guess(&[1, 2, 3, 4, 5, 6, 1, 2, 3], 2), [4, 5]);
        // The last place counts.
        let tokens = [1, 2, 3, 4, 5, 6, 1, 2, 3, 7, 8, 1, 2, 3];
        assert_eq!(g.guess(&tokens, 8), [7, 8, 1, 2]);
        assert_eq!(guesser(0).guess(&tokens, 8), []);
    }

    #[test]
    fn a_repetition_is_taken_to_go_on() {
        let mut g = guesser(16);
        g.learn(4, 4, Duration::ZERO);
        assert_eq!(g.guess(&[7, 8, 7, 8, 7, 8, 7, 8], 16), [7, 8, 7, 8, 7, 8, 7, 8]);
        assert_eq!(guesser(3).guess(&[5, 5, 5, 5], 9), [5, 5, 5]);
    }

    #[test]
    fn guesses_grow_while_they_are_right_and_pause_where_they_cost() {
        let tokens: Vec<u32> = [1, 2].repeat(50);
        let ms = Duration::from_millis;
        let mut g = guesser(16);
        g.learn(0, 0, ms(10));
        for expected in [4, 8, 16, 16] {
            let count = g.guess(&tokens, 99).len();
            assert_eq!(count, expected);
            g.learn(count, count, ms(15));
        }
        g.learn(16, 2, ms(15));
        assert_eq!(g.guess(&tokens, 99).len(), 4);
        // What was saved is lost again.
        for _ in 0..100 {
            let count = g.guess(&tokens, 99).len();
            g.learn(count, 0, ms(if count > 0 { 25 } else { 10 }));
        }
        assert_eq!(g.guess(&tokens, 99), []);
        let lost = g.saved / g.total;
        assert!((-0.05..0.0).contains(&lost), "{lost}");
        // Behind enough steps without them they are tried again.
        (0..200).for_each(|_| g.learn(0, 0, ms(10)));
        assert_eq!(g.guess(&tokens, 99).len(), 4);
        g.stop();
        assert_eq!(g.guess(&tokens, 99), []);
    }
}
