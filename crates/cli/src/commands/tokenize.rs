//! `cera tokenize`: how a text falls into tokens.

use std::io::{self, Write};

use cera::Source;
use cera_token::Shown;
use serde_json::json;

use crate::args::{InputArgs, PlainTextArgs};
use crate::failure::Failure;
use crate::{input, model};

/// Shows the tokens of a text: the id of each and what it stands for.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The model: a path to a GGUF file or a Hugging Face folder, or a short name.
    #[arg(short, long, env = "CERA_MODEL")]
    model: String,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    plain: PlainTextArgs,
    /// Split text as this pre-tokenizer does, in place of the one that the file names.
    #[arg(long, env = "CERA_PRE", value_name = "NAME")]
    pre: Option<String>,
}

/// Runs the command.
pub fn run(args: &Args, json: bool) -> Result<(), Failure> {
    let input = input::read(&args.input)?;
    let path = model::file(&args.model)?;
    let source = Source::open(&path).map_err(cera::Error::from)?;
    let tokenizer = source.tokenizer(args.pre.as_deref()).map_err(cera::Error::from)?;
    let tokenizer = tokenizer.ok_or(cera::Error::NoTokenizer)?;
    let tokens = input::tokens(&input, || Ok(&tokenizer), args.plain)?;

    let mut out = io::BufWriter::new(io::stdout().lock());
    // Ids that were given need not exist.
    let piece = |&id: &u32| -> Result<(u32, String), Failure> {
        let bytes = tokenizer.piece(id, Shown::All).map_err(cera::Error::from)?;
        Ok((id, String::from_utf8_lossy(bytes).into_owned()))
    };
    let tokens: Vec<_> = tokens.iter().map(piece).collect::<Result<_, _>>()?;
    if json {
        let token = |(id, piece): &(u32, String)| json!({ "id": id, "piece": piece });
        let tokens: Vec<_> = tokens.iter().map(token).collect();
        writeln!(out, "{}", json!({ "count": tokens.len(), "tokens": tokens }))?;
    } else {
        for (id, piece) in &tokens {
            writeln!(out, "{id:>7} {piece:?}")?;
        }
    }
    Ok(out.flush()?)
}
