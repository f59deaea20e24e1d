//! What an expression of a tokenizer means, in the syntax of the automata here.
//!
//! Tokenizer files are written for Oniguruma. An expression is taken where both engines read it alike; anything
//! else is refused by name. A few that use look-ahead or possessive repetition are known: see `REWRITTEN`, and
//! [`super::Cut::expression`].

use crate::Error;

/// What becomes of a run of blanks that no other alternative matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blanks {
    /// The expression has no rule for it.
    Plain,
    /// `\s+(?!\S)|\s+`: the last one is left to the word behind, if there is one.
    LeaveLast,
    /// Jais 2: as before, and cut at powers of two.
    Powers,
}

/// An expression that an automaton can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expression {
    /// As the file has it.
    pub source: String,
    /// Without its rule for blanks.
    pub automaton: String,
    pub blanks: Blanks,
}

/// Expressions with possessive repetition, and the same without: what follows each one is nothing that it could
/// give back.
const REWRITTEN: &[(&str, &str)] = &[
    // OpenAI's cl100k, as tiktoken and, with `[\r\n]` once, Bailing have it.
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s*[\r\n]+|\s+(?!\S)|\s+",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
];
/// How an expression ends that has a rule for blanks, longest first.
const ENDINGS: &[(&str, Blanks)] = &[
    (
        r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}",
        Blanks::Powers,
    ),
    (r"|\s+(?!\S)|\s+", Blanks::LeaveLast),
    // What a blank before a word is then lies between two matches, and is a piece all the same.
    (r"|\s+(?!\S)", Blanks::LeaveLast),
];
/// Longest expression: those in use have some hundred characters.
const LONGEST: usize = 8192;

impl Expression {
    /// Words, and what is neither word nor blank: the `Whitespace` pre-tokenizer, which does not use Oniguruma.
    pub fn words() -> Self {
        let source = r"\w+|[^\w\s]+";
        Self { source: source.into(), automaton: source.into(), blanks: Blanks::Plain }
    }

    /// # Errors
    /// [`Error::Expression`] where it uses what automata lack or what engines read differently.
    pub fn new(source: &str) -> Result<Self, Error> {
        let refused = |what: &str| Error::Expression { expression: source.into(), what: what.into() };
        if source.len() > LONGEST {
            return Err(refused("longer than 8192 bytes"));
        }
        let known = REWRITTEN.iter().find(|(possessive, _)| *possessive == source);
        let plain = known.map_or(source, |(_, plain)| plain);
        let ending = ENDINGS.iter().find_map(|(end, blanks)| Some((plain.strip_suffix(end)?, *blanks)));
        let (automaton, blanks) = ending.unwrap_or((plain, Blanks::Plain));
        check(automaton).map_err(refused)?;
        Ok(Self { source: source.into(), automaton: automaton.into(), blanks })
    }
}

/// Whether both engines read `expression` alike; else what stands in the way.
fn check(expression: &str) -> Result<(), &'static str> {
    let chars: Vec<char> = expression.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut classes = 0usize;
    let mut i = 0;
    while let Some(&c) = chars.get(i) {
        let in_class = classes > 0;
        match c {
            '\\' => {
                i += 1;
                match at(i) {
                    's' | 'S' | 'd' | 'D' | 'n' | 'r' | 't' => {}
                    'p' | 'P' | 'x' | 'u' if at(i + 1) == '{' => {
                        i += chars.iter().skip(i).position(|&c| c == '}').ok_or("an unclosed brace")?;
                    }
                    'p' | 'P' | 'x' | 'u' => {}
                    '<' | '>' => return Err("an escape that engines read differently"),
                    escaped if escaped.is_ascii_punctuation() => {}
                    _ => return Err("an escape that engines read differently"),
                }
            }
            '[' => {
                classes += 1;
                if at(i + 1) == ':' {
                    return Err("a POSIX class");
                }
                let first = if at(i + 1) == '^' { i + 2 } else { i + 1 };
                if at(first) == ']' {
                    return Err("a class that begins with its own end");
                }
            }
            ']' => classes = classes.saturating_sub(1),
            '-' | '~' if in_class && at(i + 1) == c => return Err("a class with -- or ~~"),
            _ if in_class => {}
            '(' if at(i + 1) == '?' => {
                let plain = at(i + 2) == ':' || (at(i + 2) == 'i' && at(i + 3) == ':');
                if !plain {
                    return Err("look-around or another group that automata do not have");
                }
                i += 2;
            }
            '^' | '$' => return Err("a place in a line"),
            '?' | '*' | '+' if at(i + 1) == '+' => return Err("possessive repetition"),
            '}' if matches!(at(i + 1), '+' | '?') => return Err("repetition of a counted repetition"),
            '{' if at(i + 1) == ',' => return Err("a count without its first number"),
            _ => {}
        }
        i += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_for_blanks_are_found() {
        let rule = |source| Expression::new(source).map(|e| (e.automaton, e.blanks)).unwrap();
        assert_eq!(rule(r"\p{L}+|\s+(?!\S)|\s+"), (r"\p{L}+".into(), Blanks::LeaveLast));
        assert_eq!(rule(r"\p{L}+|\s+(?!\S)"), (r"\p{L}+".into(), Blanks::LeaveLast));
        assert_eq!(rule(r"\p{L}+|\s+"), (r"\p{L}+|\s+".into(), Blanks::Plain));
    }

    #[test]
    fn what_engines_read_differently_is_refused() {
        for bad in [
            r"a(?=b)",
            r"a(?!b)",
            r"(?<=a)b",
            r"(?>a)",
            r"(?m:a)",
            r"a++",
            r"a?+",
            r"a{2}+",
            r"a{2}?",
            r"a{,2}",
            r"\w",
            r"\b",
            r"\h",
            r"\1",
            r"[[:alpha:]]",
            r"[]a]",
            r"[^]a]",
            r"[a--b]",
            r"^a",
            r"a$",
            r"\s+(?!\S)|a",
        ] {
            assert!(matches!(Expression::new(bad), Err(Error::Expression { .. })), "{bad}");
        }
        for good in [r"[$^a]", r"\$", r"a+?", r"(?i:a)|(?:b)|(c)", r"[a&&[^b]]", r"a{1,3}"] {
            assert!(Expression::new(good).is_ok(), "{good}");
        }
    }
}
