//! From a prompt to an answer: one sequence, token by token.

use std::ops::ControlFlow;
use std::time::Instant;

use crate::decoding::Decoding;
use crate::{Engine, Error, Event, Finish, Part, Report, Request, Sequence, Want};

/// Counts and times, filled as the generation goes.
#[derive(Default)]
struct Progress {
    prompt_end: Option<Instant>,
    first_token: Option<Instant>,
    prompt_tokens: usize,
}

impl Engine {
    /// Puts the sequence's pending tokens through the model, then generates tokens and appends them. `on` is told
    /// of each step and may break off at any of them; what was done until then stays in the sequence, and a
    /// later call goes on from there. The last token stays pending, since nothing has asked what follows it.
    /// The report comes back, not as an event.
    ///
    /// # Errors
    /// [`Error::Request`] where nothing is pending or several answers are asked for, those of [`Request::check`],
    /// [`Error::Sample`] for a grammar that cannot be used, and the errors of [`Engine::step`].
    pub fn generate(
        &mut self,
        sequence: &mut Sequence,
        request: &Request,
        on: &mut dyn FnMut(Event) -> ControlFlow<()>,
    ) -> Result<Report, Error> {
        if sequence.pending().is_empty() {
            return Err(Error::Request("nothing to go on from: the sequence has no pending token".into()));
        }
        if request.choices > 1 {
            let choices = request.choices;
            return Err(Error::Request(format!("{choices} answers are asked for: one sequence holds one")));
        }
        request.sampling.check_vocabulary(self.vocabulary())?;
        request.check(self.tokenizer().ok())?;
        let grammar = request.grammar.as_ref().map(|grammar| self.compiler.compile(grammar)).transpose()?;
        let constraint = grammar.map(|compiled| compiled.start());
        let tokens = sequence.tokens();
        let mut decoding = Decoding::new(request, 0, self.tokenizer().ok(), tokens, constraint)?;
        let reused_tokens = sequence.stored();
        let start = Instant::now();
        let mut progress = Progress::default();
        let finish = self.answer(sequence, &mut decoding, &mut progress, on)?;
        let end = Instant::now();
        let prompt_end = progress.prompt_end.unwrap_or(end);
        Ok(Report {
            choice: 0,
            reused_tokens,
            prompt_tokens: progress.prompt_tokens,
            generated_tokens: decoding.generated(),
            queue_time: Default::default(),
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
        decoding: &mut Decoding,
        progress: &mut Progress,
        on: &mut dyn FnMut(Event) -> ControlFlow<()>,
    ) -> Result<Finish, Error> {
        let stored = sequence.stored();
        let prompt = &mut |done, total| on(Event::Prompt { done, total });
        let prefilled = self.prefill(sequence, decoding.want(), prompt)?;
        progress.prompt_end = Some(Instant::now());
        progress.prompt_tokens = sequence.stored() - stored;
        if prefilled.is_break() {
            return Ok(Finish::Cancelled);
        }
        if let Some(finish) = decoding.ended(sequence.tokens().len(), sequence.context()) {
            return Ok(finish);
        }
        loop {
            let out = self.output();
            let best = out.tokens.first().copied();
            let best = best.ok_or_else(|| Error::Request("the backend gave no token".into()))?;
            let (id, logprobs) = decoding.choose(best, &mut out.logits)?;
            sequence.append(&[id])?;
            progress.first_token.get_or_insert_with(Instant::now);
            let (token, finish) = decoding.take(id, logprobs, sequence.tokens().len(), sequence.context())?;
            let flow = on(Event::Token(token));
            if let Some(finish) = finish {
                return Ok(finish);
            }
            if flow.is_break() {
                return Ok(Finish::Cancelled);
            }
            self.step(&mut [Part { sequence, rows: 1, want: decoding.want() }])?;
        }
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
            let rows = sequence.cut(left.min(self.max_rows()));
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
}
