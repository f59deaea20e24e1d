//! A tokenizer out of a Hugging Face folder: `tokenizer.json` says how text becomes tokens, the files beside it which
//! of them end generation and how a conversation is written.
//!
//! The parts of `tokenizer.json` become the same steps and models that GGUF files do. What has no such step is refused
//! by name: a tokenizer that is nearly right gives wrong answers without a word.

mod decoder;
mod file;
mod normalizer;
mod post_processor;
mod pre_tokenizer;
mod roles;
mod settings;
mod tokens;

use crate::Error;
use crate::bpe::{self, Bpe};
use crate::known::KnownTexts;
use crate::model::Model;
use crate::normal::Normals;
use crate::tokenizer::{Pair, Parts};
use crate::unigram::{Unigram, Unknown};
use crate::vocab::{Spelling, Vocab};
use crate::wordpiece::WordPiece;
use crate::words::{Seams, Step, Steps};
use file::File;
use tokens::Tokens;

/// The files of a folder, as text.
#[derive(Debug, Clone, Copy, Default)]
pub struct HfFiles<'a> {
    /// `tokenizer.json`.
    pub tokenizer: &'a str,
    /// `tokenizer_config.json`: which tokens begin and end a text, and in most folders the chat template.
    pub config: Option<&'a str>,
    /// `generation_config.json`: which tokens end generation.
    pub generation: Option<&'a str>,
    /// `chat_template.jinja`, which goes before the template in `tokenizer_config.json`.
    pub template: Option<&'a str>,
    /// How many ids the model knows. Tokens added behind them are left out: some tokenizers have those of a larger sister.
    pub vocabulary: Option<usize>,
}

/// The name of the file, for errors.
const TOKENIZER: &str = "tokenizer.json";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Bpe,
    Unigram,
    WordPiece,
}

impl Way {
    fn of(model: &file::Model<'_>) -> Result<Self, Error> {
        let scores = matches!(model.vocab, file::Vocab::Scores(_));
        let way = match model.kind.as_deref() {
            Some("BPE") => Self::Bpe,
            Some("Unigram") => Self::Unigram,
            Some("WordPiece") => Self::WordPiece,
            Some(other) => return Err(unsupported("model", other)),
            // Old files do not say.
            None if model.merges.is_some() => Self::Bpe,
            None if scores => Self::Unigram,
            None if model.max_input_chars_per_word.is_some() => Self::WordPiece,
            None => return Err(unsupported("model", "a model without a type")),
        };
        if scores != (way == Self::Unigram) {
            return Err(unsupported("model", "a vocabulary of another model's form"));
        }
        Ok(way)
    }
}

fn unsupported(part: &'static str, what: &str) -> Error {
    Error::Unsupported { part, what: what.into() }
}

/// Reads the files and makes the tokenizer ready.
pub(crate) fn build(files: &HfFiles<'_>) -> Result<Parts, Error> {
    let json: File<'_> = serde_json::from_str(files.tokenizer)
        .map_err(|e| Error::Json { file: TOKENIZER, what: e.to_string() })?;
    let way = Way::of(&json.model)?;
    refuse_settings(&json.model)?;

    let normalizer = normalizer::read(&json.normalizer)?;
    let pre = pre_tokenizer::read(&json.pre_tokenizer, normalizer.spaces, normalizer.alphabet)?;
    let spelling = match way {
        Way::WordPiece if pre.spelling != Spelling::Plain => {
            return Err(unsupported("model", "WordPiece with spelled bytes or spaces"));
        }
        Way::WordPiece => Spelling::Words,
        Way::Bpe | Way::Unigram => pre.spelling,
    };
    let decoder = decoder::read(&json.decoder, spelling)?;

    let File { mut added_tokens, post_processor, model, .. } = json;
    added_tokens.retain(|token| files.vocabulary.is_none_or(|known| token.id < known as u64));
    let mut tokens = Tokens::new(&model, added_tokens, files.tokenizer.len())?;
    let roles = roles::read(files, |text| tokens.find_added(text))?;
    let count = tokens.texts.len();
    if let Some(id) = roles.ends.iter().flatten().copied().find(|&id| id as usize >= count) {
        return Err(Error::SpecialId { key: "generation_config.json: eos_token_id", id, tokens: count });
    }
    let merges = model.merges.as_ref().map(|merges| merges.0.as_slice()).unwrap_or_default();
    let is_merged = |text: &str| {
        merges.iter().filter_map(file::Merge::parts).any(|(left, right)| {
            left.len() + right.len() == text.len() && text.starts_with(left) && text.ends_with(right)
        })
    };
    let known = KnownTexts::find(&tokens.texts, &mut tokens.kinds, &roles.ends, is_merged);
    let mut ids = roles.ids;
    ids.eot = known.eot;
    ids.unk = tokens.unknown.or(ids.unk);
    let spelled = if way == Way::WordPiece {
        tokens.words(model.continuing_subword_prefix.as_deref().unwrap_or("##"), decoder.cleans_up)
    } else {
        vec![]
    };
    let listed = if way == Way::WordPiece { &spelled } else { &tokens.texts };
    let vocab = Vocab::new(listed, tokens.kinds.clone(), ids, known.eog, spelling)?;

    let normals = Normals::new(normalizer.steps)?;
    let late = tokens.late.iter().map(|(id, text)| Ok((*id, normals.apply(text)?.into_owned())));
    let late = late.collect::<Result<Vec<_>, Error>>()?;
    let mut steps = pre.steps;
    let seams = spelling == Spelling::Spaces && !pre.cut_at_spaces;
    if seams {
        steps.push(Step::Seams(Seams::new(&vocab)));
    }
    let ends = post_processor::read(&post_processor, vocab.len())?;
    let built = match way {
        Way::Bpe => {
            let rules = bpe::Rules {
                spelling,
                whole_words: model.ignore_merges.unwrap_or(false),
                whole_lines: false,
                unknown: bpe::Unknown { id: tokens.unknown, fuse: model.fuse_unk.unwrap_or(false) },
            };
            let shown = |index: usize| merges.get(index).map(file::Merge::shown).unwrap_or_default();
            Model::Bpe(Bpe::new(&vocab, merges.iter().map(file::Merge::parts), shown, rules)?)
        }
        Way::Unigram => {
            let unknown = Unknown { bytes: model.byte_fallback.unwrap_or(false), across_words: seams };
            let worst = tokens.scores.iter().copied().reduce(f64::min).unwrap_or(0.0);
            Model::Unigram(Unigram::new(&vocab, std::mem::take(&mut tokens.scores), worst, unknown)?)
        }
        Way::WordPiece => Model::WordPiece(wordpiece(&vocab, &tokens, &model)?),
    };
    Ok(Parts {
        vocab,
        normals,
        late,
        steps: Steps(steps),
        model: built,
        ends,
        flags: tokens.flags,
        begins_with_space: decoder.strips_space,
        template: roles.template,
        pair: Pair::Unknown,
    })
}

/// Settings that change every token and that no model in use has.
fn refuse_settings(model: &file::Model<'_>) -> Result<(), Error> {
    if model.dropout.is_some_and(|dropout| dropout > 0.0) {
        return Err(unsupported("model", "dropout"));
    }
    let is_bpe = model.merges.is_some();
    if is_bpe && model.continuing_subword_prefix.as_deref().is_some_and(|text| !text.is_empty()) {
        return Err(unsupported("model", "BPE with continuing_subword_prefix"));
    }
    if is_bpe && model.end_of_word_suffix.as_deref().is_some_and(|text| !text.is_empty()) {
        return Err(unsupported("model", "BPE with end_of_word_suffix"));
    }
    Ok(())
}

fn wordpiece(vocab: &Vocab, tokens: &Tokens<'_>, model: &file::Model<'_>) -> Result<WordPiece, Error> {
    let prefix = model.continuing_subword_prefix.as_deref().unwrap_or("##");
    let longest = model.max_input_chars_per_word.unwrap_or(100);
    let normal = || {
        let text = |id: u32| tokens.texts.get(id as usize).map_or("", |text| text);
        vocab.normal().map(move |(id, _)| (id, text(id).as_bytes()))
    };
    let next = normal().filter_map(|(id, text)| Some((id, text.strip_prefix(prefix.as_bytes())?)));
    let unknown = tokens.unknown.ok_or(Error::NoUnknown)?;
    WordPiece::new(normal(), next, unknown, usize::try_from(longest).unwrap_or(usize::MAX))
}
