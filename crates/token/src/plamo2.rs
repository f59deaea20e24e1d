//! PLaMo 2: of all ways to cut a text into tokens, the cheapest. Costs are whole numbers; a character that no
//! token has is dear and becomes its bytes. As llama.cpp has it.

use crate::Error;
use crate::bytes::char_len;
use crate::merge::NO_TOKEN;
use crate::trie::Trie;
use crate::vocab::Vocab;

/// Costs are scores in units of a ten-thousandth.
const UNITS: f32 = 1e4;
/// What a character costs that no token has.
const UNKNOWN: i64 = 10_000_000;
/// What costs more is no token of text.
const DEAREST: i64 = 20_000_000;

#[derive(Debug)]
pub(crate) struct Plamo2 {
    trie: Trie,
    /// By token.
    costs: Vec<i64>,
}

/// The cheapest way on from some place in a text.
#[derive(Debug, Clone, Copy)]
struct Best {
    cost: i64,
    length: usize,
    /// `NO_TOKEN`: the character's bytes.
    id: u32,
}

/// What is used again from word to word.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// By place in the word.
    best: Vec<Best>,
}

impl Plamo2 {
    /// `scores` has one for each token.
    ///
    /// # Errors
    /// Those of [`Trie::new`].
    pub fn new(vocab: &Vocab, scores: &[f32]) -> Result<Self, Error> {
        // The cast saturates.
        let costs: Vec<i64> = scores.iter().map(|score| -((score * UNITS).round() as i32 as i64)).collect();
        let cost = |id: u32| costs.get(id as usize).copied().unwrap_or(0);
        let trie = Trie::new(vocab.normal().filter(|&(id, _)| cost(id) < DEAREST))?;
        Ok(Self { trie, costs })
    }

    /// Appends the tokens of a word.
    pub fn word(
        &self,
        vocab: &Vocab,
        word: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<(), Error> {
        let word = word.strip_prefix("\u{FEFF}".as_bytes()).unwrap_or(word);
        let end = Best { cost: 0, length: 0, id: NO_TOKEN };
        let best = &mut scratch.best;
        best.clear();
        best.resize(word.len() + 1, end);
        for at in (0..word.len()).rev() {
            let rest = word.get(at..).unwrap_or_default();
            let cost_behind = |length: usize| best.get(at + length).map_or(0, |best| best.cost);
            let length = match rest.first() {
                // Inside a character.
                None | Some(0x80..0xC0) => continue,
                Some(&byte) => char_len(byte),
            };
            let mut found = Best { cost: UNKNOWN + cost_behind(length), length, id: NO_TOKEN };
            for (length, id) in self.trie.prefixes(rest) {
                let cost = self.costs.get(id as usize).copied().unwrap_or(0) + cost_behind(length);
                // Of equals the longest, which comes last.
                if cost <= found.cost {
                    found = Best { cost, length, id };
                }
            }
            if let Some(slot) = best.get_mut(at) {
                *slot = found;
            }
        }
        let mut at = 0;
        while let Some(&Best { length, id, .. }) = best.get(at).filter(|best| best.length > 0) {
            match id {
                NO_TOKEN => {
                    let text = word.get(at..at + length).unwrap_or_default();
                    vocab.spell(text, vocab.ids.unk, out)?;
                }
                id => out.push(id),
            }
            at += length;
        }
        Ok(())
    }
}
