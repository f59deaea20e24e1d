//! Finding special tokens in text.

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use rustc_hash::FxHashMap;

use crate::Error;
use crate::vocab::{Kind, Vocab};

/// Which blanks a special token swallows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Strip {
    pub left: bool,
    pub right: bool,
}

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fragment<'t> {
    Text(&'t str),
    Token(u32),
}

/// A set of special tokens that can be found in text: the leftmost first, the longest among those that begin at
/// one place (as Hugging Face `tokenizers` has it).
#[derive(Debug)]
pub(crate) struct Finder {
    automaton: AhoCorasick,
    /// Ids, by pattern number.
    ids: Vec<u32>,
}

impl Finder {
    pub fn new(vocab: &Vocab, wanted: impl Fn(Kind) -> bool) -> Result<Self, Error> {
        let found = vocab.specials.iter().filter_map(|&id| {
            let piece = vocab.piece(id).filter(|piece| !piece.is_empty())?;
            vocab.kind(id).filter(|&kind| wanted(kind)).map(|_| (id, piece))
        });
        let (ids, pieces): (Vec<u32>, Vec<&[u8]>) = found.unzip();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(pieces)
            .map_err(|e| Error::Specials(e.to_string()))?;
        Ok(Self { automaton, ids })
    }

    /// The first token in `text` at or after byte `at`: where it begins, where it ends, its id.
    pub fn find(&self, text: &str, at: usize) -> Option<(usize, usize, u32)> {
        if self.ids.is_empty() || at > text.len() {
            return None;
        }
        let found = self.automaton.find(Input::new(text).span(at..text.len()))?;
        Some((found.start(), found.end(), *self.ids.get(found.pattern().as_usize())?))
    }

    /// Cuts `text` at its special tokens. A token for which `skip` gives true (of where it ends) is text.
    pub fn partition<'t>(
        &self,
        text: &'t str,
        strips: &FxHashMap<u32, Strip>,
        skip: impl Fn(usize) -> bool,
        mut each: impl FnMut(Fragment<'t>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut done = 0;
        let mut at = 0;
        let mut strip = Strip::default();
        let between = |from: usize, to: usize, after: Strip, before: Strip| {
            let mut part = text.get(from..to).unwrap_or_default();
            if after.right {
                part = part.trim_start_matches(is_space);
            }
            if before.left {
                part = part.trim_end_matches(is_space);
            }
            part
        };
        while let Some((start, end, id)) = self.find(text, at) {
            at = end;
            if skip(end) {
                continue;
            }
            let next = strips.get(&id).copied().unwrap_or_default();
            let part = between(done, start, strip, next);
            if !part.is_empty() {
                each(Fragment::Text(part))?;
            }
            each(Fragment::Token(id))?;
            (done, strip) = (end, next);
        }
        let part = between(done, text.len(), strip, Strip::default());
        if part.is_empty() { Ok(()) } else { each(Fragment::Text(part)) }
    }
}

/// `isspace` of the C locale.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{B}' | '\u{C}')
}

/// The tokens that swallow blanks. GGUF does not carry this, so it goes by name, as in llama.cpp.
pub(crate) fn strips(vocab: &Vocab, name: Option<&str>, pre: Option<&str>) -> FxHashMap<u32, Strip> {
    let text = |id: u32| vocab.piece(id).unwrap_or_default();
    let name = name.unwrap_or_default().to_lowercase();
    let named = |wanted: &'static [u8], strip: Strip| {
        vocab.specials.iter().filter(move |&&id| text(id) == wanted).map(move |&id| (id, strip)).collect()
    };
    if pre.is_some_and(|pre| ["jina-v2-de", "jina-v2-es", "jina-v2-code"].contains(&pre)) {
        named(b"<mask>", Strip { left: true, right: false })
    } else if name.contains("phi-3") || name.contains("phi3") {
        let plain = |id: u32| [&b"<unk>"[..], b"<s>", b"<|endoftext|>"].contains(&text(id));
        let right = Strip { left: false, right: true };
        vocab.specials.iter().filter(|&&id| !plain(id)).map(|&id| (id, right)).collect()
    } else if name.contains("modern-bert") {
        named(b"[MASK]", Strip { left: true, right: false })
    } else {
        FxHashMap::default()
    }
}
