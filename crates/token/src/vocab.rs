//! The token list: what each token is, the bytes it stands for, and the way back from bytes to tokens.

use std::borrow::Cow;
use std::hash::{BuildHasher, BuildHasherDefault};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxHasher;

use crate::spec::{KEY_SCORES, KEY_TYPES};
use crate::{Error, VocabSpec, bytes};

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
    /// U+2581 stands for a space.
    Spaces,
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
    table: HashTable<u32>,
    /// Whether `table` has every normal token: all but a few vocabularies.
    all_reachable: bool,
    pub byte_tokens: Box<ByteTokens>,
    pub ids: SpecialIds,
    /// Ids that end generation, ascending.
    pub eog: Vec<u32>,
    /// Ids of control, unknown and user-defined tokens, ascending.
    pub specials: Vec<u32>,
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
}

/// Texts that end generation wherever a vocabulary has them, whatever its types say (llama.cpp's list).
/// The first `TURN_ENDS` also name the end of a turn where the file does not, in this order.
const EOG_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
    "<|eom_id|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "</s>",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
    // Padding, repository and file separators of fill-in-the-middle.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];
const TURN_ENDS: usize = 11;

/// Texts that are structure wherever a vocabulary has them, but do not end generation: fill-in-the-middle.
const CONTROL_TEXTS: &[&str] = &[
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|middle|>",
];

fn hash(bytes: &[u8]) -> u64 {
    BuildHasherDefault::<FxHasher>::default().hash_one(bytes)
}

impl Vocab {
    pub fn new(spec: &VocabSpec<'_>, spelling: Spelling) -> Result<Self, Error> {
        let tokens = &spec.tokens;
        let count = tokens.len();
        let bytes = tokens.iter().map(String::len).sum::<usize>();
        if count == 0 || u32::try_from(bytes).is_err() || u32::try_from(count).is_err() {
            return Err(Error::Size { tokens: count });
        }
        for (key, found) in [(KEY_SCORES, spec.scores.len()), (KEY_TYPES, spec.types.len())] {
            if found != 0 && found != count {
                return Err(Error::Length { key, found, tokens: count });
            }
        }
        for (key, id) in spec.special_ids() {
            if let Some(id) = id.filter(|&id| id as usize >= count) {
                return Err(Error::SpecialId { key, id, tokens: count });
            }
        }
        if let Some(id) = spec.scores.iter().position(|score| score.is_nan()) {
            return Err(Error::Score { id });
        }

        let mut kinds = kinds(spec)?;
        let found = KnownTexts::find(spec, &mut kinds);
        let mut vocab = Self {
            pieces: Vec::with_capacity(bytes),
            ends: Vec::with_capacity(count),
            table: HashTable::with_capacity(count),
            all_reachable: true,
            byte_tokens: Box::new([None; 256]),
            ids: SpecialIds {
                bos: spec.bos,
                eos: spec.eos,
                eot: spec.eot.or(found.eot),
                eom: spec.eom,
                unk: spec.unk,
                pad: spec.pad,
            },
            eog: found.eog,
            specials: Vec::new(),
            kinds,
        };
        vocab.fill(tokens, spelling)?;
        Ok(vocab)
    }

    fn fill(&mut self, tokens: &[String], spelling: Spelling) -> Result<(), Error> {
        for (id, text) in (0u32..).zip(tokens) {
            let kind = self.kind(id).unwrap_or(Kind::Normal);
            let start = self.pieces.len();
            // Whether the text of a prompt can come to this token by merging.
            let mut reachable = !text.is_empty();
            match (kind, spelling) {
                (Kind::Unknown | Kind::Control | Kind::UserDefined, _) => {
                    self.specials.push(id);
                    self.pieces.extend_from_slice(text.as_bytes());
                    // A user-defined token can be a part of merges where its spelling is its text.
                    let plain = spelling == Spelling::Spaces || text.bytes().all(|b| b.is_ascii_graphic());
                    reachable &= kind == Kind::UserDefined && plain && !text.contains(' ');
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
                (Kind::Normal | Kind::Unused, Spelling::Spaces) => {
                    // A raw space never reaches the merges: all of them are spelled U+2581.
                    reachable &= !text.contains(' ');
                    let spaced = if text.contains(SPACE) {
                        Cow::Owned(text.replace(SPACE, " "))
                    } else {
                        Cow::Borrowed(text.as_str())
                    };
                    self.pieces.extend_from_slice(spaced.as_bytes());
                }
            }
            let end = u32::try_from(self.pieces.len()).map_err(|_| Error::Size { tokens: tokens.len() })?;
            self.ends.push(end);
            self.all_reachable &= reachable || kind != Kind::Normal;
            if reachable {
                let (pieces, ends) = (&self.pieces, &self.ends);
                let piece = pieces.get(start..).unwrap_or_default();
                let key = hash(piece);
                let same = |&other: &u32| slice(pieces, ends, other) == piece;
                match self.table.entry(key, same, |&other| hash(slice(pieces, ends, other))) {
                    Entry::Vacant(place) => {
                        place.insert(id);
                    }
                    Entry::Occupied(place) => {
                        return Err(Error::Duplicate { text: text.clone(), first: *place.get(), second: id });
                    }
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

    /// The bytes that a token stands for; a special token's own spelling.
    pub fn piece(&self, id: u32) -> Option<&[u8]> {
        ((id as usize) < self.len()).then(|| slice(&self.pieces, &self.ends, id))
    }

    pub fn kind(&self, id: u32) -> Option<Kind> {
        self.kinds.get(id as usize).copied()
    }

    /// The token that text of exactly these bytes can become.
    pub fn find(&self, piece: &[u8]) -> Option<u32> {
        self.table.find(hash(piece), |&id| slice(&self.pieces, &self.ends, id) == piece).copied()
    }

    /// As [`Vocab::find`], quicker where the token is `guess` or the one behind it, and text can become that.
    pub fn find_near(&self, piece: &[u8], guess: u32) -> Option<u32> {
        let near = |id: &u32| self.piece(*id) == Some(piece) && self.kind(*id) == Some(Kind::Normal);
        let id = [guess, guess.saturating_add(1)].into_iter().filter(|_| self.all_reachable).find(near);
        id.or_else(|| self.find(piece))
    }

    /// Appends the tokens of text that is no token: its bytes, or one unknown token.
    pub fn spell(&self, text: &[u8], out: &mut Vec<u32>) -> Result<(), Error> {
        let start = out.len();
        for &byte in text {
            match self.byte_tokens[usize::from(byte)] {
                Some(id) => out.push(id),
                None => {
                    out.truncate(start);
                    out.push(self.ids.unk.ok_or(Error::NoByte { byte })?);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

fn slice<'a>(pieces: &'a [u8], ends: &[u32], id: u32) -> &'a [u8] {
    let end = |id: u32| ends.get(id as usize).map_or(0, |&end| end as usize);
    let start = id.checked_sub(1).map_or(0, end);
    pieces.get(start..end(id)).unwrap_or_default()
}

fn kinds(spec: &VocabSpec<'_>) -> Result<Vec<Kind>, Error> {
    // Files without types are old: there, byte tokens are known by their spelling.
    let untyped = spec.types.is_empty();
    let is_byte = |id: usize| spec.tokens.get(id).is_some_and(|text| bytes::byte_token(text).is_some());
    let kind = |id: usize, ty: i32| {
        Ok(match ty {
            1 if untyped && spec.model != "gpt2" && is_byte(id) => Kind::Byte,
            0 | 1 => Kind::Normal,
            2 => Kind::Unknown,
            3 => Kind::Control,
            4 => Kind::UserDefined,
            5 => Kind::Unused,
            // A byte token that names no byte is text.
            6 if is_byte(id) => Kind::Byte,
            6 => Kind::Normal,
            found => return Err(Error::TokenType { id, found }),
        })
    };
    let types = (0..spec.tokens.len()).map(|id| (id, spec.types.get(id).copied().unwrap_or(1)));
    types.map(|(id, ty)| kind(id, ty)).collect()
}

struct KnownTexts {
    eot: Option<u32>,
    eog: Vec<u32>,
}

impl KnownTexts {
    /// Finds the tokens that are structure by their text, and makes them control tokens.
    fn find(spec: &VocabSpec<'_>, kinds: &mut [Kind]) -> Self {
        let mut by_text = vec![None; EOG_TEXTS.len()];
        let mut known = Vec::new();
        for (id, text) in (0u32..).zip(spec.tokens.iter()) {
            if matches!(text.as_bytes().first(), Some(b'<' | b'[' | b'_' | 0xE2))
                && (EOG_TEXTS.contains(&text.as_str()) || CONTROL_TEXTS.contains(&text.as_str()))
            {
                known.push((id, text.as_str()));
            }
        }
        // Where ordinary text merges into such a token, it is ordinary: `</s>` is an HTML tag to Qwen and Gemma 4.
        known.retain(|&(id, text)| {
            kinds.get(id as usize) != Some(&Kind::Normal) || !is_merged(&spec.merges, text)
        });
        for (id, text) in known {
            let place = EOG_TEXTS.iter().position(|eog| *eog == text);
            if let Some(slot) = place.and_then(|place| by_text.get_mut(place)) {
                *slot = Some(id);
            }
            if let Some(kind) = kinds.get_mut(id as usize) {
                *kind = Kind::Control;
            }
        }
        let has = |text: &str| {
            let place = EOG_TEXTS.iter().position(|eog| *eog == text)?;
            by_text.get(place).copied().flatten()
        };
        let given = [spec.eos, spec.eot, spec.eom, spec.fim_pad, spec.fim_rep, spec.fim_sep];
        let mut eog: Vec<u32> =
            by_text.iter().copied().flatten().chain(given.into_iter().flatten()).collect();
        // OpenAI's harmony and Solar end a message, not the answer, with `<|end|>`.
        let calls = has("<|call|>").or(has("<|calls|>")).is_some();
        if calls && (has("<|return|>").is_some() || has("<|flush|>").is_some()) {
            eog.retain(|&id| Some(id) != has("<|end|>"));
        }
        eog.sort_unstable();
        eog.dedup();
        Self { eot: by_text.iter().take(TURN_ENDS).copied().flatten().next(), eog }
    }
}

/// Whether some merge gives `text`.
fn is_merged(merges: &[String], text: &str) -> bool {
    let gives = |merge: &String| {
        let space = merge.bytes().skip(1).position(|byte| byte == b' ')? + 1;
        Some(text.strip_prefix(merge.get(..space)?)? == merge.get(space + 1..)?)
    };
    merges.iter().any(|merge| merge.len() == text.len() + 1 && gives(merge) == Some(true))
}

/// The default ids of a SentencePiece vocabulary whose file names none (llama.cpp's, and Llama 2's own).
pub(crate) fn spm_defaults(spec: &mut VocabSpec<'_>) {
    let inside = |id: u32| Some(id).filter(|&id| (id as usize) < spec.tokens.len());
    let (bos, eos, unk) = (inside(1), inside(2), inside(0));
    spec.bos = spec.bos.or(bos);
    spec.eos = spec.eos.or(eos);
    spec.unk = spec.unk.or(unk);
}
