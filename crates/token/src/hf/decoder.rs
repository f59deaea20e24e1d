//! `decoder`: how tokens become text. It has to undo what the other parts do, so it is checked, not run.

use serde_json::Value;

use super::settings::{Wanted, components};
use crate::Error;
use crate::vocab::{SPACE, Spelling};

/// What a decoder does beside spelling tokens back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    /// The space that a text begins with is taken away.
    pub strips_space: bool,
    /// The spaces before punctuation are (WordPiece).
    pub cleans_up: bool,
}

/// # Errors
/// [`Error::Unsupported`] where it is none for tokens of this `spelling`.
pub(super) fn read(value: &Value, spelling: Spelling) -> Result<Read, Error> {
    let mut read = Read::default();
    for component in components("decoder", "decoders", value)? {
        let other = || component.unsupported("tokens that are spelled otherwise");
        match (component.kind, spelling) {
            ("ByteLevel", Spelling::Bytes)
            | ("Fuse", Spelling::Spaces | Spelling::Bytes | Spelling::Plain)
            | ("ByteFallback", Spelling::Spaces | Spelling::Plain) => {}
            ("Metaspace", Spelling::Spaces) => {
                let scheme = component.get("prepend_scheme").and_then(Value::as_str);
                read.strips_space |=
                    scheme.map_or(component.flag("add_prefix_space", true)?, |scheme| scheme != "never");
            }
            ("Replace", Spelling::Spaces) => {
                if component.pattern()? != Wanted::Text(SPACE) || component.text("content")? != " " {
                    return Err(other());
                }
            }
            ("Strip", Spelling::Spaces) => {
                let count = |key| component.get(key).and_then(Value::as_u64).unwrap_or(0);
                if component.text("content")? != " " || count("start") > 1 || count("stop") > 0 {
                    return Err(component.unsupported("more than one space in front"));
                }
                read.strips_space |= count("start") == 1;
            }
            ("WordPiece", Spelling::Words) => {
                read.strips_space = true;
                read.cleans_up = component.flag("cleanup", true)?;
            }
            ("ByteLevel" | "ByteFallback" | "Fuse" | "Metaspace" | "Replace" | "Strip" | "WordPiece", _) => {
                return Err(other());
            }
            _ => return Err(component.unsupported("")),
        }
    }
    Ok(read)
}
