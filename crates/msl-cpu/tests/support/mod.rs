//! The compiler that tests use.

use std::path::Path;

use cera_msl_cpu::Compiler;

/// The compiler, or `None`, which it says, where there is none. `cargo xtask test` sees that there is one.
pub fn compiler() -> Option<Compiler> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        println!("skipped: the fibers are written for Linux on x86-64");
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("msl");
    let found = Compiler::find(folder);
    if let Err(e) = &found {
        assert!(std::env::var_os("CERA_TEST_MODELS").is_none(), "{e}");
        println!("skipped: {e}");
    }
    found.ok()
}
