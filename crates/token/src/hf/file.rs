//! What stands in a `tokenizer.json`, as it stands there.
//!
//! Vocabulary and merges are most of the file, tens of megabytes for some models, so they are read straight into
//! lists that borrow the file's text. The small parts are kept as JSON values; the files beside this one read them.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The whole file.
#[derive(Debug, Deserialize)]
pub(super) struct File<'a> {
    #[serde(borrow, default)]
    pub added_tokens: Vec<AddedToken<'a>>,
    #[serde(default)]
    pub normalizer: Value,
    #[serde(default)]
    pub pre_tokenizer: Value,
    #[serde(default)]
    pub post_processor: Value,
    #[serde(default)]
    pub decoder: Value,
    #[serde(borrow)]
    pub model: Model<'a>,
}

/// A token that is found in a text before the model sees it.
#[derive(Debug, Deserialize)]
pub(super) struct AddedToken<'a> {
    pub id: u64,
    #[serde(borrow)]
    pub content: Cow<'a, str>,
    #[serde(default)]
    pub single_word: bool,
    #[serde(default)]
    pub lstrip: bool,
    #[serde(default)]
    pub rstrip: bool,
    #[serde(default)]
    pub normalized: bool,
    #[serde(default)]
    pub special: bool,
}

/// The model. Which of the fields belong to it depends on its type.
#[derive(Debug, Deserialize)]
pub(super) struct Model<'a> {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    #[serde(borrow)]
    pub vocab: Vocab<'a>,
    #[serde(borrow)]
    pub merges: Option<Merges<'a>>,
    pub unk_token: Option<String>,
    pub unk_id: Option<u64>,
    pub dropout: Option<f64>,
    pub continuing_subword_prefix: Option<String>,
    pub end_of_word_suffix: Option<String>,
    pub fuse_unk: Option<bool>,
    pub byte_fallback: Option<bool>,
    pub ignore_merges: Option<bool>,
    pub max_input_chars_per_word: Option<u64>,
}

/// The tokens: with their ids, or in order with their scores.
#[derive(Debug)]
pub(super) enum Vocab<'a> {
    Ids(Vec<(Cow<'a, str>, u64)>),
    Scores(Vec<(Cow<'a, str>, f64)>),
}

/// Pairs of tokens. None: a string that is no pair.
#[derive(Debug)]
pub(super) struct Merges<'a>(pub Vec<Merge<'a>>);

/// One merge, as either age of the format writes it.
#[derive(Debug)]
pub(super) enum Merge<'a> {
    Pair(Cow<'a, str>, Cow<'a, str>),
    Joined(Cow<'a, str>),
}

impl Merge<'_> {
    /// Left and right part; None where it is no pair.
    pub fn parts(&self) -> Option<(&str, &str)> {
        match self {
            Self::Pair(left, right) => Some((left, right)),
            Self::Joined(text) => text.split_once(' ').filter(|(_, right)| !right.contains(' ')),
        }
    }

    /// As an error shows it.
    pub fn shown(&self) -> String {
        match self {
            Self::Pair(left, right) => format!("{left} {right}"),
            Self::Joined(text) => text.to_string(),
        }
    }
}

/// A string, borrowed where it has no escapes.
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.into())))
            }
        }
        deserializer.deserialize_str(Visit)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Vocab<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Vocab<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tokens with ids, or a list of tokens with scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocab<'de>, A::Error> {
                let mut tokens = Vec::new();
                while let Some((Text(text), id)) = map.next_entry()? {
                    tokens.push((text, id));
                }
                Ok(Vocab::Ids(tokens))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vocab<'de>, A::Error> {
                let mut tokens = Vec::new();
                while let Some((Text(text), score)) = list.next_element()? {
                    tokens.push((text, score));
                }
                Ok(Vocab::Scores(tokens))
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Merges<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Merges<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of merges")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Merges<'de>, A::Error> {
                let mut merges = Vec::new();
                while let Some(merge) = list.next_element()? {
                    merges.push(merge);
                }
                Ok(Merges(merges))
            }
        }
        deserializer.deserialize_seq(Visit)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Merge<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Merge<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("two tokens, or a string of two tokens with a space between")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Merge<'de>, E> {
                Ok(Merge::Joined(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Merge<'de>, E> {
                Ok(Merge::Joined(Cow::Owned(text.into())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Merge<'de>, A::Error> {
                let Some((Text(left), Text(right))) =
                    list.next_element::<Text<'de>>()?.zip(list.next_element()?)
                else {
                    return Err(A::Error::invalid_length(1, &self));
                };
                if list.next_element::<serde::de::IgnoredAny>()?.is_some() {
                    return Err(A::Error::invalid_length(3, &self));
                }
                Ok(Merge::Pair(left, right))
            }
        }
        deserializer.deserialize_any(Visit)
    }
}
