//! `cargo xtask tidy`: the agreements that no compiler checks. A rule is a function from the tree to findings.

mod arrows;
mod code;
mod limits;
mod safety;
mod words;

use std::path::Path;
use std::process::Command;

/// The repository's text files.
pub struct Tree {
    /// In order of path.
    pub files: Vec<TextFile>,
}

/// A text file.
pub struct TextFile {
    /// Relative to the root, with `/` between folders.
    pub path: String,
    /// The whole content.
    pub text: String,
}

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file.
    pub path: String,
    /// Line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong and what to do.
    pub message: String,
}

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: &[Rule] = &[
    arrows::arrows,
    limits::file_length,
    limits::env_reads,
    limits::unfinished,
    safety::unsafe_places,
    safety::safety_notes,
    safety::forbid_unsafe,
    words::registries,
    words::machine_paths,
];

/// Applies every rule to the files that git tracks or would track.
pub fn run(root: &Path) -> Result<(), String> {
    let tree = Tree::load(root)?;
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    findings.sort();
    for f in &findings {
        println!("{}:{}: {}", f.path, f.line, f.message);
    }
    match findings.len() {
        0 => {
            println!("tidy: {} files, {} rules, nothing found", tree.files.len(), RULES.len());
            Ok(())
        }
        n => Err(format!("tidy found {n} places")),
    }
}

impl Tree {
    fn load(root: &Path) -> Result<Self, String> {
        let listed = Command::new("git")
            .current_dir(root)
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()
            .map_err(|e| format!("cannot run git: {e}"))?;
        if !listed.status.success() {
            return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&listed.stderr)));
        }
        let names = String::from_utf8(listed.stdout).map_err(|e| format!("a file name is not UTF-8: {e}"))?;
        let mut files = Vec::new();
        for path in names.split_terminator('\0') {
            // A file deleted and not yet committed, and links, are no text to check.
            let full = root.join(path);
            if !full.is_file() {
                continue;
            }
            let bytes = std::fs::read(&full).map_err(|e| format!("cannot read {path}: {e}"))?;
            if bytes.contains(&0) {
                continue;
            }
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(TextFile { path: path.to_owned(), text });
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files })
    }

    /// The Rust sources.
    fn rust(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(|f| f.path.ends_with(".rs"))
    }
}

impl TextFile {
    fn finding(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, message: message.into() }
    }

    /// The crate's folder: `cpu` for `crates/cpu/src/run.rs`, `xtask`, `conformance`.
    fn crate_name(&self) -> &str {
        let path = self.path.strip_prefix("crates/").unwrap_or(&self.path);
        path.split('/').next().unwrap_or(path)
    }

    /// Code that runs only under test, by its place.
    fn is_test(&self) -> bool {
        self.path.contains("/tests/")
            || self.path.contains("/benches/")
            || self.path.starts_with("conformance/")
    }
}

#[cfg(test)]
fn tree(files: &[(&str, &str)]) -> Tree {
    let file = |(path, text): &(&str, &str)| TextFile { path: (*path).to_owned(), text: (*text).to_owned() };
    Tree { files: files.iter().map(file).collect() }
}

/// `path:line` of each finding.
#[cfg(test)]
fn places(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|f| format!("{}:{}", f.path, f.line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole path from a folder to an exit: a forbidden arrow makes tidy fail.
    #[test]
    fn a_forbidden_arrow_makes_tidy_fail() {
        let root = std::env::temp_dir().join(format!("cera-tidy-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let full = root.join(path);
            std::fs::create_dir_all(full.parent().expect("a parent")).expect("a folder");
            std::fs::write(full, text).expect("written");
        };
        write("crates/cpu/Cargo.toml", "[package]\nname = \"cera-cpu\"\n[dependencies]\n");
        write("crates/cpu/src/lib.rs", "//! A backend.\n");
        write("crates/arch/Cargo.toml", "[package]\nname = \"cera-arch\"\n[dependencies]\n");
        write("crates/arch/src/lib.rs", "//! Families.\n#![forbid(unsafe_code)]\n");
        let git = Command::new("git").current_dir(&root).args(["init", "-q"]).status().expect("git");
        assert!(git.success());
        assert_eq!(run(&root), Ok(()));
        write(
            "crates/cpu/Cargo.toml",
            "[package]\nname = \"cera-cpu\"\n[dependencies]\ncera-arch.workspace = true\n",
        );
        assert_eq!(run(&root), Err("tidy found 1 places".to_owned()));
        std::fs::remove_dir_all(&root).expect("removed");
    }
}
