//! WordPiece: a word is cut into the longest tokens from its left end, or is unknown as a whole.

use std::borrow::Cow;

use crate::Error;
use crate::trie::Trie;
use crate::vocab::{SPACE, Vocab};

#[derive(Debug)]
pub(crate) struct WordPiece {
    /// Tokens that begin a word.
    first: Trie,
    /// Tokens that go on, without the prefix that says so.
    next: Trie,
    unknown: u32,
    /// Longer words are unknown, in characters.
    longest: usize,
}

impl WordPiece {
    /// # Errors
    /// Those of [`Trie::new`].
    pub fn new<'a>(
        first: impl Iterator<Item = (u32, &'a [u8])>,
        next: impl Iterator<Item = (u32, &'a [u8])>,
        unknown: u32,
        longest: usize,
    ) -> Result<Self, Error> {
        Ok(Self { first: Trie::new(first)?, next: Trie::new(next)?, unknown, longest })
    }

    /// Of a GGUF vocabulary: what begins a word has U+2581 in front, and a word has at most 100 characters.
    ///
    /// # Errors
    /// Those of [`Trie::new`]; [`Error::NoUnknown`].
    pub fn from_gguf<S: AsRef<str>>(vocab: &Vocab, tokens: &[S]) -> Result<Self, Error> {
        let text = |id: u32| tokens.get(id as usize).map_or("", AsRef::as_ref);
        let all = || vocab.normal().map(|(id, _)| (id, text(id)));
        let first = all().filter_map(|(id, text)| Some((id, text.strip_prefix(SPACE)?)));
        let next = all().filter(|(_, text)| !text.starts_with(SPACE));
        Self::new(first.map(bytes), next.map(bytes), vocab.ids.unk.ok_or(Error::NoUnknown)?, 100)
    }

    /// Appends the tokens of a word.
    pub fn word(&self, word: &[u8], out: &mut Vec<u32>) {
        let begin = out.len();
        let mut rest = word;
        let mut trie = &self.first;
        let mut characters = word.len();
        if characters > self.longest {
            characters = word.iter().filter(|&&byte| !matches!(byte, 0x80..0xC0)).count();
        }
        while characters <= self.longest && !rest.is_empty() {
            let Some((length, id)) = trie.longest(rest) else { break };
            out.push(id);
            rest = rest.get(length..).unwrap_or_default();
            trie = &self.next;
        }
        if !rest.is_empty() {
            out.truncate(begin);
            out.push(self.unknown);
        }
    }
}

fn bytes((id, text): (u32, &str)) -> (u32, &[u8]) {
    (id, text.as_bytes())
}

/// A token's text without the spaces that joining words puts before punctuation (as `tokenizers` cleans up).
pub(crate) fn cleaned(text: &str) -> Cow<'_, str> {
    const REPLACED: [(&str, &str); 11] = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    let mut out = Cow::Borrowed(text);
    for (from, to) in REPLACED {
        if out.contains(from) {
            out = Cow::Owned(out.replace(from, to));
        }
    }
    out
}
