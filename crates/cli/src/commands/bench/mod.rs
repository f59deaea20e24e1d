//! `cera bench`: how fast a prompt is read and an answer written, as llama-bench measures it, beside what the machine
//! allows and beside another engine.

mod case;
mod measure;
mod peer;
mod plot;
mod process;
mod report;
mod samples;
mod start;

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use cera::{Engine, Options};
use cera_cpu::Machine;
use clap::builder::FalseyValueParser;

use crate::args::{Device, ModelArgs};
use crate::failure::Failure;
use crate::interrupt::Answering;
use crate::{model, progress};
use case::{Case, Needs, cases};
use measure::Bench;
use peer::{BatchedBench, Job, LlamaBench, Speeds};
use process::Fault;
use report::{About, FirstToken, Outcome};
use samples::Samples;

/// Measures speed: of prompts of random tokens, then of tokens one by one, at each depth of the cache.
///
/// Each measurement is done once to warm up and then repeated; shown are the median, the range, and the part of what
/// the machine allows: bytes that must be read at its bandwidth, or operations at its peak, whichever takes longer.
/// The file needs no tokenizer.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Tokens of the prompt, or several such numbers; 0 leaves this measurement out.
    #[arg(short, long, env = "CERA_BENCH_PROMPT", default_value = "512", value_delimiter = ',')]
    #[arg(value_name = "TOKENS")]
    prompt: Vec<usize>,
    /// Tokens to generate, or several such numbers; 0 leaves this measurement out.
    #[arg(short = 'n', long, env = "CERA_BENCH_TOKENS", default_value = "128", value_delimiter = ',')]
    tokens: Vec<usize>,
    /// Tokens that are in the cache before each measurement, or several such numbers.
    #[arg(short, long, env = "CERA_BENCH_DEPTH", default_value = "0", value_delimiter = ',')]
    #[arg(value_name = "TOKENS")]
    depth: Vec<usize>,
    /// Sequences that generate side by side, one token each in a step, or several such numbers.
    #[arg(
        long,
        env = "CERA_BENCH_BATCH",
        default_value = "1",
        value_delimiter = ',',
        value_name = "SEQUENCES"
    )]
    batch: Vec<NonZeroUsize>,
    /// Measure also the time from the start of the program to its first token, after a prompt of 32.
    #[arg(long, env = "CERA_BENCH_TTFT", value_parser = FalseyValueParser::new())]
    ttft: bool,
    /// Measurements of each kind.
    #[arg(short, long, env = "CERA_BENCH_REPEAT", default_value = "3", value_name = "TIMES")]
    repeat: NonZeroUsize,
    /// Draw the results into this SVG file.
    #[arg(long, env = "CERA_BENCH_PLOT", value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Measure this llama-bench too, by turns: the same file, threads and tests.
    #[arg(long, env = "CERA_BENCH_AGAINST", value_name = "PROGRAM")]
    against: Option<PathBuf>,
    /// More words for it, such as "-rtr 1".
    #[arg(long, env = "CERA_BENCH_AGAINST_ARGS", value_name = "WORDS", requires = "against")]
    #[arg(allow_hyphen_values = true)]
    against_args: Option<String>,
    /// Measure this llama-batched-bench too, by turns, where several sequences generate.
    #[arg(long, env = "CERA_BENCH_AGAINST_BATCHED", value_name = "PROGRAM")]
    against_batched: Option<PathBuf>,
    /// More words for it.
    #[arg(long, env = "CERA_BENCH_AGAINST_BATCHED_ARGS", value_name = "WORDS", requires = "against_batched")]
    #[arg(allow_hyphen_values = true)]
    against_batched_args: Option<String>,
    /// What the other engine is called in the results [default: the program's name and its words].
    #[arg(long, env = "CERA_BENCH_AGAINST_NAME", value_name = "NAME")]
    against_name: Option<String>,
}

/// The other engine's programs.
struct Peers {
    bench: Option<LlamaBench>,
    batched: Option<BatchedBench>,
    name: Option<String>,
}

/// Runs the command.
pub fn run(args: &Args, json: bool) -> Result<(), Failure> {
    let batch: Vec<usize> = args.batch.iter().map(|n| n.get()).collect();
    let depths: Vec<Vec<Case>> =
        args.depth.iter().map(|&depth| cases(&args.prompt, &args.tokens, &batch, depth)).collect();
    check(args, &depths)?;
    let peers = Peers::new(args)?;
    let path = model::file(&args.model.model)?;
    let source = model::open(&path, &args.model)?;
    let file = source.checkpoint();
    let backend = model::backend(&args.model)?;
    let model = cera_arch::build(file).map_err(cera::Error::from)?;
    let own_name = file.metadata().str("general.name").ok().flatten();
    let needs = Needs::new(&model.plan, model::options(&args.model).cache);
    let limits = match args.model.device {
        Device::Cpu => {
            let cpu = model::cpu(args.model.threads, args.model.cpu_tier)?;
            let bar = progress::waiting("measuring the limits");
            let limits = cpu.limits().map_err(Failure::new)?;
            bar.finish_and_clear();
            Some(limits)
        }
        Device::Reference => None,
    };
    let about = About {
        model: own_name.map_or_else(|| args.model.model.clone(), |n| n.escape_debug().to_string()),
        weight_bytes: model.plan.weights.iter().map(|w| w.bytes()).sum(),
        backend: backend.backend.name(),
        threads: backend.threads,
        tier: backend.tier,
        processor: Machine::read().processor,
        chunk: model::options(&args.model).max_rows,
        limits,
        peer: peers.name.clone(),
    };
    let job = Job { model: &path, threads: about.threads };
    let answering = Answering::begin();
    let mut out = io::stdout().lock();

    let mut first = None;
    if args.ttft {
        let f = first_token(args, &peers, job, model.plan.vocabulary(), &answering)?;
        if json {
            writeln!(out, "{}", report::first_token_object(&about, &f))?;
        } else {
            report::head(&mut out, &about)?;
            report::columns(&mut out, &about, "seconds")?;
            report::first_token_line(&mut out, &about, &f)?;
        }
        out.flush()?;
        first = Some(f);
    }

    let mut outcomes = Vec::new();
    if depths.iter().any(|cases| !cases.is_empty()) {
        let options = options(args, &depths);
        let mut engine = model::load_into(backend.backend, &args.model, &options)?;
        if !json {
            if first.is_none() {
                report::head(&mut out, &about)?;
            }
            report::columns(&mut out, &about, "tokens/s")?;
            out.flush()?;
        }
        for cases in &depths {
            let done = at_depth(&mut engine, args, cases, &peers, job, &answering)?;
            for (case, (ours, peer)) in cases.iter().zip(done) {
                let bound = about.limits.as_ref().map(|l| needs.bound(case, engine.max_rows(), l));
                let outcome = Outcome { case: *case, ours, peer, bound };
                if json {
                    writeln!(out, "{}", report::object(&about, &outcome))?;
                } else {
                    report::line(&mut out, &about, &outcome)?;
                }
                out.flush()?;
                outcomes.push(outcome);
            }
        }
    }
    if let Some(path) = &args.plot {
        draw(path, &report::picture(&about, &outcomes, first.as_ref()))?;
    }
    Ok(())
}

/// Refuses calls that measure nothing, or that ask for something that would not be looked at.
fn check(args: &Args, depths: &[Vec<Case>]) -> Result<(), Failure> {
    let call = |what: String| Err(Failure::Call(what));
    let cases = || depths.iter().flatten();
    if cases().next().is_none() && !args.ttft {
        return call("nothing to measure: -p and -n are both 0, and --ttft is not given".into());
    }
    let several = cases().map(Case::sequences).max().unwrap_or(0);
    if args.against_batched.is_some() && several < 2 {
        return call("--against-batched needs --batch with more than one sequence, and -n".into());
    }
    if args.against_name.is_some() && args.against.is_none() && args.against_batched.is_none() {
        return call("--against-name needs --against or --against-batched".into());
    }
    if args.model.quant.is_some() && (args.against.is_some() || args.against_batched.is_some()) {
        return call("--quant cannot be compared: the other engine would run the file as it is".into());
    }
    let chunk = model::options(&args.model).max_rows;
    if several > chunk {
        return call(format!("--batch {several} is too large: a step has {chunk} rows; see --chunk"));
    }
    let Some(needed) = cases().map(|c| c.tokens.checked_add(c.depth)).max_by_key(|n| n.unwrap_or(usize::MAX))
    else {
        return Ok(());
    };
    let Some(needed) = needed.filter(|n| n.checked_mul(several).is_some()) else {
        return call("-p, -n, -d and --batch are too large together".into());
    };
    match args.model.context {
        Some(given) if given.get() < needed => {
            call(format!("-c {given} is too small: the measurements need {needed} tokens"))
        }
        _ => Ok(()),
    }
}

/// A context for the longest measurement, and a cache for the most sequences of a depth.
fn options<'a>(args: &'a Args, depths: &[Vec<Case>]) -> Options<'a> {
    let options = model::options(&args.model);
    let longest = depths.iter().flatten().map(|c| c.tokens.saturating_add(c.depth)).max();
    let sequences = depths.iter().flatten().map(Case::sequences).max().unwrap_or(1);
    Options { context: options.context.or(longest), text: false, sequences, ..options }
}

impl Peers {
    fn new(args: &Args) -> Result<Peers, Failure> {
        let words = |text: &Option<String>| -> Vec<String> {
            text.iter().flat_map(|t| t.split_whitespace()).map(str::to_owned).collect()
        };
        let (own, batched) = (words(&args.against_args), words(&args.against_batched_args));
        let called = |program: &Path, words: &[String]| {
            let file = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
            [&[file], words].concat().join(" ")
        };
        let called = match (&args.against, &args.against_batched) {
            (Some(program), _) => Some(called(program, &own)),
            (None, Some(program)) => Some(called(program, &batched)),
            (None, None) => None,
        };
        Ok(Peers {
            bench: args.against.as_deref().map(|program| LlamaBench::new(program, &own)).transpose()?,
            batched: args.against_batched.as_deref().map(|program| BatchedBench::new(program, &batched)),
            name: called.map(|called| args.against_name.clone().unwrap_or(called)),
        })
    }

    fn is_any(&self) -> bool {
        self.name.is_some()
    }

    /// One round of all cases of a depth.
    fn speeds(&self, job: Job<'_>, cases: &[Case]) -> Result<Speeds, Fault> {
        let mut speeds: Speeds = vec![None; cases.len()];
        let mut take = |is_it: fn(&Case) -> bool, run: &dyn Fn(&[Case]) -> Result<Speeds, Fault>| {
            let some: Vec<Case> = cases.iter().copied().filter(is_it).collect();
            if some.is_empty() {
                return Ok(());
            }
            for (case, speed) in some.iter().zip(run(&some)?) {
                if let Some(at) = cases.iter().position(|c| c == case).and_then(|i| speeds.get_mut(i)) {
                    *at = speed;
                }
            }
            Ok(())
        };
        if let Some(bench) = &self.bench {
            take(|c| c.sequences() == 1, &|some| bench.speeds(job, some))?;
        }
        if let Some(batched) = &self.batched {
            take(|c| c.sequences() > 1, &|some| batched.speeds(job, some))?;
        }
        Ok(speeds)
    }
}

/// A peer that Ctrl-C ended did not fail.
fn or_interrupted<T>(result: Result<T, Fault>, answering: &Answering) -> Result<T, Failure> {
    if answering.flow().is_break() {
        return Err(Failure::Interrupted);
    }
    Ok(result?)
}

/// Measures all cases of one depth, the engines by turns: ours and the peer's in tokens a second.
fn at_depth(
    engine: &mut Engine,
    args: &Args,
    cases: &[Case],
    peers: &Peers,
    job: Job<'_>,
    answering: &Answering,
) -> Result<Vec<(Samples, Option<Samples>)>, Failure> {
    let (Some(depth), Some(sequences)) =
        (cases.first().map(|c| c.depth), cases.iter().map(Case::sequences).max())
    else {
        return Ok(vec![]);
    };
    let bar = progress::rounds(&format!("depth {depth}"));
    bar.set_length(args.repeat.get() as u64);
    bar.tick();
    let mut bench = Bench::new(engine, answering, depth, sequences)?;
    let mut done: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); cases.len()];
    for round in 0..args.repeat.get() {
        for (case, (ours, _)) in cases.iter().zip(&mut done) {
            // A peer is started for each round and warms up each time.
            if round == 0 || peers.is_any() {
                bench.warm_up(case)?;
            }
            ours.push(case.all_tokens() as f64 / bench.seconds(case)?);
        }
        let speeds = or_interrupted(peers.speeds(job, cases), answering)?;
        for (speed, (_, peer)) in speeds.into_iter().zip(&mut done) {
            peer.extend(speed);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let samples = |(ours, peer): (Vec<f64>, Vec<f64>)| {
        (Samples::new(ours), Some(peer).filter(|p| !p.is_empty()).map(Samples::new))
    };
    Ok(done.into_iter().map(samples).collect())
}

/// Starts the program, and the peer's, by turns. The first round brings the file into memory and does not count.
fn first_token(
    args: &Args,
    peers: &Peers,
    job: Job<'_>,
    vocabulary: usize,
    answering: &Answering,
) -> Result<FirstToken, Failure> {
    let bar = progress::rounds("first token");
    bar.set_length(args.repeat.get() as u64);
    bar.tick();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=args.repeat.get() {
        let own = or_interrupted(start::seconds(job.model, &args.model, vocabulary), answering)?;
        let peer = match &peers.bench {
            Some(bench) => or_interrupted(bench.first_token(job, start::PROMPT), answering)?,
            None => None,
        };
        if round > 0 {
            ours.push(own);
            theirs.extend(peer);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let peer = Some(theirs).filter(|t| !t.is_empty()).map(Samples::new);
    Ok(FirstToken { ours: Samples::new(ours), peer })
}

fn draw(path: &Path, picture: &str) -> Result<(), Failure> {
    std::fs::write(path, picture)
        .map_err(|e| Failure::new(format_args!("{} cannot be written: {e}", path.display())))
}
