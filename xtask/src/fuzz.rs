//! `cargo xtask fuzz`: builds the fuzz targets with coverage counters, and runs them from their seeds.
//!
//! The counters are LLVM's own (the pass `sancov-module`), which a stable compiler has too; libFuzzer comes with the crate
//! `libfuzzer-sys`. What a run finds is kept in `target/fuzz/corpus/TARGET` and is where the next one begins.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A target: its name, the folder of its seeds with their extension, and the longest input.
struct Target {
    name: &'static str,
    seeds: &'static str,
    extension: &'static str,
    max_len: usize,
}

const TARGETS: [Target; 5] = [
    Target { name: "gguf", seeds: "crates/token/tests/data/gguf", extension: "gguf", max_len: 20_000 },
    Target { name: "safetensors", seeds: "fuzz/seeds/safetensors", extension: "folder", max_len: 8_000 },
    Target { name: "tokenizer_json", seeds: "fuzz/seeds/tokenizer_json", extension: "json", max_len: 8_000 },
    Target { name: "text", seeds: "conformance/text", extension: "txt", max_len: 2_000 },
    Target { name: "template", seeds: "fuzz/seeds/template", extension: "jinja", max_len: 4_000 },
];

/// Runs one target, or all of them, for so many seconds each.
///
/// # Errors
/// No such target, it cannot be built, or it found something.
pub fn run(root: &Path, args: &[&str]) -> Result<(), String> {
    let (names, seconds) = match args {
        [] => (vec![], 600),
        [seconds] if seconds.parse::<u32>().is_ok() => (vec![], seconds.parse().unwrap_or(600)),
        [name] => (vec![*name], 600),
        [name, seconds] => (vec![*name], seconds.parse::<u32>().map_err(|e| format!("{seconds}: {e}"))?),
        _ => return Err("expected: fuzz [TARGET] [SECONDS]".to_owned()),
    };
    let unknown = names.iter().find(|name| TARGETS.iter().all(|t| t.name != **name));
    if let Some(name) = unknown {
        let known = TARGETS.map(|t| t.name).join(" ");
        return Err(format!("no fuzz target {name}; there are: {known}"));
    }
    let host = host()?;
    build(root, &host)?;
    for target in TARGETS.iter().filter(|t| names.is_empty() || names.contains(&t.name)) {
        fuzz(root, &host, target, seconds)?;
    }
    Ok(())
}

/// The system that this runs on, as the compiler calls it. Named in the build, so that build scripts get no counters.
fn host() -> Result<String, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let out = Command::new(rustc).arg("-vV").output().map_err(|e| format!("cannot run rustc: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).ok_or_else(|| "rustc names no host".to_owned())
}

fn build(root: &Path, host: &str) -> Result<(), String> {
    let level = "-Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                 -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root.join("fuzz")).args(["build", "--release", "--target", host]);
    cargo.env("CARGO_TARGET_DIR", target_dir(root));
    cargo.env("RUSTFLAGS", format!("-Cpasses=sancov-module {level}"));
    finish(cargo, "cargo")
}

fn target_dir(root: &Path) -> PathBuf {
    root.join("target").join("fuzz")
}

fn fuzz(root: &Path, host: &str, target: &Target, seconds: u32) -> Result<(), String> {
    let folder = target_dir(root);
    let (corpus, found) = (folder.join("corpus").join(target.name), folder.join("found").join(target.name));
    for dir in [&corpus, &found] {
        fs::create_dir_all(dir).map_err(|e| format!("cannot create {}: {e}", dir.display()))?;
    }
    let seeds = seeds(&root.join(target.seeds), target.extension, &corpus)?;
    println!("fuzz: {} for {seconds} s from {seeds} seeds", target.name);
    let mut run = Command::new(folder.join(host).join("release").join(target.name));
    run.arg(&corpus)
        .arg(format!("-artifact_prefix={}/", found.display()))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={}", target.max_len))
        // An input that takes a second or a gigabyte is a fault too.
        .args([
            "-timeout=5",
            "-report_slow_units=2",
            "-rss_limit_mb=2048",
            "-malloc_limit_mb=1024",
            "-print_final_stats=1",
        ]);
    finish(run, target.name)
}

/// Copies the seeds into the corpus; those that are longer than inputs may be are cut there by the fuzzer.
fn seeds(from: &Path, extension: &str, corpus: &Path) -> Result<usize, String> {
    let entries = fs::read_dir(from).map_err(|e| format!("cannot read {}: {e}", from.display()))?;
    let mut count = 0;
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == extension) {
            fs::copy(&path, corpus.join(entry.file_name()))
                .map_err(|e| format!("cannot copy {}: {e}", path.display()))?;
            count += 1;
        }
    }
    if count == 0 { Err(format!("no seeds in {}", from.display())) } else { Ok(count) }
}

fn finish(mut command: Command, name: &str) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name}: {status}")),
        Err(e) => Err(format!("cannot run {name}: {e}")),
    }
}
