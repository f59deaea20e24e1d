//! One answer of the model, streamed as it comes, and its report.

use std::io::{self, Write};
use std::ops::ControlFlow;

use cera::{Engine, Event, Finish, Logprobs, Report, Request, Sequence};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::interrupt::Answering;
use crate::progress;

/// An answer and how it went.
pub struct Answer {
    /// Its text; empty where the file has no tokenizer.
    pub text: String,
    /// Its tokens, one that ends it included.
    pub ids: Vec<u32>,
    /// Their probabilities, where they were asked for.
    pub logprobs: Vec<Logprobs>,
    /// How it went.
    pub report: Report,
}

/// Generates from the sequence's pending tokens. With `stream` the text, or ids where there is no tokenizer, goes to
/// standard output as it comes, and a line end behind it. Ctrl-C ends the answer.
pub fn give(
    engine: &mut Engine,
    sequence: &mut Sequence,
    request: &Request,
    stream: bool,
) -> Result<Answer, Failure> {
    let text_comes = engine.tokenizer().is_ok();
    let on_disk = engine.disk_stats().is_some();
    if on_disk {
        engine.reuse(sequence)?;
    }
    let long = sequence.pending().len() > engine.max_rows();
    let bar = long.then(|| progress::tokens("reading"));
    let answering = Answering::begin();
    let (mut text, mut ids, mut logprobs) = (String::new(), Vec::new(), Vec::new());
    let mut out = io::stdout().lock();
    let mut written = Ok(());
    let report = engine.generate(sequence, request, &mut |event| {
        match event {
            Event::Prompt { done, total } => {
                if let Some(bar) = &bar {
                    bar.set_length(total as u64);
                    bar.set_position(done as u64);
                }
            }
            Event::Token(token) => {
                if let Some(bar) = &bar {
                    bar.finish_and_clear();
                }
                ids.push(token.id);
                logprobs.extend(token.logprobs);
                text.push_str(&token.text);
                if stream && !text_comes {
                    written = write!(out, "{} ", token.id).and_then(|()| out.flush());
                } else if stream && !token.text.is_empty() {
                    written = out.write_all(token.text.as_bytes()).and_then(|()| out.flush());
                }
            }
            Event::Done(_) => {}
        }
        if written.is_err() { ControlFlow::Break(()) } else { answering.flow() }
    });
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    written?;
    let report = report?;
    if on_disk {
        engine.keep(sequence)?;
    }
    if stream && !text.ends_with('\n') {
        writeln!(out)?;
    }
    Ok(Answer { text, ids, logprobs, report })
}

impl Answer {
    /// What `--json` prints of an answer.
    pub fn to_json(&self, request: &Request) -> Value {
        let r = &self.report;
        let mut object = json!({
            "text": self.text,
            "ids": self.ids,
            "finish": r.finish.name(),
            "seed": request.sampling.seed,
            "reused_tokens": r.reused_tokens,
            "prompt_tokens": r.prompt_tokens,
            "generated_tokens": r.generated_tokens,
            "prompt_tokens_per_second": r.prompt_rate(),
            "generation_tokens_per_second": r.generation_rate(),
            "first_token_seconds": r.first_token.map(|t| t.as_secs_f64()),
            "load_seconds": r.load_time.as_secs_f64(),
        });
        if request.logprobs.is_some() {
            let of = |l: &Logprobs| json!({ "logprob": l.chosen, "top": l.top });
            object["logprobs"] = self.logprobs.iter().map(of).collect();
        }
        object
    }

    /// The same for people, in one line.
    pub fn summary(&self) -> String {
        let r = &self.report;
        let first = r.first_token.map_or("none".into(), |t| format!("{:.3} s", t.as_secs_f64()));
        format!(
            "prompt: {} tokens, {:.1} tokens/s | generation: {} tokens, {:.1} tokens/s | first token: {first} | \
             load: {:.3} s | {}",
            r.prompt_tokens,
            r.prompt_rate(),
            r.generated_tokens,
            r.generation_rate(),
            r.load_time.as_secs_f64(),
            self.ending(),
        )
    }

    /// Why the answer ended, for people.
    pub fn ending(&self) -> &'static str {
        match self.report.finish {
            Finish::Eog => "the model ended its answer",
            Finish::Length => "-n reached",
            Finish::Stop => "stop text reached",
            Finish::Context => "context full",
            Finish::Cancelled => "broken off",
        }
    }
}
