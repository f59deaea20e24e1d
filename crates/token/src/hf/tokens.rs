//! The token list of a `tokenizer.json`: the model's tokens and the added ones, by id.

use std::borrow::Cow;

use rustc_hash::{FxHashMap, FxHashSet};

use super::file::{AddedToken, Model, Vocab};
use crate::special::Flags;
use crate::wordpiece::cleaned;
use crate::{Error, Kind, bytes};

#[derive(Debug)]
pub(super) struct Tokens<'a> {
    /// By id; empty where the file has no token.
    pub texts: Vec<Cow<'a, str>>,
    pub kinds: Vec<Kind>,
    /// By id, of a unigram vocabulary.
    pub scores: Vec<f64>,
    pub flags: FxHashMap<u32, Flags>,
    /// Added tokens that are looked for in normalized text.
    pub late: Vec<(u32, Cow<'a, str>)>,
    /// What stands for text that no token can express.
    pub unknown: Option<u32>,
    added: FxHashMap<Cow<'a, str>, u32>,
}

impl<'a> Tokens<'a> {
    /// `bytes`: of the file. There are not more tokens than that, so no id may be above it.
    ///
    /// # Errors
    /// [`Error::TokenIdOf`], [`Error::Score`], [`Error::NoUnknown`].
    pub fn new(model: &Model<'a>, added: Vec<AddedToken<'a>>, bytes: usize) -> Result<Self, Error> {
        let mut tokens = Self {
            texts: vec![],
            kinds: vec![],
            scores: vec![],
            flags: FxHashMap::default(),
            late: vec![],
            unknown: None,
            added: FxHashMap::default(),
        };
        match &model.vocab {
            Vocab::Ids(list) => {
                for (text, id) in list {
                    tokens.put(text.clone(), *id, bytes)?;
                }
            }
            Vocab::Scores(list) => {
                tokens.texts = list.iter().map(|(text, _)| text.clone()).collect();
                tokens.kinds = vec![Kind::Normal; list.len()];
                tokens.scores = list.iter().map(|(_, score)| *score).collect();
            }
        }
        if let Some(id) = tokens.scores.iter().position(|score| score.is_nan()) {
            return Err(Error::Score { id });
        }
        if model.byte_fallback == Some(true) {
            for (text, kind) in tokens.texts.iter().zip(&mut tokens.kinds) {
                if bytes::byte_token(text).is_some() {
                    *kind = Kind::Byte;
                }
            }
        }
        tokens.unknown = match (&model.unk_token, model.unk_id) {
            (Some(unk), _) => tokens.texts.iter().position(|text| text == unk),
            (None, Some(id)) => usize::try_from(id).ok().filter(|&id| id < tokens.texts.len()),
            (None, None) => None,
        }
        .and_then(|id| u32::try_from(id).ok());
        let named = model.unk_token.is_some() || model.unk_id.is_some();
        tokens.add(added, bytes)?;
        if tokens.unknown.is_none() && named {
            let found = model.unk_token.as_deref().and_then(|unk| tokens.added.get(unk).copied());
            tokens.unknown = Some(found.ok_or(Error::NoUnknown)?);
        }
        if let Some(kind) = tokens.unknown.and_then(|id| tokens.kinds.get_mut(id as usize))
            && *kind == Kind::Control
        {
            *kind = Kind::Unknown;
        }
        tokens.scores.resize(if tokens.scores.is_empty() { 0 } else { tokens.texts.len() }, 0.0);
        Ok(tokens)
    }

    /// Puts a token in its place.
    fn put(&mut self, text: Cow<'a, str>, id: u64, bytes: usize) -> Result<(), Error> {
        let refused = |what| Error::TokenIdOf { text: text.to_string(), id, what };
        let place = usize::try_from(id).ok().filter(|&place| place < bytes && u32::try_from(place).is_ok());
        let place = place.ok_or_else(|| refused("more than there can be tokens"))?;
        if place >= self.texts.len() {
            self.texts.resize(place + 1, Cow::Borrowed(""));
            self.kinds.resize(place + 1, Kind::Unused);
        }
        match (self.texts.get_mut(place), self.kinds.get_mut(place)) {
            (Some(slot), Some(kind)) if *kind == Kind::Unused => {
                (*slot, *kind) = (text, Kind::Normal);
                Ok(())
            }
            _ => Err(refused("another token has it")),
        }
    }

    fn add(&mut self, added: Vec<AddedToken<'a>>, bytes: usize) -> Result<(), Error> {
        let has = |tokens: &Self, token: &AddedToken<'_>| {
            let place = usize::try_from(token.id).ok();
            place.and_then(|place| tokens.texts.get(place)).is_some_and(|text| *text == token.content)
        };
        // Tokens that are not where they say must not be anywhere else either.
        let new: FxHashSet<&str> =
            added.iter().filter(|token| !has(self, token)).map(|token| &*token.content).collect();
        if !new.is_empty()
            && let Some((id, text)) =
                (0u64..).zip(&self.texts).find(|(_, text)| new.contains(&***text) && !text.is_empty())
        {
            let what = "an added token of the same text has another";
            return Err(Error::TokenIdOf { text: text.to_string(), id, what });
        }
        for token in added {
            if token.content.is_empty() {
                continue;
            }
            if !has(self, &token) {
                self.put(token.content.clone(), token.id, bytes)?;
            }
            // The place exists: it was found or made.
            let id = token.id as u32;
            if let Some(kind) = self.kinds.get_mut(id as usize) {
                *kind = if token.special { Kind::Control } else { Kind::UserDefined };
            }
            let flags =
                Flags { strip_left: token.lstrip, strip_right: token.rstrip, single_word: token.single_word };
            if flags != Flags::default() {
                self.flags.insert(id, flags);
            }
            // Structure is looked for as it is written, whatever happens to the text.
            if token.normalized && !token.special {
                self.late.push((id, token.content.clone()));
            }
            self.added.insert(token.content, id);
        }
        Ok(())
    }

    /// The id of an added token, or of a token that the model has by that very text.
    pub fn find_added(&self, text: &str) -> Option<u32> {
        self.added.get(text).copied().or_else(|| {
            let place = self.texts.iter().position(|token| token == text)?;
            u32::try_from(place).ok()
        })
    }

    /// The texts that a WordPiece vocabulary's tokens stand for: behind a space, but for those with `prefix`.
    pub fn words(&self, prefix: &str, clean_up: bool) -> Vec<Cow<'a, str>> {
        let word = |(text, kind): (&Cow<'a, str>, &Kind)| {
            if matches!(kind, Kind::Control | Kind::Unknown | Kind::UserDefined) {
                return text.clone();
            }
            let spelled = match text.strip_prefix(prefix).filter(|_| !prefix.is_empty()) {
                Some(rest) => rest.to_string(),
                None => format!(" {text}"),
            };
            Cow::Owned(if clean_up { cleaned(&spelled).into_owned() } else { spelled })
        };
        self.texts.iter().zip(&self.kinds).map(word).collect()
    }
}
