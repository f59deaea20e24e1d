//! MSL text as tokens: enough of C++ to find kernels, their parameters and their threadgroup variables.

/// A word, a string, `[[`, `]]`, `::` or another single character, and where it begins.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Token<'a> {
    pub text: &'a str,
    pub start: usize,
}

impl Token<'_> {
    pub fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// The tokens of a text, without comments and preprocessor directives.
pub fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut out = Vec::new();
    let mut at = 0;
    let mut line_start = true;
    while let Some(rest) = source.get(at..).filter(|rest| !rest.is_empty()) {
        let first = rest.as_bytes()[0];
        let find = |end: &str| rest.find(end).unwrap_or(rest.len());
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let len = if rest.starts_with("//") {
            at += find("\n");
            continue;
        } else if rest.starts_with("/*") {
            at = (at + find("*/") + 2).min(source.len());
            continue;
        } else if first == b'#' && line_start {
            at += directive(rest);
            continue;
        } else if first.is_ascii_whitespace() {
            line_start |= first == b'\n';
            at += 1;
            continue;
        } else if is_word(char::from(first)) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if first == b'"' {
            rest[1..].find('"').map_or(rest.len(), |n| n + 2)
        } else if ["[[", "]]", "::"].iter().any(|two| rest.starts_with(two)) {
            2
        } else {
            rest.chars().next().map_or(1, char::len_utf8)
        };
        out.push(Token { text: &rest[..len], start: at });
        line_start = false;
        at += len;
    }
    out
}

/// The length of a preprocessor directive; a backslash carries it on over the end of a line.
fn directive(rest: &str) -> usize {
    let mut length = 0;
    for line in rest.split_inclusive('\n') {
        length += line.len();
        if !line.trim_end_matches('\n').ends_with('\\') {
            break;
        }
    }
    length
}

/// The index of what closes the bracket at `open`, or of the last token.
pub fn matching(tokens: &[Token<'_>], open: usize, opens: &str, closes: &str) -> usize {
    let mut depth = 0usize;
    for (i, t) in tokens.iter().enumerate().skip(open) {
        depth += usize::from(t.text == opens);
        if t.text == closes {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return i;
            }
        }
    }
    tokens.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_directives_are_no_tokens() {
        let text =
            "#define A \\\n  b\nint x; // y\n/* z */ kernel void f(uint i [[buffer(0)]]) { a::b(\"c d\"); }";
        let words: Vec<_> = tokens(text).iter().map(|t| t.text).collect();
        let all = "int x ; kernel void f ( uint i [[ buffer ( 0 ) ]] ) { a :: b ( \"c_d\" ) ; }";
        assert_eq!(words, all.split(' ').map(|w| w.replace('_', " ")).collect::<Vec<_>>());
        for t in tokens(text) {
            assert_eq!(&text[t.start..t.end()], t.text);
        }
    }

    #[test]
    fn brackets_match() {
        let t = tokens("f(a, (b), c) + d");
        assert_eq!(t[matching(&t, 1, "(", ")")].start, 11);
    }
}
