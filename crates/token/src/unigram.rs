//! SentencePiece unigram: of all ways to cut a word into tokens, the one whose scores add up to most.

use std::ops::Range;

use crate::Error;
use crate::bytes::char_len;
use crate::merge::NO_TOKEN;
use crate::trie::Trie;
use crate::vocab::Vocab;

/// How much worse than the worst token an unknown character is.
const UNKNOWN_PENALTY: f64 = 10.0;

#[derive(Debug)]
pub(crate) struct Unigram {
    trie: Trie,
    /// By token.
    scores: Vec<f64>,
    unknown_score: f64,
    unknown: Unknown,
}

/// What an unknown run of characters becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unknown {
    /// Its bytes, where all of them are tokens.
    pub bytes: bool,
    /// Also one token with the run that the word before ended in: for models of whole texts.
    pub across_words: bool,
}

/// The best way to some place in a word.
#[derive(Debug, Clone, Copy)]
struct Best {
    score: f64,
    start: usize,
    /// `NO_TOKEN`: an unknown character.
    id: u32,
}

/// What is used again from word to word.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// By place in the word.
    best: Vec<Best>,
    /// The best way, last token first: where it starts, and its id.
    path: Vec<(usize, u32)>,
}

const NOWHERE: Best = Best { score: f64::NEG_INFINITY, start: usize::MAX, id: NO_TOKEN };

impl Unigram {
    /// `scores` has one for each token, all of them numbers; `worst` is the lowest that counts.
    ///
    /// # Errors
    /// Those of [`Trie::new`].
    pub fn new(vocab: &Vocab, scores: Vec<f64>, worst: f64, unknown: Unknown) -> Result<Self, Error> {
        let trie = Trie::new(vocab.reachable())?;
        Ok(Self { trie, scores, unknown_score: worst - UNKNOWN_PENALTY, unknown })
    }

    /// Appends the tokens of a word. `scratch` is used again from word to word.
    pub fn word(
        &self,
        vocab: &Vocab,
        word: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<(), Error> {
        let Scratch { best, path } = scratch;
        best.clear();
        best.resize(word.len() + 1, NOWHERE);
        let (mut start, mut score) = (0, 0.0);
        while let Some(&byte) = word.get(start) {
            let character = char_len(byte);
            let mut has_character = false;
            let mut offer = |length: usize, id: u32, more: f64| {
                if let Some(slot) = best.get_mut(start + length)
                    && (slot.start == usize::MAX || score + more > slot.score)
                {
                    *slot = Best { score: score + more, start, id };
                }
            };
            for (length, id) in self.trie.prefixes(word.get(start..).unwrap_or_default()) {
                has_character |= length == character;
                offer(length, id, self.scores.get(id as usize).copied().unwrap_or(0.0));
            }
            if !has_character {
                offer(character, NO_TOKEN, self.unknown_score);
            }
            start += character;
            score = best.get(start).map_or(0.0, |best| best.score);
        }
        path.clear();
        let mut end = word.len();
        while let Some(&Best { start, id, .. }) = best.get(end).filter(|best| best.start < end) {
            path.push((start, id));
            end = start;
        }
        // Runs of what stands for the unknown are one.
        let mut run = None;
        for &(start, id) in path.iter().rev() {
            if id == NO_TOKEN || Some(id) == vocab.ids.unk {
                run.get_or_insert(start);
                continue;
            }
            if let Some(run) = run.take() {
                self.unknown(vocab, word, run..start, out)?;
            }
            out.push(id);
        }
        run.map_or(Ok(()), |run| self.unknown(vocab, word, run..word.len(), out))
    }

    fn unknown(
        &self,
        vocab: &Vocab,
        word: &[u8],
        run: Range<usize>,
        out: &mut Vec<u32>,
    ) -> Result<(), Error> {
        let text = word.get(run.clone()).unwrap_or_default();
        let tokens = |byte: &u8| vocab.byte_tokens[usize::from(*byte)];
        if let Some(id) = vocab.find(text) {
            out.push(id);
        } else if self.unknown.bytes && text.iter().all(|byte| tokens(byte).is_some()) {
            out.extend(text.iter().filter_map(tokens));
        } else {
            let byte = text.first().copied().unwrap_or_default();
            let unk = vocab.ids.unk.ok_or(Error::NoByte { byte })?;
            if !(self.unknown.across_words && run.start == 0 && out.last() == Some(&unk)) {
                out.push(unk);
            }
        }
        Ok(())
    }
}
