//! Where a text can be cut so that no token reaches across: joined word by word, it gives the same tokens.
//!
//! Models of SentencePiece's kind join over a whole text. Almost all of their tokens that have a space have it in
//! front, so a text falls into words, which are joined faster alone and most of which are tokens.

use std::ops::Range;

use rustc_hash::FxHashSet;

use crate::vocab::Vocab;

#[derive(Debug, Default)]
pub(crate) struct Seams {
    /// Characters that some token has right before a space. Before any other space, a text can be cut.
    before_space: FxHashSet<char>,
}

impl Seams {
    pub fn new(vocab: &Vocab) -> Self {
        let mut before_space = FxHashSet::default();
        for (_, piece) in vocab.reachable() {
            if piece.windows(2).any(|pair| matches!(pair, [before, b' '] if *before != b' ')) {
                let text = String::from_utf8_lossy(piece);
                let pairs = text.chars().zip(text.chars().skip(1));
                before_space.extend(pairs.filter(|pair| pair.1 == ' ').map(|pair| pair.0));
            }
        }
        Self { before_space }
    }

    /// Parts of `text` that no token joins.
    pub fn words<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
        let mut start = 0;
        let inner = text.match_indices(' ').filter_map(|(at, _)| {
            let before = text.get(..at)?.chars().next_back()?;
            (before != ' ' && !self.before_space.contains(&before)).then_some(at)
        });
        inner.chain([text.len()]).filter_map(move |end| {
            let word = start..end;
            start = end;
            (!word.is_empty()).then_some(word)
        })
    }
}
