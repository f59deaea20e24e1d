//! Words that tie the repository to a place: hosts of package registries, and folders of somebody's machine.
//!
//! The words themselves are put together from pieces here, since this file is checked like every other.

use super::{Finding, Tree};

/// Written by cargo itself.
const GENERATED: [&str; 2] = ["Cargo.lock", "fuzz/Cargo.lock"];

/// Packages are named, and the machine's own client knows where they come from.
pub fn registries(tree: &Tree) -> Vec<Finding> {
    let hosts = [
        ["crates", ".io"],
        ["py", "pi.org"],
        ["python", "hosted.org"],
        ["npm", "js.org"],
        ["npm", "js.com"],
        ["deb.", "debian.org"],
        ["proxy.go", "lang.org"],
        ["repo.maven", ".apache.org"],
        ["rubygems", ".org"],
    ]
    .map(|h| h.concat());
    find(tree, |line| {
        let host = hosts.iter().find(|h| line.contains(h.as_str()))?;
        Some(format!("names the package registry {host}: name the package alone"))
    })
}

/// A path that exists on one machine only.
pub fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let folders = [["/ho", "me/"], ["/ro", "ot/"], ["/Us", "ers/"], ["/wo", "rk/"], [":\\Us", "ers\\"]]
        .map(|f| f.concat());
    // Behind a letter or a dot it is the middle of a relative path or an address.
    let begins = |line: &str, at: usize| {
        !line[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || "._-/~}$*".contains(c))
    };
    find(tree, |line| {
        let here = |f: &&String| {
            line.match_indices(f.as_str()).any(|(at, _)| f.starts_with(':') || begins(line, at))
        };
        let folder = folders.iter().find(here)?;
        Some(format!("names a folder of one machine ({folder}…): use a relative path or an argument"))
    })
}

fn find(tree: &Tree, check: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|f| !GENERATED.contains(&f.path.as_str())) {
        for (i, line) in file.text.lines().enumerate() {
            findings.extend(check(line).map(|message| file.finding(i + 1, message)));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::{places, tree};
    use super::*;

    #[test]
    fn hosts_are_found_anywhere_but_in_what_cargo_writes() {
        let host = ["https://py", "pi.org/simple"].concat();
        let index = ["registry+https://github.com/rust-lang/crates", ".io-index"].concat();
        let t = tree(&[
            ("a.md", &format!("x\n{host}")),
            ("b.yml", &index),
            ("Cargo.lock", &index),
            ("c", "huggingface.co"),
        ]);
        assert_eq!(places(&registries(&t)), ["a.md:2", "b.yml:1"]);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let home = ["see /ho", "me/me/x"].concat();
        let windows = ["C:\\Us", "ers\\me"].concat();
        let inner = ["https://host/a/wo", "rk/x and ./ho", "me/y"].concat();
        let t = tree(&[("a.sh", &home), ("b.md", &windows), ("c.md", &inner), ("d.md", "/usr/bin/env")]);
        assert_eq!(places(&machine_paths(&t)), ["a.sh:1", "b.md:1"]);
    }
}
