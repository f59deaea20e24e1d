//! `cera plan`: the model as the backend runs it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Write};

use cera_plan::{Op, show};
use clap::builder::FalseyValueParser;
use serde_json::json;

use crate::args::ModelArgs;
use crate::failure::Failure;
use crate::model;

/// Shows the ops that a model is made of, what they cost, and which fused ops the backend takes.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Every block of the model in full, although they are alike.
    #[arg(long, env = "CERA_ALL_BLOCKS", value_parser = FalseyValueParser::new())]
    all_blocks: bool,
}

/// How often a fused op was offered to the backend, and whether it took it.
#[derive(Clone, Copy, Default)]
struct Verdict {
    taken: usize,
    refused: usize,
}

/// Runs the command.
pub fn run(args: &Args, json: bool) -> Result<(), Failure> {
    let backend = model::backend(&args.model)?.backend;
    let path = model::file(&args.model.model)?;
    let source = model::open(&path, &args.model)?;
    let model = cera_arch::build(source.checkpoint()).map_err(cera::Error::from)?;
    let base_ops = model.plan.ops.len();

    let verdicts = RefCell::new(BTreeMap::<&str, Verdict>::new());
    let plan = cera_plan::fuse(model.plan, &|fused| {
        let takes = backend.takes(fused);
        let mut verdicts = verdicts.borrow_mut();
        let verdict = verdicts.entry(Op::Fused(fused.clone()).name()).or_default();
        *(if takes { &mut verdict.taken } else { &mut verdict.refused }) += 1;
        takes
    });
    let verdicts = verdicts.into_inner();

    let mut out = io::BufWriter::new(io::stdout().lock());
    if json {
        let ops: Vec<&str> = plan.ops.iter().map(Op::name).collect();
        let verdict =
            |(name, v): (&&str, &Verdict)| json!({ "op": name, "taken": v.taken, "refused": v.refused });
        let weight_bytes: u64 = plan.weights.iter().map(|w| w.bytes() as u64).sum();
        let object = json!({
            "path": path,
            "architecture": model.architecture,
            "context_length": model.context_length,
            "backend": backend.name(),
            "base_ops": base_ops,
            "ops": ops,
            "values": plan.values.len(),
            "weights": plan.weights.len(),
            "weight_bytes": weight_bytes,
            "vocabulary": plan.vocabulary(),
            "fused": verdicts.iter().map(verdict).collect::<Vec<_>>(),
        });
        writeln!(out, "{object}")?;
    } else {
        write!(out, "{}", show::show(&plan, &show::Options { all_blocks: args.all_blocks }))?;
        writeln!(out, "\n{}: {base_ops} base ops became {} ops", backend.name(), plan.ops.len())?;
        for (name, v) in &verdicts {
            writeln!(out, "  {name:<24} taken {} times, refused {} times", v.taken, v.refused)?;
        }
    }
    Ok(out.flush()?)
}
