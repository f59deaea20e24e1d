//! `cargo xtask cross`: what an x86-64 machine can say about 64-bit ARM. The CPU backend's tests run under emulation,
//! and the libraries are type checked for a Mac.
//!
//! A toolchain from rustup has the standard library of its own system alone. Debian's compiler comes with the library's
//! sources, and cargo builds those along. That is an unstable feature of cargo, hence `RUSTC_BOOTSTRAP`; the sources of
//! this project use none.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What is needed: a file, and Debian's package that has it.
const NEEDS: [(&str, &str); 5] = [
    (RUSTC, "rustc-web"),
    ("/usr/lib/rustlib/src/rust/library/std/src/lib.rs", "rust-web-src"),
    ("/usr/bin/aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("/usr/aarch64-linux-gnu/lib/crt1.o", "libc6-dev-arm64-cross"),
    ("/usr/bin/qemu-aarch64", "qemu-user"),
];

const RUSTC: &str = "/usr/bin/rustc";
const LINUX: &str = "aarch64-unknown-linux-gnu";
const MAC: &str = "aarch64-apple-darwin";

/// The tests: of the kernels, and of whole models' bits.
const TESTS: [&str; 7] = ["-p", "cera-cpu", "-p", "cera-conformance", "--lib", "--test", "digest"];

/// Processors that are emulated: one with every feature, one with none beyond the first ARMv8, and the tiers that the
/// tests have to find on each.
const PROCESSORS: [(&str, &str); 2] = [("max", "scalar neon"), ("cortex-a53", "scalar")];

/// Installs what is missing where that is possible, builds, tests, checks.
pub fn run(root: &Path) -> Result<(), String> {
    if cfg!(target_arch = "aarch64") {
        println!("cross: nothing to do on 64-bit ARM, where `cargo xtask test` runs the same tests");
        return Ok(());
    }
    timed("packages", || install(&missing(&NEEDS)))?;
    timed("build of the tests", || cargo(root, "test", LINUX, &[&TESTS[..], &["--no-run"]].concat(), &[]))?;
    for (processor, tiers) in PROCESSORS {
        timed(&format!("tests on {processor}"), || {
            let runner = format!("qemu-aarch64 -cpu {processor} -L /usr/aarch64-linux-gnu");
            let vars =
                [("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", &*runner), ("CERA_TEST_TIERS", tiers)];
            cargo(root, "test", LINUX, &[&TESTS[..], &["--", "--nocapture"]].concat(), &vars)
        })?;
    }
    timed("check for a Mac", || cargo(root, "check", MAC, &["-p", "cera-cpu", "-p", "cera"], &[]))
}

/// Does something, and says how long it took.
fn timed(what: &str, act: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    println!("cross: {what}");
    let start = Instant::now();
    act().map_err(|e| format!("cross: {what}: {e}"))?;
    println!("cross: {what} took {:.0} s", start.elapsed().as_secs_f32());
    Ok(())
}

/// The packages of the files that are not there.
fn missing(needs: &[(&str, &'static str)]) -> Vec<&'static str> {
    needs.iter().filter(|(file, _)| !Path::new(file).exists()).map(|&(_, package)| package).collect()
}

fn install(packages: &[&str]) -> Result<(), String> {
    if packages.is_empty() {
        return Ok(());
    }
    let names = packages.join(" ");
    let user = Command::new("id").arg("-u").output().map_err(|e| format!("cannot run id: {e}"))?;
    if user.stdout.trim_ascii() != b"0" {
        return Err(format!("{names} missing, and only root can install: apt-get install {names}"));
    }
    let install = ["install", "--yes", "--no-install-recommends"];
    for args in [&["update"][..], &[&install[..], packages].concat()] {
        let mut apt = Command::new("apt-get");
        apt.arg("--quiet").args(args).env("DEBIAN_FRONTEND", "noninteractive");
        finish(apt).map_err(|e| format!("{names} missing: {e}"))?;
    }
    match missing(&NEEDS).join(" ") {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left} installed, but not where they are looked for")),
    }
}

/// Runs cargo for another system, with the standard library built along.
fn cargo(
    root: &Path,
    command: &str,
    target: &str,
    args: &[&str],
    vars: &[(&str, &str)],
) -> Result<(), String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).args([command, "-Zbuild-std", "--target", target]).args(args);
    cargo
        .env("RUSTC", RUSTC)
        .env("RUSTC_BOOTSTRAP", "1")
        // Beside the ordinary build, which another compiler makes.
        .env("CARGO_TARGET_DIR", root.join("target").join("cross"))
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc")
        // A third of the time to build goes into what only a debugger reads.
        .envs([("CARGO_PROFILE_DEV_DEBUG", "0"), ("CARGO_PROFILE_TEST_DEBUG", "0")])
        .envs(vars.iter().copied());
    finish(cargo)
}

/// Runs a command to its end; an error says which.
fn finish(mut command: Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name}: {status}")),
        Err(e) => Err(format!("cannot run {name}: {e}")),
    }
}
