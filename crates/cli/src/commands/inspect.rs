//! `cera inspect`: what a file holds.

use std::collections::HashMap;
use std::io::{self, Write};

use cera::Source;
use cera_gguf::{Array, Checkpoint, TensorInfo, Value, shown};
use cera_quant::Type;
use serde_json::{Map, json};

use crate::failure::Failure;
use crate::model;

/// Shows a file's metadata, the mix of its tensor types, and its tensors.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The model: a path to a GGUF file or a Hugging Face folder, or a short name.
    #[arg(short, long, env = "CERA_MODEL")]
    model: String,
}

/// How much of a file is of one type.
pub struct Share {
    ty: Type,
    tensors: usize,
    bytes: u64,
}

impl Share {
    pub fn json(&self) -> serde_json::Value {
        json!({ "type": self.ty.name(), "tensors": self.tensors, "bytes": self.bytes })
    }
}

/// Runs the command.
pub fn run(args: &Args, json: bool) -> Result<(), Failure> {
    let path = model::file(&args.model)?;
    let source = Source::open(&path).map_err(cera::Error::from)?;
    let file = source.checkpoint();
    let mix = mix(file.tensors());
    let mut out = io::BufWriter::new(io::stdout().lock());
    if json {
        let metadata: Map<_, _> = file.metadata().iter().map(|(k, v)| (k.to_string(), to_json(v))).collect();
        let tensor = |t: &TensorInfo| json!({ "name": t.name, "type": t.ty.name(), "dims": t.dims, "offset": t.offset, "bytes": t.bytes });
        let object = json!({
            "path": path,
            "bytes": source.stored_bytes(),
            "version": source.version(),
            "metadata": metadata,
            "types": mix.iter().map(Share::json).collect::<Vec<_>>(),
            "tensors": file.tensors().iter().map(tensor).collect::<Vec<_>>(),
        });
        writeln!(out, "{object}")?;
    } else {
        text(&mut out, &path.display().to_string(), &source, &mix)?;
    }
    Ok(out.flush()?)
}

fn text(out: &mut impl Write, path: &str, source: &Source, mix: &[Share]) -> io::Result<()> {
    let kind = match source.version() {
        Some(version) => format!("GGUF version {version}"),
        None => "Hugging Face folder, as its GGUF file would be".into(),
    };
    writeln!(out, "{path}: {kind}, {}", megabytes(source.stored_bytes()))?;
    let file: &dyn Checkpoint = source.checkpoint();
    writeln!(out, "\nmetadata: {} keys", file.metadata().len())?;
    for (key, value) in file.metadata().iter() {
        writeln!(out, "  {} = {value}", key.escape_debug())?;
    }
    writeln!(out, "\ntypes: {}", mix.len())?;
    let total = mix.iter().map(|s| s.bytes).sum::<u64>().max(1);
    for s in mix {
        let part = 100.0 * s.bytes as f64 / total as f64;
        let (name, size) = (s.ty.name(), megabytes(s.bytes));
        writeln!(out, "  {name:<8} {:>5} tensors {size:>12} {part:>5.1} %", s.tensors)?;
    }
    writeln!(out, "\ntensors: {}", file.tensors().len())?;
    for t in file.tensors() {
        // The alignment of columns is for the eye; names that are too long for it only shift them.
        let name = shown(&t.name);
        let dims: Vec<String> = t.dims.iter().map(u64::to_string).collect();
        writeln!(out, "  {name:<40} {:<8} {:<20} {:>12}", t.ty.name(), dims.join(" x "), megabytes(t.bytes))?;
    }
    Ok(())
}

pub fn megabytes(bytes: u64) -> String {
    format!("{:.2} MB", bytes as f64 / 1e6)
}

/// The types of the tensors, the one with most bytes first.
pub fn mix(tensors: &[TensorInfo]) -> Vec<Share> {
    let mut shares: HashMap<Type, Share> = HashMap::new();
    for t in tensors {
        let share = shares.entry(t.ty).or_insert(Share { ty: t.ty, tensors: 0, bytes: 0 });
        share.tensors += 1;
        share.bytes = share.bytes.saturating_add(t.bytes);
    }
    let mut mix: Vec<Share> = shares.into_values().collect();
    mix.sort_by_key(|s| (std::cmp::Reverse(s.bytes), s.ty.id()));
    mix
}

/// A value as JSON. Of an array, which may be a whole vocabulary, the type, the length and the first items.
fn to_json(value: &Value) -> serde_json::Value {
    const FIRST: usize = 8;
    macro_rules! first {
        ($array:expr, $($variant:ident)*) => {
            match $array {
                $(Array::$variant(items) => json!(items.iter().take(FIRST).collect::<Vec<_>>()),)*
            }
        };
    }
    match value {
        Value::U8(v) => json!(v),
        Value::I8(v) => json!(v),
        Value::U16(v) => json!(v),
        Value::I16(v) => json!(v),
        Value::U32(v) => json!(v),
        Value::I32(v) => json!(v),
        Value::F32(v) => json!(v),
        Value::Bool(v) => json!(v),
        Value::String(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::I64(v) => json!(v),
        Value::F64(v) => json!(v),
        Value::Array(a) => {
            let first = first!(a, U8 I8 U16 I16 U32 I32 F32 Bool String U64 I64 F64);
            json!({ "type": a.type_name(), "length": a.len(), "first": first })
        }
    }
}
