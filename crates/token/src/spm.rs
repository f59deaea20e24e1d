//! SentencePiece BPE: characters are joined into tokens, the token with the highest score first.

use std::ops::Range;

use rustc_hash::FxHashSet;

use crate::Error;
use crate::bpe::{characters, spell};
use crate::merge::{NO_TOKEN, Symbol, merge};
use crate::vocab::{Kind, SPACE, Spelling, Vocab};

#[derive(Debug)]
pub(crate) struct Spm {
    /// By token: its place in the order of joining, equal for equal scores.
    priorities: Vec<u32>,
    /// Characters that some token has right before a space. Before any other space, a text can be cut: no token
    /// reaches across, so the words can be joined alone.
    before_space: FxHashSet<char>,
}

/// A number that is lower for a higher score.
fn priority(score: f32) -> u32 {
    // Adding zero makes -0 and 0 one.
    let bits = (score + 0.0).to_bits();
    let ascending = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    !ascending
}

impl Spm {
    /// `scores` are of the tokens of `vocab`; without any, all are equal.
    pub fn new(vocab: &Vocab, scores: &[f32]) -> Self {
        let count = u32::try_from(vocab.len()).unwrap_or(u32::MAX);
        let score = |id: u32| scores.get(id as usize).copied().unwrap_or(0.0);
        let mut before_space = FxHashSet::default();
        for id in 0..count {
            let piece = vocab.piece(id).unwrap_or_default();
            let inner = piece.windows(2).any(|pair| matches!(pair, [before, b' '] if *before != b' '));
            if inner && matches!(vocab.kind(id), Some(Kind::Normal | Kind::Unused | Kind::UserDefined)) {
                let text = String::from_utf8_lossy(piece);
                before_space.extend(
                    text.chars().zip(text.chars().skip(1)).filter(|pair| pair.1 == ' ').map(|pair| pair.0),
                );
            }
        }
        Self { priorities: (0..count).map(|id| priority(score(id))).collect(), before_space }
    }

    /// Appends the tokens of `text`, in which no special token is looked for. A space is put before it if `prefix`.
    pub fn encode(&self, vocab: &Vocab, text: &str, prefix: bool, out: &mut Vec<u32>) -> Result<(), Error> {
        let mut spaced = String::new();
        let text = if prefix || text.contains(SPACE) {
            spaced.extend(prefix.then_some(' '));
            spaced.push_str(&text.replace(SPACE, " "));
            &spaced
        } else {
            text
        };
        let mut symbols: Vec<Symbol> = Vec::new();
        for word in self.words(text) {
            let word = text.get(word).unwrap_or_default();
            symbols.clear();
            symbols.extend(characters(vocab, word));
            merge(&mut symbols, |left, right| {
                let id = vocab.find(word.as_bytes().get(left.start..right.end)?)?;
                Some((self.priorities.get(id as usize).copied()?, id))
            });
            for symbol in &symbols {
                match symbol.id {
                    NO_TOKEN => spell(
                        vocab,
                        word.as_bytes().get(symbol.range()).unwrap_or_default(),
                        Spelling::Spaces,
                        out,
                    )?,
                    id => out.push(id),
                }
            }
        }
        Ok(())
    }

    /// Parts of `text` that no token joins: see `before_space`.
    fn words<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_order_as_scores_do() {
        let scores = [f32::INFINITY, 3.5, 1.0, 0.0, -0.5, -1.0, -1e9, f32::NEG_INFINITY];
        assert!(scores.windows(2).all(|pair| priority(pair[0]) < priority(pair[1])));
        assert_eq!(priority(0.0), priority(-0.0));
    }
}
