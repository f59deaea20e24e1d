//! From a prompt to an answer: one sequence, token by token.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use cera_sample::{Params, Sampler};
use cera_token::{Detokenizer, Shown};

use crate::stop::StopStrings;
use crate::{Engine, Error, Part, Sequence, Want};

/// How to go on from a sequence's tokens.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// How tokens are chosen.
    pub sampling: Params,
    /// The most tokens to generate. `None`: as many as the context holds.
    pub max_tokens: Option<usize>,
    /// Strings that end the answer; no part of them is given out.
    pub stop: Vec<String>,
    /// Go on behind the tokens that end an answer.
    pub ignore_eog: bool,
}

/// What happens during a generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// So many of the pending prompt tokens have been through the model; the next step begins.
    Prompt {
        /// Tokens done.
        done: usize,
        /// Tokens in all.
        total: usize,
    },
    /// A token was generated, one that ends the answer included.
    Token(u32),
    /// More text of the answer: whole characters. Absent where the engine has no tokenizer.
    Text(&'a str),
}

/// Why a generation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finish {
    /// The model generated a token that ends its answer.
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
    /// Tokens of the sequence that the cache held already.
    pub reused_tokens: usize,
    /// Tokens of the prompt that went through the model.
    pub prompt_tokens: usize,
    /// Tokens generated, one that ends the answer included.
    pub generated_tokens: usize,
    /// From the start to the end of the prompt's last step.
    pub prompt_time: Duration,
    /// From there to the end.
    pub generation_time: Duration,
    /// From the start to the first token chosen; `None` where there was none.
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

/// Counts and times, filled as the generation goes.
#[derive(Default)]
struct Progress {
    prompt_end: Option<Instant>,
    first_token: Option<Instant>,
    prompt_tokens: usize,
    generated: usize,
}

impl Engine {
    /// Puts the sequence's pending tokens through the model, then generates tokens and appends them. `on` is told
    /// of each step and may break off at any of them; what was done until then stays in the sequence, and a
    /// later call goes on from there. The last token stays pending, since nothing has asked what follows it.
    ///
    /// # Errors
    /// [`Error::Request`] where nothing is pending or a stop string is empty, [`Error::Sample`] for parameters,
    /// and the errors of [`Engine::step`].
    pub fn generate(
        &mut self,
        sequence: &mut Sequence,
        request: &Request,
        on: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Report, Error> {
        if sequence.pending().is_empty() {
            return Err(Error::Request("nothing to go on from: the sequence has no pending token".into()));
        }
        if request.stop.iter().any(String::is_empty) {
            return Err(Error::Request("an empty stop string would stop every answer at once".into()));
        }
        if !request.stop.is_empty() {
            self.tokenizer()?;
        }
        let reused_tokens = sequence.stored();
        let start = Instant::now();
        let mut progress = Progress::default();
        let finish = self.answer(sequence, request, &mut progress, on)?;
        let end = Instant::now();
        let prompt_end = progress.prompt_end.unwrap_or(end);
        Ok(Report {
            reused_tokens,
            prompt_tokens: progress.prompt_tokens,
            generated_tokens: progress.generated,
            prompt_time: prompt_end.duration_since(start),
            generation_time: end.duration_since(prompt_end),
            first_token: progress.first_token.map(|t| t.duration_since(start)),
            load_time: self.load_time(),
            finish,
        })
    }

    fn answer(
        &mut self,
        sequence: &mut Sequence,
        request: &Request,
        progress: &mut Progress,
        on: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Finish, Error> {
        let mut sampler = Sampler::new(request.sampling.clone())?;
        for &token in sequence.tokens() {
            sampler.accept(token);
        }
        // The backend's own choice is the same token, and spares the row of logits.
        let greedy = is_greedy(&request.sampling);
        let want = if greedy { Want::Token } else { Want::Logits };
        let limit = request.max_tokens.unwrap_or(usize::MAX);
        let prompt_want = if limit == 0 { Want::Nothing } else { want };

        let stored = sequence.stored();
        let prefilled =
            self.prefill(sequence, prompt_want, &mut |done, total| on(Event::Prompt { done, total }))?;
        progress.prompt_end = Some(Instant::now());
        progress.prompt_tokens = sequence.stored() - stored;
        if prefilled.is_break() {
            return Ok(Finish::Cancelled);
        }

        let tokenizer = self.tokenizer().ok().cloned();
        let mut detokenizer = tokenizer.as_ref().map(|t| Detokenizer::new(t, Shown::Text));
        let mut stops = StopStrings::new(&request.stop);
        let finish = loop {
            if progress.generated >= limit {
                break Finish::Length;
            }
            if sequence.tokens().len() >= sequence.context() {
                break Finish::Context;
            }
            if progress.generated > 0 {
                self.step(&mut [Part { sequence, rows: 1, want }])?;
            }
            let token = self.choose(&mut sampler, greedy)?;
            sequence.append(&[token])?;
            sampler.accept(token);
            progress.generated += 1;
            progress.first_token.get_or_insert_with(Instant::now);
            if on(Event::Token(token)).is_break() {
                break Finish::Cancelled;
            }
            let (Some(tokenizer), Some(detokenizer)) = (&tokenizer, &mut detokenizer) else { continue };
            if !request.ignore_eog && tokenizer.is_eog(token) {
                break Finish::Eog;
            }
            // Rows of the output that only fill it up are no tokens, and have no text.
            let known = (token as usize) < tokenizer.len();
            let piece = if known { detokenizer.push(token)? } else { "" };
            let (text, stopped) = stops.push(piece);
            if !text.is_empty() && on(Event::Text(&text)).is_break() {
                break Finish::Cancelled;
            }
            if stopped {
                break Finish::Stop;
            }
        };
        if matches!(finish, Finish::Eog | Finish::Length | Finish::Context) {
            // What was held back turns out to be no stop string, or the bytes of no character.
            let (mut text, stopped) = stops.push(detokenizer.as_mut().map_or("", Detokenizer::finish));
            if !stopped {
                text.push_str(&stops.finish());
            }
            if !text.is_empty() && on(Event::Text(&text)).is_break() {
                return Ok(Finish::Cancelled);
            }
            if stopped {
                return Ok(Finish::Stop);
            }
        }
        Ok(finish)
    }

    /// Puts a sequence's pending tokens through the model, at most [`max_rows`](Engine::max_rows) a step. `on` is
    /// told before each step how many are done of how many, and may break off: something is still pending then.
    /// What is wanted of the last row is in [`Engine::output`] afterwards.
    ///
    /// # Errors
    /// As [`Engine::step`].
    pub fn prefill(
        &mut self,
        sequence: &mut Sequence,
        want: Want,
        on: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Error> {
        let total = sequence.pending().len();
        loop {
            let left = sequence.pending().len();
            let rows = left.min(self.max_rows());
            if rows == 0 {
                return Ok(ControlFlow::Continue(()));
            }
            if on(total - left, total).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let want = if rows == left { want } else { Want::Nothing };
            self.step(&mut [Part { sequence, rows, want }])?;
        }
    }

    /// The next token, from the last step's output.
    fn choose(&mut self, sampler: &mut Sampler, greedy: bool) -> Result<u32, Error> {
        let out = self.output();
        if !greedy {
            return Ok(sampler.sample(&mut out.logits)?);
        }
        out.tokens.first().copied().ok_or_else(|| Error::Request("the backend gave no token".into()))
    }
}

/// Whether the choice is always the greatest logit as the model gives it.
fn is_greedy(p: &Params) -> bool {
    let neutral = p.repeat_penalty == 1.0 && p.frequency_penalty == 0.0 && p.presence_penalty == 0.0;
    p.temperature == 0.0 && (neutral || p.repeat_last_n == 0)
}
