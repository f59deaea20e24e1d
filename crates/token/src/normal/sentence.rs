//! SentencePiece's normalization of a text: its map of characters, then its rules for spaces.

use super::Charsmap;

#[derive(Debug)]
pub(crate) struct Sentence {
    pub charsmap: Option<Charsmap>,
    /// A space goes before the first character that is none.
    pub prefix: bool,
    /// Spaces that follow each other are one, and those at the ends go.
    pub merge_spaces: bool,
}

impl Sentence {
    pub fn apply(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + text.len() / 8 + 1);
        let mut in_word = false;
        let mut began = false;
        let mut push = |new: &str| {
            for c in new.chars() {
                if c != ' ' {
                    if !in_word && (self.merge_spaces || (self.prefix && !began)) {
                        out.push(' ');
                        began = true;
                    }
                    in_word = true;
                    // Inside this crate, U+2581 is a space.
                    if c == '\u{2581}' { out.push(' ') } else { out.push(c) }
                } else {
                    in_word = false;
                    if !self.merge_spaces {
                        out.push(' ');
                    }
                }
            }
        };
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let kept = c.is_ascii() && self.charsmap.as_ref().is_none_or(|map| map.keeps(c as u8));
            let found = match &self.charsmap {
                Some(map) if !kept => map.longest(rest.as_bytes()),
                _ => None,
            };
            let (length, new) = match found {
                // A string of the map that ends inside a character is none.
                Some((length, new)) if rest.is_char_boundary(length) => (length, new),
                _ => (c.len_utf8(), rest.get(..c.len_utf8()).unwrap_or_default()),
            };
            push(new);
            rest = rest.get(length..).unwrap_or_default();
        }
        out
    }
}
