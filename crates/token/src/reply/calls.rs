//! What stands between the markers of a call, once it is whole.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::ToolCall;

/// What stands between the name and the arguments of a headed call.
pub(super) const SEPARATORS: &[&str] =
    &["<｜tool▁sep｜>", "<|tool_call_argument_begin|>", "[ARGS]", "[CALL_ID]"];

/// A call as JSON; families differ in the names of the fields.
#[derive(Deserialize)]
struct JsonCall {
    #[serde(alias = "function", alias = "tool_name")]
    name: String,
    #[serde(default, alias = "parameters")]
    arguments: Json,
    #[serde(default)]
    id: Option<Json>,
}

impl JsonCall {
    fn call(self) -> Option<ToolCall> {
        let arguments = match self.arguments {
            Json::Null => Json::Object(Map::new()),
            // Some models write them as a string.
            Json::String(text) => serde_json::from_str(&text).ok()?,
            other => other,
        };
        let arguments = arguments.is_object().then(|| arguments.to_string())?;
        let id = self.id.and_then(|id| id.as_str().map(str::to_owned));
        (!self.name.is_empty()).then_some(ToolCall { id, name: self.name, arguments })
    }
}

/// The text of a JSON object.
fn object(text: &str) -> Option<String> {
    let text = text.trim();
    serde_json::from_str::<Map<String, Json>>(text).ok()?;
    Some(text.to_owned())
}

/// One object, or a list of at least one.
pub(super) fn json(body: &str) -> Option<Vec<ToolCall>> {
    let body = body.trim();
    let calls: Vec<JsonCall> = match body.starts_with('[') {
        true => serde_json::from_str(body).ok()?,
        false => vec![serde_json::from_str(body).ok()?],
    };
    let calls: Option<Vec<ToolCall>> = calls.into_iter().map(JsonCall::call).collect();
    calls.filter(|calls| !calls.is_empty())
}

/// `header` is what stands before the arguments: the name, and what frames it.
pub(super) fn headed(header: &str, arguments: &str) -> Option<ToolCall> {
    let header = header.trim().trim_end_matches("```json").trim();
    let header = header.strip_suffix("[ARGS]").unwrap_or(header);
    let header = header.strip_suffix("<|tool_call_argument_begin|>").unwrap_or(header);
    let (name, id) = match header.split_once("[CALL_ID]") {
        Some((name, id)) => (name, Some(id.trim().to_owned())),
        None => (header, None),
    };
    let name = match name.split_once("<｜tool▁sep｜>") {
        // `function` sep name (V3), or name sep (V3.1).
        Some((name, "")) => name,
        Some((_, name)) => name,
        None => name,
    };
    let name = name.trim().trim_end_matches('>');
    // `functions.name:0` is Kimi's id.
    let (name, id) = match name.strip_prefix("functions.").and_then(|rest| rest.rsplit_once(':')) {
        Some((inner, _)) => (inner, Some(name.to_owned())),
        None => (name, id),
    };
    let good = !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || "<>[]{}\"".contains(c));
    good.then_some(())?;
    Some(ToolCall { id, name: name.to_owned(), arguments: object(arguments)? })
}

/// An argument as it is written without quotes.
struct Pair<'a> {
    key: &'a str,
    value: &'a str,
    /// Whether it is text; None where the format does not say.
    is_text: Option<bool>,
}

/// Types of the parameters of tools, where arguments are written without quotes.
#[derive(Debug, Clone, Default)]
pub(super) struct Types {
    /// By tool and parameter: whether it is text whatever it looks like.
    text: BTreeMap<String, BTreeMap<String, bool>>,
}

impl Types {
    pub fn new(tools: &[Json]) -> Self {
        let mut text = BTreeMap::new();
        for tool in tools {
            let function = tool.get("function").unwrap_or(tool);
            let Some(name) = function.get("name").and_then(Json::as_str) else { continue };
            let properties = function.pointer("/parameters/properties").and_then(Json::as_object);
            let types = properties.into_iter().flatten().map(|(key, schema)| {
                let ty = schema.get("type").and_then(Json::as_str);
                (key.clone(), ty == Some("string"))
            });
            text.insert(name.to_owned(), types.collect());
        }
        Self { text }
    }

    /// What an argument written as `text` is: JSON where it reads as such and need not be text.
    fn value(&self, tool: &str, pair: &Pair<'_>) -> Json {
        let by_schema = || self.text.get(tool).and_then(|t| t.get(pair.key)).copied();
        let is_text = pair.is_text.or_else(by_schema).unwrap_or(false);
        match serde_json::from_str(pair.value.trim()) {
            Ok(value) if !is_text => value,
            _ => Json::String(pair.value.to_owned()),
        }
    }

    fn call(&self, name: &str, pairs: Vec<Pair<'_>>) -> Option<ToolCall> {
        let name = name.trim();
        let good = !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || "<>{}".contains(c));
        good.then_some(())?;
        let arguments: Map<String, Json> =
            pairs.into_iter().map(|pair| (pair.key.to_owned(), self.value(name, &pair))).collect();
        Some(ToolCall { id: None, name: name.to_owned(), arguments: Json::Object(arguments).to_string() })
    }
}

/// Of Qwen 3 Coder. A value's own first and last line break belong to the frame.
pub(super) fn parameters(body: &str, types: &Types) -> Option<Vec<ToolCall>> {
    let mut rest = body.trim();
    let mut calls = Vec::new();
    while !rest.is_empty() {
        let (function, after) = rest.strip_prefix("<function=")?.split_once("</function>")?;
        let (name, mut inner) = function.split_once('>')?;
        let mut pairs = Vec::new();
        while !inner.trim().is_empty() {
            let (key, value) = inner.trim_start().strip_prefix("<parameter=")?.split_once('>')?;
            let (value, next) = value.split_once("</parameter>")?;
            let value = value.strip_prefix('\n').unwrap_or(value);
            let value = value.strip_suffix('\n').unwrap_or(value);
            pairs.push(Pair { key: key.trim(), value, is_text: None });
            inner = next;
        }
        calls.push(types.call(name, pairs)?);
        rest = after.trim_start();
    }
    (!calls.is_empty()).then_some(calls)
}

/// Of DeepSeek V3.2, whose tags have a marker in front of their name, and of MiniMax. An argument may say whether it is
/// text.
pub(super) fn invoke(body: &str, types: &Types) -> Option<Vec<ToolCall>> {
    let body = body.replace("<｜DSML｜", "<").replace("</｜DSML｜", "</");
    let mut rest = body.trim();
    let mut calls = Vec::new();
    while !rest.is_empty() {
        let (function, after) = rest.strip_prefix("<invoke name=\"")?.split_once("</invoke>")?;
        let (name, mut inner) = function.split_once("\">")?;
        let mut pairs = Vec::new();
        while !inner.trim().is_empty() {
            let (tag, value) = inner.trim_start().strip_prefix("<parameter name=\"")?.split_once('>')?;
            let (key, about) = tag.split_once('"')?;
            let (value, next) = value.split_once("</parameter>")?;
            let is_text = match about.trim() {
                "string=\"true\"" => Some(true),
                "string=\"false\"" => Some(false),
                _ => None,
            };
            pairs.push(Pair { key, value, is_text });
            inner = next;
        }
        calls.push(types.call(name, pairs)?);
        rest = after.trim_start();
    }
    (!calls.is_empty()).then_some(calls)
}

/// Of GLM.
pub(super) fn keys_and_values(body: &str, types: &Types) -> Option<Vec<ToolCall>> {
    let (name, mut rest) = match body.find("<arg_key>") {
        Some(at) => body.split_at(at),
        None => (body, ""),
    };
    let mut pairs = Vec::new();
    while !rest.trim().is_empty() {
        let (key, after) = rest.trim_start().strip_prefix("<arg_key>")?.split_once("</arg_key>")?;
        let (value, after) = after.trim_start().strip_prefix("<arg_value>")?.split_once("</arg_value>")?;
        pairs.push(Pair { key: key.trim(), value, is_text: None });
        rest = after;
    }
    Some(vec![types.call(name, pairs)?])
}

/// Finds the end of a JSON object or list, character by character.
#[derive(Debug, Clone, Default)]
pub(super) struct JsonEnd {
    depth: usize,
    in_text: bool,
    escaped: bool,
}

impl JsonEnd {
    /// Whether a text is open: nothing in it is a marker.
    pub fn in_text(&self) -> bool {
        self.in_text
    }

    /// Takes the next character, the first being a bracket. True where it closes the value.
    pub fn push(&mut self, c: char) -> bool {
        if self.in_text {
            match c {
                _ if self.escaped => self.escaped = false,
                '\\' => self.escaped = true,
                '"' => self.in_text = false,
                _ => {}
            }
            return false;
        }
        match c {
            '"' => self.in_text = true,
            '{' | '[' => self.depth += 1,
            '}' | ']' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }
}
