use std::sync::{Arc, OnceLock};

use cera_gguf::Metadata;
use rustc_hash::FxHashMap;

use crate::bpe::Bpe;
use crate::guard::{Guard, Prompt};
use crate::spec::{KEY_ADD_BOS, KEY_ADD_EOS, KEY_BOS, KEY_EOS};
use crate::special::{Finder, Fragment, Strip, strips};
use crate::split::Pre;
use crate::spm::Spm;
use crate::vocab::{SpecialIds, Spelling, Vocab, spm_defaults};
use crate::{ChatTemplate, Detokenizer, Error, Kind, VocabSpec};

/// Whether control tokens that a text spells out are read as tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Special {
    /// They are text like any other: for what a user wrote. User-defined tokens are read all the same.
    AsText,
    /// They are tokens: for prompts that a template or a developer wrote.
    Parse,
}

/// Whether special tokens show in decoded text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shown {
    /// Control and unknown tokens decode to nothing.
    Text,
    /// They decode to their spelling.
    All,
}

/// A model's tokenizer: text to token ids and back. Cheap to clone; any number of threads can use one.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    vocab: Vocab,
    model: Model,
    strips: FxHashMap<u32, Strip>,
    user_defined: Finder,
    /// All special tokens. Built when first asked for.
    all: OnceLock<Finder>,
    guard: OnceLock<Guard>,
    add_bos: Option<u32>,
    add_eos: Option<u32>,
    template: Option<String>,
}

#[derive(Debug)]
enum Model {
    Bpe(Bpe),
    Spm { spm: Spm, prefix: bool },
}

impl Tokenizer {
    /// Reads the tokenizer of a GGUF file. `pre` replaces the file's pre-tokenizer by one of
    /// [`pre_tokenizers`](crate::pre_tokenizers).
    ///
    /// # Errors
    /// Those of [`VocabSpec::from_gguf`] and [`Tokenizer::new`].
    pub fn from_gguf(meta: &Metadata, pre: Option<&str>) -> Result<Self, Error> {
        Self::new(VocabSpec::from_gguf(meta, pre)?)
    }

    /// Checks a vocabulary and makes it ready. Memory is a small multiple of the vocabulary's own.
    ///
    /// # Errors
    /// The first thing that is wrong with it, by name.
    pub fn new(mut spec: VocabSpec<'_>) -> Result<Self, Error> {
        let (spelling, pre) = match spec.model.as_str() {
            "gpt2" => (Spelling::Bytes, Some(Pre::find(spec.pre.as_deref().ok_or(Error::MissingPre)?)?)),
            "gemma4" => (Spelling::Spaces, Some(Pre::find("gemma4")?)),
            "llama" => (Spelling::Spaces, None),
            _ => return Err(Error::UnknownModel { model: spec.model }),
        };
        if pre.is_none() {
            spm_defaults(&mut spec);
        }
        let vocab = Vocab::new(&spec, spelling)?;
        let add_bos = match (spec.add_bos, spec.model.as_str()) {
            // Gemma 4's files say false, and the model needs it (llama.cpp, pull request 21500).
            (_, "gemma4") => spec.bos,
            (Some(true), _) => {
                Some(spec.bos.ok_or(Error::MissingSpecial { flag: KEY_ADD_BOS, key: KEY_BOS })?)
            }
            (Some(false), _) => None,
            (None, _) => spec.bos.filter(|_| pre.is_none_or(|pre| pre.add_bos)),
        };
        let add_eos = match spec.add_eos {
            Some(true) => Some(spec.eos.ok_or(Error::MissingSpecial { flag: KEY_ADD_EOS, key: KEY_EOS })?),
            _ => None,
        };
        let model = match pre {
            Some(pre) => Model::Bpe(Bpe::new(&vocab, &spec.merges, pre, spelling)?),
            None => Model::Spm {
                spm: Spm::new(&vocab, &spec.scores),
                prefix: spec.add_space_prefix.unwrap_or(true),
            },
        };
        let inner = Inner {
            strips: strips(&vocab, spec.name.as_deref(), spec.pre.as_deref()),
            user_defined: Finder::new(&vocab, |kind| kind == Kind::UserDefined)?,
            all: OnceLock::new(),
            guard: OnceLock::new(),
            vocab,
            model,
            add_bos,
            add_eos,
            template: spec.chat_template,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Tokens of a part of a text: nothing is put before or behind it.
    ///
    /// # Errors
    /// [`Error::NoByte`] where the vocabulary cannot express the text.
    pub fn encode(&self, text: &str, special: Special) -> Result<Vec<u32>, Error> {
        let mut writer = Writer::new(&self.inner);
        writer.text(text, special)?;
        Ok(writer.out)
    }

    /// Tokens of a whole text: as [`Tokenizer::encode`], with `bos` before and `eos` behind where the file asks
    /// for them. A text that spells `bos` itself (under [`Special::Parse`]) gets no second one.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_whole(&self, text: &str, special: Special) -> Result<Vec<u32>, Error> {
        let mut writer = Writer::new(&self.inner);
        writer.text(text, special)?;
        Ok(self.with_ends(writer.out, true))
    }

    /// Tokens of a rendered conversation: special tokens that the template wrote are tokens, those that messages
    /// spell are text. One `bos` is at the start where the file asks for it, whether the template wrote it or not.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_prompt(&self, prompt: &Prompt) -> Result<Vec<u32>, Error> {
        let mut writer = Writer::new(&self.inner);
        writer.prompt(prompt)?;
        Ok(self.with_ends(writer.out, false))
    }

    fn with_ends(&self, mut ids: Vec<u32>, eos: bool) -> Vec<u32> {
        if let Some(bos) = self.inner.add_bos {
            let written = ids.iter().take_while(|&&id| id == bos).count();
            ids.splice(..written, [bos]);
        }
        if let Some(eos) = self.inner.add_eos.filter(|&id| eos && ids.last() != Some(&id)) {
            ids.push(eos);
        }
        ids
    }

    /// The bytes that a token adds to a text; they need not be whole characters.
    ///
    /// # Errors
    /// [`Error::TokenId`] where there is no such token.
    pub fn piece(&self, id: u32, shown: Shown) -> Result<&[u8], Error> {
        let vocab = &self.inner.vocab;
        let piece = vocab.piece(id).ok_or(Error::TokenId { id, tokens: vocab.len() })?;
        let hidden = shown == Shown::Text && matches!(vocab.kind(id), Some(Kind::Control | Kind::Unknown));
        Ok(if hidden { &[] } else { piece })
    }

    /// Text of a whole sequence: what [`Tokenizer::encode`] put before it is taken away again. Bytes that are no
    /// UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// As [`Tokenizer::piece`].
    pub fn decode(&self, ids: &[u32], shown: Shown) -> Result<String, Error> {
        let mut detokenizer = Detokenizer::from_start(self, shown);
        let mut text = String::new();
        for &id in ids {
            text.push_str(detokenizer.push(id)?);
        }
        text.push_str(detokenizer.finish());
        Ok(text)
    }

    /// Number of tokens. A model may have more rows of embeddings (padding), never fewer.
    #[expect(clippy::len_without_is_empty, reason = "a vocabulary without tokens is refused")]
    pub fn len(&self) -> usize {
        self.inner.vocab.len()
    }

    /// What a token is; None where there is no such token.
    pub fn kind(&self, id: u32) -> Option<Kind> {
        self.inner.vocab.kind(id)
    }

    /// Special tokens by role.
    pub fn special_ids(&self) -> SpecialIds {
        self.inner.vocab.ids
    }

    /// The special token of this spelling, such as `<|fim_prefix|>`.
    pub fn special_id(&self, text: &str) -> Option<u32> {
        let vocab = &self.inner.vocab;
        vocab.specials.iter().copied().find(|&id| vocab.piece(id) == Some(text.as_bytes()))
    }

    /// Whether a token ends generation: `eos`, end of turn, end of message, and what is known to by its text.
    pub fn is_eog(&self, id: u32) -> bool {
        self.inner.vocab.eog.binary_search(&id).is_ok()
    }

    /// All tokens that end generation, ascending.
    pub fn eog(&self) -> &[u32] {
        &self.inner.vocab.eog
    }

    /// The `bos` that whole texts begin with, where the file asks for one.
    pub fn add_bos(&self) -> Option<u32> {
        self.inner.add_bos
    }

    /// The source of the file's chat template.
    pub fn template_source(&self) -> Option<&str> {
        self.inner.template.as_deref()
    }

    /// The file's chat template, compiled.
    ///
    /// # Errors
    /// [`Error::NoTemplate`] where there is none or an empty one, [`Error::TemplateSyntax`].
    pub fn chat_template(&self) -> Result<ChatTemplate, Error> {
        let source = self.template_source().filter(|source| !source.trim().is_empty());
        ChatTemplate::new(source.ok_or(Error::NoTemplate)?)
    }

    /// Whether encoding puts a space before a text.
    pub(crate) fn has_prefix(&self) -> bool {
        matches!(self.inner.model, Model::Spm { prefix: true, .. })
    }

    /// Finds the control tokens that a message spells.
    pub(crate) fn guard(&self) -> Result<&Guard, Error> {
        let inner = &self.inner;
        if let Some(guard) = inner.guard.get() {
            return Ok(guard);
        }
        let guard = Guard::new(&inner.vocab)?;
        Ok(inner.guard.get_or_init(|| guard))
    }
}

impl Inner {
    fn all(&self) -> Result<&Finder, Error> {
        if let Some(finder) = self.all.get() {
            return Ok(finder);
        }
        let finder = Finder::new(&self.vocab, |_| true)?;
        Ok(self.all.get_or_init(|| finder))
    }
}

/// Encodes one text after another.
struct Writer<'a> {
    inner: &'a Inner,
    out: Vec<u32>,
    /// Nothing, or a special token, is before what comes next: there SentencePiece text gets its space.
    fresh: bool,
}

impl<'a> Writer<'a> {
    fn new(inner: &'a Inner) -> Self {
        Self { inner, out: Vec::new(), fresh: true }
    }

    fn text(&mut self, text: &str, special: Special) -> Result<(), Error> {
        let inner = self.inner;
        let finder = match special {
            Special::AsText => &inner.user_defined,
            Special::Parse => inner.all()?,
        };
        finder.partition(text, &inner.strips, |_| false, |fragment| self.fragment(fragment))
    }

    fn prompt(&mut self, prompt: &Prompt) -> Result<(), Error> {
        let Some(marker) = prompt.marker else { return self.text(&prompt.marked, Special::Parse) };
        let inner = self.inner;
        let marked = prompt.marked.as_str();
        // A marker breaks the spelling of each token that messages spell, but for those of one character.
        let guarded = |end: usize| marked.get(end..).is_some_and(|rest| rest.starts_with(marker));
        inner.all()?.partition(marked, &inner.strips, guarded, |fragment| match fragment {
            Fragment::Text(text) if text.contains(marker) => {
                self.text(&text.replace(marker, ""), Special::AsText)
            }
            _ => self.fragment(fragment),
        })
    }

    fn fragment(&mut self, fragment: Fragment<'_>) -> Result<(), Error> {
        match fragment {
            Fragment::Token(id) => {
                self.out.push(id);
                self.fresh = true;
            }
            Fragment::Text(text) => {
                match &self.inner.model {
                    Model::Bpe(bpe) => bpe.encode(&self.inner.vocab, text, &mut self.out)?,
                    Model::Spm { spm, prefix } => {
                        spm.encode(&self.inner.vocab, text, *prefix && self.fresh, &mut self.out)?;
                    }
                }
                self.fresh = false;
            }
        }
        Ok(())
    }
}
