//! What is done to a text before it is cut: case, accents, compositions of characters, spaces.

mod bert;
mod charsmap;
mod sentence;

use std::borrow::Cow;

use unicode_normalization_alignments::UnicodeNormalization;
use unicode_normalization_alignments::char::is_combining_mark;

pub(crate) use bert::{Bert, is_punctuation};
pub(crate) use charsmap::Charsmap;
pub(crate) use sentence::Sentence;

use crate::Error;
use crate::vocab::SPACE;
use crate::words::{Cut, MAX_STEPS};

/// How many times longer a text may become, and by how many bytes any text may. No known normalizer comes near it.
const GROWTH: usize = 64;
const GROWTH_FREE: usize = 65_536;

/// One step of normalization.
#[derive(Debug)]
pub(crate) enum Normal {
    Bert(Bert),
    /// `precompiled_charsmap`, as `tokenizers` applies it.
    Charsmap(Charsmap),
    /// SentencePiece's own normalization.
    Sentence(Sentence),
    /// White space is taken away from the ends.
    Strip {
        left: bool,
        right: bool,
    },
    /// Marks are taken away.
    StripAccents,
    Unicode(Form),
    Lowercase,
    /// Control characters go, rarer blanks become spaces (SentencePiece's `nmt`).
    Nmt,
    Replace {
        what: Cut,
        with: String,
    },
    Prepend(String),
    /// A space is spelled U+2581 from here on; inside this crate, U+2581 is a space.
    Spaces,
}

/// A normalization form of Unicode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
}

/// All steps of a tokenizer, in order.
#[derive(Debug, Default)]
pub(crate) struct Normals(Vec<Normal>);

impl Normals {
    /// # Errors
    /// [`Error::Unsupported`] for more steps than any tokenizer has.
    pub fn new(steps: Vec<Normal>) -> Result<Self, Error> {
        if steps.len() > MAX_STEPS {
            let what = format!("{} steps, more than {MAX_STEPS}", steps.len());
            return Err(Error::Unsupported { part: "normalizer", what });
        }
        Ok(Self(steps))
    }

    /// # Errors
    /// [`Error::Grows`] where the text becomes many times longer, [`Error::Slow`].
    pub fn apply<'t>(&self, text: &'t str) -> Result<Cow<'t, str>, Error> {
        let most = text.len().saturating_mul(GROWTH).saturating_add(GROWTH_FREE);
        let mut out = Cow::Borrowed(text);
        for step in &self.0 {
            if let Some(changed) = step.apply(&out)? {
                if changed.len() > most {
                    return Err(Error::Grows { bytes: text.len() });
                }
                out = Cow::Owned(changed);
            }
        }
        Ok(out)
    }
}

impl Normal {
    /// The text changed; None where nothing changes.
    fn apply(&self, text: &str) -> Result<Option<String>, Error> {
        Ok(match self {
            Self::Bert(bert) => bert.apply(text),
            Self::Charsmap(charsmap) => charsmap.by_grapheme(text),
            Self::Sentence(sentence) => Some(sentence.apply(text)),
            Self::Strip { left, right } => {
                let mut stripped = text;
                if *left {
                    stripped = stripped.trim_start();
                }
                if *right {
                    stripped = stripped.trim_end();
                }
                (stripped.len() < text.len()).then(|| stripped.into())
            }
            Self::StripAccents if text.is_ascii() => None,
            Self::StripAccents => Some(text.chars().filter(|&c| !is_combining_mark(c)).collect()),
            Self::Unicode(_) if text.is_ascii() => None,
            Self::Unicode(form) => Some(match form {
                Form::Nfc => text.nfc().map(|(c, _)| c).collect(),
                Form::Nfd => text.nfd().map(|(c, _)| c).collect(),
                Form::Nfkc => text.nfkc().map(|(c, _)| c).collect(),
                Form::Nfkd => text.nfkd().map(|(c, _)| c).collect(),
            }),
            // A letter at a time, so that the end of a word does not matter.
            Self::Lowercase => Some(text.chars().flat_map(char::to_lowercase).collect()),
            Self::Nmt => Some(text.chars().filter(|&c| !is_nmt_control(c)).map(nmt_space).collect()),
            Self::Replace { what, with } => {
                let mut out = String::new();
                let mut found = false;
                let most = text.len().saturating_mul(GROWTH).saturating_add(GROWTH_FREE);
                what.each(text, &mut |range, is_match| {
                    found |= is_match;
                    out.push_str(if is_match { with } else { text.get(range).unwrap_or_default() });
                    if out.len() > most { Err(Error::Grows { bytes: text.len() }) } else { Ok(()) }
                })?;
                found.then_some(out)
            }
            Self::Prepend(_) if text.is_empty() => None,
            Self::Prepend(prefix) => {
                let mut out = String::with_capacity(prefix.len() + text.len());
                out.push_str(prefix);
                out.push_str(text);
                Some(out)
            }
            Self::Spaces => text.contains(SPACE).then(|| text.replace(SPACE, " ")),
        })
    }
}

fn is_nmt_control(c: char) -> bool {
    matches!(c as u32, 0x01..=0x08 | 0x0B | 0x0E..=0x1F | 0x7F | 0x8F | 0x9F)
}

fn nmt_space(c: char) -> char {
    match c as u32 {
        0x09 | 0x0A | 0x0C | 0x0D | 0x1680 | 0x200B..=0x200F | 0x2028 | 0x2029 | 0x2581 | 0xFEFF | 0xFFFD => {
            ' '
        }
        _ => c,
    }
}
