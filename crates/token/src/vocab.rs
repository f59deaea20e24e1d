//! The token list: what each token is, the bytes it stands for, and the way back from bytes to tokens.

use crate::table::Table;
use crate::{Error, bytes, rwkv};

/// What a token is, as GGUF's `tokenizer.ggml.token_type` numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Text.
    Normal,
    /// Stands for text that no token can express.
    Unknown,
    /// Structure, such as the end of a turn. Never read out of plain text.
    Control,
    /// Text that is kept whole, such as `<think>`. Always read.
    UserDefined,
    /// Text that no training text had.
    Unused,
    /// One byte, such as `<0x0A>`.
    Byte,
}

/// How a token's spelling relates to the text it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// GPT-2's byte alphabet.
    Bytes,
    /// U+2581 stands for a space. Inside this crate such text has spaces, and a U+2581 of the text becomes one.
    Spaces,
    /// The text itself.
    Plain,
    /// The text that the token stands for, with a space before what begins a word (WordPiece).
    Words,
    /// As Python writes byte strings (RWKV).
    Escaped,
}

pub(crate) const SPACE: &str = "\u{2581}";

/// Where a byte is spelled as one token, by byte.
pub(crate) type ByteTokens = [Option<u32>; 256];

#[derive(Debug)]
pub(crate) struct Vocab {
    /// Bytes of all tokens, one after another; token `i` ends at `ends[i]`.
    pieces: Vec<u8>,
    ends: Vec<u32>,
    kinds: Vec<Kind>,
    /// Ids of tokens that text can become, found by their bytes.
    table: Table,
    /// By token: whether `table` has it.
    reachable: Vec<bool>,
    pub byte_tokens: Box<ByteTokens>,
    pub ids: SpecialIds,
    /// Ids that end generation, ascending.
    pub eog: Vec<u32>,
    /// Control, unknown and user-defined tokens by ascending id, each with the text that it is found by.
    pub specials: Vec<(u32, Box<str>)>,
}

/// Special tokens by role. Each lies inside the vocabulary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// Beginning of text.
    pub bos: Option<u32>,
    /// End of text.
    pub eos: Option<u32>,
    /// End of turn.
    pub eot: Option<u32>,
    /// End of message, before a tool call.
    pub eom: Option<u32>,
    /// Stands for what no token can express.
    pub unk: Option<u32>,
    /// Padding.
    pub pad: Option<u32>,
    /// Between two texts, and behind the last (BERT).
    pub sep: Option<u32>,
    /// Stands for a word to be guessed (BERT).
    pub mask: Option<u32>,
}

impl Vocab {
    /// `kinds` is as long as `tokens`. Special ids are inside of both.
    pub fn new<S: AsRef<str>>(
        tokens: &[S],
        kinds: Vec<Kind>,
        ids: SpecialIds,
        eog: Vec<u32>,
        spelling: Spelling,
    ) -> Result<Self, Error> {
        let count = tokens.len();
        let bytes = tokens.iter().map(|token| token.as_ref().len()).sum::<usize>();
        if count == 0 || u32::try_from(bytes).is_err() || u32::try_from(count).is_err() {
            return Err(Error::Size { tokens: count });
        }
        let mut vocab = Self {
            pieces: Vec::with_capacity(bytes),
            ends: Vec::with_capacity(count),
            table: Table::with_capacity(count),
            reachable: Vec::with_capacity(count),
            byte_tokens: Box::new([None; 256]),
            ids,
            eog,
            specials: Vec::new(),
            kinds,
        };
        vocab.fill(tokens, spelling)?;
        Ok(vocab)
    }

    fn fill<S: AsRef<str>>(&mut self, tokens: &[S], spelling: Spelling) -> Result<(), Error> {
        for (id, token) in (0u32..).zip(tokens) {
            let text = token.as_ref();
            let kind = self.kind(id).unwrap_or(Kind::Normal);
            let start = self.pieces.len();
            // Whether the text of a prompt can come to this token by the model's way of joining.
            let mut reachable = !text.is_empty() && !matches!(spelling, Spelling::Words | Spelling::Escaped);
            if spelling == Spelling::Words
                && matches!(kind, Kind::Unknown | Kind::Control | Kind::UserDefined)
            {
                // They are words like others.
                self.pieces.push(b' ');
            }
            match (kind, spelling) {
                (Kind::Unknown | Kind::Control, _) => {
                    self.specials.push((id, text.into()));
                    self.pieces.extend_from_slice(text.as_bytes());
                    reachable = false;
                }
                (Kind::UserDefined, _) => {
                    self.specials.push((id, text.into()));
                    // It can be a part of merges too, where its spelling is its text.
                    let plain = match spelling {
                        Spelling::Bytes => text.bytes().all(|b| b.is_ascii_graphic()),
                        _ => !text.contains(' '),
                    };
                    reachable &= plain;
                    push_text(text, spelling, &mut self.pieces);
                }
                (Kind::Byte, _) => {
                    if let Some(byte) = bytes::byte_token(text) {
                        self.pieces.push(byte);
                        self.byte_tokens[usize::from(byte)].get_or_insert(id);
                    }
                    reachable = false;
                }
                (Kind::Normal | Kind::Unused, Spelling::Bytes) => {
                    if !bytes::decode(text, &mut self.pieces) {
                        self.pieces.extend_from_slice(text.as_bytes());
                        reachable = false;
                    }
                }
                (Kind::Normal | Kind::Unused, Spelling::Spaces | Spelling::Plain) => {
                    // A raw space never reaches the model where all of them are spelled U+2581.
                    reachable &= spelling == Spelling::Plain || !text.contains(' ');
                    push_text(text, spelling, &mut self.pieces);
                }
                (Kind::Normal | Kind::Unused, Spelling::Words) => {
                    self.pieces.extend_from_slice(text.as_bytes());
                }
                (Kind::Normal | Kind::Unused, Spelling::Escaped) => rwkv::unescape(text, &mut self.pieces),
            }
            let end = u32::try_from(self.pieces.len()).map_err(|_| Error::Size { tokens: tokens.len() })?;
            self.ends.push(end);
            self.reachable.push(reachable);
            if reachable {
                let (pieces, ends) = (&self.pieces, &self.ends);
                let piece = pieces.get(start..).unwrap_or_default();
                if let Err(first) = self.table.insert(id, piece, |other| slice(pieces, ends, other)) {
                    return Err(Error::Duplicate { text: text.into(), first, second: id });
                }
            }
        }
        if spelling == Spelling::Bytes {
            for byte in 0..=255u8 {
                self.byte_tokens[usize::from(byte)] = self.find(&[byte]);
            }
        }
        Ok(())
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes that a token stands for; a control token's own spelling.
    pub fn piece(&self, id: u32) -> Option<&[u8]> {
        ((id as usize) < self.len()).then(|| slice(&self.pieces, &self.ends, id))
    }

    pub fn kind(&self, id: u32) -> Option<Kind> {
        self.kinds.get(id as usize).copied()
    }

    /// The token that text of exactly these bytes can become.
    pub fn find(&self, piece: &[u8]) -> Option<u32> {
        self.table.find(piece, |id| slice(&self.pieces, &self.ends, id))
    }

    /// As [`Vocab::find`], quicker where the token is `guess` or the one behind it.
    pub fn find_near(&self, piece: &[u8], guess: u32) -> Option<u32> {
        let reachable = |id: u32| self.reachable.get(id as usize) == Some(&true);
        let near = |id: &u32| reachable(*id) && slice(&self.pieces, &self.ends, *id) == piece;
        [guess, guess.saturating_add(1)].into_iter().find(near).or_else(|| self.find(piece))
    }

    /// The tokens that text can become, each with its bytes, in no order.
    pub fn reachable(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.table.ids().map(|id| (id, slice(&self.pieces, &self.ends, id)))
    }

    /// All tokens of text, each with its bytes, by ascending id.
    pub fn normal(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let all = (0u32..).zip(&self.kinds).filter(|(_, kind)| **kind == Kind::Normal);
        all.map(|(id, _)| (id, slice(&self.pieces, &self.ends, id)))
    }

    /// Appends the tokens of text that is no token: its bytes, or one `unknown` token.
    pub fn spell(&self, text: &[u8], unknown: Option<u32>, out: &mut Vec<u32>) -> Result<(), Error> {
        let start = out.len();
        for &byte in text {
            match self.byte_tokens[usize::from(byte)] {
                Some(id) => out.push(id),
                None => {
                    out.truncate(start);
                    out.push(unknown.ok_or(Error::NoByte { byte })?);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Appends a token's text as this crate has it.
pub(crate) fn push_text(text: &str, spelling: Spelling, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    let [lead, ..] = *SPACE.as_bytes() else { return };
    while spelling == Spelling::Spaces
        && let Some(at) = rest.iter().position(|&byte| byte == lead)
    {
        let (plain, from) = rest.split_at_checked(at).unwrap_or((rest, &[]));
        out.extend_from_slice(plain);
        match from.strip_prefix(SPACE.as_bytes()) {
            Some(behind) => {
                out.push(b' ');
                rest = behind;
            }
            None => {
                out.push(lead);
                rest = from.get(1..).unwrap_or_default();
            }
        }
    }
    out.extend_from_slice(rest);
}

fn slice<'a>(pieces: &'a [u8], ends: &[u32], id: u32) -> &'a [u8] {
    let end = |id: u32| ends.get(id as usize).map_or(0, |&end| end as usize);
    let start = id.checked_sub(1).map_or(0, end);
    pieces.get(start..end(id)).unwrap_or_default()
}
