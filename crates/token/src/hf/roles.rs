//! What the files beside `tokenizer.json` say: special tokens by their role, and the chat template.

use serde_json::Value;

use super::HfFiles;
use crate::Error;
use crate::vocab::SpecialIds;

const CONFIG: &str = "tokenizer_config.json";
const GENERATION: &str = "generation_config.json";

#[derive(Debug, Default)]
pub(super) struct Roles {
    pub ids: SpecialIds,
    /// What ends generation, the end of a text first.
    pub ends: Vec<Option<u32>>,
    pub template: Option<String>,
}

/// `find` gives the id of a token by its text.
///
/// # Errors
/// [`Error::Json`]; [`Error::NoSuchToken`] where a text would begin or end with a token that is not there.
pub(super) fn read(files: &HfFiles<'_>, find: impl Fn(&str) -> Option<u32>) -> Result<Roles, Error> {
    let config = parse(CONFIG, files.config)?;
    let generation = parse(GENERATION, files.generation)?;
    // A token is named by its text, alone or with its flags.
    let name = |key: &str| {
        let value = config.get(key)?;
        value.as_str().or_else(|| value.get("content").and_then(Value::as_str))
    };
    let needed = |key: &str| match name(key) {
        None => Ok(None),
        Some(text) => {
            let missing = || Error::NoSuchToken { file: CONFIG, text: text.into() };
            find(text).map(Some).ok_or_else(missing)
        }
    };
    let ids = SpecialIds {
        bos: needed("bos_token")?,
        eos: needed("eos_token")?,
        pad: name("pad_token").and_then(&find),
        unk: name("unk_token").and_then(&find),
        sep: name("sep_token").and_then(&find),
        mask: name("mask_token").and_then(&find),
        ..SpecialIds::default()
    };
    let ends = match generation.get("eos_token_id") {
        Some(Value::Array(ids)) => ids.iter().map(Value::as_u64).collect(),
        Some(id) => vec![id.as_u64()],
        None => vec![],
    };
    let ends = ends.into_iter().map(|id| id.and_then(|id| u32::try_from(id).ok()));
    let ends = std::iter::once(ids.eos).chain(ends).collect();
    let template = match (files.template, config.get("chat_template")) {
        (Some(template), _) => Some(template.into()),
        (None, Some(Value::String(template))) => Some(template.clone()),
        (None, Some(Value::Array(named))) => {
            let default =
                named.iter().find(|entry| entry.get("name").and_then(Value::as_str) == Some("default"));
            default.and_then(|entry| entry.get("template")).and_then(Value::as_str).map(Into::into)
        }
        _ => None,
    };
    Ok(Roles { ids, ends, template })
}

fn parse(file: &'static str, text: Option<&str>) -> Result<Value, Error> {
    let Some(text) = text else { return Ok(Value::Null) };
    serde_json::from_str(text).map_err(|e| Error::Json { file, what: e.to_string() })
}
