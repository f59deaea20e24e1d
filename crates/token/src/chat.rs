//! Chat templates: Jinja as `transformers` runs it.
//!
//! The environment is that of `apply_chat_template`: blocks trimmed on both sides, no escaping, `tojson` without
//! HTML escapes, `raise_exception`, `strftime_now`, loop controls, Python's string and dict methods, and
//! `{% generation %}`, which only marks text. A render has a budget of work, which pays for bytes too.

use std::time::SystemTime;

use chrono::{DateTime, Local};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior, Value, context};
use minijinja::{State, escape_formatter};
use serde_json::Value as Json;

use crate::json::to_json;
use crate::{Error, Prompt, Shown, Tokenizer};

/// What a render may cost before bytes of the request are counted: instructions, or 64 bytes each. Real templates
/// take some hundred a message.
const BASE_FUEL: u64 = 500_000;
/// What each byte of the request adds.
const FUEL_PER_BYTE: u64 = 8;
const MAX_FUEL: u64 = 4_000_000;

const NAME: &str = "chat";

/// A conversation to be rendered.
#[derive(Debug, Clone, Default)]
pub struct Chat<'a> {
    /// Messages in OpenAI's form: `role`, `content` and what the template knows besides.
    pub messages: &'a [Json],
    /// Tools in OpenAI's form; none is not the same as an empty list.
    pub tools: Option<&'a [Json]>,
    /// Whether the prompt ends with the header of the model's answer.
    pub add_generation_prompt: bool,
    /// More variables, such as `enable_thinking`.
    pub variables: serde_json::Map<String, Json>,
    /// What `strftime_now` takes for now; None is the clock.
    pub now: Option<SystemTime>,
}

/// A compiled chat template.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source_bytes: u64,
}

impl ChatTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    /// [`Error::TemplateSyntax`], which names the line.
    pub fn new(source: &str) -> Result<Self, Error> {
        let mut environment = Environment::new();
        let mut syntax = SyntaxConfig::builder();
        let syntax = syntax.trim_blocks(true).lstrip_blocks(true).build();
        environment
            .set_syntax(syntax.map_err(|error| Error::TemplateSyntax { line: 0, what: said(&error) })?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        // A list may hold another many times over: what printing it costs is paid for before it is printed.
        environment.set_formatter(|out, state, value| {
            charge(state, value, 0)?;
            escape_formatter(out, state, value)
        });
        environment.add_filter("tojson", to_json);
        environment.add_test("iterable", iterable);
        environment.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message.clone())
                .with_source(Refusal(message)))
        });
        let source_bytes = source.len() as u64;
        environment.add_template_owned(NAME, without_generation_tags(source)).map_err(|error| {
            let line = error.line().unwrap_or(0);
            Error::TemplateSyntax { line, what: said(&error) }
        })?;
        Ok(Self { environment, source_bytes })
    }

    /// Renders a conversation. Control tokens of `tokenizer` that the request spells out stay text, see
    /// [`Prompt`].
    ///
    /// # Errors
    /// [`Error::TemplateRefused`] where the template itself objects, [`Error::TemplateFuel`] where it does not
    /// come to an end, else [`Error::TemplateRun`].
    pub fn render(&self, tokenizer: &Tokenizer, chat: &Chat<'_>) -> Result<Prompt, Error> {
        let mut messages = Json::Array(chat.messages.to_vec());
        let mut tools = chat.tools.map_or(Json::Null, |tools| Json::Array(tools.to_vec()));
        let mut variables = Json::Object(chat.variables.clone());
        let marker = tokenizer.guard()?.mark(&mut [&mut messages, &mut tools, &mut variables]);

        let ids = tokenizer.special_ids();
        let special = |id: Option<u32>| -> Result<Value, Error> {
            let Some(id) = id else { return Ok(Value::UNDEFINED) };
            Ok(String::from_utf8_lossy(tokenizer.piece(id, Shown::All)?).into_owned().into())
        };
        let given = context! {
            messages => value(&messages),
            tools => value(&tools),
            documents => (),
            add_generation_prompt => chat.add_generation_prompt,
            bos_token => special(ids.bos)?,
            eos_token => special(ids.eos)?,
            unk_token => special(ids.unk)?,
            pad_token => special(ids.pad)?,
        };
        let all = context! { ..value(&variables), ..given };

        let bytes = size(&messages) + size(&tools) + size(&variables) + self.source_bytes;
        let fuel = BASE_FUEL.saturating_add(bytes.saturating_mul(FUEL_PER_BYTE)).min(MAX_FUEL.max(bytes));
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(fuel));
        let now: DateTime<Local> = chat.now.unwrap_or_else(SystemTime::now).into();
        environment.add_function("strftime_now", move |format: String| strftime(&now, &format));
        let marked =
            environment.get_template(NAME).and_then(|template| template.render(all)).map_err(|error| {
                if error.kind() == ErrorKind::OutOfFuel {
                    return Error::TemplateFuel { fuel };
                }
                match refusal(&error) {
                    // The message may quote the request.
                    Some(Refusal(message)) => Error::TemplateRefused(
                        marker.map_or_else(|| message.clone(), |marker| message.replace(marker, "")),
                    ),
                    None => Error::TemplateRun { line: error.line().unwrap_or(0), what: said(&error) },
                }
            })?;
        Ok(Prompt { marked, marker })
    }
}

/// Whether Python could go through a value. minijinja goes through `none` too, as through an empty list.
fn iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Deepest nesting that is printed: a template can nest deeper than any stack.
const MAX_DEPTH: usize = 128;

/// Pays for each value inside `value`.
fn charge(state: &State<'_, '_>, value: &Value, depth: usize) -> Result<(), minijinja::Error> {
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
        return Ok(());
    }
    if depth > MAX_DEPTH {
        return Err(minijinja::Error::new(
            ErrorKind::InvalidOperation,
            "a value nested deeper than 128 levels",
        ));
    }
    for item in value.try_iter()? {
        state.consume_fuel(1)?;
        match value.kind() {
            ValueKind::Map => charge(state, &value.get_item(&item)?, depth + 1)?,
            _ => charge(state, &item, depth + 1)?,
        }
    }
    Ok(())
}

/// What `raise_exception` said.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

/// Looks through an error's causes for a refusal.
fn refusal(error: &minijinja::Error) -> Option<&Refusal> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(refusal) = error.downcast_ref() {
            return Some(refusal);
        }
        cause = error.source();
    }
    None
}

/// Kind and detail of an error, without the names and lines that the caller adds.
fn said(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

fn strftime(now: &DateTime<Local>, format: &str) -> Result<String, minijinja::Error> {
    use std::fmt::Write;
    let mut out = String::new();
    // A directive that chrono does not know makes the display fail, and nothing else does.
    match write!(out, "{}", now.format(format)) {
        Ok(()) => Ok(out),
        Err(_) => Err(minijinja::Error::new(
            ErrorKind::InvalidOperation,
            format!("strftime_now: {} is no date format", cera_gguf::shown(format)),
        )),
    }
}

/// A JSON value as the template sees it.
fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => Value::from(integer),
            (None, Some(integer)) => Value::from(integer),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(value).collect::<Vec<Value>>()),
        Json::Object(entries) => {
            Value::from_pairs(entries.iter().map(|(key, item)| (key.as_str(), value(item))))
        }
    }
}

/// About the bytes of a value: what a template may look at.
fn size(value: &Json) -> u64 {
    match value {
        Json::String(text) => text.len() as u64,
        Json::Array(items) => items.iter().map(|item| 32 + size(item)).sum(),
        Json::Object(entries) => entries.iter().map(|(key, item)| 32 + key.len() as u64 + size(item)).sum(),
        Json::Null | Json::Bool(_) | Json::Number(_) => 8,
    }
}

/// Turns `{% generation %}` and its end into an `if` that holds: the same text and the same blanks.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let (before, tag) = rest.split_at(open);
        out.push_str(before);
        let Some(close) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let (tag, after) = tag.split_at(close);
        let word = tag.trim_start_matches("{%").trim_matches(['-', '+', ' ', '\t', '\r', '\n']);
        match word {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}
