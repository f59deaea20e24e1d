//! `pre_tokenizer`: how a text is cut into words.

use serde_json::Value;

use super::settings::{Component, Wanted, components};
use crate::Error;
use crate::normal::is_punctuation;
use crate::vocab::{SPACE, Spelling};
use crate::words::{Behaviour, Cut, Expression, GPT2, MAX_STEPS, Pattern, Step};

/// The steps, and how they leave tokens spelled.
#[derive(Debug)]
pub(super) struct Read {
    pub steps: Vec<Step>,
    pub spelling: Spelling,
    /// Words are cut at spaces already.
    pub cut_at_spaces: bool,
}

/// `spaces` and `alphabet` say what the normalizer did.
///
/// # Errors
/// [`Error::Unsupported`] names the component, [`Error::Expression`] the expression.
pub(super) fn read(value: &Value, spaces: bool, alphabet: bool) -> Result<Read, Error> {
    let mut read = Read { steps: vec![], spelling: Spelling::Plain, cut_at_spaces: false };
    if spaces {
        read.spelling = Spelling::Spaces;
    }
    if alphabet {
        read.steps.push(Step::Alphabet);
        read.spelling = Spelling::Bytes;
    }
    for component in components("pre_tokenizer", "pretokenizers", value)? {
        read.add(&component)?;
        if read.steps.len() > MAX_STEPS {
            return Err(component.unsupported("more steps than any tokenizer has before it"));
        }
    }
    Ok(read)
}

impl Read {
    fn add(&mut self, component: &Component<'_>) -> Result<(), Error> {
        let spaced = self.spelling == Spelling::Spaces;
        match component.kind {
            "ByteLevel" => {
                if self.spelling != Spelling::Plain {
                    return Err(component.unsupported("another spelling of tokens before it"));
                }
                if component.flag("add_prefix_space", true)? {
                    self.steps.push(Step::Prefix { first_only: false });
                }
                if component.flag("use_regex", true)? {
                    self.steps.push(Step::isolated(Cut::expression(GPT2)?));
                }
                self.steps.push(Step::Alphabet);
                self.spelling = Spelling::Bytes;
            }
            "Metaspace" => {
                if self.spelling == Spelling::Bytes || component.text("replacement")? != SPACE {
                    return Err(component.unsupported("another spelling of tokens"));
                }
                self.steps.push(Step::Spaces);
                self.spelling = Spelling::Spaces;
                let scheme = match component.get("prepend_scheme").and_then(Value::as_str) {
                    None if component.flag("add_prefix_space", true)? => "always",
                    None => "never",
                    Some(scheme) => scheme,
                };
                match scheme {
                    "always" => self.steps.push(Step::Prefix { first_only: false }),
                    "first" => self.steps.push(Step::Prefix { first_only: true }),
                    "never" => {}
                    _ => return Err(component.unsupported("prepend_scheme")),
                }
                if component.flag("split", true)? {
                    let behaviour = Behaviour::MergedWithNext;
                    self.steps.push(Step::Cut { cut: Cut::Text(" ".into()), behaviour, invert: false });
                    self.cut_at_spaces = true;
                }
            }
            // All spaces are spelled otherwise by now, so there is none to cut at.
            "Split" if spaced && component.pattern()? == Wanted::Text(" ") => {}
            "Digits" => {
                let behaviour = if component.flag("individual_digits", false)? {
                    Behaviour::Isolated
                } else {
                    Behaviour::Contiguous
                };
                self.steps.push(Step::Cut { cut: Cut::Class(char::is_numeric), behaviour, invert: false });
            }
            _ if spaced => return Err(component.unsupported("spaces replaced before it")),
            "Split" => {
                let cut = match component.pattern()? {
                    Wanted::Text(text) => Cut::Text(text.into()),
                    Wanted::Expression(source) => Cut::expression(source)?,
                };
                let (behaviour, invert) = (behaviour(component)?, component.flag("invert", false)?);
                self.steps.push(Step::Cut { cut, behaviour, invert });
            }
            "Punctuation" => {
                let cut = Cut::Class(is_punctuation);
                let behaviour = match component.get("behavior") {
                    Some(_) => behaviour(component)?,
                    None => Behaviour::Isolated,
                };
                self.steps.push(Step::Cut { cut, behaviour, invert: false });
            }
            "BertPreTokenizer" => self.steps.extend(Step::bert()),
            "WhitespaceSplit" => self.steps.push(Step::whitespace_split()),
            "Whitespace" => {
                let cut = Cut::Pattern(Box::new(Pattern::new(&Expression::words())?));
                self.steps.push(Step::Cut { cut, behaviour: Behaviour::Removed, invert: true });
            }
            "CharDelimiterSplit" | "Delimiter" => {
                let cut = Cut::Text(component.text("delimiter")?.into());
                self.steps.push(Step::Cut { cut, behaviour: Behaviour::Removed, invert: false });
            }
            _ => return Err(component.unsupported("")),
        }
        Ok(())
    }
}

fn behaviour(component: &Component<'_>) -> Result<Behaviour, Error> {
    Ok(match component.text("behavior")? {
        "Isolated" => Behaviour::Isolated,
        "Removed" => Behaviour::Removed,
        "Contiguous" => Behaviour::Contiguous,
        "MergedWithPrevious" => Behaviour::MergedWithPrevious,
        "MergedWithNext" => Behaviour::MergedWithNext,
        _ => return Err(component.unsupported("behavior")),
    })
}
