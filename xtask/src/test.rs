//! `cargo xtask test`: the test models, then every test.
//!
//! Tests find models in the folder that the environment variable `CERA_TEST_MODELS` names, as `smollm2.gguf`,
//! `gemma270m.gguf` and `qwen0.5.gguf`; `tokenizer.json` files in that of `CERA_TEST_TOKENIZERS`, as `bert.json`. The files
//! there are links into the cache. llama.cpp's vocabularies are in that of `CERA_TEST_VOCABS`.

use crate::{fetch, models, vocabs};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Fetches, links, and runs `cargo test` over the workspace, in the test profile (which is optimised).
pub fn run(root: &Path, args: &[&str]) -> Result<(), String> {
    let (options, passed) = match args.iter().position(|a| *a == "--") {
        Some(at) => (args.get(..at).unwrap_or_default(), args.get(at + 1..).unwrap_or_default()),
        None => (args, [].as_slice()),
    };
    if !options.is_empty() {
        return Err(format!(
            "unknown option: {}. What is meant for cargo test goes behind --",
            options.join(" ")
        ));
    }
    let target = root.join("target");
    let folder = target.join("test-models");
    link(models::FETCHED, &folder, "gguf")?;
    let tokenizers = target.join("test-tokenizers");
    link(models::TOKENIZERS, &tokenizers, "json")?;
    let vocabularies = vocabs::fetch()?;
    // cargo says which cargo it is, so that the same toolchain runs the tests.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(root)
        .args(["test", "--workspace", "--no-fail-fast"])
        .args(passed)
        .env("CERA_TEST_MODELS", &folder)
        .env("CERA_TEST_TOKENIZERS", &tokenizers)
        .env("CERA_TEST_VOCABS", &vocabularies)
        .status()
        .map_err(|e| format!("cannot run cargo: {e}"))?;
    if status.success() { Ok(()) } else { Err("some tests failed".to_owned()) }
}

/// Fetches `names` and puts links to them into `folder`, as NAME.`extension`.
fn link(names: &[&str], folder: &Path, extension: &str) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| format!("cannot create {}: {e}", folder.display()))?;
    for name in names {
        let file = fetch::fetch(name)?;
        let link = folder.join(format!("{name}.{extension}"));
        replace_link(&file, &link).map_err(|e| format!("cannot link {}: {e}", link.display()))?;
        eprintln!("{name}: {}", file.display());
    }
    Ok(())
}

/// Makes `link` lead to `file`, whatever it led to before.
fn replace_link(file: &Path, link: &Path) -> std::io::Result<()> {
    match fs::remove_file(link) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    #[cfg(unix)]
    return std::os::unix::fs::symlink(file, link);
    #[cfg(not(unix))]
    return fs::hard_link(fs::canonicalize(file)?, link);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_replaced() {
        let folder = std::env::temp_dir().join(format!("cera-xtask-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (a, b, link) = (folder.join("a"), folder.join("b"), folder.join("link"));
        fs::write(&a, "a").expect("written");
        fs::write(&b, "b").expect("written");
        replace_link(&a, &link).expect("linked");
        replace_link(&b, &link).expect("linked again");
        assert_eq!(fs::read_to_string(&link).expect("readable"), "b");
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn options_are_not_ignored() {
        let error = run(Path::new("unused"), &["--al"]).expect_err("no such option");
        assert!(error.contains("--al"), "{error}");
    }
}
