//! `cera embed`: texts as vectors.

use std::io::{self, Write};

use cera::{Norm, Options, Pooling};
use clap::ValueEnum;
use serde_json::json;

use crate::args::{InputArgs, ModelArgs, PlainTextArgs};
use crate::failure::Failure;
use crate::input::{self, Input};
use crate::model;

/// Gives the embedding of each text: of the one behind -p, or of each line of a file.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    plain: PlainTextArgs,
    /// What becomes of a text's rows; by default what the model's file says.
    #[arg(long, env = "CERA_POOLING", value_enum)]
    pooling: Option<Pool>,
    /// What the length of each vector is made.
    #[arg(long, env = "CERA_NORMALIZE", value_enum, default_value = "l2")]
    normalize: Length,
}

/// What becomes of a text's rows.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum Pool {
    /// Each is a vector.
    None,
    /// Their mean.
    Mean,
    /// The first of them.
    Cls,
    /// The last of them.
    Last,
}

/// What a vector's length is made.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum Length {
    /// It stays as it is.
    None,
    /// 1, by the sum of squares.
    L2,
}

/// Runs the command.
pub fn run(args: &Args, json: bool) -> Result<(), Failure> {
    let inputs = inputs(args)?;
    let pooling = args.pooling.map(|p| match p {
        Pool::None => Pooling::None,
        Pool::Mean => Pooling::Mean,
        Pool::Cls => Pooling::Cls,
        Pool::Last => Pooling::Last,
    });
    let norm = match args.normalize {
        Length::None => Norm::None,
        Length::L2 => Norm::L2,
    };
    let options = Options { pooling, ..model::options(&args.model) };
    let mut engine = model::load(&args.model, &options)?;
    if engine.pooling().is_none() {
        let what =
            "the file does not say how rows become an embedding: give --pooling mean, last, cls or none";
        return Err(Failure::Call(what.into()));
    }
    if engine.pooling() == Some(Pooling::Rank) {
        return Err(Failure::Call("the model scores pairs of texts: cera rerank gives the scores".into()));
    }
    let tokens = |input| input::tokens(input, || engine.tokenizer(), args.plain);
    let sequences = inputs.iter().map(tokens).collect::<Result<Vec<_>, _>>()?;
    let embeddings = engine.embed(&sequences, norm)?;

    let width = engine.embedding_width();
    let mut out = io::BufWriter::new(io::stdout().lock());
    for (index, (embedding, tokens)) in embeddings.iter().zip(&sequences).enumerate() {
        if json {
            let rows: Vec<&[f32]> = embedding.chunks_exact(width).collect();
            let numbers = match engine.pooling() {
                Some(Pooling::None) => json!(rows),
                _ => json!(embedding),
            };
            writeln!(out, "{}", json!({ "index": index, "tokens": tokens.len(), "embedding": numbers }))?;
            continue;
        }
        for row in embedding.chunks_exact(width) {
            let numbers: Vec<String> = row.iter().map(f32::to_string).collect();
            writeln!(out, "{}", numbers.join(" "))?;
        }
    }
    Ok(out.flush()?)
}

/// The texts: each line of a file is one; empty lines are none.
fn inputs(args: &Args) -> Result<Vec<Input>, Failure> {
    let input = input::read(&args.input)?;
    let (Input::Text(text), Some(path)) = (&input, &args.input.file) else { return Ok(vec![input]) };
    let lines = text.lines().filter(|line| !line.is_empty());
    let inputs: Vec<Input> = lines.map(|line| Input::Text(line.to_owned())).collect();
    match inputs.is_empty() {
        true => Err(Failure::Call(format!("{} has no line with text", path.display()))),
        false => Ok(inputs),
    }
}
