use std::borrow::Cow;

use cera_gguf::{Array, Metadata, Value};

use crate::{Error, Kind, bytes};

/// A vocabulary as a file gives it: the metadata keys `tokenizer.ggml.*`, by their names.
///
/// Nothing is checked yet; [`Tokenizer::new`](crate::Tokenizer::new) does.
#[derive(Debug, Clone, Default)]
pub struct VocabSpec<'a> {
    /// `gpt2` (byte-level BPE), `llama` (SentencePiece BPE), `t5` (SentencePiece unigram), `bert` (WordPiece), `rwkv`,
    /// `plamo2`, `gemma4` or `whitespace` (BPE over characters).
    pub model: String,
    /// Name of the pre-tokenizer, which BPE needs.
    pub pre: Option<String>,
    /// Token texts in the file's own spelling: GPT-2's byte alphabet, or U+2581 for a space.
    pub tokens: Cow<'a, [String]>,
    /// One a token, or empty. Higher merges first (SentencePiece).
    pub scores: Cow<'a, [f32]>,
    /// One a token, or empty: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub types: Cow<'a, [i32]>,
    /// `left right`, best first (BPE).
    pub merges: Cow<'a, [String]>,
    /// Beginning of text.
    pub bos: Option<u32>,
    /// End of text.
    pub eos: Option<u32>,
    /// End of turn.
    pub eot: Option<u32>,
    /// End of message, before a tool call.
    pub eom: Option<u32>,
    /// What stands for text that no token can express.
    pub unk: Option<u32>,
    /// Padding.
    pub pad: Option<u32>,
    /// Behind each text (WordPiece).
    pub sep: Option<u32>,
    /// Stands for a word to be guessed (WordPiece).
    pub mask: Option<u32>,
    /// Pads a file in fill-in-the-middle; ends generation.
    pub fim_pad: Option<u32>,
    /// Separates repositories; ends generation.
    pub fim_rep: Option<u32>,
    /// Separates files; ends generation.
    pub fim_sep: Option<u32>,
    /// Whether each text begins with `bos`. None: as the kind of tokenizer has it.
    pub add_bos: Option<bool>,
    /// Whether each text ends with `eos`.
    pub add_eos: Option<bool>,
    /// Whether text gets a space in front (SentencePiece). None: it does for `llama`, not for `t5`.
    pub add_space_prefix: Option<bool>,
    /// Whether spaces that follow each other are one (unigram). None: they are not.
    pub remove_extra_whitespaces: Option<bool>,
    /// SentencePiece's compiled map of characters (unigram), or empty.
    pub charsmap: Cow<'a, [u8]>,
    /// Whether text is lower-cased. None: it is for `bert`.
    pub lowercase: Option<bool>,
    /// Whether accents are taken away (WordPiece). None: where text is lower-cased.
    pub strip_accents: Option<bool>,
    /// Jinja source.
    pub chat_template: Option<String>,
    /// How a query and a document are put to a model that scores them: a text with `{query}` and `{document}` in it.
    pub pair_template: Option<String>,
    /// Whether the second of two texts has another separator before it, as RoBERTa has it.
    pub add_sep: Option<bool>,
    /// `general.name`: llama.cpp knows by it which models' special tokens swallow the space behind them.
    pub name: Option<String>,
    /// `general.architecture`, for the same reason.
    pub architecture: Option<String>,
}

impl<'a> VocabSpec<'a> {
    /// Reads the keys of a GGUF file. `pre` replaces the file's own pre-tokenizer.
    ///
    /// # Errors
    /// [`Error::Metadata`] for a key of another type or one that must be there,
    /// [`Error::NoVocabulary`] where the file says that it has none.
    pub fn from_gguf(meta: &'a Metadata, pre: Option<&str>) -> Result<Self, Error> {
        let model: &str = meta.need(KEY_MODEL)?;
        if matches!(model, "no_vocab" | "none") {
            return Err(Error::NoVocabulary { model: model.into() });
        }
        Ok(Self {
            model: model.into(),
            pre: match pre {
                Some(pre) => Some(pre.into()),
                None => meta.str("tokenizer.ggml.pre")?.map(Into::into),
            },
            tokens: Cow::Borrowed(meta.need::<&[String]>("tokenizer.ggml.tokens")?),
            scores: meta.f32s(KEY_SCORES)?.unwrap_or_default(),
            types: meta.i32s(KEY_TYPES)?.unwrap_or_default(),
            merges: Cow::Borrowed(meta.strings("tokenizer.ggml.merges")?.unwrap_or_default()),
            bos: meta.u32(KEY_BOS)?.or(meta.u32("tokenizer.ggml.cls_token_id")?),
            eos: meta.u32(KEY_EOS)?,
            eot: meta.u32(KEY_EOT)?,
            eom: meta.u32(KEY_EOM)?,
            unk: meta.u32(KEY_UNK)?,
            pad: meta.u32(KEY_PAD)?,
            fim_pad: meta.u32(KEY_FIM_PAD)?,
            fim_rep: meta.u32(KEY_FIM_REP)?,
            fim_sep: meta.u32(KEY_FIM_SEP)?,
            sep: meta.u32(KEY_SEP)?,
            mask: meta.u32(KEY_MASK)?,
            add_bos: meta.bool(KEY_ADD_BOS)?,
            add_eos: meta.bool(KEY_ADD_EOS)?,
            add_space_prefix: meta.bool("tokenizer.ggml.add_space_prefix")?,
            remove_extra_whitespaces: meta.bool("tokenizer.ggml.remove_extra_whitespaces")?,
            charsmap: charsmap(meta)?,
            lowercase: meta.bool("tokenizer.ggml.normalizer.lowercase")?,
            strip_accents: meta.bool("tokenizer.ggml.normalizer.strip_accents")?,
            chat_template: meta.str("tokenizer.chat_template")?.map(Into::into),
            pair_template: meta.str("tokenizer.chat_template.rerank")?.map(Into::into),
            add_sep: meta.bool("tokenizer.ggml.add_sep_token")?,
            name: meta.str("general.name")?.map(Into::into),
            architecture: meta.str("general.architecture")?.map(Into::into),
        })
    }

    /// What each token is.
    ///
    /// # Errors
    /// [`Error::TokenType`].
    pub(crate) fn kinds(&self) -> Result<Vec<Kind>, Error> {
        // Files without types are old: there, byte tokens are known by their spelling.
        let untyped = self.types.is_empty();
        let is_byte = |id: usize| self.tokens.get(id).is_some_and(|text| bytes::byte_token(text).is_some());
        let kind = |id: usize, ty: i32| {
            Ok(match ty {
                1 if untyped && self.model != "gpt2" && is_byte(id) => Kind::Byte,
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
        let types = (0..self.tokens.len()).map(|id| (id, self.types.get(id).copied().unwrap_or(1)));
        types.map(|(id, ty)| kind(id, ty)).collect()
    }

    /// The special ids that the file gives, each with its key.
    pub(crate) fn special_ids(&self) -> [(&'static str, Option<u32>); 11] {
        [
            (KEY_BOS, self.bos),
            (KEY_EOS, self.eos),
            (KEY_EOT, self.eot),
            (KEY_EOM, self.eom),
            (KEY_UNK, self.unk),
            (KEY_PAD, self.pad),
            (KEY_SEP, self.sep),
            (KEY_MASK, self.mask),
            (KEY_FIM_PAD, self.fim_pad),
            (KEY_FIM_REP, self.fim_rep),
            (KEY_FIM_SEP, self.fim_sep),
        ]
    }
}

/// The bytes of the map of characters, which writers store as either of two types.
fn charsmap(meta: &Metadata) -> Result<Cow<'_, [u8]>, Error> {
    const KEY: &str = "tokenizer.ggml.precompiled_charsmap";
    Ok(match meta.get(KEY) {
        None => Cow::Borrowed(&[]),
        Some(Value::Array(Array::U8(bytes))) => Cow::Borrowed(bytes),
        Some(Value::Array(Array::I8(bytes))) => Cow::Owned(bytes.iter().map(|&byte| byte as u8).collect()),
        Some(other) => {
            let found = other.type_name();
            return Err(cera_gguf::Error::WrongType { key: KEY.into(), wanted: "array of u8", found }.into());
        }
    })
}

const KEY_MODEL: &str = "tokenizer.ggml.model";
pub(crate) const KEY_SCORES: &str = "tokenizer.ggml.scores";
pub(crate) const KEY_TYPES: &str = "tokenizer.ggml.token_type";
pub(crate) const KEY_BOS: &str = "tokenizer.ggml.bos_token_id";
pub(crate) const KEY_EOS: &str = "tokenizer.ggml.eos_token_id";
const KEY_EOT: &str = "tokenizer.ggml.eot_token_id";
const KEY_EOM: &str = "tokenizer.ggml.eom_token_id";
const KEY_UNK: &str = "tokenizer.ggml.unknown_token_id";
const KEY_PAD: &str = "tokenizer.ggml.padding_token_id";
/// Spelled as GGUF has it.
pub(crate) const KEY_SEP: &str = "tokenizer.ggml.seperator_token_id";
const KEY_MASK: &str = "tokenizer.ggml.mask_token_id";
const KEY_FIM_PAD: &str = "tokenizer.ggml.fim_pad_token_id";
const KEY_FIM_REP: &str = "tokenizer.ggml.fim_rep_token_id";
const KEY_FIM_SEP: &str = "tokenizer.ggml.fim_sep_token_id";
pub(crate) const KEY_ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
pub(crate) const KEY_ADD_EOS: &str = "tokenizer.ggml.add_eos_token";
