//! BERT's normalization, as `tokenizers` has it: its tables of characters are those of Unicode 8 and 9, and a model
//! saw text that went through them.

use unicode_categories::UnicodeCategories;
use unicode_normalization_alignments::UnicodeNormalization;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bert {
    /// Control characters go, all white space becomes spaces.
    pub clean: bool,
    /// Spaces go around Chinese characters.
    pub part_chinese: bool,
    pub strip_accents: bool,
    pub lowercase: bool,
}

impl Bert {
    /// The text changed; None where nothing changes.
    pub fn apply(self, text: &str) -> Option<String> {
        if text.is_ascii() {
            return self.ascii(text);
        }
        let mut out = String::with_capacity(text.len() + text.len() / 8);
        for c in text.chars() {
            if self.clean && is_removed(c) {
                continue;
            }
            match c {
                _ if self.clean && c.is_whitespace() => out.push(' '),
                _ if self.part_chinese && is_chinese(c) => out.extend([' ', c, ' ']),
                _ => out.push(c),
            }
        }
        // Neither step changes ASCII but its case, or the order of what lies on two sides of it.
        if self.strip_accents {
            out = in_runs(&out, |run, out| {
                out.extend(run.nfd().map(|(c, _)| c).filter(|c| !c.is_mark_nonspacing()));
            });
        }
        if self.lowercase {
            out = in_runs(&out, |run, out| out.extend(run.chars().flat_map(char::to_lowercase)));
            out.make_ascii_lowercase();
        }
        Some(out)
    }

    fn ascii(self, text: &str) -> Option<String> {
        let removed = |byte: u8| self.clean && is_removed(char::from(byte));
        let changes = |byte: u8| {
            removed(byte)
                || (self.clean && byte != b' ' && byte.is_ascii_whitespace())
                || (self.lowercase && byte.is_ascii_uppercase())
        };
        if !text.bytes().any(changes) {
            return None;
        }
        let kept = text.chars().filter(|&c| !(self.clean && is_removed(c)));
        let mut out: String = kept.map(|c| if self.clean && c.is_whitespace() { ' ' } else { c }).collect();
        if self.lowercase {
            out.make_ascii_lowercase();
        }
        Some(out)
    }
}

/// Applies `change` to the runs of characters that are no ASCII.
fn in_runs(text: &str, mut change: impl FnMut(&str, &mut String)) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.bytes().position(|byte| !byte.is_ascii()) {
        let (ascii, from) = rest.split_at_checked(start).unwrap_or((rest, ""));
        let end = from.bytes().position(|byte| byte.is_ascii()).unwrap_or(from.len());
        let (run, behind) = from.split_at_checked(end).unwrap_or((from, ""));
        out.push_str(ascii);
        change(run, &mut out);
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// What cleaning takes away: U+0000, U+FFFD, and control, format and private characters but for three blanks.
fn is_removed(c: char) -> bool {
    match c {
        '\0' | '\u{FFFD}' => true,
        '\t' | '\n' | '\r' => false,
        _ => c.is_other(),
    }
}

/// The blocks of BERT's first tokenizer. One of them begins at another place than it meant to.
fn is_chinese(c: char) -> bool {
    matches!(c as u32,
        0x4E00..=0x9FFF
        | 0x3400..=0x4DBF
        | 0x20000..=0x2A6DF
        | 0x2A700..=0x2B73F
        | 0x2B740..=0x2B81F
        | 0x2B920..=0x2CEAF
        | 0xF900..=0xFAFF
        | 0x2F800..=0x2FA1F)
}

/// Punctuation to BERT: ASCII that is no letter, digit or control character, and Unicode's.
pub(crate) fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() || (!c.is_ascii() && c.is_punctuation())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNCASED: Bert = Bert { clean: true, part_chinese: true, strip_accents: true, lowercase: true };

    #[test]
    fn text_is_cleaned() {
        let normal = |text: &str| UNCASED.apply(text).unwrap_or_else(|| text.into());
        assert_eq!(normal("Ünï\tcödé İSTANBUL\u{0}\u{200D}"), "uni code istanbul");
        assert_eq!(normal("Hello\u{B}World\r\n"), "helloworld  ");
        assert_eq!(normal("ab中文c"), "ab 中  文 c");
        assert_eq!(normal("E\u{301}a"), "ea");
        assert_eq!(UNCASED.apply("already plain."), None);
        let cased = Bert { lowercase: false, strip_accents: false, ..UNCASED };
        assert_eq!(cased.apply("Élan"), Some("Élan".into()));
    }
}
