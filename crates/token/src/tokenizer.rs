use std::sync::{Arc, OnceLock};

use cera_gguf::Metadata;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::guard::{Guard, Prompt};
use crate::hf::{self, HfFiles};
use crate::model::{Model, Scratch};
use crate::normal::Normals;
use crate::special::{Finder, Flags, Fragment};
use crate::vocab::{SpecialIds, Vocab};
use crate::words::Steps;
use crate::{ChatTemplate, Detokenizer, Error, Kind, VocabSpec, gguf};

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
    parts: Parts,
    /// User-defined tokens that are found in the text as it is.
    user_defined: Finder,
    /// All special tokens that are. Built when first asked for.
    all: OnceLock<Finder>,
    /// User-defined tokens that are found in the normalized text.
    late: Finder,
    guard: OnceLock<Guard>,
}

/// What a file says, checked and ready.
#[derive(Debug)]
pub(crate) struct Parts {
    pub vocab: Vocab,
    pub normals: Normals,
    /// User-defined tokens that are looked for after normalization, as they read then.
    pub late: Vec<(u32, String)>,
    pub steps: Steps,
    pub model: Model,
    pub ends: Ends,
    pub flags: FxHashMap<u32, Flags>,
    /// Encoding puts a space before a text, which decoding takes away.
    pub begins_with_space: bool,
    pub template: Option<String>,
    pub pair: Pair,
}

/// How two texts that are to be judged together become one.
#[derive(Debug)]
pub(crate) enum Pair {
    /// By a text that has `{query}` and `{document}` in it.
    Template(String),
    /// By tokens between them and behind both; before both are those of a whole text.
    Tokens { between: Vec<u32>, behind: Vec<u32> },
    /// Nothing says.
    Unknown,
}

/// The tokens around a whole text.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub before: Vec<u32>,
    pub behind: Vec<u32>,
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
    pub fn new(spec: VocabSpec<'_>) -> Result<Self, Error> {
        Self::from_parts(gguf::build(spec)?)
    }

    /// Reads the tokenizer of a Hugging Face folder. Memory is a small multiple of the files' own.
    ///
    /// # Errors
    /// The first thing that is wrong with a file, or not supported, by name.
    pub fn from_hf(files: &HfFiles<'_>) -> Result<Self, Error> {
        Self::from_parts(hf::build(files)?)
    }

    fn from_parts(parts: Parts) -> Result<Self, Error> {
        let user_defined = parts.finder(|kind| kind == Kind::UserDefined)?;
        let late = Finder::new(parts.late.iter().map(|(id, text)| (*id, text.as_str())), &parts.flags)?;
        let (all, guard) = (OnceLock::new(), OnceLock::new());
        Ok(Self { inner: Arc::new(Inner { parts, user_defined, all, late, guard }) })
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

    /// Tokens of a query and a document as a model that scores them together reads them: by the file's template for it, or
    /// with separators, as BERT and RoBERTa have them. What the two spell is text.
    ///
    /// # Errors
    /// [`Error::NoPair`] where the file says neither, else as [`Tokenizer::encode`].
    pub fn encode_pair(&self, query: &str, document: &str) -> Result<Vec<u32>, Error> {
        let template = match &self.inner.parts.pair {
            Pair::Unknown => return Err(Error::NoPair),
            Pair::Template(template) => template,
            Pair::Tokens { between, behind } => {
                let mut ids = self.inner.parts.ends.before.clone();
                ids.extend(self.encode(query, Special::AsText)?);
                ids.extend(between);
                ids.extend(self.encode(document, Special::AsText)?);
                ids.extend(behind);
                return Ok(ids);
            }
        };
        let [mut query, mut document] = [query, document].map(serde_json::Value::from);
        let marker = self.guard()?.mark(&mut [&mut query, &mut document]);
        let filled = filled(template, &query, &document);
        let mut writer = Writer::new(&self.inner);
        writer.prompt(&Prompt { marked: filled, marker })?;
        Ok(writer.out)
    }

    fn with_ends(&self, mut ids: Vec<u32>, whole: bool) -> Vec<u32> {
        let Ends { before, behind } = &self.inner.parts.ends;
        if let [bos] = before.as_slice() {
            let written = ids.iter().take_while(|&id| id == bos).count();
            ids.splice(..written, [*bos]);
        } else if !ids.starts_with(before) {
            ids.splice(..0, before.iter().copied());
        }
        if whole && !ids.ends_with(behind) {
            ids.extend_from_slice(behind);
        }
        ids
    }

    /// The bytes that a token adds to a text; they need not be whole characters.
    ///
    /// # Errors
    /// [`Error::TokenId`] where there is no such token.
    pub fn piece(&self, id: u32, shown: Shown) -> Result<&[u8], Error> {
        let vocab = &self.inner.parts.vocab;
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
        self.inner.parts.vocab.len()
    }

    /// What a token is; None where there is no such token.
    pub fn kind(&self, id: u32) -> Option<Kind> {
        self.inner.parts.vocab.kind(id)
    }

    /// Special tokens by role.
    pub fn special_ids(&self) -> SpecialIds {
        self.inner.parts.vocab.ids
    }

    /// The special token of this spelling, such as `<|fim_prefix|>`.
    pub fn special_id(&self, text: &str) -> Option<u32> {
        let vocab = &self.inner.parts.vocab;
        vocab.specials.iter().find(|(_, special)| **special == *text).map(|(id, _)| *id)
    }

    /// Whether a token ends generation: `eos`, end of turn, end of message, and what is known to by its text.
    pub fn is_eog(&self, id: u32) -> bool {
        self.inner.parts.vocab.eog.binary_search(&id).is_ok()
    }

    /// All tokens that end generation, ascending.
    pub fn eog(&self) -> &[u32] {
        &self.inner.parts.vocab.eog
    }

    /// The token that whole texts begin with, where the file asks for one.
    pub fn add_bos(&self) -> Option<u32> {
        self.inner.parts.ends.before.first().copied()
    }

    /// The source of the file's chat template.
    pub fn template_source(&self) -> Option<&str> {
        self.inner.parts.template.as_deref()
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
        self.inner.parts.begins_with_space
    }

    /// Finds the control tokens that a message spells.
    pub(crate) fn guard(&self) -> Result<&Guard, Error> {
        let inner = &self.inner;
        if let Some(guard) = inner.guard.get() {
            return Ok(guard);
        }
        let guard = Guard::new(&inner.parts.vocab)?;
        Ok(inner.guard.get_or_init(|| guard))
    }
}

/// A template with two texts in the places of their names; what the texts say of names stays.
fn filled(template: &str, query: &serde_json::Value, document: &serde_json::Value) -> String {
    let names = [("{query}", query), ("{document}", document)];
    let (mut out, mut rest) = (String::new(), template);
    loop {
        let places = names.iter().filter_map(|(name, text)| Some((rest.find(name)?, name.len(), text)));
        let Some((at, length, text)) = places.min_by_key(|(at, ..)| *at) else { break };
        out.push_str(rest.get(..at).unwrap_or_default());
        out.push_str(text.as_str().unwrap_or_default());
        rest = rest.get(at + length..).unwrap_or_default();
    }
    out + rest
}

impl Parts {
    /// Finds the special tokens of some kinds in a text as it is.
    fn finder(&self, wanted: impl Fn(Kind) -> bool) -> Result<Finder, Error> {
        let late: FxHashSet<u32> = self.late.iter().map(|(id, _)| *id).collect();
        let early = |id: &u32| !late.contains(id) && self.vocab.kind(*id).is_some_and(&wanted);
        let specials = self.vocab.specials.iter().filter(|(id, _)| early(id));
        Finder::new(specials.map(|(id, text)| (*id, &**text)), &self.flags)
    }
}

impl Inner {
    fn all(&self) -> Result<&Finder, Error> {
        if let Some(finder) = self.all.get() {
            return Ok(finder);
        }
        let finder = self.parts.finder(|_| true)?;
        Ok(self.all.get_or_init(|| finder))
    }
}

/// Encodes one text after another.
struct Writer<'a> {
    inner: &'a Inner,
    out: Vec<u32>,
    scratch: Scratch,
}

impl<'a> Writer<'a> {
    fn new(inner: &'a Inner) -> Self {
        Self { inner, out: Vec::new(), scratch: Scratch::default() }
    }

    fn text(&mut self, text: &str, special: Special) -> Result<(), Error> {
        self.parts_of(text, special, true)
    }

    /// `first`: nothing was encoded before.
    fn parts_of(&mut self, text: &str, special: Special, first: bool) -> Result<(), Error> {
        let inner = self.inner;
        let finder = match special {
            Special::AsText => &inner.user_defined,
            Special::Parse => inner.all()?,
        };
        finder.partition(text, |_| false, |fragment| self.fragment(fragment, first))
    }

    fn prompt(&mut self, prompt: &Prompt) -> Result<(), Error> {
        let Some(marker) = prompt.marker else { return self.text(&prompt.marked, Special::Parse) };
        let inner = self.inner;
        let marked = prompt.marked.as_str();
        // A marker breaks the spelling of each token that messages spell, but for those of one character.
        let guarded = |end: usize| marked.get(end..).is_some_and(|rest| rest.starts_with(marker));
        inner.all()?.partition(marked, guarded, |fragment| match fragment {
            Fragment::Text(text, first) if text.contains(marker) => {
                self.parts_of(&text.replace(marker, ""), Special::AsText, first)
            }
            _ => self.fragment(fragment, true),
        })
    }

    fn fragment(&mut self, fragment: Fragment<'_>, first: bool) -> Result<(), Error> {
        let inner = self.inner;
        let (text, first) = match fragment {
            Fragment::Token(id) => {
                self.out.push(id);
                return Ok(());
            }
            Fragment::Text(text, begins) => (text, first && begins),
        };
        let normal = inner.parts.normals.apply(text)?;
        inner.late.partition(
            &normal,
            |_| false,
            |fragment| match fragment {
                Fragment::Token(id) => {
                    self.out.push(id);
                    Ok(())
                }
                Fragment::Text(text, begins) => {
                    let Parts { vocab, model, steps, .. } = &inner.parts;
                    let (out, scratch) = (&mut self.out, &mut self.scratch);
                    steps.run(text, first && begins, &mut |word| model.word(vocab, word, scratch, out))
                }
            },
        )
    }
}
