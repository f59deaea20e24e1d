//! `cera convert`: a Hugging Face folder as a GGUF file.

use std::io::{self, Write};
use std::path::PathBuf;

use cera_convert::{Floats, Folder};
use cera_gguf::Checkpoint;
use cera_quant::Type;
use clap::ValueEnum;
use serde_json::json;

use crate::commands::inspect::{Share, megabytes, mix};
use crate::failure::Failure;
use crate::output::{OutputArgs, refused};

/// Writes a Hugging Face folder as a GGUF file: keys, tensors and tokenizer.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The folder: config.json, safetensors, and tokenizer.json or tokenizer.model.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
    /// The type of matrices; `auto` keeps what the folder has.
    #[arg(long, env = "CERA_OUTTYPE", value_enum, default_value_t = OutType::Auto, value_name = "TYPE")]
    outtype: OutType,
    /// The name of the pre-tokenizer, where it is not found.
    #[arg(long, env = "CERA_PRE", value_name = "NAME")]
    pre: Option<String>,
}

/// The type of matrices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[allow(missing_docs, reason = "each variant is its name")]
pub enum OutType {
    Auto,
    F32,
    F16,
    Bf16,
    #[value(name = "q8_0")]
    Q8_0,
}

/// Runs the command.
pub fn run(args: &Args, json: bool) -> Result<(), Failure> {
    args.output.check()?;
    let floats = match args.outtype {
        OutType::Auto => Floats::Stored,
        OutType::F32 => Floats::As(Type::F32),
        OutType::F16 => Floats::As(Type::F16),
        OutType::Bf16 => Floats::As(Type::BF16),
        OutType::Q8_0 => Floats::As(Type::Q8_0),
    };
    let folder = Folder::open(&args.folder, floats).map_err(refused)?;
    let model = folder.for_file(args.pre.as_deref()).map_err(refused)?;
    let bytes = args.output.save(&model, "converting")?;
    let (path, types) = (&args.output.output, mix(model.tensors()));
    let mut out = io::stdout().lock();
    if json {
        let pre = model.metadata().str("tokenizer.ggml.pre").ok().flatten();
        let types: Vec<_> = types.iter().map(Share::json).collect();
        let object = json!({
            "path": path,
            "bytes": bytes,
            "tensors": model.tensors().len(),
            "types": types,
            "pre": pre,
        });
        writeln!(out, "{object}")?;
    } else {
        let count = model.tensors().len();
        writeln!(out, "{}: {count} tensors, {}", path.display(), megabytes(bytes))?;
    }
    Ok(())
}
