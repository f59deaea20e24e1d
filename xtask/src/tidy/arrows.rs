//! Which crate may use which. The arrows are those of ARCHITECTURE.md; with them no backend can name an
//! architecture, and no architecture a backend.

use super::{Finding, TextFile, Tree};
use std::collections::{BTreeMap, BTreeSet};
use toml::{Table, Value};

/// Folder of a crate, and the crates that it may use, with all that those may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("quant", &[]),
    ("gguf", &["quant"]),
    ("plan", &["quant"]),
    ("arch", &["plan", "gguf"]),
    ("backend", &["plan", "quant"]),
    ("cpu", &["backend"]),
    ("gpu", &["backend"]),
    ("wgpu", &["backend"]),
    ("metal", &["gpu"]),
    ("cuda", &["gpu"]),
    ("msl-cpu", &["gpu"]),
    // A tokenizer is built from a file's metadata.
    ("token", &["gguf"]),
    ("convert", &["gguf", "quant", "token"]),
    ("sample", &[]),
    ("hub", &[]),
    ("engine", &["backend", "arch", "convert", "token", "sample"]),
    ("server", &["engine", "hub"]),
];

/// These may use everything.
const ABOVE_ALL: &[&str] = &["cli", "conformance", "fuzz", "xtask"];

/// Checks every kind of dependency of every crate, those for tests included.
pub fn arrows(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut crates = Vec::new();
    let mut folders = BTreeMap::new();
    for file in tree.files.iter().filter(|f| is_crate_manifest(f)) {
        match file.text.parse::<Table>() {
            Ok(manifest) => {
                if let Some(name) = package_name(&manifest) {
                    folders.insert(name.to_owned(), file.crate_name());
                }
                crates.push((file, manifest));
            }
            Err(e) => findings.push(file.finding(0, format!("not TOML: {}", e.message()))),
        }
    }
    for (file, manifest) in &crates {
        let user = file.crate_name();
        if ABOVE_ALL.contains(&user) {
            continue;
        }
        let Some(allowed) = reach(user) else {
            findings
                .push(file.finding(0, format!("`{user}` has no arrows yet: give it some in xtask's table")));
            continue;
        };
        for used in dependencies(manifest).iter().filter_map(|name| folders.get(*name)) {
            if !allowed.contains(used) {
                let line = line_of(file, manifest, &folders, used);
                findings.push(file.finding(
                    line,
                    format!("`{user}` may not use `{used}`: there is no arrow {user} -> {used}"),
                ));
            }
        }
    }
    findings
}

/// All that a crate may use: its arrows, followed to the end. `None` for a crate that the table does not know.
fn reach(user: &str) -> Option<BTreeSet<&'static str>> {
    let direct = |name: &str| ARROWS.iter().find(|(n, _)| *n == name).map(|(_, to)| *to);
    let mut open = direct(user)?.to_vec();
    let mut reached = BTreeSet::new();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(direct(next).unwrap_or_default());
        }
    }
    Some(reached)
}

fn is_crate_manifest(file: &TextFile) -> bool {
    let depth = file.path.matches('/').count();
    file.path.ends_with("/Cargo.toml") && (depth == 1 || (depth == 2 && file.path.starts_with("crates/")))
}

fn package_name(manifest: &Table) -> Option<&str> {
    manifest.get("package")?.get("name")?.as_str()
}

/// Names of the packages in all dependency tables, those under `target` included; a renamed one by its real name.
fn dependencies(manifest: &Table) -> BTreeSet<&str> {
    const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let tables = std::iter::once(manifest).chain(targets.filter_map(Value::as_table));
    tables
        .flat_map(|t| KINDS.iter().filter_map(|kind| t.get(*kind)?.as_table()))
        .flatten()
        .map(|(name, spec)| spec.get("package").and_then(Value::as_str).unwrap_or(name))
        .collect()
}

/// The line that names the package of folder `used`, for the message; 0 if it is not found as text.
fn line_of(file: &TextFile, manifest: &Table, folders: &BTreeMap<String, &str>, used: &str) -> usize {
    let own = package_name(manifest);
    let names = folders.iter().filter(|(name, folder)| **folder == used && Some(name.as_str()) != own);
    let starts = |line: &str, name: &str| {
        line.trim_start().strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '.', '=']))
    };
    let mut lines = names.filter_map(|(name, _)| file.text.lines().position(|l| starts(l, name)));
    lines.next().map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::super::{places, tree};
    use super::*;

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"cera-{name}\"\n{rest}\n")
    }

    fn check(user: &str, rest: &str) -> Vec<String> {
        let with = |name: &str| if name == user { manifest(name, rest) } else { manifest(name, "") };
        let all: Vec<(String, String)> =
            ["quant", "gguf", "plan", "arch", "backend", "cpu", "token", "sample", "engine", "hub", "cli"]
                .iter()
                .map(|n| (format!("crates/{n}/Cargo.toml"), with(n)))
                .collect();
        let files: Vec<(&str, &str)> = all.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
        places(&arrows(&tree(&files)))
    }

    #[test]
    fn the_waist_holds() {
        assert_eq!(check("cpu", "[dependencies]\ncera-arch.workspace = true"), ["crates/cpu/Cargo.toml:4"]);
        assert_eq!(
            check("arch", "[dependencies]\ncera-cpu = { path = \"../cpu\" }"),
            ["crates/arch/Cargo.toml:4"]
        );
        assert_eq!(
            check("arch", "[dependencies]\ncera-backend.workspace = true"),
            ["crates/arch/Cargo.toml:4"]
        );
        assert_eq!(
            check("engine", "[dependencies]\ncera-cpu.workspace = true"),
            ["crates/engine/Cargo.toml:4"]
        );
        assert_eq!(
            check("engine", "[dependencies]\ncera-hub.workspace = true"),
            ["crates/engine/Cargo.toml:4"]
        );
        assert_eq!(
            check("quant", "[dependencies]\ncera-gguf.workspace = true"),
            ["crates/quant/Cargo.toml:4"]
        );
    }

    #[test]
    fn no_kind_of_dependency_is_a_way_around() {
        assert_eq!(check("cpu", "[dev-dependencies]\ncera-arch.workspace = true").len(), 1);
        assert_eq!(check("cpu", "[build-dependencies]\ncera-arch.workspace = true").len(), 1);
        assert_eq!(check("cpu", "[target.'cfg(unix)'.dependencies]\ncera-arch.workspace = true").len(), 1);
        assert_eq!(
            check("cpu", "[dependencies]\nx = { package = \"cera-arch\", path = \"../arch\" }").len(),
            1
        );
        assert_eq!(check("cpu", "[dependencies.cera-arch]\nworkspace = true").len(), 1);
    }

    #[test]
    fn what_is_allowed_is_allowed() {
        let all = "[dependencies]\ncera-plan.workspace = true\ncera-quant.workspace = true\nserde = \"1\"";
        for user in ["cpu", "backend", "arch", "engine", "cli"] {
            assert_eq!(check(user, all), [""; 0], "{user}");
        }
        assert_eq!(
            check("cli", "[dependencies]\ncera-cpu.workspace = true\ncera-hub.workspace = true"),
            [""; 0]
        );
        assert_eq!(check("engine", "[dependencies]\ncera-gguf.workspace = true"), [""; 0], "through arch");
    }

    #[test]
    fn a_new_crate_must_get_its_arrows() {
        let found = arrows(&tree(&[("crates/new/Cargo.toml", "[package]\nname = \"cera-new\"")]));
        assert!(found[0].message.contains("`new` has no arrows"), "{found:?}");
        assert_eq!(
            arrows(&tree(&[("crates/cpu/Cargo.toml", "[package")])).len(),
            1,
            "what cannot be read is found"
        );
    }
}
