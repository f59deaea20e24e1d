//! Byte-pair encoding: a word's bytes (or characters) are joined by the file's list of merges, best first.

use rustc_hash::FxHashMap;

use crate::bytes::char_len;
use crate::error::MergeFault;
use crate::merge::{NO_TOKEN, Settled, Symbol, merge};
use crate::vocab::{SPACE, Spelling, Vocab, push_text};
use crate::{Error, bytes};

#[derive(Debug)]
pub(crate) struct Bpe {
    /// Rank and joined token of each pair of tokens that can be joined.
    merges: FxHashMap<u64, (u32, u32)>,
    settled: Settled,
    rules: Rules,
}

/// What a model ties to its merges.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub spelling: Spelling,
    /// A word that is a token is that token, whatever the merges say.
    pub whole_words: bool,
    /// The same for words of line breaks alone (Gemma 4).
    pub whole_lines: bool,
    pub unknown: Unknown,
}

/// What stands for characters (or bytes) that no token has.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unknown {
    /// None: such a text is refused.
    pub id: Option<u32>,
    /// Those that follow each other are one.
    pub fuse: bool,
}

fn key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// The two parts of a merge that is written with a space between them.
pub(crate) fn parts(merge: &str) -> Option<(&str, &str)> {
    // The space is never the first byte: that one would belong to the left part.
    let space = merge.bytes().skip(1).position(|byte| byte == b' ')? + 1;
    let (left, right) = merge.split_at_checked(space)?;
    Some((left, right.get(1..)?))
}

impl Bpe {
    /// `merges` are pairs of tokens as the file spells them, best first. None is one that is no pair; then `text`
    /// says what stands there.
    ///
    /// # Errors
    /// [`Error::NoMerges`], [`Error::Merge`].
    pub fn new<'a>(
        vocab: &Vocab,
        merges: impl ExactSizeIterator<Item = Option<(&'a str, &'a str)>>,
        text: impl Fn(usize) -> String,
        rules: Rules,
    ) -> Result<Self, Error> {
        let count = merges.len();
        if count == 0 {
            return Err(Error::NoMerges);
        }
        let mut table = FxHashMap::with_capacity_and_hasher(count, Default::default());
        let (mut joined, mut right) = (Vec::new(), Vec::new());
        let mut guess = 0;
        for (index, pair) in merges.enumerate() {
            let fault = |what| Error::Merge { index, merge: text(index), what };
            let (left_text, right_text) = pair.ok_or_else(|| fault(MergeFault::NoSpace))?;
            joined.clear();
            right.clear();
            if !spelled(left_text, rules.spelling, &mut joined) {
                return Err(fault(MergeFault::Left));
            }
            if !spelled(right_text, rules.spelling, &mut right) {
                return Err(fault(MergeFault::Right));
            }
            let left_id = vocab.find(&joined).ok_or_else(|| fault(MergeFault::Left))?;
            let right_id = vocab.find(&right).ok_or_else(|| fault(MergeFault::Right))?;
            joined.extend_from_slice(&right);
            // Most vocabularies number their tokens in the order of the merges.
            let id = vocab.find_near(&joined, guess).ok_or_else(|| fault(MergeFault::Joined))?;
            guess = id;
            let rank = u32::try_from(index).map_err(|_| Error::Size { tokens: count })?;
            // Given twice, the better rank stands.
            table.entry(key(left_id, right_id)).or_insert((rank, id));
        }
        Ok(Self { merges: table, settled: Settled::new(vocab.len()), rules })
    }

    /// Appends the tokens of a word. `symbols` is used again from word to word.
    pub fn word(
        &self,
        vocab: &Vocab,
        word: &[u8],
        symbols: &mut Vec<Symbol>,
        out: &mut Vec<u32>,
    ) -> Result<(), Error> {
        let rules = self.rules;
        let whole = vocab.find(word);
        if let Some(id) = whole
            && (rules.whole_words
                || (rules.whole_lines && word.iter().all(|&byte| byte == b'\n'))
                || self.settled.is(id) == Some(true))
        {
            out.push(id);
            return Ok(());
        }
        symbols.clear();
        match rules.spelling {
            Spelling::Bytes => symbols.extend((0u32..).zip(word).map(|(start, &byte)| {
                let id = vocab.byte_tokens[usize::from(byte)].unwrap_or(NO_TOKEN);
                Symbol { start, end: start + 1, id }
            })),
            _ => symbols.extend(characters(vocab, word)),
        }
        merge(symbols, |left, right| self.merges.get(&key(left.id, right.id)).copied());
        if let Some(id) = whole {
            self.settled.set(id, matches!(symbols.as_slice(), [symbol] if symbol.id == id));
        }
        push(vocab, word, symbols, rules.spelling, rules.unknown, out)
    }
}

/// Appends the bytes of a token's spelling. False where it is none.
fn spelled(text: &str, spelling: Spelling, out: &mut Vec<u8>) -> bool {
    if spelling == Spelling::Bytes {
        return bytes::decode(text, out);
    }
    push_text(text, spelling, out);
    true
}

/// The characters of `word`, each with its token if it is one.
pub(crate) fn characters(vocab: &Vocab, word: &[u8]) -> impl Iterator<Item = Symbol> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let length = char_len(*word.get(start)?);
        let end = word.len().min(start + length);
        let id = word.get(start..end).and_then(|piece| vocab.find(piece)).unwrap_or(NO_TOKEN);
        let symbol = Symbol { start: start as u32, end: end as u32, id };
        start = end;
        Some(symbol)
    })
}

/// Appends the tokens of joined symbols, and for a symbol that is no token its bytes or what stands for it.
pub(crate) fn push(
    vocab: &Vocab,
    word: &[u8],
    symbols: &[Symbol],
    spelling: Spelling,
    unknown: Unknown,
    out: &mut Vec<u32>,
) -> Result<(), Error> {
    let mut was_unknown = false;
    for symbol in symbols {
        if symbol.id != NO_TOKEN {
            out.push(symbol.id);
            was_unknown = false;
            continue;
        }
        let text = match (word.get(symbol.range()).unwrap_or_default(), spelling) {
            // A space is spelled U+2581 where spaces are.
            (b" ", Spelling::Spaces) => SPACE.as_bytes(),
            (text, _) => text,
        };
        let before = out.len();
        vocab.spell(text, unknown.id, out)?;
        let is_unknown = out.len() == before + 1 && out.last().copied() == unknown.id;
        if is_unknown && was_unknown && unknown.fuse {
            out.pop();
        }
        was_unknown = is_unknown;
    }
    Ok(())
}
