//! `post_processor`: the tokens before and behind a whole text.

use serde_json::Value;

use super::settings::{Component, components};
use crate::Error;
use crate::tokenizer::Ends;

/// Most tokens around a text.
const MOST: usize = 64;

/// `tokens` is their number.
///
/// # Errors
/// [`Error::Unsupported`] names the component, or a token that is not there.
pub(super) fn read(value: &Value, tokens: usize) -> Result<Ends, Error> {
    let mut ends = Ends::default();
    for component in components("post_processor", "processors", value)? {
        let (before, behind) = match component.kind {
            // It moves the places of tokens in the text, nothing else.
            "ByteLevel" => continue,
            "TemplateProcessing" => template(&component)?,
            "BertProcessing" | "RobertaProcessing" => {
                let id = |key| {
                    let pair = component.get(key).and_then(Value::as_array);
                    let id = pair.and_then(|pair| pair.get(1)).and_then(Value::as_u64);
                    id.ok_or_else(|| component.unsupported(key))
                };
                (vec![id("cls")?], vec![id("sep")?])
            }
            _ => return Err(component.unsupported("")),
        };
        let known = |ids: Vec<u64>| -> Result<Vec<u32>, Error> {
            let id = |id: u64| u32::try_from(id).ok().filter(|&id| (id as usize) < tokens);
            let missing =
                |wanted: u64| component.unsupported(&format!("token {wanted}, which does not exist"));
            ids.into_iter().map(|wanted| id(wanted).ok_or_else(|| missing(wanted))).collect()
        };
        ends.before.splice(..0, known(before)?);
        ends.behind.extend(known(behind)?);
        if ends.before.len() + ends.behind.len() > MOST {
            return Err(component.unsupported("more than 64 tokens"));
        }
    }
    Ok(ends)
}

fn template(component: &Component<'_>) -> Result<(Vec<u64>, Vec<u64>), Error> {
    let refused = || component.unsupported("a template of another form");
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    let mut seen = false;
    for piece in component.get("single").and_then(Value::as_array).ok_or_else(refused)? {
        if let Some(sequence) = piece.get("Sequence") {
            if seen || sequence.get("id").and_then(Value::as_str) != Some("A") {
                return Err(refused());
            }
            seen = true;
            continue;
        }
        let name = piece.get("SpecialToken").and_then(|token| token.get("id")).and_then(Value::as_str);
        let tokens = component.get("special_tokens").ok_or_else(refused)?;
        let ids = tokens.get(name.ok_or_else(refused)?).and_then(|token| token.get("ids"));
        for id in ids.and_then(Value::as_array).ok_or_else(refused)?.iter().take(MOST + 1) {
            let side = if seen { &mut behind } else { &mut before };
            side.push(id.as_u64().ok_or_else(refused)?);
        }
    }
    if seen { Ok((before, behind)) } else { Err(refused()) }
}
