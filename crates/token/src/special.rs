//! Finding special tokens in text.

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use rustc_hash::FxHashMap;

use crate::Error;
use crate::vocab::Vocab;

/// How a special token is found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    /// It swallows the white space before it.
    pub strip_left: bool,
    /// It swallows the white space behind it.
    pub strip_right: bool,
    /// It is not found inside a word.
    pub single_word: bool,
}

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fragment<'t> {
    /// Text, and whether it is the beginning.
    Text(&'t str, bool),
    Token(u32),
}

/// A set of special tokens that can be found in text: the leftmost first, the longest among those that begin at
/// one place (as Hugging Face `tokenizers` has it).
#[derive(Debug, Default)]
pub(crate) struct Finder {
    automaton: Option<AhoCorasick>,
    /// Ids and flags, by pattern number.
    tokens: Vec<(u32, Flags)>,
}

impl Finder {
    /// Of these ids and texts, none of them empty.
    ///
    /// # Errors
    /// [`Error::Specials`] where they are too many or too long.
    pub fn new<'a>(
        wanted: impl Iterator<Item = (u32, &'a str)>,
        flags: &FxHashMap<u32, Flags>,
    ) -> Result<Self, Error> {
        let found = wanted.filter(|(_, text)| !text.is_empty());
        let (tokens, texts): (Vec<_>, Vec<_>) =
            found.map(|(id, text)| ((id, flags.get(&id).copied().unwrap_or_default()), text)).unzip();
        if tokens.is_empty() {
            return Ok(Self::default());
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(texts)
            .map_err(|e| Error::Specials(e.to_string()))?;
        Ok(Self { automaton: Some(automaton), tokens })
    }

    /// The first token in `text` at or after byte `at`: where it begins, where it ends, its id.
    pub fn find(&self, text: &str, at: usize) -> Option<(usize, usize, u32)> {
        self.next(text, at).map(|(start, end, (id, _))| (start, end, id))
    }

    fn next(&self, text: &str, at: usize) -> Option<(usize, usize, (u32, Flags))> {
        let automaton = self.automaton.as_ref().filter(|_| at <= text.len())?;
        let found = automaton.find(Input::new(text).span(at..text.len()))?;
        Some((found.start(), found.end(), *self.tokens.get(found.pattern().as_usize())?))
    }

    /// Cuts `text` at its special tokens. A token for which `skip` gives true (of where it ends) is text.
    pub fn partition<'t>(
        &self,
        text: &'t str,
        skip: impl Fn(usize) -> bool,
        mut each: impl FnMut(Fragment<'t>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut done = 0;
        let mut at = 0;
        while let Some((start, end, (id, flags))) = self.next(text, at) {
            at = end;
            if skip(end) || (flags.single_word && in_word(text, start, end)) {
                continue;
            }
            let mut part = text.get(done..start).unwrap_or_default();
            if flags.strip_left {
                part = part.trim_end();
            }
            if !part.is_empty() {
                each(Fragment::Text(part, done == 0))?;
            }
            each(Fragment::Token(id))?;
            let behind = text.get(end..).unwrap_or_default();
            let swallowed = if flags.strip_right { behind.len() - behind.trim_start().len() } else { 0 };
            done = end + swallowed;
        }
        let part = text.get(done..).unwrap_or_default();
        if part.is_empty() { Ok(()) } else { each(Fragment::Text(part, done == 0)) }
    }
}

/// Whether a character of a word lies beside `text[start..end]`.
fn in_word(text: &str, start: usize, end: usize) -> bool {
    let before = text.get(..start).and_then(|text| text.chars().next_back());
    let behind = text.get(end..).and_then(|text| text.chars().next());
    before.into_iter().chain(behind).any(regex_syntax::is_word_character)
}

/// The flags of a GGUF vocabulary's tokens. The file does not carry them, so they go by name, as in llama.cpp.
pub(crate) fn known_flags(
    vocab: &Vocab,
    name: Option<&str>,
    architecture: Option<&str>,
    pre: Option<&str>,
) -> FxHashMap<u32, Flags> {
    let name = name.unwrap_or_default().to_lowercase();
    let named = |wanted: &str, flags: Flags| {
        vocab.specials.iter().filter(|(_, text)| **text == *wanted).map(|(id, _)| (*id, flags)).collect()
    };
    let left = Flags { strip_left: true, ..Flags::default() };
    if pre.is_some_and(|pre| ["jina-v2-de", "jina-v2-es", "jina-v2-code"].contains(&pre))
        || architecture.is_some_and(|arch| ["nomic-bert-moe", "jina-bert-v3"].contains(&arch))
    {
        named("<mask>", left)
    } else if name.contains("phi-3") || name.contains("phi3") {
        let plain = |text: &str| ["<unk>", "<s>", "<|endoftext|>"].contains(&text);
        let right = Flags { strip_right: true, ..Flags::default() };
        vocab.specials.iter().filter(|(_, text)| !plain(text)).map(|(id, _)| (*id, right)).collect()
    } else if name.contains("modern-bert") {
        named("[MASK]", left)
    } else {
        FxHashMap::default()
    }
}
