//! `config.json`, with getters that say what is wrong.

use serde_json::{Map, Value};

use crate::Error;

/// The keys of a model's configuration. Those of the part for text stand above the others, and what transformers takes
/// where a file leaves a key out is filled in.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    keys: Map<String, Value>,
    rope: Map<String, Value>,
}

/// Names of the part of a model for several media that is about text.
const TEXT: [&str; 3] = ["text_config", "llm_config", "language_config"];

impl Config {
    /// Reads the text of `config.json`.
    ///
    /// # Errors
    /// [`Error::Json`].
    pub fn read(text: &str) -> Result<Self, Error> {
        let fault = |what: String| Error::Json { file: "config.json".into(), what };
        let value: Value = serde_json::from_str(text).map_err(|e| fault(e.to_string()))?;
        let Value::Object(mut keys) = value else { return Err(fault("it is no object".into())) };
        for name in TEXT {
            if let Some(Value::Object(text)) = keys.remove(name) {
                keys.extend(text.into_iter().filter(|(key, _)| key != "architectures"));
            }
        }
        let rope = Map::new();
        Ok(Self { keys, rope })
    }

    /// The class of the model, the first of `architectures`.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::Key`].
    pub fn class(&self) -> Result<&str, Error> {
        let key = "architectures";
        let value = self.get(key).ok_or_else(|| Error::MissingKey { key: key.into() })?;
        let first = value.get(0).and_then(Value::as_str);
        first.ok_or_else(|| self.fault(key, "not a list of classes"))
    }

    /// Fills in keys that the file leaves out, and then what is said of the rope, wherever it is said.
    ///
    /// # Errors
    /// [`Error::Key`].
    pub fn with_defaults(mut self, defaults: Value) -> Result<Self, Error> {
        if let Value::Object(defaults) = defaults {
            for (key, value) in defaults {
                let slot = self.keys.entry(key).or_insert(Value::Null);
                if slot.is_null() {
                    *slot = value;
                }
            }
        }
        self.rope = self.read_rope()?;
        Ok(self)
    }

    /// What is said of the rope: by now `rope_parameters`, in older files keys of their own beside `rope_scaling`.
    fn read_rope(&self) -> Result<Map<String, Value>, Error> {
        let found = ["rope_parameters", "rope_scaling"].iter().find_map(|key| Some((*key, self.get(key)?)));
        let mut rope = match found {
            None => Map::new(),
            Some((_, Value::Object(rope))) => rope.clone(),
            Some((key, _)) => return Err(self.fault(key, "not an object")),
        };
        if rope.contains_key("full_attention") || rope.contains_key("sliding_attention") {
            return Ok(rope);
        }
        let local = ["rope_local_base_freq", "local_rope_theta", "swa_rope_theta"];
        if let Some(theta) = local.iter().find_map(|key| self.get(key)) {
            rope.insert("sliding_attention".into(), serde_json::json!({ "rope_theta": theta }));
        }
        let kind = rope.get("type").cloned();
        let theta =
            ["rope_theta", "rotary_emb_base", "global_rope_theta"].iter().find_map(|key| self.get(key));
        let fill = [
            ("rope_theta", theta.cloned()),
            ("rope_type", kind),
            ("partial_rotary_factor", self.get("partial_rotary_factor").cloned()),
            ("original_max_position_embeddings", self.get("original_max_position_embeddings").cloned()),
        ];
        for (key, value) in fill {
            if let Some(value) = value {
                rope.entry(key).or_insert(value);
            }
        }
        Ok(rope)
    }

    /// What is said of the rope of blocks that see everything.
    pub fn rope(&self) -> Rope<'_> {
        match self.rope.get("full_attention") {
            Some(Value::Object(rope)) => Rope(rope),
            _ => Rope(&self.rope),
        }
    }

    /// The same of blocks with a window, where they have another.
    pub fn local_rope(&self) -> Option<Rope<'_>> {
        match self.rope.get("sliding_attention") {
            Some(Value::Object(rope)) => Some(Rope(rope)),
            _ => None,
        }
    }

    /// A key that is there and not null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.keys.get(key).filter(|value| !value.is_null())
    }

    /// The error that refuses a key for its value.
    pub fn fault(&self, key: &str, why: impl Into<String>) -> Error {
        fault(key, self.get(key).unwrap_or(&Value::Null), why)
    }

    /// The first of these keys that is there, as a count.
    ///
    /// # Errors
    /// [`Error::Key`].
    pub fn count(&self, names: &[&str]) -> Result<Option<u32>, Error> {
        let found = names.iter().find_map(|key| Some((key, self.get(key)?)));
        found.map(|(key, value)| count(key, value)).transpose()
    }

    /// A count that must be there.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::Key`].
    pub fn need(&self, key: &str) -> Result<u32, Error> {
        self.count(&[key])?.ok_or_else(|| Error::MissingKey { key: key.into() })
    }

    /// The first of these keys that is there, as a number.
    ///
    /// # Errors
    /// [`Error::Key`].
    pub fn number(&self, names: &[&str]) -> Result<Option<f32>, Error> {
        let found = names.iter().find_map(|key| Some((key, self.get(key)?)));
        found.map(|(key, value)| number(key, value)).transpose()
    }

    /// A truth value; false where it is not there.
    ///
    /// # Errors
    /// [`Error::Key`].
    pub fn flag(&self, key: &str) -> Result<bool, Error> {
        match self.get(key) {
            None => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| self.fault(key, "not true or false")),
        }
    }

    /// Refuses a key that is there with another value than these.
    ///
    /// # Errors
    /// [`Error::Key`].
    pub fn only(&self, key: &str, allowed: &[Value]) -> Result<(), Error> {
        match self.get(key) {
            Some(value) if !allowed.contains(value) => {
                let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
                Err(self.fault(key, format!("and only {} is supported", allowed.join(" or "))))
            }
            _ => Ok(()),
        }
    }
}

/// What is said of one rope.
#[derive(Clone, Copy)]
pub(crate) struct Rope<'a>(&'a Map<String, Value>);

impl<'a> Rope<'a> {
    fn get(self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// A number.
    ///
    /// # Errors
    /// [`Error::Key`].
    pub fn number(self, key: &str) -> Result<Option<f32>, Error> {
        self.get(key).map(|value| number(key, value)).transpose()
    }

    /// A count.
    ///
    /// # Errors
    /// [`Error::Key`].
    pub fn count(self, key: &str) -> Result<Option<u32>, Error> {
        self.get(key).map(|value| count(key, value)).transpose()
    }

    /// How positions are scaled; "default" where it is not said.
    ///
    /// # Errors
    /// [`Error::Key`].
    pub fn kind(self) -> Result<&'a str, Error> {
        match self.get("rope_type") {
            None => Ok("default"),
            Some(value) => value.as_str().ok_or_else(|| fault("rope_type", value, "not a string")),
        }
    }

    /// The error that refuses how positions are scaled.
    pub fn unsupported(self) -> Error {
        fault("rope_type", self.get("rope_type").unwrap_or(&Value::Null), "which is not supported")
    }
}

fn fault(key: &str, value: &Value, why: impl Into<String>) -> Error {
    const MOST: usize = 100;
    let mut value = value.to_string();
    if let Some((cut, _)) = value.char_indices().nth(MOST) {
        value.truncate(cut);
        value.push('…');
    }
    Error::Key { key: key.into(), value, why: why.into() }
}

fn count(key: &str, value: &Value) -> Result<u32, Error> {
    // Some files write counts as floats.
    let whole =
        || value.as_f64().filter(|v| v.fract() == 0.0 && (0.0..4294967296.0).contains(v)).map(|v| v as u32);
    let found = value.as_u64().map_or_else(whole, |v| u32::try_from(v).ok());
    found.ok_or_else(|| fault(key, value, "not a count of 32 bits"))
}

fn number(key: &str, value: &Value) -> Result<f32, Error> {
    let found = value.as_f64().map(|v| v as f32).filter(|v| v.is_finite());
    found.ok_or_else(|| fault(key, value, "not a number of 32 bits"))
}
