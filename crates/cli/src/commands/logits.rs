//! `cera logits`: the model's raw answer, for comparing engines.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use cera::{Engine, Options, Part, Sequence, Want};
use clap::builder::FalseyValueParser;
use serde_json::json;

use crate::args::{InputArgs, ModelArgs, PlainTextArgs};
use crate::failure::Failure;
use crate::interrupt::Answering;
use crate::{input, model, progress};

/// Writes the logits after a text: 32-bit floats, little-endian, `[tokens, vocabulary]`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    plain: PlainTextArgs,
    /// The logits after every token, not only after the last.
    #[arg(long, env = "CERA_ALL", value_parser = FalseyValueParser::new())]
    all: bool,
    /// The file to write.
    #[arg(long, env = "CERA_OUT", value_name = "FILE")]
    out: PathBuf,
}

/// Logits of one step where all are wanted and no chunk is asked for: 64 MB, while 512 rows of a large vocabulary
/// would be half a gigabyte.
const STEP_LOGITS: usize = 16 << 20;

/// Runs the command.
pub fn run(args: &Args, json: bool) -> Result<(), Failure> {
    let input = input::read(&args.input)?;
    let options = model::options(&args.model);
    let text = matches!(input, input::Input::Text(_));
    let mut engine = model::load(&args.model, &Options { text, ..options })?;
    let tokens = input::tokens(&input, || engine.tokenizer(), args.plain)?;
    let mut sequence = engine.sequence();
    sequence.append(&tokens)?;

    let fault = |e: io::Error| Failure::new(format_args!("{} cannot be written: {e}", args.out.display()));
    let mut out = BufWriter::new(File::create(&args.out).map_err(fault)?);
    let step = match args.model.chunk {
        None if args.all => engine.max_rows().min(STEP_LOGITS / engine.vocabulary().max(1)).max(1),
        _ => engine.max_rows(),
    };
    let rows = write(&mut engine, &mut sequence, args.all, step, &mut |logits| {
        logits.iter().try_for_each(|x| out.write_all(&x.to_le_bytes())).map_err(fault)
    })?;
    out.flush().map_err(fault)?;

    let mut out = io::stdout().lock();
    let (path, vocabulary) = (&args.out, engine.vocabulary());
    if json {
        let line = json!({ "out": path, "tokens": tokens.len(), "rows": rows, "vocabulary": vocabulary });
        writeln!(out, "{line}")?;
    } else {
        writeln!(out, "{}: {rows} x {vocabulary} logits after {} tokens", path.display(), tokens.len())?;
    }
    Ok(())
}

/// Hands out the logits, `step` rows at a time; gives the number of rows.
fn write(
    engine: &mut Engine,
    sequence: &mut Sequence,
    all: bool,
    step: usize,
    to: &mut dyn FnMut(&[f32]) -> Result<(), Failure>,
) -> Result<usize, Failure> {
    let total = sequence.pending().len();
    let bar = progress::tokens("logits");
    bar.set_length(total as u64);
    let answering = Answering::begin();
    loop {
        let left = sequence.pending().len();
        let rows = left.min(step);
        if rows == 0 {
            break;
        }
        if answering.flow().is_break() {
            return Err(Failure::Interrupted);
        }
        let want = match all {
            true => Want::AllLogits,
            false if rows == left => Want::Logits,
            false => Want::Nothing,
        };
        let out = engine.step(&mut [Part { sequence, rows, want }])?;
        if want != Want::Nothing {
            to(&out.logits)?;
        }
        bar.inc(rows as u64);
    }
    bar.finish_and_clear();
    Ok(if all { total } else { 1 })
}
