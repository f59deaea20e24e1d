//! Special tokens by their roles, and the chat template, as the files beside a vocabulary tell them.

use cera_gguf::Metadata;
use serde_json::Value;

/// The files, parsed; `Null` for one that is not there.
pub(super) struct Files<'a> {
    /// `tokenizer.json`.
    pub tokenizer: &'a Value,
    /// `tokenizer_config.json`.
    pub settings: &'a Value,
    /// `config.json`'s value of a key.
    pub config: &'a dyn Fn(&str) -> Option<Value>,
    /// `chat_template.jinja`.
    pub template: Option<&'a str>,
}

/// Roles, and the keys of their ids (ggml's GGUF specification; one of them is spelled like this there). What is called the
/// class in models of BERT's kind begins their texts, and has no key of its own.
const ROLES: [(&str, &str); 9] = [
    ("bos", "bos_token_id"),
    ("eos", "eos_token_id"),
    ("unk", "unknown_token_id"),
    ("sep", "seperator_token_id"),
    ("pad", "padding_token_id"),
    ("cls", ""),
    ("mask", "mask_token_id"),
    ("eot", "eot_token_id"),
    ("eom", "eom_token_id"),
];

/// Roles whose tokens may stand around a text unasked.
const AROUND: [&str; 3] = ["bos", "eos", "sep"];

/// Writes the keys. Ids are below `tokens`.
pub(super) fn write(files: &Files<'_>, tokens: usize, keys: &mut Metadata) {
    let mut named = Named::new(files.settings);
    let mut around = Around::default();
    if !files.tokenizer.is_null() {
        around.read(files.tokenizer, &mut named);
    }
    let added = files.tokenizer.get("added_tokens").and_then(Value::as_array);
    let id_of = |text: &str| {
        let found = added?.iter().find(|token| token.get("content").and_then(Value::as_str) == Some(text))?;
        found.get("id").and_then(Value::as_u64)
    };
    for (role, key) in ROLES.into_iter().filter(|(_, key)| !key.is_empty()) {
        let id = named.get(role).and_then(id_of);
        // Without a token of that name, the model's configuration may have its id.
        let id = id.or_else(|| (files.config)(&format!("{role}_token_id"))?.as_u64());
        if let Some(id) = id.and_then(|id| u32::try_from(id).ok()).filter(|&id| (id as usize) < tokens) {
            keys.insert(format!("tokenizer.ggml.{key}"), id);
        }
    }
    for role in AROUND {
        let said = files.settings.get(format!("add_{role}_token")).and_then(Value::as_bool);
        if let Some(value) = around.get(role).or(said) {
            keys.insert(format!("tokenizer.ggml.add_{role}_token"), value);
        }
    }
    template(files, keys);
    normalizer(files.tokenizer.get("normalizer"), keys);
}

/// Texts of tokens by role.
struct Named(Vec<(&'static str, String)>);

impl Named {
    fn new(settings: &Value) -> Self {
        let text = |role: &str| {
            let token = settings.get(format!("{role}_token"))?;
            token.as_str().or_else(|| token.get("content")?.as_str()).map(str::to_owned)
        };
        let mut named = Self(ROLES.iter().filter_map(|(role, _)| Some((*role, text(role)?))).collect());
        // Models of BERT's kind call them otherwise.
        for (role, like) in [("bos", "cls"), ("eos", "sep")] {
            if named.get(role).is_none()
                && let Some(text) = named.get(like).map(str::to_owned)
            {
                named.0.push((role, text));
            }
        }
        named
    }

    fn get(&self, role: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == role).map(|(_, text)| text.as_str())
    }

    fn set(&mut self, role: &'static str, text: &str) {
        self.0.retain(|(known, _)| *known != role);
        self.0.push((role, text.into()));
    }
}

/// Whether the token of a role is put around a text: the first entry of a role counts.
#[derive(Default)]
struct Around(Vec<(&'static str, bool)>);

impl Around {
    fn get(&self, role: &str) -> Option<bool> {
        self.0.iter().find(|(known, _)| *known == role).map(|(_, value)| *value)
    }

    fn set(&mut self, role: &'static str, value: bool) {
        self.0.retain(|(known, _)| *known != role);
        self.0.push((role, value));
    }

    /// Reads what is put around texts out of the post-processor.
    fn read(&mut self, tokenizer: &Value, named: &mut Named) {
        let Some(processor) = tokenizer.get("post_processor").filter(|p| !p.is_null()) else { return };
        let one = std::slice::from_ref(processor);
        let all = processor.get("processors").and_then(Value::as_array).map_or(one, Vec::as_slice);
        for processor in all {
            match processor.get("type").and_then(Value::as_str) {
                Some("ByteLevel") => {
                    for role in ["bos", "eos"] {
                        if self.get(role).is_none() {
                            self.set(role, false);
                        }
                    }
                }
                Some("RobertaProcessing") => {
                    AROUND.iter().for_each(|role| self.set(role, true));
                    for role in ["cls", "sep"] {
                        let text = processor.get(role).and_then(|pair| pair.get(0)?.as_str());
                        if let (None, Some(text)) = (named.get(role), text) {
                            named.set(role, text);
                        }
                    }
                }
                Some("TemplateProcessing") => self.template(processor, named),
                _ => {}
            }
        }
    }

    /// What a template puts before one text and behind it, and between two.
    fn template(&mut self, processor: &Value, named: &mut Named) {
        let list = |key: &str| processor.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let special = |entry: &Value| entry.get("SpecialToken")?.get("id")?.as_str().map(str::to_owned);
        let (mut first, mut last) = (None, None);
        if let [begin, .., end] = list("single") {
            first = special(begin);
            last = special(end);
            if let Some(first) = &first {
                for role in ["bos", "cls"] {
                    if named.get(role).is_none() {
                        named.set(role, first);
                    }
                }
                let known = [named.get("bos"), named.get("cls")].contains(&Some(first));
                self.set("bos", known);
            }
            if let Some(last) = &last {
                let eos = named.get("eos").map(str::to_owned);
                if let Some(eos) = eos.filter(|eos| eos != last) {
                    // Texts end otherwise than turns do.
                    named.set(if named.get("eot").is_none() { "eot" } else { "eom" }, &eos);
                }
                named.set("eos", last);
                self.set("eos", true);
            }
        }
        let mut pair = list("pair");
        if let ([begin, rest @ ..], Some(first)) = (pair, &first)
            && special(begin).as_ref() == Some(first)
        {
            pair = rest;
        }
        if let ([rest @ .., end], Some(last)) = (pair, &last)
            && special(end).as_ref() == Some(last)
        {
            pair = rest;
        }
        let sequence = |entry: &Value| entry.get("Sequence")?.get("id")?.as_str().map(str::to_owned);
        let [a, between @ .., b] = pair else { return };
        if sequence(a).as_deref() != Some("A") || sequence(b).as_deref() != Some("B") || between.is_empty() {
            return;
        }
        let separates = |entry: Option<&Value>| {
            let text = entry.and_then(special);
            text.is_some_and(|text| [named.get("sep"), named.get("eos")].contains(&Some(text.as_str())))
        };
        let once = separates(between.first()) && last.is_none();
        let twice = between.len() == 2 && separates(between.get(1));
        self.set("sep", once || twice);
        if (once || twice)
            && named.get("sep").is_none()
            && let Some(eos) = named.get("eos").map(str::to_owned)
        {
            named.set("sep", &eos);
        }
    }
}

/// The chat template, or one of several by name.
fn template(files: &Files<'_>, keys: &mut Metadata) {
    const KEY: &str = "tokenizer.chat_template";
    if let Some(template) = files.template {
        keys.insert(KEY, template);
        return;
    }
    match files.settings.get("chat_template") {
        Some(Value::String(template)) => drop(keys.insert(KEY, template.as_str())),
        Some(Value::Array(all)) => {
            let mut names = Vec::new();
            for entry in all {
                let text = |key| entry.get(key).and_then(Value::as_str);
                let (Some(name), Some(template)) = (text("name"), text("template")) else { continue };
                if name == "default" {
                    keys.insert(KEY, template);
                    continue;
                }
                let name: String =
                    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
                keys.insert(format!("{KEY}.{name}"), template);
                names.push(name);
            }
            if !names.is_empty() {
                keys.insert("tokenizer.chat_templates", names);
            }
        }
        _ => {}
    }
}

/// Whether text is lower-cased and stripped of accents.
fn normalizer(normalizer: Option<&Value>, keys: &mut Metadata) {
    const LOWER: &str = "tokenizer.ggml.normalizer.lowercase";
    const STRIP: &str = "tokenizer.ggml.normalizer.strip_accents";
    let Some(normalizer) = normalizer else { return };
    match normalizer.get("type").and_then(Value::as_str) {
        Some("Lowercase") => drop(keys.insert(LOWER, true)),
        Some("StripAccents") => drop(keys.insert(STRIP, true)),
        Some("BertNormalizer") => {
            for (name, key) in [("lowercase", LOWER), ("strip_accents", STRIP)] {
                if let Some(value) = normalizer.get(name).and_then(Value::as_bool) {
                    keys.insert(key, value);
                }
            }
        }
        Some("Sequence") => {
            let all = normalizer.get("normalizers").and_then(Value::as_array);
            all.into_iter().flatten().for_each(|one| self::normalizer(Some(one), keys));
        }
        _ => {}
    }
}
