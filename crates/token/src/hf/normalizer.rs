//! `normalizer`: what is done to a text before it is cut.

use base64::Engine;
use serde_json::Value;

use super::settings::{Component, Wanted, components};
use crate::Error;
use crate::normal::{Bert, Charsmap, Form, Normal};
use crate::vocab::SPACE;
use crate::words::Cut;

/// Longest text that may be put into another.
const LONGEST: usize = 256;

/// The steps, and what they mean for those behind.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub steps: Vec<Normal>,
    /// Spaces are spelled U+2581.
    pub spaces: bool,
    /// Bytes are spelled as characters behind the steps.
    pub alphabet: bool,
}

/// # Errors
/// [`Error::Unsupported`] names the component.
pub(super) fn read(value: &Value) -> Result<Read, Error> {
    let mut out = Read::default();
    for component in components("normalizer", "normalizers", value)? {
        if out.alphabet {
            return Err(component.unsupported("bytes spelled as characters before it"));
        }
        if component.kind == "ByteLevel" {
            out.alphabet = true;
            continue;
        }
        let step = step(&component)?;
        // Inside this crate a spelled space is a space, which other steps would take for one.
        if out.spaces && !matches!(step, Normal::Spaces | Normal::Prepend(_)) {
            return Err(component.unsupported("spaces replaced before it"));
        }
        out.spaces |= matches!(step, Normal::Spaces);
        out.steps.push(step);
    }
    if out.spaces {
        for step in &mut out.steps {
            if let Normal::Prepend(text) = step {
                *text = text.replace(SPACE, " ");
            }
        }
    }
    Ok(out)
}

fn step(component: &Component<'_>) -> Result<Normal, Error> {
    let short = |key| {
        let text = component.text(key)?;
        if text.len() > LONGEST { Err(component.unsupported("more than 256 bytes")) } else { Ok(text) }
    };
    Ok(match component.kind {
        "BertNormalizer" | "Bert" => {
            let lowercase = component.flag("lowercase", true)?;
            Normal::Bert(Bert {
                clean: component.flag("clean_text", true)?,
                part_chinese: component.flag("handle_chinese_chars", true)?,
                strip_accents: component.flag("strip_accents", lowercase)?,
                lowercase,
            })
        }
        "Strip" => Normal::Strip {
            left: component.flag("strip_left", true)?,
            right: component.flag("strip_right", true)?,
        },
        "StripAccents" => Normal::StripAccents,
        "NFC" => Normal::Unicode(Form::Nfc),
        "NFD" => Normal::Unicode(Form::Nfd),
        "NFKC" => Normal::Unicode(Form::Nfkc),
        "NFKD" => Normal::Unicode(Form::Nfkd),
        "Lowercase" => Normal::Lowercase,
        "Nmt" => Normal::Nmt,
        "Prepend" => Normal::Prepend(short("prepend")?.into()),
        "Replace" => match (component.pattern()?, short("content")?) {
            (Wanted::Text(" "), SPACE) => Normal::Spaces,
            (Wanted::Text(text), with) => Normal::Replace { what: Cut::Text(text.into()), with: with.into() },
            (Wanted::Expression(source), with) => {
                Normal::Replace { what: Cut::expression(source)?, with: with.into() }
            }
        },
        "Precompiled" => {
            let text = component.text("precompiled_charsmap")?;
            let bytes = base64::engine::general_purpose::STANDARD.decode(text);
            Normal::Charsmap(Charsmap::new(&bytes.map_err(|_| Error::Charsmap("it is not base64"))?)?)
        }
        _ => return Err(component.unsupported("")),
    })
}
