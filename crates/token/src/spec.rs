use std::borrow::Cow;

use cera_gguf::Metadata;

use crate::Error;

/// A vocabulary as a file gives it: the metadata keys `tokenizer.ggml.*`, by their names.
///
/// Nothing is checked yet; [`Tokenizer::new`](crate::Tokenizer::new) does.
#[derive(Debug, Clone, Default)]
pub struct VocabSpec<'a> {
    /// `gpt2` (byte-level BPE), `llama` (SentencePiece BPE) or `gemma4` (BPE over characters).
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
    /// Whether text gets a space in front (SentencePiece). None: it does.
    pub add_space_prefix: Option<bool>,
    /// Jinja source.
    pub chat_template: Option<String>,
    /// `general.name`: llama.cpp knows by it which models' special tokens swallow the space behind them.
    pub name: Option<String>,
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
            bos: meta.u32(KEY_BOS)?,
            eos: meta.u32(KEY_EOS)?,
            eot: meta.u32(KEY_EOT)?,
            eom: meta.u32(KEY_EOM)?,
            unk: meta.u32(KEY_UNK)?,
            pad: meta.u32(KEY_PAD)?,
            fim_pad: meta.u32(KEY_FIM_PAD)?,
            fim_rep: meta.u32(KEY_FIM_REP)?,
            fim_sep: meta.u32(KEY_FIM_SEP)?,
            add_bos: meta.bool(KEY_ADD_BOS)?,
            add_eos: meta.bool(KEY_ADD_EOS)?,
            add_space_prefix: meta.bool("tokenizer.ggml.add_space_prefix")?,
            chat_template: meta.str("tokenizer.chat_template")?.map(Into::into),
            name: meta.str("general.name")?.map(Into::into),
        })
    }

    /// The special ids that the file gives, each with its key.
    pub(crate) fn special_ids(&self) -> [(&'static str, Option<u32>); 9] {
        [
            (KEY_BOS, self.bos),
            (KEY_EOS, self.eos),
            (KEY_EOT, self.eot),
            (KEY_EOM, self.eom),
            (KEY_UNK, self.unk),
            (KEY_PAD, self.pad),
            (KEY_FIM_PAD, self.fim_pad),
            (KEY_FIM_REP, self.fim_rep),
            (KEY_FIM_SEP, self.fim_sep),
        ]
    }
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
const KEY_FIM_PAD: &str = "tokenizer.ggml.fim_pad_token_id";
const KEY_FIM_REP: &str = "tokenizer.ggml.fim_rep_token_id";
const KEY_FIM_SEP: &str = "tokenizer.ggml.fim_sep_token_id";
pub(crate) const KEY_ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
pub(crate) const KEY_ADD_EOS: &str = "tokenizer.ggml.add_eos_token";
