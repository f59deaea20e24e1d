//! Where unsafe code may stand, and that each piece of it says why it is sound.

use super::code::{code_only, words};
use super::{Finding, TextFile, Tree};

/// Crates that touch memory, instructions or devices: the map of a file, and the backends.
const MAY_BE_UNSAFE: [&str; 7] = ["gguf", "cpu", "gpu", "metal", "cuda", "wgpu", "msl-cpu"];

/// Unsafe code only in the crates that may have it. Their tests may need it as well, such as for an allocator that counts.
pub fn unsafe_places(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|f| !may_be_unsafe(f)) {
        for line in unsafe_lines(file) {
            let allowed = MAY_BE_UNSAFE.join(", ");
            findings.push(file.finding(line, format!("unsafe code outside of the sources of {allowed}")));
        }
    }
    findings
}

/// A comment just above the statement (attributes may stand between) that says `SAFETY:`, or the `# Safety` section
/// of a function's documentation. The functions of an unsafe trait are covered by the note of their `impl`.
pub fn safety_notes(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let code = code_only(&file.text);
        let code: Vec<&str> = code.lines().collect();
        let text: Vec<&str> = file.text.lines().map(str::trim_start).collect();
        for line in unsafe_lines(file) {
            if !is_noted(&text, &code, line - 1) && !is_of_unsafe_impl(&code, line - 1) {
                findings.push(file.finding(line, "unsafe code without a `// SAFETY:` comment just above"));
            }
        }
    }
    findings
}

/// Whether the comment above the statement that holds line `at` (from 0) is a safety note.
fn is_noted(text: &[&str], code: &[&str], at: usize) -> bool {
    // Lines that a statement of several lines begins with, and attributes, end neither a statement nor a block.
    let begins_before = |line: &&&str| !line.trim().is_empty() && !line.trim_end().ends_with([';', '{', '}']);
    let first = at - code.iter().take(at).rev().take_while(begins_before).count();
    let mut notes = text.iter().take(first).rev().take_while(|l| l.starts_with("//"));
    notes.any(|l| l.contains("SAFETY:") || l.contains("# Safety"))
}

/// Whether line `at` declares a function of an `unsafe impl`: the nearest line above with less indentation says so.
fn is_of_unsafe_impl(code: &[&str], at: usize) -> bool {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let Some(own) = code.get(at).filter(|l| l.contains("unsafe fn")) else { return false };
    let outer = code.iter().take(at).rev().find(|l| !l.trim().is_empty() && indent(l) < indent(own));
    outer.is_some_and(|l| l.contains("unsafe impl"))
}

/// Every other crate forbids unsafe code at its root, so that the compiler checks it too.
pub fn forbid_unsafe(tree: &Tree) -> Vec<Finding> {
    let roots = tree.rust().filter(|f| {
        let (folder, file) = f.path.rsplit_once("/src/").unwrap_or_default();
        matches!(file, "lib.rs" | "main.rs") && folder.matches('/').count() <= 1
    });
    roots
        .filter(|f| !MAY_BE_UNSAFE.contains(&f.crate_name()))
        .filter(|f| !code_only(&f.text).contains("#![forbid(unsafe_code)]"))
        .map(|f| f.finding(1, "the crate must say #![forbid(unsafe_code)]"))
        .collect()
}

fn may_be_unsafe(file: &TextFile) -> bool {
    file.path.starts_with("crates/") && MAY_BE_UNSAFE.contains(&file.crate_name())
}

/// Lines with unsafe code, from 1. The type of a function that is unsafe to call is a type, and no code.
fn unsafe_lines(file: &TextFile) -> Vec<usize> {
    let code = code_only(&file.text);
    let is_type = |rest: &str| {
        let rest = rest.trim_start();
        let rest = rest.strip_prefix("extern").map_or(rest, str::trim_start);
        rest.strip_prefix("fn").is_some_and(|r| r.trim_start().starts_with('('))
    };
    let has = |line: &str| words(line, "unsafe").any(|at| !is_type(&line[at + "unsafe".len()..]));
    code.lines().enumerate().filter(|(_, l)| has(l)).map(|(i, _)| i + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{places, tree};
    use super::*;

    const NOTED: &str = "fn f() {\n    // SAFETY: checked above.\n    unsafe { g() }\n}\n";

    #[test]
    fn unsafe_code_stays_where_it_may_be() {
        let t = tree(&[
            ("crates/plan/src/lib.rs", NOTED),
            ("crates/cpu/src/run.rs", NOTED),
            ("crates/gguf/tests/t.rs", NOTED),
            ("crates/plan/tests/t.rs", NOTED),
            ("crates/gguf/src/map.rs", NOTED),
            ("crates/token/src/lib.rs", "#![forbid(unsafe_code)]\n// unsafe\nconst X: &str = \"unsafe\";"),
            ("crates/engine/src/a.rs", "unsafe impl Send for X {}"),
        ]);
        let found = places(&unsafe_places(&t));
        assert_eq!(
            found,
            ["crates/plan/src/lib.rs:3", "crates/plan/tests/t.rs:3", "crates/engine/src/a.rs:1"]
        );
    }

    #[test]
    fn each_needs_its_note() {
        let t = tree(&[
            ("crates/cpu/src/a.rs", NOTED),
            ("crates/cpu/src/b.rs", "fn f() {\n    unsafe { g() }\n}"),
            ("crates/cpu/src/c.rs", "// SAFETY: far away.\nfn f() {\n    unsafe { g() }\n}"),
            (
                "crates/cpu/src/d.rs",
                "/// Does.\n///\n/// # Safety\n/// `p` is valid.\n#[inline]\nunsafe fn f(p: *const u8) {}",
            ),
            (
                "crates/cpu/src/h.rs",
                "{\n    // SAFETY: in bounds.\n    let a =\n        unsafe { g() };\n    let c =\n        unsafe { g() };\n}",
            ),
            (
                "crates/cpu/src/i.rs",
                "// SAFETY: passed on.\nunsafe impl T for X {\n    unsafe fn f() {}\n}\nimpl X {\n    unsafe fn f() {}\n}",
            ),
            ("crates/cpu/src/e.rs", "struct S { f: unsafe fn(&[f32]), g: unsafe extern \"C\" fn(u8) }"),
            (
                "crates/cpu/src/f.rs",
                "unsafe impl Send for X {}\n// SAFETY: no state.\nunsafe impl Sync for X {}",
            ),
            (
                "crates/cpu/src/g.rs",
                "// SAFETY: one,\n// and more words.\n#[allow(x)]\nlet a = unsafe { g() };",
            ),
        ]);
        let found = places(&safety_notes(&t));
        assert_eq!(
            found,
            [
                "crates/cpu/src/b.rs:2",
                "crates/cpu/src/c.rs:3",
                "crates/cpu/src/h.rs:6",
                "crates/cpu/src/i.rs:6",
                "crates/cpu/src/f.rs:1",
            ]
        );
    }

    #[test]
    fn the_compiler_is_told_too() {
        let t = tree(&[
            ("crates/plan/src/lib.rs", "//! Docs.\n#![forbid(unsafe_code)]"),
            ("crates/arch/src/lib.rs", "//! #![forbid(unsafe_code)]\n"),
            ("crates/cpu/src/lib.rs", ""),
            ("crates/cli/src/main.rs", ""),
            ("crates/cli/src/commands/mod.rs", ""),
            ("xtask/src/main.rs", ""),
        ]);
        let found = places(&forbid_unsafe(&t));
        assert_eq!(found, ["crates/arch/src/lib.rs:1", "crates/cli/src/main.rs:1", "xtask/src/main.rs:1"]);
    }
}
