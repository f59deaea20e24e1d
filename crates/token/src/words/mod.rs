//! From a text to its words: the pieces in which a model joins bytes or characters.
//!
//! [`Steps`] run one after another, each on the pieces of the one before. [`pre`] has the steps that a GGUF file
//! names, `crate::hf` makes those of a `tokenizer.json`. A step hands on one piece at a time, so that the words of
//! a text are never all in memory.

mod behaviour;
mod expression;
mod pattern;
mod pre;
mod seams;
mod threes;

use std::ops::Range;

use crate::normal::is_punctuation;
use crate::vocab::SPACE;
use crate::{Error, bytes};
pub(crate) use behaviour::Behaviour;
pub(crate) use expression::Expression;
pub(crate) use pattern::Pattern;
pub use pre::pre_tokenizers;
pub(crate) use pre::{Bos, GPT2, Pre};
pub(crate) use seams::Seams;
use threes::{Threes, Way};

/// More steps than any tokenizer has; each may be a level of the stack.
pub(crate) const MAX_STEPS: usize = 64;

/// What finds the places to cut.
#[derive(Debug)]
pub(crate) enum Cut {
    Pattern(Box<Pattern>),
    /// Each character of a class by itself.
    Class(fn(char) -> bool),
    /// This text.
    Text(Box<str>),
    /// Digits, into threes from the right.
    Threes(Box<Threes>),
    /// Blanks at the end of a piece.
    Trailing,
}

/// One step of cutting.
#[derive(Debug)]
pub(crate) enum Step {
    Cut {
        cut: Cut,
        behaviour: Behaviour,
        /// What lies between the matches is the match.
        invert: bool,
    },
    /// A space is put before each piece, or before the first of a text only, where it does not begin with one.
    Prefix { first_only: bool },
    /// Spaces are spelled U+2581 from here on. Inside this crate it is the other way round (see `Spelling::Spaces`).
    Spaces,
    /// The steps behind this one see each byte as a character of GPT-2's alphabet.
    Alphabet,
    /// Between words that no token joins.
    Seams(Seams),
}

/// All steps of a tokenizer.
#[derive(Debug, Default)]
pub(crate) struct Steps(pub Vec<Step>);

/// Takes a word. Bytes, since a step behind [`Step::Alphabet`] may cut inside a character.
pub(crate) type Each<'a> = dyn FnMut(&[u8]) -> Result<(), Error> + 'a;

impl Cut {
    /// Stands for AFMoE's rule for digits.
    pub const NUMBERS_IN_THREES: &str = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))";

    /// The cut of an expression of a `tokenizer.json` or of a GGUF pre-tokenizer.
    ///
    /// # Errors
    /// [`Error::Expression`] where it uses what automata lack.
    pub fn expression(source: &str) -> Result<Self, Error> {
        Ok(match source {
            r"\d{1,3}(?=(?:\d{3})*\b)" => {
                Self::Threes(Box::new(Threes::new(Way::GroupsBeforeBoundary, r"\d+")?))
            }
            r"(?=(\d{3})+(?!\d))" => Self::Threes(Box::new(Threes::new(Way::Places, r"\d+")?)),
            Self::NUMBERS_IN_THREES => Self::Threes(Box::new(Threes::new(Way::Groups, r"\p{N}+")?)),
            // Lines are pieces of their own wherever this is used.
            r"\s+$" => Self::Trailing,
            _ => Self::Pattern(Box::new(Pattern::new(&Expression::new(source)?)?)),
        })
    }

    /// Gives the matches in `text` and, with `false`, what lies between them.
    pub fn each(
        &self,
        text: &str,
        each: &mut dyn FnMut(Range<usize>, bool) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut done = 0;
        match self {
            Self::Pattern(pattern) => return pattern.each(text, each),
            Self::Threes(threes) => return threes.each(text, each),
            Self::Trailing => {
                done = text.trim_end().len();
                if done > 0 {
                    each(0..done, false)?;
                }
                return if done < text.len() { each(done..text.len(), true) } else { Ok(()) };
            }
            Self::Class(class) => {
                for (start, found) in text.match_indices(class) {
                    if done < start {
                        each(done..start, false)?;
                    }
                    done = start + found.len();
                    each(start..done, true)?;
                }
            }
            Self::Text(wanted) => {
                for (start, found) in text.match_indices(&**wanted) {
                    if done < start {
                        each(done..start, false)?;
                    }
                    done = start + found.len();
                    each(start..done, true)?;
                }
            }
        }
        if done < text.len() { each(done..text.len(), false) } else { Ok(()) }
    }
}

impl Step {
    /// A cut whose matches and gaps are pieces alike.
    pub fn isolated(cut: Cut) -> Self {
        Self::Cut { cut, behaviour: Behaviour::Isolated, invert: false }
    }

    /// BERT's words: what lies between blanks, each punctuation mark by itself.
    pub fn bert() -> Vec<Self> {
        vec![Self::whitespace_split(), Self::isolated(Cut::Class(is_punctuation))]
    }

    /// Words are what lies between blanks.
    pub fn whitespace_split() -> Self {
        Self::Cut { cut: Cut::Class(char::is_whitespace), behaviour: Behaviour::Removed, invert: false }
    }
}

impl Steps {
    /// Gives the words of `text`, none of them empty. `first`: the text is the beginning of what is encoded.
    pub fn run(&self, text: &str, first: bool, each: &mut Each<'_>) -> Result<(), Error> {
        run(&self.0, text, first, each)
    }
}

fn run(steps: &[Step], text: &str, first: bool, each: &mut Each<'_>) -> Result<(), Error> {
    let Some((step, rest)) = steps.split_first() else {
        return if text.is_empty() { Ok(()) } else { each(text.as_bytes()) };
    };
    match step {
        Step::Cut { cut, behaviour, invert } => behaviour.apply(
            |found| cut.each(text, &mut |range, is_match| found(range, is_match != *invert)),
            |range| {
                let first = first && range.start == 0;
                run(rest, text.get(range).unwrap_or_default(), first, each)
            },
        ),
        Step::Prefix { first_only } => {
            if text.is_empty() || text.starts_with(' ') || (*first_only && !first) {
                return run(rest, text, first, each);
            }
            run(rest, &format!(" {text}"), first, each)
        }
        Step::Spaces if text.contains(SPACE) => run(rest, &text.replace(SPACE, " "), first, each),
        Step::Spaces => run(rest, text, first, each),
        Step::Alphabet if rest.is_empty() => run(rest, text, first, each),
        Step::Alphabet => {
            let mut word = Vec::new();
            run(rest, &bytes::encode(text), first, &mut |piece| {
                word.clear();
                bytes::decode(std::str::from_utf8(piece).unwrap_or_default(), &mut word);
                each(&word)
            })
        }
        Step::Seams(seams) => {
            for word in seams.words(text) {
                run(rest, text.get(word).unwrap_or_default(), first, each)?;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
