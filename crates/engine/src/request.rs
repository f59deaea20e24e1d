//! What is asked of the engine, and what it gives back.

use std::time::Duration;

use cera_sample::{Grammar, Params};
use cera_token::Tokenizer;

use crate::Error;

/// How to go on from a sequence's tokens.
#[derive(Clone, Debug)]
pub struct Request {
    /// How tokens are chosen.
    pub sampling: Params,
    /// How many answers to give, side by side: at least 1. The answer of number `i` is the one that a request for one answer
    /// with the seed `sampling.seed + i` gets. [`Engine::generate`](crate::Engine::generate) gives one.
    pub choices: usize,
    /// The most tokens to generate. `None`: as many as the context holds.
    pub max_tokens: Option<usize>,
    /// The fewest tokens to generate: until then no token that ends an answer can be chosen, and no stop string counts.
    pub min_tokens: usize,
    /// Strings that end the answer; no part of them is given out.
    pub stop: Vec<String>,
    /// Go on behind the tokens that end an answer.
    pub ignore_eog: bool,
    /// What the answer must look like. No token is chosen that leads out of it, tokens that end an answer come only where it
    /// may end, whatever [`min_tokens`](Self::min_tokens) and [`ignore_eog`](Self::ignore_eog) say, and the answer ends where
    /// nothing may follow. What [`max_tokens`](Self::max_tokens), a stop string or the context breaks off is incomplete:
    /// [`Report::finish`] tells.
    pub grammar: Option<Grammar>,
    /// Give each token's logarithmic probability, and that of so many of the most likely tokens in its place.
    pub logprobs: Option<usize>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            sampling: Params::default(),
            choices: 1,
            max_tokens: None,
            min_tokens: 0,
            stop: Vec::new(),
            ignore_eog: false,
            grammar: None,
            logprobs: None,
        }
    }
}

impl Request {
    /// Checks all that does not depend on the prompt.
    ///
    /// # Errors
    /// [`Error::Request`] for what contradicts itself, [`Error::Sample`] for parameters out of their ranges,
    /// [`Error::NoTokenizer`] for stop strings, those that break repetitions, and grammars, where there is no text.
    pub fn check(&self, tokenizer: Option<&Tokenizer>) -> Result<(), Error> {
        self.sampling.validate()?;
        let refuse = |why: &str| Err(Error::Request(why.into()));
        if self.choices == 0 {
            return refuse("0 answers are asked for");
        }
        if self.stop.iter().any(String::is_empty) {
            return refuse("an empty stop string would stop every answer at once");
        }
        let needs_text = !self.stop.is_empty() || self.grammar.is_some() || self.sampling.needs_vocabulary();
        if tokenizer.is_none() && needs_text {
            return Err(Error::NoTokenizer);
        }
        match self.max_tokens {
            Some(most) if most < self.min_tokens => {
                let least = self.min_tokens;
                Err(Error::Request(format!("at least {least} tokens are asked for, and at most {most}")))
            }
            _ => Ok(()),
        }
    }
}

/// What happens during a generation. The last event is [`Event::Done`], one for each answer asked for.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// So many of the pending prompt tokens have been through the model; the next step begins.
    Prompt {
        /// Tokens done.
        done: usize,
        /// Tokens in all.
        total: usize,
    },
    /// A token was generated.
    Token(Token),
    /// An answer ended.
    Done(Report),
}

/// A generated token.
#[derive(Clone, PartialEq, Debug)]
pub struct Token {
    /// Which of the answers it belongs to, from 0.
    pub choice: usize,
    /// The token; one that ends the answer is given too.
    pub id: u32,
    /// The text that may go out now: whole characters, and nothing that may become a stop string. Often empty; always
    /// so where the engine has no tokenizer. The answer's last token brings all that was held back.
    pub text: String,
    /// Probabilities, where they were asked for.
    pub logprobs: Option<Logprobs>,
}

/// Logarithmic probabilities of tokens in one place, natural, by the model alone: before penalties and filters, at
/// temperature 1.
#[derive(Clone, PartialEq, Debug)]
pub struct Logprobs {
    /// Of the token that was chosen.
    pub chosen: f32,
    /// The most likely tokens, most likely first, the lower id first among equals.
    pub top: Vec<(u32, f32)>,
}

impl Logprobs {
    /// Of a row of logits (`[vocabulary]`), for the token chosen and the `top` most likely.
    pub(crate) fn new(logits: &[f32], chosen: u32, top: usize) -> Self {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&x| f64::from(x - max).exp()).sum();
        let log_sum = f64::from(max) + sum.ln();
        let of = |logit: f32| (f64::from(logit) - log_sum) as f32;
        let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
        let at = |id: u32| logits.get(id as usize).copied().unwrap_or(f32::NEG_INFINITY);
        let order = |a: &u32, b: &u32| at(*b).total_cmp(&at(*a)).then(a.cmp(b));
        if top < ids.len() {
            if top > 0 {
                ids.select_nth_unstable_by(top - 1, order);
            }
            ids.truncate(top);
        }
        ids.sort_unstable_by(order);
        Self { chosen: of(at(chosen)), top: ids.into_iter().map(|id| (id, of(at(id)))).collect() }
    }
}

/// Why a generation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finish {
    /// The answer came to its own end: the model generated a token that ends it, or nothing may follow by the grammar.
    Eog,
    /// The most tokens that were asked for.
    Length,
    /// A stop string.
    Stop,
    /// The context is full.
    Context,
    /// The caller broke off.
    Cancelled,
}

impl Finish {
    /// The reason in one word, as it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Eog => "eog",
            Finish::Length => "length",
            Finish::Stop => "stop",
            Finish::Context => "context",
            Finish::Cancelled => "cancelled",
        }
    }
}

/// How a generation went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Which of the answers ended, from 0.
    pub choice: usize,
    /// Tokens of the prompt that the cache held already.
    pub reused_tokens: usize,
    /// The other tokens of the prompt, which went through the model.
    pub prompt_tokens: usize,
    /// Tokens generated, one that ends the answer included.
    pub generated_tokens: usize,
    /// How long the request waited before its first step.
    pub queue_time: Duration,
    /// From there to the end of the prompt's last step.
    pub prompt_time: Duration,
    /// From there to the end.
    pub generation_time: Duration,
    /// From the request to the first token chosen, waiting included; `None` where there was none.
    pub first_token: Option<Duration>,
    /// How long the model took to load.
    pub load_time: Duration,
    /// Why it ended.
    pub finish: Finish,
}

impl Report {
    /// Prompt tokens a second, 0 where there were none.
    pub fn prompt_rate(&self) -> f64 {
        rate(self.prompt_tokens, self.prompt_time)
    }

    /// Generated tokens a second, 0 where it cannot be told. The first token comes out of the prompt's last
    /// step, so it counts for the prompt.
    pub fn generation_rate(&self) -> f64 {
        rate(self.generated_tokens.saturating_sub(1), self.generation_time)
    }
}

fn rate(tokens: usize, time: Duration) -> f64 {
    if tokens == 0 || time.is_zero() { 0.0 } else { tokens as f64 / time.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logprobs_are_a_softmax_and_the_likeliest_come_first() {
        // Probabilities 1/8, 1/2, 1/8, 1/4, by numbers that are no logarithms of them yet.
        let logits = [1.0f32, 4.0, 1.0, 2.0].map(|p| p.ln() + 3.0);
        let got = Logprobs::new(&logits, 3, 3);
        let expected = [(1, 0.5f32), (3, 0.25), (0, 0.125)];
        assert!((got.chosen - 0.25f32.ln()).abs() < 1e-6);
        for ((id, logprob), (token, p)) in got.top.iter().zip(expected) {
            assert!(*id == token && (logprob - p.ln()).abs() < 1e-6, "{got:?}");
        }
        assert_eq!(Logprobs::new(&logits, 0, 0).top, []);
        assert_eq!(Logprobs::new(&logits, 0, 99).top.len(), 4);
        assert_eq!(Logprobs::new(&[f32::NEG_INFINITY, 0.0], 0, 1).chosen, f32::NEG_INFINITY);
    }

    #[test]
    fn requests_that_contradict_themselves_are_refused() {
        let base = Request::default;
        let refused = [
            Request { choices: 0, ..base() },
            Request { stop: vec!["x".into()], ..base() },
            Request { stop: vec![String::new()], ..base() },
            Request { grammar: Some(Grammar::json_object()), ..base() },
            Request { min_tokens: 3, max_tokens: Some(2), ..base() },
            Request { sampling: Params { temperature: -1.0, ..Params::default() }, ..base() },
        ];
        for request in refused {
            assert!(request.check(None).is_err(), "{request:?}");
        }
        base().check(None).unwrap();
    }
}
