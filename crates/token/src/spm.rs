//! SentencePiece BPE: characters are joined into tokens, the token with the highest score first.

use crate::Error;
use crate::bpe::{Unknown, characters, push};
use crate::merge::{Settled, Symbol, merge};
use crate::vocab::{Spelling, Vocab};

#[derive(Debug)]
pub(crate) struct Spm {
    /// By token: its place in the order of joining, equal for equal scores.
    priorities: Vec<u32>,
    settled: Settled,
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
        let score = |id: usize| scores.get(id).copied().unwrap_or(0.0);
        let priorities = (0..vocab.len()).map(|id| priority(score(id))).collect();
        Self { priorities, settled: Settled::new(vocab.len()) }
    }

    /// Appends the tokens of a word. `symbols` is used again from word to word.
    pub fn word(
        &self,
        vocab: &Vocab,
        word: &[u8],
        symbols: &mut Vec<Symbol>,
        out: &mut Vec<u32>,
    ) -> Result<(), Error> {
        let whole = vocab.find(word);
        if let Some(id) = whole.filter(|&id| self.settled.is(id) == Some(true)) {
            out.push(id);
            return Ok(());
        }
        symbols.clear();
        symbols.extend(characters(vocab, word));
        merge(symbols, |left, right| {
            let id = vocab.find(word.get(left.start as usize..right.end as usize)?)?;
            Some((self.priorities.get(id as usize).copied()?, id))
        });
        if let Some(id) = whole {
            self.settled.set(id, matches!(symbols.as_slice(), [symbol] if symbol.id == id));
        }
        let unknown = Unknown { id: vocab.ids.unk, fuse: false };
        push(vocab, word, symbols, Spelling::Spaces, unknown, out)
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
