//! `cera bench`: how fast a prompt is read and an answer written, measured as llama-bench does.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::Instant;

use cera::{Engine, Options, Part, Want};
use serde_json::json;

use crate::args::ModelArgs;
use crate::failure::Failure;
use crate::interrupt::Answering;
use crate::model::{self, Chosen};
use crate::progress;

/// Measures speed: of a prompt of random tokens, then of tokens one by one, each from an empty cache.
///
/// Each measurement is done once to warm up and then repeated; shown are the median and the range. The file needs no
/// tokenizer.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Tokens of the prompt; 0 leaves this measurement out.
    #[arg(short, long, env = "CERA_BENCH_PROMPT", default_value = "512", value_name = "TOKENS")]
    prompt: usize,
    /// Tokens to generate; 0 leaves this measurement out.
    #[arg(short = 'n', long, env = "CERA_BENCH_TOKENS", default_value = "128")]
    tokens: usize,
    /// Tokens that are in the cache before each measurement.
    #[arg(short, long, env = "CERA_BENCH_DEPTH", default_value = "0", value_name = "TOKENS")]
    depth: usize,
    /// Measurements of each kind.
    #[arg(short, long, env = "CERA_BENCH_REPEAT", default_value = "3", value_name = "TIMES")]
    repeat: NonZeroUsize,
}

/// One kind of measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Prompt,
    Generation,
}

/// Speeds of one kind, in tokens a second, rising.
struct Speeds(Vec<f64>);

/// Runs the command.
pub fn run(args: &Args, json: bool) -> Result<(), Failure> {
    let tests: Vec<_> = [(Kind::Prompt, args.prompt), (Kind::Generation, args.tokens)]
        .into_iter()
        .filter(|&(_, tokens)| tokens > 0)
        .collect();
    let Some(longest) = tests.iter().map(|&(_, tokens)| tokens).max() else {
        return Err(Failure::Call("nothing to measure: -p and -n are both 0".into()));
    };
    let context = longest.checked_add(args.depth);
    let context = context.ok_or_else(|| Failure::Call("-p, -n and -d are too large".into()))?;
    if let Some(given) = args.model.context.filter(|c| c.get() < context) {
        let what = format!("-c {given} is too small: the measurements need {context} tokens");
        return Err(Failure::Call(what));
    }
    let options = model::options(&args.model);
    let options = Options { context: options.context.or(Some(context)), text: false, ..options };
    let Chosen { backend, threads, tier } = model::backend(&args.model)?;
    let mut engine = model::load_into(backend, &args.model, &options)?;

    let mut out = io::stdout().lock();
    if !json {
        let (name, bytes) = (name(&engine, args), engine.weight_bytes() as f64 / 1e6);
        let tier = tier.map_or(String::new(), |t| format!(" {t}"));
        writeln!(out, "{name}, {bytes:.1} MB of weights, {}{tier}, {threads} threads", engine.backend())?;
        writeln!(out, "{:<16} {:>12} {:>12} {:>12}", "test", "tokens/s", "least", "most")?;
    }
    for (kind, tokens) in tests {
        let speeds = measure(&mut engine, kind, tokens, args)?;
        let test = label(kind, tokens, args.depth);
        let [least, median, most] = speeds.summary();
        if json {
            let line = json!({
                "model": name(&engine, args),
                "weight_bytes": engine.weight_bytes(),
                "backend": engine.backend(),
                "threads": threads,
                "cpu_tier": tier,
                "chunk": engine.max_rows(),
                "test": test,
                "tokens": tokens,
                "depth": args.depth,
                "tokens_per_second": median,
                "least": least,
                "most": most,
                "samples": speeds.0,
            });
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{test:<16} {median:>12.2} {least:>12.2} {most:>12.2}")?;
        }
        out.flush()?;
    }
    Ok(())
}

/// The model's own name, or the one it was asked for by.
fn name(engine: &Engine, args: &Args) -> String {
    let own = engine.metadata().str("general.name").ok().flatten();
    own.map_or_else(|| args.model.model.clone(), |n| n.escape_debug().to_string())
}

/// llama-bench's name of a measurement: `pp512`, `tg128`, `tg128 @ d4096`.
fn label(kind: Kind, tokens: usize, depth: usize) -> String {
    let kind = match kind {
        Kind::Prompt => "pp",
        Kind::Generation => "tg",
    };
    if depth == 0 { format!("{kind}{tokens}") } else { format!("{kind}{tokens} @ d{depth}") }
}

fn measure(engine: &mut Engine, kind: Kind, tokens: usize, args: &Args) -> Result<Speeds, Failure> {
    let repeat = args.repeat.get();
    let bar = progress::rounds(&label(kind, tokens, args.depth));
    bar.set_length(repeat as u64);
    let answering = Answering::begin();
    // To warm up, a few tokens are enough where they go one by one.
    let warm_up = if kind == Kind::Prompt { tokens } else { tokens.min(4) };
    time(engine, kind, warm_up, args.depth, &answering)?;
    let mut speeds = Vec::new();
    for _ in 0..repeat {
        speeds.push(tokens as f64 / time(engine, kind, tokens, args.depth, &answering)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    speeds.sort_by(f64::total_cmp);
    Ok(Speeds(speeds))
}

/// Seconds of one measurement, in a sequence of its own.
fn time(
    engine: &mut Engine,
    kind: Kind,
    tokens: usize,
    depth: usize,
    answering: &Answering,
) -> Result<f64, Failure> {
    let mut random = Random(depth as u64);
    let vocabulary = engine.vocabulary();
    let mut draw = |count: usize| (0..count).map(|_| random.below(vocabulary)).collect::<Vec<u32>>();
    let mut sequence = engine.sequence();
    let prefill = |engine: &mut Engine, sequence: &mut cera::Sequence, want| match engine.prefill(
        sequence,
        want,
        &mut |_, _| answering.flow(),
    )? {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Failure::Interrupted),
    };
    sequence.append(&draw(depth))?;
    prefill(engine, &mut sequence, Want::Nothing)?;
    let tokens = draw(tokens);
    let start = Instant::now();
    match kind {
        Kind::Prompt => {
            sequence.append(&tokens)?;
            prefill(engine, &mut sequence, Want::Token)?;
        }
        Kind::Generation => {
            for token in tokens {
                if answering.flow().is_break() {
                    return Err(Failure::Interrupted);
                }
                sequence.append(&[token])?;
                engine.step(&mut [Part { sequence: &mut sequence, rows: 1, want: Want::Token }])?;
            }
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

impl Speeds {
    /// Least, median and most.
    fn summary(&self) -> [f64; 3] {
        let at = |i: usize| self.0.get(i).copied().unwrap_or(0.0);
        let n = self.0.len();
        let middle = (at(n.saturating_sub(1) / 2) + at(n / 2)) / 2.0;
        [at(0), middle, at(n.saturating_sub(1))]
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014): which tokens they are does not matter, that they are the same each
/// time does.
struct Random(u64);

impl Random {
    /// The next number below `n`, which must fit 32 bits.
    fn below(&mut self, n: usize) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // The upper half times n, the upper half of that: as even as 32 bits can be.
        (((z >> 32) * n as u64) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Speeds(vec![1.0, 2.0, 9.0]).summary(), [1.0, 2.0, 9.0]);
        assert_eq!(Speeds(vec![1.0, 2.0, 4.0, 9.0]).summary(), [1.0, 3.0, 9.0]);
        assert_eq!(Speeds(vec![5.0]).summary(), [5.0, 5.0, 5.0]);
    }

    #[test]
    fn random_tokens_stay_in_the_vocabulary_and_repeat() {
        let draw = || {
            let mut random = Random(7);
            (0..1000).map(|_| random.below(10)).collect::<Vec<_>>()
        };
        let ids = draw();
        assert_eq!(ids, draw());
        for id in 0..10 {
            assert!(ids.iter().filter(|&&i| i == id).count() > 50);
        }
        assert!(ids.iter().all(|&i| i < 10));
    }

    #[test]
    fn tests_are_called_as_llama_bench_calls_them() {
        assert_eq!(label(Kind::Prompt, 512, 0), "pp512");
        assert_eq!(label(Kind::Generation, 128, 4096), "tg128 @ d4096");
    }
}
