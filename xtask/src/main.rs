//! Project chores, run as `cargo xtask CHORE`.

#![forbid(unsafe_code)]

mod cross;
mod fetch;
mod fuzz;
mod models;
mod ptx;
mod test;
mod tidy;
mod vocabs;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask tidy                    check the agreements that no compiler checks
       cargo xtask fetch NAME...           download models: smollm2 gemma270m qwen0.5; a tokenizer: bert;
                                           llama.cpp's vocabularies: vocabs
       cargo xtask test [-- ARGS]          fetch the test models, then run every test; ARGS go to cargo test
       cargo xtask fuzz [TARGET] [SECONDS] run the fuzz targets, 600 seconds each
       cargo xtask ptx                     compile the GPU kernels for NVIDIA's GPUs, with clang 19
       cargo xtask cross                   test on emulated 64-bit ARM, type check for a Mac; as root installs Debian's packages";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["tidy"] => tidy::run(root()),
        ["fetch", names @ ..] if !names.is_empty() => fetch::run(names),
        ["test", rest @ ..] => test::run(root(), rest),
        ["fuzz", rest @ ..] => fuzz::run(root(), rest),
        ["ptx"] => ptx::run(root()),
        ["cross"] => cross::run(root()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace that this program was built from.
fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}
