//! Keeps what a message spells apart from what a template writes.
//!
//! A template pastes messages into its own text, and special tokens are found in the result by their spelling. A
//! user who writes `<|im_end|>` would end their own turn and could go on as the system. The template cannot be
//! asked which bytes are whose, since it may trim, split, search and escape what it is given.
//!
//! So, before rendering, one marker character is put into each spelling of a control token inside the request,
//! behind its first character. The spelling is broken, nothing else of the request changes, and the template's
//! own tokens are the only ones that are found afterwards. Then the markers are taken out. The marker is a
//! character that the request does not have, a noncharacter of Unicode where possible.
//!
//! A spelling could also come together from two places: the end of one message and what the template puts behind
//! it. So a marker is also put into the beginning of a spelling at the end of a string, and in front of a string
//! that begins with the end of one.

use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::Error;
use crate::special::Finder;
use crate::vocab::{Kind, Vocab};

/// A rendered conversation, for [`Tokenizer::encode_prompt`](crate::Tokenizer::encode_prompt).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The text, with markers in control tokens that messages spell.
    pub(crate) marked: String,
    /// None where nothing had to be marked.
    pub(crate) marker: Option<char>,
}

impl Prompt {
    /// The text as the template means it.
    pub fn text(&self) -> String {
        match self.marker {
            Some(marker) => self.marked.replace(marker, ""),
            None => self.marked.clone(),
        }
    }
}

/// The control tokens of a vocabulary, to be found in a request.
#[derive(Debug)]
pub(crate) struct Guard {
    finder: Finder,
    /// Their spellings, in order, and the length of the longest in bytes.
    sorted: Vec<String>,
    longest: usize,
}

impl Guard {
    pub fn new(vocab: &Vocab) -> Result<Self, Error> {
        let guarded = |id: u32| matches!(vocab.kind(id), Some(Kind::Control | Kind::Unknown));
        let specials = || vocab.specials.iter().filter(|(id, text)| guarded(*id) && !text.is_empty());
        let mut sorted: Vec<String> = specials().map(|(_, text)| text.to_string()).collect();
        sorted.sort_unstable();
        let longest = sorted.iter().map(String::len).max().unwrap_or(0);
        let tokens = specials().map(|(id, text)| (*id, &**text));
        Ok(Self { finder: Finder::new(tokens, &FxHashMap::default())?, sorted, longest })
    }

    /// Puts markers into all strings of `values`. Gives the marker if any was needed.
    pub fn mark(&self, values: &mut [&mut Value]) -> Option<char> {
        let marker = unused(values);
        let mut marked = false;
        for value in values {
            self.value(value, true, marker, &mut marked);
        }
        marked.then_some(marker)
    }

    /// `edges`: whether the string may come to lie beside text of the template's.
    fn value(&self, value: &mut Value, edges: bool, marker: char, marked: &mut bool) {
        match value {
            Value::String(text) => {
                if let Some(guarded) = self.text(text, edges, marker) {
                    *text = guarded;
                    *marked = true;
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.value(item, edges, marker, marked);
                }
            }
            Value::Object(entries) => {
                if entries.keys().any(|key| self.text(key, false, marker).is_some()) {
                    let marked_keys = std::mem::take(entries).into_iter().map(|(key, value)| {
                        let key = self.text(&key, false, marker).unwrap_or(key);
                        (key, value)
                    });
                    *entries = marked_keys.collect();
                    *marked = true;
                }
                for (key, item) in entries {
                    // Templates compare these with words of their own.
                    let edges = edges && !matches!(key.as_str(), "role" | "type");
                    self.value(item, edges, marker, marked);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// `text` with its markers, if it needs any.
    fn text(&self, text: &str, edges: bool, marker: char) -> Option<String> {
        let behind_first = |start: usize| Some(start + text.get(start..)?.chars().next()?.len_utf8());
        let mut places = Vec::new();
        let mut at = 0;
        while let Some((start, ..)) = self.finder.find(text, at) {
            let Some(place) = behind_first(start) else { break };
            places.push(place);
            at = place;
        }
        if edges {
            let tail = text.len().saturating_sub(self.longest);
            let starts = text.char_indices().map(|(start, _)| start).skip_while(|&start| start < tail);
            places.extend(starts.filter(|&start| self.begins(text, start)).filter_map(behind_first));
            if self.sorted.iter().any(|token| ends_in(token, text)) {
                places.push(0);
            }
            places.sort_unstable();
            places.dedup();
        }
        if places.is_empty() {
            return None;
        }
        let mut out = String::with_capacity(text.len() + places.len() * marker.len_utf8());
        let mut done = 0;
        for place in places {
            out.push_str(text.get(done..place).unwrap_or_default());
            out.push(marker);
            done = place;
        }
        out.push_str(text.get(done..).unwrap_or_default());
        Some(out)
    }

    /// Whether `text[start..]` is how a longer spelling begins.
    fn begins(&self, text: &str, start: usize) -> bool {
        let tail = text.get(start..).unwrap_or_default();
        let first = self.sorted.partition_point(|token| token.as_str() <= tail);
        self.sorted.get(first).is_some_and(|token| token.starts_with(tail))
    }
}

/// Whether `text` begins with the end of `token`.
fn ends_in(token: &str, text: &str) -> bool {
    token.char_indices().skip(1).any(|(place, _)| token.get(place..).is_some_and(|end| text.starts_with(end)))
}

/// A character that no string of `values` has.
fn unused(values: &[&mut Value]) -> char {
    fn note(value: &Value, used: &mut Vec<char>) {
        let mut text = |text: &str| used.extend(text.chars().filter(|&c| candidate(c)));
        match value {
            Value::String(string) => text(string),
            Value::Array(items) => items.iter().for_each(|item| note(item, used)),
            Value::Object(entries) => entries.iter().for_each(|(key, item)| {
                used.extend(key.chars().filter(|&c| candidate(c)));
                note(item, used);
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut used = Vec::new();
    values.iter().for_each(|value| note(value, &mut used));
    used.sort_unstable();
    used.dedup();
    let free = candidates().find(|c| used.binary_search(c).is_err());
    // All 131,100 taken: the request then holds every private character, and loses this one.
    free.unwrap_or('\u{FDD0}')
}

/// Noncharacters, then the private planes.
fn candidates() -> impl Iterator<Item = char> {
    ('\u{FDD0}'..='\u{FDEF}').chain('\u{F0000}'..='\u{FFFFD}').chain('\u{100000}'..='\u{10FFFD}')
}

fn candidate(c: char) -> bool {
    matches!(c, '\u{FDD0}'..='\u{FDEF}' | '\u{F0000}'..='\u{FFFFD}' | '\u{100000}'..='\u{10FFFD}')
}
