//! Rust source without its comments and literals, so that rules see code alone.

/// `text` with comments and the insides of string and character literals blanked out. Lines keep their numbers.
pub fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let word_before = out.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(n) = (!word_before).then(|| raw_string(rest)).flatten() {
            n
        } else if c == '"' {
            quoted(rest, '"')
        } else if c == '\'' && is_character(rest) {
            quoted(rest, '\'')
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        let (gone, after) = rest.split_at(skip);
        out.push(' ');
        out.extend(gone.chars().filter(|c| *c == '\n'));
        rest = after;
    }
    out
}

/// Length of the (nested) block comment that `text` begins with.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while let Some(rest) = text.get(at..).filter(|r| !r.is_empty()) {
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Length of the raw string that `text` begins with, if it does: `r"…"`, `br#"…"#`.
fn raw_string(text: &str) -> Option<usize> {
    let after = ["br", "cr", "r"].iter().find_map(|p| text.strip_prefix(p))?;
    let body = after.trim_start_matches('#');
    let end = format!("\"{}", "#".repeat(after.len() - body.len()));
    let inside = body.strip_prefix('"')?;
    let close = inside.find(&end).map_or(inside.len(), |at| at + end.len());
    Some(text.len() - inside.len() + close)
}

/// Length of the literal that `text` begins with, up to its unescaped closing `quote`.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Whether a `'` begins a character and not a lifetime: something escaped, or one character and a closing `'`.
fn is_character(text: &str) -> bool {
    let mut chars = text.chars().skip(1);
    matches!((chars.next(), chars.next()), (Some('\\'), _) | (Some(_), Some('\'')))
}

/// Positions in `line` where `word` stands with no letter, digit or `_` before or behind it.
pub fn words<'a>(line: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).map(|(at, _)| at).filter(move |at| {
        !joins(line[..*at].chars().next_back()) && !joins(line[at + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_vanish_and_lines_stay() {
        let text = "a // b\n/* c /* d */\ne */ f \"g \\\" h\ni\" j 'k' '\\'' 'l: loop r#\"m\" n\"# br\"o\" p";
        let code = code_only(text);
        for gone in ["b", "c", "d", "e", "g", "h", "i", "k", "m", "n", "o"] {
            assert_eq!(words(&code, gone).count(), 0, "{gone} in {code:?}");
        }
        for kept in ["a", "f", "j", "l", "loop", "p"] {
            assert_eq!(words(&code, kept).count(), 1, "{kept} in {code:?}");
        }
        assert_eq!(code.lines().count(), text.lines().count());
        assert!(code.lines().nth(2).is_some_and(|l| l.contains('f')));
    }

    #[test]
    fn unfinished_text_ends() {
        for text in ["/* ", "\"", "r#\"x", "'\\", "'", "//", "\"\\"] {
            code_only(text);
        }
    }

    #[test]
    fn an_identifier_that_ends_in_r_begins_no_raw_string() {
        assert!(code_only("for\"x\"; y").ends_with("; y"));
    }
}
