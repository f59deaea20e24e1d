//! `cera pull`: fetch a model ahead of its use.

use std::io::{self, Write};

use serde_json::json;

use crate::failure::Failure;
use crate::model;

/// Fetches a model into the cache and prints where it is.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// A short name (`cera list` shows them), or hf:org/repo or hf:org/repo:file.
    #[arg(required_unless_present = "model")]
    name: Option<String>,
    /// The same, as other commands take it; what is named without a flag goes before it.
    #[arg(short, long, env = "CERA_MODEL")]
    model: Option<String>,
}

/// Runs the command.
pub fn run(args: &Args, json: bool) -> Result<(), Failure> {
    let Some(name) = args.name.as_ref().or(args.model.as_ref()) else {
        return Err(Failure::Call("no model is named".into()));
    };
    let path = model::file(name)?;
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", json!({ "model": name, "path": path }))?;
    } else {
        writeln!(out, "{}", path.display())?;
    }
    Ok(())
}
