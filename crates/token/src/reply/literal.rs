//! Calls that are written as code: Python's (LFM2, Llama 3.2) and Gemma's.

use serde_json::{Map, Number, Value as Json};

use super::ToolCall;

/// The deepest nesting that is read.
const MAX_DEPTH: usize = 64;

/// `[name(key=value, …), …]`, or one call without the brackets.
pub(super) fn python(body: &str) -> Option<Vec<ToolCall>> {
    let mut reader = Reader { rest: body.trim(), quote: None };
    let listed = reader.take("[");
    let mut calls = Vec::new();
    loop {
        let name = reader.name()?;
        reader.take("(").then_some(())?;
        let mut arguments = Map::new();
        while !reader.take(")") {
            let key = reader.name()?;
            reader.take("=").then_some(())?;
            arguments.insert(key, reader.value(0)?);
            if !reader.take(",") && !reader.peek(")") {
                return None;
            }
        }
        calls.push(ToolCall { id: None, name, arguments: Json::Object(arguments).to_string() });
        if !listed || !reader.take(",") {
            break;
        }
    }
    (!listed || reader.take("]")).then_some(())?;
    reader.rest.trim().is_empty().then_some(calls)
}

/// `call:name{key:value, …}`; `quote` stands on both sides of a string.
pub(super) fn gemma(body: &str, quote: &'static str) -> Option<Vec<ToolCall>> {
    let mut reader = Reader { rest: body.trim(), quote: Some(quote) };
    reader.take("call:").then_some(())?;
    let name = reader.name()?;
    reader.peek("{").then_some(())?;
    let arguments = reader.value(0)?;
    reader.rest.trim().is_empty().then_some(())?;
    Some(vec![ToolCall { id: None, name, arguments: arguments.to_string() }])
}

/// Reads values; with a `quote` Gemma's, else Python's literals (and JSON's words).
struct Reader<'a> {
    rest: &'a str,
    quote: Option<&'static str>,
}

impl<'a> Reader<'a> {
    fn peek(&self, sign: &str) -> bool {
        self.rest.trim_start().starts_with(sign)
    }

    fn take(&mut self, sign: &str) -> bool {
        match self.rest.trim_start().strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Characters for as long as `wanted` holds; at least one.
    fn run(&mut self, wanted: impl Fn(char) -> bool) -> Option<&'a str> {
        let text = self.rest.trim_start();
        let end = text.find(|c| !wanted(c)).unwrap_or(text.len());
        let (run, rest) = text.split_at_checked(end)?;
        self.rest = rest;
        (!run.is_empty()).then_some(run)
    }

    fn name(&mut self) -> Option<String> {
        let name = self.run(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-'))?;
        (!name.starts_with(|c: char| c.is_ascii_digit())).then(|| name.to_owned())
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        if depth > MAX_DEPTH {
            return None;
        }
        if let Some(quote) = self.quote
            && self.take(quote)
        {
            let (text, rest) = self.rest.split_once(quote)?;
            self.rest = rest;
            return Some(Json::String(text.to_owned()));
        }
        let first = self.rest.trim_start().chars().next()?;
        match first {
            '{' => self.mapping(depth),
            '[' => self.list("[", "]", depth),
            '(' if self.quote.is_none() => self.list("(", ")", depth),
            '"' | '\'' if self.quote.is_none() => self.string(first),
            _ => self.word(),
        }
    }

    fn mapping(&mut self, depth: usize) -> Option<Json> {
        self.take("{");
        let mut entries = Map::new();
        while !self.take("}") {
            let key = match self.quote {
                Some(quote) if !self.peek(quote) => self.run(|c| !",:{}[]".contains(c))?.trim().to_owned(),
                _ => self.value(depth + 1)?.as_str()?.to_owned(),
            };
            self.take(":").then_some(())?;
            entries.insert(key, self.value(depth + 1)?);
            if !self.take(",") && !self.peek("}") {
                return None;
            }
        }
        Some(Json::Object(entries))
    }

    fn list(&mut self, open: &str, close: &str, depth: usize) -> Option<Json> {
        self.take(open);
        let mut items = Vec::new();
        while !self.take(close) {
            items.push(self.value(depth + 1)?);
            if !self.take(",") && !self.peek(close) {
                return None;
            }
        }
        Some(Json::Array(items))
    }

    /// A string of Python in either quotes, with its escapes. Unknown escapes stay as they are, as there.
    fn string(&mut self, quote: char) -> Option<Json> {
        let mut chars = self.rest.trim_start().strip_prefix(quote)?.chars();
        let mut text = String::new();
        loop {
            let c = chars.next()?;
            if c == quote {
                break;
            }
            if c != '\\' {
                text.push(c);
                continue;
            }
            let escape = chars.next()?;
            match escape {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                '\\' | '\'' | '"' => text.push(escape),
                '\n' => {}
                'x' => text.push(code(&mut chars, 2)?),
                'u' => text.push(code(&mut chars, 4)?),
                other => text.extend(['\\', other]),
            }
        }
        self.rest = chars.as_str();
        Some(Json::String(text))
    }

    fn word(&mut self) -> Option<Json> {
        let word = self.run(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_'))?;
        match word {
            "True" | "true" => Some(Json::Bool(true)),
            "False" | "false" => Some(Json::Bool(false)),
            "None" | "null" => Some(Json::Null),
            number => {
                let integer = number.parse::<i64>().ok().map(Number::from);
                let float = || number.parse::<f64>().ok().and_then(Number::from_f64);
                let digits = number.contains(|c: char| c.is_ascii_digit());
                integer.or_else(float).filter(|_| digits).map(Json::Number)
            }
        }
    }
}

/// The character of a code of `digits` hexadecimal digits.
fn code(chars: &mut std::str::Chars<'_>, digits: usize) -> Option<char> {
    let text = chars.as_str().get(..digits)?;
    let value = u32::from_str_radix(text, 16).ok()?;
    *chars = chars.as_str().get(digits..)?.chars();
    char::from_u32(value)
}
