//! `cera list`: the models that names stand for.

use std::io::{self, Write};

use cera_hub::catalogue::CATALOGUE;
use cera_hub::{Hub, LocalModel};
use serde_json::json;

use crate::failure::Failure;

/// Shows the models on this machine, and the short names of those that can be fetched.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {}

/// Runs the command.
pub fn run(_: &Args, json: bool) -> Result<(), Failure> {
    let hub = Hub::from_env().map_err(Failure::new)?;
    let local = hub.list().map_err(Failure::new)?;
    let absent = CATALOGUE.iter().filter(|e| local.iter().all(|m| m.name != e.name));
    let mut out = io::BufWriter::new(io::stdout().lock());
    if json {
        for LocalModel { name, path, bytes } in &local {
            writeln!(out, "{}", json!({ "name": name, "local": true, "bytes": bytes, "path": path }))?;
        }
        for e in absent {
            writeln!(
                out,
                "{}",
                json!({ "name": e.name, "local": false, "bytes": e.bytes, "about": e.about })
            )?;
        }
    } else {
        for LocalModel { name, path, bytes } in &local {
            writeln!(out, "{name:<12} {:>10.1} MB  {}", *bytes as f64 / 1e6, path.display())?;
        }
        for e in absent {
            writeln!(out, "{:<12} {:>13}  {}", e.name, "not fetched", e.about)?;
        }
    }
    Ok(out.flush()?)
}
