//! `cera rerank`: which documents answer a query best.

use std::io::{self, Write};
use std::path::PathBuf;

use cera::{Options, Pooling};
use serde_json::json;

use crate::args::ModelArgs;
use crate::failure::Failure;
use crate::input;
use crate::model;

/// Scores documents by how well they answer a query, and shows them from the best on.
///
/// Takes models that read both together (cross-encoders such as BGE's and Qwen 3's rerankers). A score is what the model
/// gives: a logit, or the probability of yes where the model says yes or no.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// The query.
    #[arg(short, long, env = "CERA_QUERY", value_name = "TEXT")]
    query: String,
    /// A document. May be given several times.
    #[arg(short, long, env = "CERA_DOCUMENT", value_name = "TEXT", required_unless_present = "file")]
    document: Vec<String>,
    /// A file with a document a line; `-` is standard input. Empty lines are none.
    #[arg(short, long, env = "CERA_FILE")]
    file: Option<PathBuf>,
    /// Show so many, the best [default: all].
    #[arg(long, env = "CERA_TOP_N", value_name = "N")]
    top_n: Option<usize>,
}

/// Runs the command.
pub fn run(args: &Args, json: bool) -> Result<(), Failure> {
    let mut documents = args.document.clone();
    if let Some(path) = &args.file {
        let text = input::read_file(path)?;
        documents.extend(text.lines().filter(|line| !line.is_empty()).map(str::to_owned));
    }
    if documents.is_empty() {
        return Err(Failure::Call("there is no document to score".into()));
    }
    let options = Options { pooling: Some(Pooling::Rank), ..model::options(&args.model) };
    let mut engine = model::load(&args.model, &options)?;
    let scores = engine.rank(&args.query, &documents)?;

    let mut ranked: Vec<(usize, f32)> = scores.into_iter().enumerate().collect();
    // Documents of one score stay in their order.
    ranked.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let mut out = io::BufWriter::new(io::stdout().lock());
    for (index, score) in ranked.into_iter().take(args.top_n.unwrap_or(usize::MAX)) {
        let document = documents.get(index).map_or("", String::as_str);
        if json {
            writeln!(out, "{}", json!({ "index": index, "score": score, "document": document }))?;
        } else {
            writeln!(out, "{score:.6}\t{index}\t{document}")?;
        }
    }
    Ok(out.flush()?)
}
