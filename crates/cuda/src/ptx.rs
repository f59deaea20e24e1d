//! One kernel out of the text of all.

/// The lines that a module begins with, the entry of a kernel, and the variables that it names; `None` where there is no such
/// entry. In the text, as clang writes it, variables stand before the entries, and an entry ends with a bracket alone.
pub(crate) fn module_of(all: &str, entry: &str) -> Option<String> {
    let starts = |line: &str| line.contains(".entry ");
    let head: Vec<&str> = all.lines().take_while(|line| !starts(line)).collect();
    let named = format!(".entry {entry}(");
    let mut body = all.lines().skip_while(|line| !line.contains(&named)).peekable();
    body.peek()?;
    let mut lines: Vec<&str> = Vec::new();
    for line in body {
        lines.push(line);
        if line == "}" {
            break;
        }
    }
    let uses = |variable: &str| lines.iter().any(|line| names(line).any(|n| n == variable));
    // Of the head: directives, and what the body names.
    let kept = head.iter().filter(|line| {
        let variable = line.split(['[', ' ', ';']).find(|word| word.starts_with("_Z"));
        variable.is_none_or(uses)
    });
    Some(kept.chain(&lines).flat_map(|line| [*line, "\n"]).collect())
}

/// The names in a line.
fn names(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '$')
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = ".version 8.0\n.target sm_80\n.shared .align 4 .b8 _ZZ1a[8];\n.shared .align 4 .b8 _ZZ1b[8];\n\
                       .visible .entry msl_a(\n)\n{\n mov.u32 %r1, _ZZ1a;\n}\n\
                       .visible .entry msl_b(\n)\n{\n mov.u32 %r1, _ZZ1b;\n}\n";

    #[test]
    fn a_kernel_comes_with_its_own_variables() {
        let a = module_of(ALL, "msl_a").unwrap();
        assert!(a.starts_with(".version") && a.contains("msl_a(") && a.contains("_ZZ1a[8]"), "{a}");
        assert!(!a.contains("msl_b") && !a.contains("_ZZ1b"), "{a}");
        assert_eq!(module_of(ALL, "msl_"), None);
    }

    #[test]
    fn every_kernel_of_the_text_is_found() {
        let all = include_str!("../ptx/sm_80.ptx");
        let entries = all.lines().filter_map(|l| l.split(".entry ").nth(1)?.strip_suffix('('));
        let mut count = 0;
        for entry in entries {
            let module = module_of(all, entry).unwrap();
            assert_eq!(module.matches(".entry ").count(), 1, "{entry}");
            count += 1;
        }
        assert!(count > 60, "{count} kernels");
    }
}
