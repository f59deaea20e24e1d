//! Reading the small parts of a `tokenizer.json`: components with a type and settings.

use serde_json::{Map, Value};

use crate::Error;

/// Most components of one part, those inside of others counted.
const MOST: usize = 256;
/// How deep components may lie in sequences.
const DEEPEST: usize = 8;

/// One component: its type, and its settings.
pub(super) struct Component<'a> {
    /// The part of the file that it belongs to.
    pub part: &'static str,
    pub kind: &'a str,
    settings: &'a Map<String, Value>,
}

/// The components of a part in order, those of sequences in the place of the sequence. `list` is what a sequence
/// names its own.
///
/// # Errors
/// [`Error::Unsupported`] where something is no component, or there are too many.
pub(super) fn components<'a>(
    part: &'static str,
    list: &str,
    value: &'a Value,
) -> Result<Vec<Component<'a>>, Error> {
    let mut out = Vec::new();
    collect(part, list, value, 0, &mut out)?;
    Ok(out)
}

fn collect<'a>(
    part: &'static str,
    list: &str,
    value: &'a Value,
    depth: usize,
    out: &mut Vec<Component<'a>>,
) -> Result<(), Error> {
    let refused = |what: &str| Error::Unsupported { part, what: what.into() };
    if value.is_null() {
        return Ok(());
    }
    let settings = value.as_object().ok_or_else(|| refused("what is no component"))?;
    let kind =
        settings.get("type").and_then(Value::as_str).ok_or_else(|| refused("a component without a type"))?;
    if kind == "Sequence" {
        let items = settings.get(list).and_then(Value::as_array);
        for item in items.ok_or_else(|| refused("a sequence without a list"))? {
            if depth == DEEPEST {
                return Err(refused("a sequence in so many others"));
            }
            collect(part, list, item, depth + 1, out)?;
        }
        return Ok(());
    }
    if out.len() == MOST {
        return Err(refused("more than 256 components"));
    }
    out.push(Component { part, kind, settings });
    Ok(())
}

impl<'a> Component<'a> {
    /// That this component, or what `setting` is of it, is not supported.
    pub fn unsupported(&self, setting: &str) -> Error {
        let what =
            if setting.is_empty() { self.kind.into() } else { format!("{} with {setting}", self.kind) };
        Error::Unsupported { part: self.part, what }
    }

    /// A setting; None where it is not there or null.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.settings.get(key).filter(|value| !value.is_null())
    }

    /// A truth value, or `default` where it is not there.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool, Error> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.unsupported(key))
    }

    /// A string that must be there.
    pub fn text(&self, key: &str) -> Result<&'a str, Error> {
        self.get(key).and_then(Value::as_str).ok_or_else(|| self.unsupported(key))
    }

    /// `pattern`, which is a string or an expression.
    pub fn pattern(&self) -> Result<Wanted<'a>, Error> {
        let pattern = self.get("pattern").ok_or_else(|| self.unsupported("no pattern"))?;
        let of = |key| pattern.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let found = of("String").map(Wanted::Text).or(of("Regex").map(Wanted::Expression));
        found.ok_or_else(|| self.unsupported("an empty pattern"))
    }
}

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted<'a> {
    Text(&'a str),
    Expression(&'a str),
}
