//! `cera quantize`: a model with fewer bits a weight.

use std::io::{self, Write};
use std::path::PathBuf;

use cera::{Importances, Mix, Notes, Recipe, Source};
use cera_convert::{Floats, Folder};
use cera_gguf::TensorInfo;
use cera_quant::Type;
use clap::builder::FalseyValueParser;
use regex::Regex;
use serde_json::json;

use crate::commands::inspect::{Share, megabytes, mix};
use crate::failure::Failure;
use crate::model;
use crate::output::{OutputArgs, refused};

/// Writes a model with its matrices in fewer bits, as a GGUF file.
///
/// A mix such as Q4_K_M gives most matrices one type, and those that errors hurt most one of more bits. Names and rules are
/// llama.cpp's. `cera quantize --help` lists the mixes.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = mixes())]
pub struct Args {
    /// The model: a path to a GGUF file or a Hugging Face folder, or a name. Best is one of 16 or 32 bits a weight.
    #[arg(value_name = "IN")]
    input: String,
    #[command(flatten)]
    output: OutputArgs,
    /// The mix of types.
    #[arg(value_name = "MIX")]
    mix: Mix,
    /// An importance matrix, as llama.cpp's imatrix writes it: how much each column of each matrix counts.
    #[arg(long, env = "CERA_IMATRIX", value_name = "FILE")]
    imatrix: Option<PathBuf>,
    /// Use importances only for tensors whose names hold one of these.
    #[arg(
        long,
        env = "CERA_INCLUDE_WEIGHTS",
        value_name = "TEXT",
        value_delimiter = ',',
        requires = "imatrix"
    )]
    #[arg(conflicts_with = "exclude_weights")]
    include_weights: Vec<String>,
    /// Use no importances for tensors whose names hold one of these.
    #[arg(
        long,
        env = "CERA_EXCLUDE_WEIGHTS",
        value_name = "TEXT",
        value_delimiter = ',',
        requires = "imatrix"
    )]
    exclude_weights: Vec<String>,
    /// The mix's own type for all matrices.
    #[arg(long, env = "CERA_PURE", value_parser = FalseyValueParser::new())]
    pure: bool,
    /// The type of the output matrix, output.weight.
    #[arg(long, env = "CERA_OUTPUT_TENSOR_TYPE", value_name = "TYPE", value_parser = ty)]
    #[arg(conflicts_with = "leave_output_tensor")]
    output_tensor_type: Option<Type>,
    /// The type of the token embedding, token_embd.weight.
    #[arg(long, env = "CERA_TOKEN_EMBEDDING_TYPE", value_name = "TYPE", value_parser = ty)]
    token_embedding_type: Option<Type>,
    /// Keep the output matrix as it is.
    #[arg(long, env = "CERA_LEAVE_OUTPUT_TENSOR", value_parser = FalseyValueParser::new())]
    leave_output_tensor: bool,
    /// The type of tensors whose names match a regular expression, as in ffn_down=q6_k. May be given several times; the first
    /// that matches counts.
    #[arg(long, env = "CERA_TENSOR_TYPE", value_name = "PATTERN=TYPE", value_delimiter = ',', value_parser = tensor_type)]
    tensor_type: Vec<(Regex, Type)>,
    /// Quantize matrices that are quantized already, though that loses more than quantizing the original.
    #[arg(long, env = "CERA_ALLOW_REQUANTIZE", value_parser = FalseyValueParser::new())]
    allow_requantize: bool,
    /// Show what each tensor would become, and write nothing.
    #[arg(long, env = "CERA_DRY_RUN", value_parser = FalseyValueParser::new())]
    dry_run: bool,
    /// Of a folder: the name of the pre-tokenizer, where it is not found.
    #[arg(long, env = "CERA_PRE", value_name = "NAME")]
    pre: Option<String>,
}

/// Runs the command.
pub fn run(args: &Args, json: bool) -> Result<(), Failure> {
    if !args.dry_run {
        args.output.check()?;
    }
    let recipe = recipe(args)?;
    let path = model::file(&args.input)?;
    let source = match (path.is_dir(), &args.pre) {
        (true, pre) => {
            let folder = Folder::open(&path, Floats::Stored).map_err(refused)?;
            Source::from(folder.for_file(pre.as_deref()).map_err(refused)?)
        }
        (false, Some(_)) => {
            return Err(Failure::Call("--pre is for folders: a file names its pre-tokenizer".into()));
        }
        (false, None) => Source::open(&path).map_err(refused)?,
    };
    let before = weight_bytes(source.checkpoint().tensors());
    let (source, notes) = source.quantized(recipe).map_err(refused)?;
    if !json {
        tell(&notes);
    }
    if args.dry_run {
        return show(&source, before, &notes, json);
    }
    let bytes = args.output.save(source.checkpoint(), "quantizing")?;
    let tensors = source.checkpoint().tensors();
    let mut out = io::stdout().lock();
    if json {
        let object = json!({
            "path": args.output.output,
            "bytes": bytes,
            "mix": args.mix.name(),
            "bits_a_weight": bits(tensors),
            "types": shares(tensors),
            "fallbacks": fallbacks(&notes),
            "without_importances": notes.without_importances,
        });
        writeln!(out, "{object}")?;
    } else {
        let (path, mix, bits) = (args.output.output.display(), args.mix, bits(tensors));
        writeln!(out, "{path}: {mix}, {}, {bits:.2} bits a weight", megabytes(bytes))?;
    }
    Ok(())
}

fn recipe(args: &Args) -> Result<Recipe, Failure> {
    let mut importances =
        args.imatrix.as_ref().map(Importances::open).transpose().map_err(cera::Error::from)?;
    if let Some(all) = &mut importances {
        let has = |name: &str, parts: &[String]| parts.iter().any(|part| name.contains(part));
        if !args.include_weights.is_empty() {
            all.retain(|name| has(name, &args.include_weights));
        }
        all.retain(|name| !has(name, &args.exclude_weights));
        if all.is_empty() {
            return Err(Failure::Call("no tensor of the importance matrix is left".into()));
        }
    }
    Ok(Recipe {
        pure: args.pure,
        output: args.output_tensor_type,
        embedding: args.token_embedding_type,
        leave_output: args.leave_output_tensor,
        tensors: args.tensor_type.clone(),
        importances,
        again: args.allow_requantize,
        ..Recipe::new(args.mix)
    })
}

/// Says what came otherwise than the mix has it.
fn tell(notes: &Notes) {
    for (tensor, ty) in &notes.fallbacks {
        eprintln!("{tensor}: its rows are not whole blocks of the mix's type; it becomes {ty}");
    }
    if !notes.without_importances.is_empty() {
        eprintln!("quantized without importances: {}", notes.without_importances.join(", "));
    }
}

/// What each tensor would become.
fn show(source: &Source, before: u64, notes: &Notes, json: bool) -> Result<(), Failure> {
    let tensors = source.checkpoint().tensors();
    let after = weight_bytes(tensors);
    let mut out = io::BufWriter::new(io::stdout().lock());
    if json {
        let tensor =
            |t: &TensorInfo| json!({ "name": t.name, "type": t.ty.name(), "dims": t.dims, "bytes": t.bytes });
        let object = json!({
            "bytes_before": before,
            "bytes": after,
            "bits_a_weight": bits(tensors),
            "types": shares(tensors),
            "tensors": tensors.iter().map(tensor).collect::<Vec<_>>(),
            "fallbacks": fallbacks(notes),
            "without_importances": notes.without_importances,
        });
        writeln!(out, "{object}")?;
    } else {
        for t in tensors {
            let name = cera_gguf::shown(&t.name);
            writeln!(out, "{name:<40} {:<8} {:>12}", t.ty.name(), megabytes(t.bytes))?;
        }
        let (before, after, bits) = (megabytes(before), megabytes(after), bits(tensors));
        writeln!(out, "{after} of weights, {bits:.2} bits each; {before} before")?;
    }
    Ok(out.flush()?)
}

fn weight_bytes(tensors: &[TensorInfo]) -> u64 {
    tensors.iter().map(|t| t.bytes).sum()
}

fn bits(tensors: &[TensorInfo]) -> f64 {
    let weights: f64 = tensors.iter().map(|t| t.cols() as f64 * t.rows() as f64).sum();
    8.0 * weight_bytes(tensors) as f64 / weights.max(1.0)
}

fn shares(tensors: &[TensorInfo]) -> Vec<serde_json::Value> {
    mix(tensors).iter().map(Share::json).collect()
}

fn fallbacks(notes: &Notes) -> serde_json::Value {
    let all = notes.fallbacks.iter().map(|(tensor, ty)| (tensor.clone(), json!(ty.name())));
    serde_json::Value::Object(all.collect())
}

/// A tensor type that can be encoded.
fn ty(text: &str) -> Result<Type, String> {
    let known = || {
        let names: Vec<&str> =
            Type::ALL.iter().filter(|ty| ty.codec().is_some()).map(|ty| ty.name()).collect();
        format!("types are {}", names.join(", "))
    };
    Type::from_name(text).filter(|ty| ty.codec().is_some()).ok_or_else(known)
}

/// A pattern and a type.
fn tensor_type(text: &str) -> Result<(Regex, Type), String> {
    let (pattern, name) = text.rsplit_once('=').ok_or("it is like ffn_down=q6_k")?;
    if pattern.is_empty() {
        return Err("there is no pattern before the =".into());
    }
    Ok((Regex::new(pattern).map_err(|e| e.to_string())?, ty(name)?))
}

/// The list of mixes, with what they are for.
fn mixes() -> String {
    let names: Vec<&str> = Mix::ALL.iter().map(|mix| mix.name()).collect();
    format!(
        "Mixes: {}\n\nQ4_K_M is the usual choice, Q8_0 can hardly be told from the original, Q6_K and Q5_K_M lie between; below \
         Q4_K quality falls fast. Mixes of IQ1, IQ2 and IQ3_XXS need --imatrix.",
        names.join(" ")
    )
}
