//! A tokenizer out of what a GGUF file says.

use crate::bpe::{self, Bpe};
use crate::known::KnownTexts;
use crate::model::Model;
use crate::normal::{Bert, Charsmap, Normal, Normals, Sentence};
use crate::plamo2::Plamo2;
use crate::rwkv::Rwkv;
use crate::spec::{KEY_ADD_BOS, KEY_ADD_EOS, KEY_BOS, KEY_EOS, KEY_SCORES, KEY_SEP, KEY_TYPES};
use crate::special::known_flags;
use crate::spm::Spm;
use crate::tokenizer::{Ends, Pair, Parts};
use crate::unigram::{Unigram, Unknown};
use crate::vocab::{SPACE, SpecialIds, Spelling, Vocab};
use crate::wordpiece::{WordPiece, cleaned};
use crate::words::{Bos, Pre, Seams, Step, Steps};
use crate::{Error, VocabSpec};

/// What `tokenizer.ggml.model` may be.
pub(crate) const MODELS: [&str; 8] =
    ["gpt2", "llama", "t5", "bert", "rwkv", "plamo2", "gemma4", "whitespace"];

/// A kind of model, as far as the vocabulary needs to know it.
enum Way {
    Bpe(&'static Pre),
    Spm,
    Unigram,
    WordPiece,
    Rwkv,
    Plamo2,
}

impl Way {
    fn of(spec: &VocabSpec<'_>) -> Result<Self, Error> {
        Ok(match spec.model.as_str() {
            "gpt2" => Self::Bpe(Pre::find(spec.pre.as_deref().ok_or(Error::MissingPre)?)?),
            "gemma4" => Self::Bpe(Pre::find("gemma4")?),
            "whitespace" => Self::Bpe(Pre::find("whitespace")?),
            "llama" => Self::Spm,
            "t5" => Self::Unigram,
            "bert" => Self::WordPiece,
            "rwkv" => Self::Rwkv,
            "plamo2" => Self::Plamo2,
            _ => return Err(Error::UnknownModel { model: spec.model.clone() }),
        })
    }

    fn spelling(&self) -> Spelling {
        match self {
            Self::Bpe(pre) => pre.spelling,
            Self::Spm | Self::Unigram => Spelling::Spaces,
            Self::WordPiece => Spelling::Words,
            Self::Rwkv => Spelling::Escaped,
            Self::Plamo2 => Spelling::Plain,
        }
    }

    /// Fills in the ids that a file of this kind need not name (llama.cpp's, and the first such models' own).
    fn defaults(&self, spec: &mut VocabSpec<'_>) {
        let inside = |id: u32| Some(id).filter(|&id| (id as usize) < spec.tokens.len());
        let ids = |ids: [Option<u32>; 6]| ids.map(|id| id.and_then(inside));
        let [bos, eos, unk, pad, sep, mask] = match self {
            Self::Bpe(_) | Self::Rwkv => [None; 6],
            Self::Spm => ids([Some(1), Some(2), Some(0), None, None, None]),
            Self::Plamo2 => ids([Some(1), Some(2), Some(0), Some(3), None, None]),
            Self::Unigram => ids([None, Some(1), Some(2), Some(0), None, None]),
            Self::WordPiece => ids([Some(101), None, Some(100), Some(0), Some(102), Some(103)]),
        };
        spec.bos = spec.bos.or(bos);
        spec.eos = spec.eos.or(eos);
        spec.unk = spec.unk.or(unk);
        spec.pad = spec.pad.or(pad);
        spec.sep = spec.sep.or(sep);
        spec.mask = spec.mask.or(mask);
    }
}

/// Checks a vocabulary and makes it ready.
pub(crate) fn build(mut spec: VocabSpec<'_>) -> Result<Parts, Error> {
    let way = Way::of(&spec)?;
    way.defaults(&mut spec);
    let vocab = vocab(&spec, way.spelling())?;
    let prefix = spec.add_space_prefix.unwrap_or(matches!(way, Way::Spm));
    let merge_spaces = spec.remove_extra_whitespaces.unwrap_or(false);
    let normals = match &way {
        Way::Bpe(pre) if pre.spelling == Spelling::Spaces => vec![Normal::Spaces],
        Way::Bpe(_) if spec.lowercase == Some(true) => vec![Normal::Lowercase],
        Way::Bpe(_) | Way::Rwkv | Way::Plamo2 => vec![],
        Way::Spm if prefix => vec![Normal::Prepend(" ".into()), Normal::Spaces],
        Way::Spm => vec![Normal::Spaces],
        Way::Unigram => {
            let charsmap = if spec.charsmap.is_empty() { None } else { Some(Charsmap::new(&spec.charsmap)?) };
            vec![Normal::Sentence(Sentence { charsmap, prefix, merge_spaces })]
        }
        Way::WordPiece => {
            let lowercase = spec.lowercase.unwrap_or(true);
            let strip_accents = spec.strip_accents.unwrap_or(lowercase);
            vec![Normal::Bert(Bert { clean: true, part_chinese: true, strip_accents, lowercase })]
        }
    };
    let mut steps = match &way {
        Way::Bpe(pre) => pre.steps()?,
        Way::WordPiece => Step::bert(),
        _ => vec![],
    };
    if matches!(way, Way::Spm | Way::Unigram | Way::Plamo2) || way.spelling() == Spelling::Spaces {
        steps.push(Step::Seams(Seams::new(&vocab)));
    }
    let flags = known_flags(&vocab, spec.name.as_deref(), spec.architecture.as_deref(), spec.pre.as_deref());
    let ends = ends(&spec, &way)?;
    Ok(Parts {
        pair: pair(&mut spec, &way, &ends),
        ends,
        model: model(&spec, &way, &vocab)?,
        vocab,
        normals: Normals::new(normals)?,
        late: vec![],
        steps: Steps(steps),
        flags,
        begins_with_space: match way {
            Way::Spm => prefix,
            Way::Unigram => prefix || merge_spaces,
            Way::WordPiece => true,
            Way::Bpe(_) | Way::Rwkv | Way::Plamo2 => false,
        },
        template: spec.chat_template,
    })
}

fn vocab(spec: &VocabSpec<'_>, spelling: Spelling) -> Result<Vocab, Error> {
    let tokens = spec.tokens.len();
    if tokens == 0 {
        return Err(Error::Size { tokens });
    }
    for (key, found) in [(KEY_SCORES, spec.scores.len()), (KEY_TYPES, spec.types.len())] {
        if found != 0 && found != tokens {
            return Err(Error::Length { key, found, tokens });
        }
    }
    for (key, id) in spec.special_ids() {
        if let Some(id) = id.filter(|&id| id as usize >= tokens) {
            return Err(Error::SpecialId { key, id, tokens });
        }
    }
    if let Some(id) = spec.scores.iter().position(|score| score.is_nan()) {
        return Err(Error::Score { id });
    }
    let mut kinds = spec.kinds()?;
    let given = [spec.eos, spec.eot, spec.eom, spec.fim_pad, spec.fim_rep, spec.fim_sep];
    let is_merged = |text: &str| {
        spec.merges.iter().any(|merge| merge.len() == text.len() + 1 && joins_to(bpe::parts(merge), text))
    };
    let known = KnownTexts::find(&spec.tokens, &mut kinds, &given, is_merged);
    let ids = SpecialIds {
        bos: spec.bos,
        eos: spec.eos,
        eot: spec.eot.or(known.eot),
        eom: spec.eom,
        unk: spec.unk,
        pad: spec.pad,
        sep: spec.sep,
        mask: spec.mask,
    };
    if spelling == Spelling::Words {
        let words: Vec<String> =
            spec.tokens.iter().map(|text| cleaned(&text.replace(SPACE, " ")).into_owned()).collect();
        return Vocab::new(&words, kinds, ids, known.eog, spelling);
    }
    Vocab::new(&spec.tokens, kinds, ids, known.eog, spelling)
}

/// Whether the two parts of a merge are `text`.
pub(crate) fn joins_to(parts: Option<(&str, &str)>, text: &str) -> bool {
    parts.is_some_and(|(left, right)| text.strip_prefix(left) == Some(right))
}

fn ends(spec: &VocabSpec<'_>, way: &Way) -> Result<Ends, Error> {
    let bos = spec.bos.ok_or(Error::MissingSpecial { flag: KEY_ADD_BOS, key: KEY_BOS });
    let eos = spec.eos.ok_or(Error::MissingSpecial { flag: KEY_ADD_EOS, key: KEY_EOS });
    if let Way::WordPiece = way {
        let sep = spec.sep.ok_or(Error::MissingSpecial { flag: KEY_ADD_EOS, key: KEY_SEP })?;
        return Ok(Ends { before: vec![bos?], behind: vec![sep] });
    }
    let begins = match way {
        Way::Bpe(pre) => pre.bos,
        Way::Spm => Bos::UnlessRefused,
        _ => Bos::IfAsked,
    };
    let before = match (spec.add_bos, begins) {
        (_, Bos::Always) | (None, Bos::UnlessRefused) => spec.bos.into_iter().collect(),
        (Some(true), _) => vec![bos?],
        (Some(false) | None, _) => vec![],
    };
    let behind = match (spec.add_eos, way) {
        (Some(true), _) => vec![eos?],
        (None, Way::Unigram) => spec.eos.into_iter().collect(),
        (Some(false) | None, _) => vec![],
    };
    Ok(Ends { before, behind })
}

/// What the file says of two texts.
fn pair(spec: &mut VocabSpec<'_>, way: &Way, ends: &Ends) -> Pair {
    if let Some(template) = spec.pair_template.take() {
        return Pair::Template(template);
    }
    let behind = match ends.behind.as_slice() {
        [] => spec.sep.into_iter().collect(),
        behind => behind.to_vec(),
    };
    if behind.is_empty() {
        return Pair::Unknown;
    }
    let pre = spec.pre.as_deref().unwrap_or_default();
    // Files of ModernBERT ask for a separator too, and mean the one that ends the first text.
    let once = matches!(way, Way::WordPiece) || pre == "modern-bert";
    let of_roberta = matches!(pre, "roberta-bpe" | "jina-v1-en" | "jina-v2-code");
    let again = if !once && spec.add_sep.unwrap_or(of_roberta) { spec.sep } else { None };
    Pair::Tokens { between: behind.iter().copied().chain(again).collect(), behind }
}

fn model(spec: &VocabSpec<'_>, way: &Way, vocab: &Vocab) -> Result<Model, Error> {
    Ok(match way {
        Way::Bpe(pre) => {
            // To a vocabulary of bytes, the unknown token is not for text: it is often the end of one.
            let id = vocab.ids.unk.filter(|_| pre.spelling != Spelling::Bytes);
            let rules = bpe::Rules {
                spelling: pre.spelling,
                whole_words: pre.whole_words,
                whole_lines: pre.whole_lines,
                unknown: bpe::Unknown { id, fuse: false },
            };
            let merges = &spec.merges;
            let text = |index: usize| merges.get(index).cloned().unwrap_or_default();
            Model::Bpe(Bpe::new(vocab, merges.iter().map(|merge| bpe::parts(merge)), text, rules)?)
        }
        Way::Spm => Model::Spm(Spm::new(vocab, &spec.scores)),
        Way::Unigram => {
            let mut scores: Vec<f64> = spec.scores.iter().map(|&score| score.into()).collect();
            scores.resize(vocab.len(), 0.0);
            let normal = vocab.normal().filter_map(|(id, _)| scores.get(id as usize).copied());
            let worst = normal.reduce(f64::min).unwrap_or(0.0);
            Model::Unigram(Unigram::new(vocab, scores, worst, Unknown { bytes: false, across_words: true })?)
        }
        Way::WordPiece => Model::WordPiece(WordPiece::from_gguf(vocab, &spec.tokens)?),
        Way::Rwkv => Model::Rwkv(Rwkv::new(vocab)?),
        Way::Plamo2 => Model::Plamo2(Plamo2::new(vocab, &spec.scores)?),
    })
}
