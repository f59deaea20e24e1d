//! `cera pull`: fetch a model ahead of its use.

use std::io::{self, Write};

use serde_json::json;

use crate::failure::Failure;
use crate::model;

/// Fetches a model into the cache and prints where it is.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// A short name (`cera list` shows them), or hf:org/repo[:file].
    #[arg(env = "CERA_MODEL", required_unless_present = "model")]
    name: Option<String>,
    /// The same, as other commands take it.
    #[arg(short, long, conflicts_with = "name")]
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
