//! Limits on files and on what code may call.

use super::code::{code_only, words};
use super::{Finding, Tree};

/// Lines that a source file may have.
const LINES: usize = 1000;

/// How a file says that it is a table, for which the limit does not count: within its first three lines.
const TABLE: [&str; 3] = ["//! table", "// table", "# table"];

/// Where the length counts: what people write and read as code.
const SOURCES: [&str; 9] = [".rs", ".py", ".sh", ".metal", ".wgsl", ".cu", ".h", ".js", ".html"];

/// Files that may read the environment, besides tests and xtask: everything else gets its settings handed.
const ENV_READERS: [&str; 2] = ["crates/hub/src/settings.rs", "crates/cli/src/args.rs"];

/// A file of over 1,000 lines holds more than one concept.
pub fn file_length(tree: &Tree) -> Vec<Finding> {
    let sources = tree.files.iter().filter(|f| SOURCES.iter().any(|s| f.path.ends_with(s)));
    sources
        .filter(|f| !f.text.lines().take(3).any(|l| TABLE.iter().any(|t| l.starts_with(t))))
        .filter_map(|f| {
            let lines = f.text.lines().count();
            let message =
                format!("{lines} lines: split it, at most {LINES} (a table says `//! table` at its head)");
            (lines > LINES).then(|| f.finding(lines, message))
        })
        .collect()
}

/// Knobs are declared in one place.
pub fn env_reads(tree: &Tree) -> Vec<Finding> {
    const READS: [&str; 4] = ["env::var", "env::var_os", "env::vars", "env::vars_os"];
    let mut findings = Vec::new();
    for file in tree.rust() {
        if file.is_test() || file.crate_name() == "xtask" || ENV_READERS.contains(&file.path.as_str()) {
            continue;
        }
        for (i, line) in code_only(&file.text).lines().enumerate() {
            if READS.iter().any(|r| words(line, r).next().is_some()) {
                let allowed = ENV_READERS.join(" and ");
                findings.push(file.finding(i + 1, format!("reads the environment: only {allowed} may")));
            }
        }
    }
    findings
}

/// Nothing is left to do, and nothing of the search for a fault is left in.
pub fn unfinished(tree: &Tree) -> Vec<Finding> {
    const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];
    let mut findings = Vec::new();
    for file in tree.rust() {
        for (i, line) in code_only(&file.text).lines().enumerate() {
            for name in MACROS {
                if words(line, name).any(|at| line[at + name.len()..].starts_with('!')) {
                    findings.push(file.finding(i + 1, format!("`{name}!` does not belong in finished code")));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::{places, tree};
    use super::*;

    #[test]
    fn long_files_are_found_and_tables_are_not() {
        let long = "x\n".repeat(1001);
        let table = format!("//! table of names\n{long}");
        let late = format!("x\nx\nx\n//! table\n{long}");
        let fits = "x\n".repeat(1000);
        let t = tree(&[("a.rs", &long), ("b.rs", &table), ("c.rs", &fits), ("d.rs", &late), ("e.md", &long)]);
        assert_eq!(places(&file_length(&t)), ["a.rs:1001", "d.rs:1005"]);
    }

    #[test]
    fn the_environment_is_read_where_it_may_be() {
        let read = "fn f() {\n    std::env::var(\"X\");\n}";
        let t = tree(&[
            ("crates/cpu/src/tier.rs", read),
            ("crates/cpu/src/a.rs", "use std::env;\nfn f() { env::vars_os(); }"),
            (
                "crates/cpu/src/b.rs",
                "// env::var\nfn f() { env!(\"X\"); g(\"env::var\"); my_env::variant(); }",
            ),
            ("crates/cpu/tests/t.rs", read),
            ("crates/hub/src/settings.rs", read),
            ("crates/cli/src/args.rs", read),
            ("conformance/src/lib.rs", read),
            ("xtask/src/main.rs", read),
        ]);
        assert_eq!(places(&env_reads(&t)), ["crates/cpu/src/tier.rs:2", "crates/cpu/src/a.rs:2"]);
    }

    #[test]
    fn unfinished_code_is_found() {
        let t = tree(&[
            ("a.rs", "fn f() {\n    todo!()\n}\nfn g() { unimplemented!(\"x\") }\nfn h() { dbg!(1); }"),
            ("b.rs", "// todo!\nconst T: &str = \"dbg!\";\nfn todo() { my_todo!(); todo(); }"),
        ]);
        assert_eq!(places(&unfinished(&t)), ["a.rs:2", "a.rs:4", "a.rs:5"]);
    }
}
