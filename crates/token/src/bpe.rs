//! Byte-pair encoding: a word's bytes (or characters) are joined by the file's list of merges, best first.

use rustc_hash::FxHashMap;

use crate::error::MergeFault;
use crate::merge::{NO_TOKEN, Symbol, merge};
use crate::split::{Pre, Splitter};
use crate::vocab::{SPACE, Spelling, Vocab};
use crate::{Error, bytes};

#[derive(Debug)]
pub(crate) struct Bpe {
    splitter: Splitter,
    /// Rank and joined token of each pair of tokens that can be joined.
    merges: FxHashMap<u64, (u32, u32)>,
    spelling: Spelling,
    whole_words: bool,
}

fn key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

impl Bpe {
    pub fn new(vocab: &Vocab, merges: &[String], pre: &Pre, spelling: Spelling) -> Result<Self, Error> {
        if merges.is_empty() {
            return Err(Error::NoMerges);
        }
        let mut table = FxHashMap::with_capacity_and_hasher(merges.len(), Default::default());
        let (mut joined, mut right) = (Vec::new(), Vec::new());
        let mut guess = 0;
        for (index, text) in merges.iter().enumerate() {
            let fault = |what| Error::Merge { index, merge: text.clone(), what };
            // The space that parts them is never the first byte: that one would belong to the left part.
            let space = text
                .bytes()
                .skip(1)
                .position(|byte| byte == b' ')
                .ok_or_else(|| fault(MergeFault::NoSpace))?;
            let (left_text, right_text) =
                text.split_at_checked(space + 1).ok_or_else(|| fault(MergeFault::NoSpace))?;
            joined.clear();
            right.clear();
            if !spelled(left_text, spelling, &mut joined) {
                return Err(fault(MergeFault::Left));
            }
            if !spelled(right_text.get(1..).unwrap_or_default(), spelling, &mut right) {
                return Err(fault(MergeFault::Right));
            }
            let left_id = vocab.find(&joined).ok_or_else(|| fault(MergeFault::Left))?;
            let right_id = vocab.find(&right).ok_or_else(|| fault(MergeFault::Right))?;
            joined.extend_from_slice(&right);
            // Most vocabularies number their tokens in the order of the merges.
            let id = vocab.find_near(&joined, guess).ok_or_else(|| fault(MergeFault::Joined))?;
            guess = id;
            let rank = u32::try_from(index).map_err(|_| Error::Size { tokens: merges.len() })?;
            // Given twice, the better rank stands.
            table.entry(key(left_id, right_id)).or_insert((rank, id));
        }
        Ok(Self { splitter: Splitter::new(pre)?, merges: table, spelling, whole_words: pre.whole_words })
    }

    /// Appends the tokens of `text`, in which no special token is looked for.
    pub fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) -> Result<(), Error> {
        let spaced;
        let text = if self.spelling == Spelling::Spaces && text.contains(SPACE) {
            spaced = text.replace(SPACE, " ");
            &spaced
        } else {
            text
        };
        let mut symbols = Vec::new();
        for word in self.splitter.split(text) {
            let word = text.get(word).unwrap_or_default();
            let lines = self.spelling == Spelling::Spaces && word.bytes().all(|byte| byte == b'\n');
            if (self.whole_words || lines || word.len() == 1)
                && let Some(id) = vocab.find(word.as_bytes())
            {
                out.push(id);
                continue;
            }
            symbols.clear();
            match self.spelling {
                Spelling::Bytes => symbols.extend(word.bytes().enumerate().map(|(start, byte)| {
                    let id = vocab.byte_tokens.get(usize::from(byte)).copied().flatten().unwrap_or(NO_TOKEN);
                    Symbol { start, end: start + 1, id }
                })),
                Spelling::Spaces => symbols.extend(characters(vocab, word)),
            }
            merge(&mut symbols, |left, right| self.merges.get(&key(left.id, right.id)).copied());
            for symbol in &symbols {
                match symbol.id {
                    NO_TOKEN => spell(
                        vocab,
                        word.as_bytes().get(symbol.range()).unwrap_or_default(),
                        self.spelling,
                        out,
                    )?,
                    id => out.push(id),
                }
            }
        }
        Ok(())
    }
}

/// Appends the bytes of a token's spelling. False where it is none.
fn spelled(text: &str, spelling: Spelling, out: &mut Vec<u8>) -> bool {
    match spelling {
        Spelling::Bytes => bytes::decode(text, out),
        Spelling::Spaces => {
            out.extend(text.replace(SPACE, " ").bytes());
            true
        }
    }
}

/// The characters of `word`, each with its token if it is one.
pub(crate) fn characters(vocab: &Vocab, word: &str) -> impl Iterator<Item = Symbol> {
    word.char_indices().map(move |(start, c)| {
        let end = start + c.len_utf8();
        let id = word.as_bytes().get(start..end).and_then(|piece| vocab.find(piece)).unwrap_or(NO_TOKEN);
        Symbol { start, end, id }
    })
}

/// Appends the byte tokens of text that is no token; a space is spelled U+2581 where spaces are.
pub(crate) fn spell(vocab: &Vocab, text: &[u8], spelling: Spelling, out: &mut Vec<u32>) -> Result<(), Error> {
    match (text, spelling) {
        (b" ", Spelling::Spaces) => vocab.spell(SPACE.as_bytes(), out),
        _ => vocab.spell(text, out),
    }
}
