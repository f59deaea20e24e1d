//! The GPU kernels' PTX, which the CUDA device has in it: made by one version of clang, so that it changes with the kernels
//! alone.

use std::path::Path;

use cera_msl_cpu::{Compiler, PROCESSOR};

/// The compiler that makes what is committed.
const CLANG: &str = "clang++-19";

/// Writes `crates/cuda/ptx`.
pub fn run(root: &Path) -> Result<(), String> {
    let compiler = Compiler::new(CLANG, root.join("target/ptx"));
    let text = compiler.ptx(PROCESSOR).map_err(|e| e.to_string())?;
    let path = root.join(format!("crates/cuda/ptx/{PROCESSOR}.ptx"));
    std::fs::write(&path, &text).map_err(|e| format!("{}: {e}", path.display()))?;
    println!("{}: {} lines", path.display(), text.lines().count());
    Ok(())
}
