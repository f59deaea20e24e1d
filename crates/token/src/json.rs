//! `tojson` as `transformers` has it: what Python's `json.dumps(value, ensure_ascii=False)` writes.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Deepest nesting that is written. A template can nest deeper than any stack.
const MAX_DEPTH: usize = 128;

/// How `json.dumps` is asked to write.
struct Layout {
    /// Spaces a level; None is one line.
    indent: Option<usize>,
    between_items: String,
    after_key: String,
    sort_keys: bool,
    ensure_ascii: bool,
}

/// The filter. Takes `indent`, `separators`, `sort_keys` and `ensure_ascii` by name.
pub(crate) fn to_json(state: &State<'_, '_>, value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    let flag = |name| options.get::<Option<bool>>(name).map(|flag| flag.unwrap_or(false));
    let (sort_keys, ensure_ascii) = (flag("sort_keys")?, flag("ensure_ascii")?);
    options.assert_all_used()?;
    let (between_items, after_key) = match separators.as_deref() {
        None if indent.is_some() => (",".into(), ": ".into()),
        None => (", ".into(), ": ".into()),
        Some([between, after]) => (between.clone(), after.clone()),
        Some(_) => return Err(invalid("separators are two strings")),
    };
    let layout = Layout { indent, between_items, after_key, sort_keys, ensure_ascii };
    let mut out = String::new();
    layout.value(state, value, 0, &mut out)?;
    Ok(out.into())
}

fn invalid(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {what}"))
}

impl Layout {
    fn value(
        &self,
        state: &State<'_, '_>,
        value: &Value,
        depth: usize,
        out: &mut String,
    ) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid("nested deeper than 128 levels"));
        }
        let start = out.len();
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                self.items(state, ['{', '}'], depth, keys, out, |key, out| {
                    match key.as_str() {
                        Some(text) => self.string(text, out),
                        None => self.string(&key.to_string(), out),
                    }
                    out.push_str(&self.after_key);
                    self.value(state, &value.get_item(&key)?, depth + 1, out)
                })?;
            }
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?;
                self.items(state, ['[', ']'], depth, items, out, |item, out| {
                    self.value(state, &item, depth + 1, out)
                })?;
            }
            _ => return Err(invalid("not a value that JSON has")),
        }
        // One value may hold another many times over: what is written is paid for as it is written.
        state.consume_fuel(1 + (out.len() - start) as u64 / 64)
    }

    fn items(
        &self,
        state: &State<'_, '_>,
        brackets: [char; 2],
        depth: usize,
        items: impl IntoIterator<Item = Value>,
        out: &mut String,
        mut write: impl FnMut(Value, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let line = |depth: usize, out: &mut String| -> Result<(), Error> {
            let Some(indent) = self.indent else { return Ok(()) };
            let blanks = indent.saturating_mul(depth);
            state.consume_fuel(blanks as u64 / 64)?;
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', blanks));
            Ok(())
        };
        out.push(brackets[0]);
        let mut empty = true;
        for item in items {
            if !empty {
                out.push_str(&self.between_items);
            }
            empty = false;
            line(depth + 1, out)?;
            write(item, out)?;
        }
        if !empty {
            line(depth, out)?;
        }
        out.push(brackets[1]);
        Ok(())
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{C}' => out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

/// A number as Python's `repr` writes it.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(float) = f64::try_from(value.clone()) else { return value.to_string() };
    if !float.is_finite() {
        return if float.is_nan() {
            "NaN".into()
        } else if float > 0.0 {
            "Infinity".into()
        } else {
            "-Infinity".into()
        };
    }
    // Both switch to exponents at 1e16; Python does below 1e-4 and writes two digits and a plus.
    let text = if float != 0.0 && float.abs() < 1e-4 { format!("{float:e}") } else { format!("{float:?}") };
    match text.split_once('e') {
        None => text,
        Some((mantissa, exponent)) => {
            let (sign, digits) = exponent.strip_prefix('-').map_or(("+", exponent), |digits| ("-", digits));
            let mantissa = mantissa.strip_suffix(".0").unwrap_or(mantissa);
            format!("{mantissa}e{sign}{digits:0>2}")
        }
    }
}
