//! The tokenizer of a folder as the keys of a GGUF file.
//!
//! What is written is what llama.cpp's converter writes, but for scores where a `tokenizer.json` holds SentencePiece's merges:
//! they are the merges' ranks, where the converter gives all tokens the same score, and pairs would be merged in any order.

mod pieces;
mod pre;
mod special;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use cera_gguf::Metadata;
use cera_token::{Special, Tokenizer};
use serde_json::Value;

use crate::config::Config;
use crate::{Error, texts};
use pieces::{BPE, BYTE, CONTROL, Pieces, UNKNOWN, UNUSED};

/// Types of tokens in GGUF files.
const OF_NORMAL: i32 = 1;
const OF_UNKNOWN: i32 = 2;
const OF_CONTROL: i32 = 3;
const OF_USER: i32 = 4;
const OF_UNUSED: i32 = 5;
const OF_BYTE: i32 = 6;

/// A vocabulary as files have it.
struct List {
    /// `gpt2` or `llama`: byte-level BPE, or SentencePiece's.
    model: &'static str,
    pre: String,
    tokens: Vec<String>,
    /// One a token, or none.
    scores: Vec<f32>,
    types: Vec<i32>,
    merges: Vec<String>,
    /// Where it is not what readers take for granted.
    space_prefix: Option<bool>,
}

/// Where the tokenizer of a folder is, and what must be known of the model to read it.
pub(crate) struct Vocabulary {
    pub folder: PathBuf,
    pub config: Config,
    /// Ids that the model knows.
    pub rows: Option<usize>,
}

impl Vocabulary {
    /// The tokenizer: that of `tokenizer.json`, or of `tokenizer.model` alone. `None` where there is neither.
    ///
    /// # Errors
    /// What is wrong with one of the files.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, Error> {
        if let Some(found) = texts::tokenizer(&self.folder, self.rows)? {
            return Ok(Some(found));
        }
        Ok(self.keys(None)?.map(|keys| Tokenizer::from_gguf(&keys, None)).transpose()?)
    }

    /// The keys; `None` where there is no tokenizer. `pre`: the name of the pre-tokenizer, in place of the one that its ids
    /// lead to.
    ///
    /// # Errors
    /// What is wrong with a file or not supported, by name; [`Error::Pre`]; [`Error::Differs`].
    pub fn keys(&self, pre: Option<&str>) -> Result<Option<Metadata>, Error> {
        let Self { folder, config, rows } = self;
        keys(folder, config, *rows, pre)
    }
}

fn keys(
    folder: &Path,
    config: &Config,
    rows: Option<usize>,
    pre: Option<&str>,
) -> Result<Option<Metadata>, Error> {
    let json = |name: &str| -> Result<Value, Error> {
        let Some(text) = texts::read(folder, name)? else { return Ok(Value::Null) };
        serde_json::from_str(&text).map_err(|e| Error::Json { file: name.into(), what: e.to_string() })
    };
    let tokenizer = json("tokenizer.json")?;
    let settings = json("tokenizer_config.json")?;
    let built = texts::tokenizer(folder, rows)?;
    let count = config.count(&["vocab_size"])?.map(|n| n as usize).or(rows);
    let list = match (texts::read_bytes(folder, "tokenizer.model")?, &built) {
        (Some(bytes), _) => of_pieces(&pieces::read(&bytes)?, &json("added_tokens.json")?, &settings, count)?,
        (None, Some(built)) => of_json(&tokenizer, built, count, pre)?,
        (None, None) => return Ok(None),
    };
    let template = texts::read(folder, "chat_template.jinja")?;
    let mut keys = Metadata::new();
    write(list, &mut keys);
    let tokens = keys.strings("tokenizer.ggml.tokens")?.map_or(0, <[String]>::len);
    let of_config = |key: &str| config.get(key).cloned();
    let files = special::Files {
        tokenizer: &tokenizer,
        settings: &settings,
        config: &of_config,
        template: template.as_deref(),
    };
    special::write(&files, tokens, &mut keys);
    if let Some(built) = &built {
        check(&keys, built)?;
    }
    Ok(Some(keys))
}

/// Makes sure that a file of these keys has the tokenizer of the folder.
fn check(keys: &Metadata, built: &Tokenizer) -> Result<(), Error> {
    let made = Tokenizer::from_gguf(keys, None)?;
    for text in [
        pre::TEXT,
        "The quick brown fox, 12345 times over;  fn main() { return x_1 != 0; }",
        " größer\n\tCafé",
    ] {
        if made.encode(text, Special::AsText)? != built.encode(text, Special::AsText)? {
            let pre = keys.str("tokenizer.ggml.pre")?.unwrap_or_default().to_owned();
            return Err(Error::Differs { pre });
        }
    }
    Ok(())
}

fn write(list: List, keys: &mut Metadata) {
    keys.insert("tokenizer.ggml.model", list.model);
    keys.insert("tokenizer.ggml.pre", list.pre.as_str());
    keys.insert("tokenizer.ggml.tokens", list.tokens);
    if !list.scores.is_empty() {
        keys.insert("tokenizer.ggml.scores", list.scores);
    }
    keys.insert("tokenizer.ggml.token_type", list.types);
    if !list.merges.is_empty() {
        keys.insert("tokenizer.ggml.merges", list.merges);
    }
    if let Some(prefix) = list.space_prefix {
        keys.insert("tokenizer.ggml.add_space_prefix", prefix);
    }
}

/// Places for as many tokens, none of them taken.
fn empty(count: usize) -> (Vec<String>, Vec<i32>) {
    ((0..count).map(|id| format!("[PAD{id}]")).collect(), vec![OF_UNUSED; count])
}

/// A vocabulary of SentencePiece's own, with the tokens that other files add.
fn of_pieces(pieces: &Pieces, added: &Value, settings: &Value, count: Option<usize>) -> Result<List, Error> {
    if pieces.kind != BPE {
        return Err(Error::Pieces { what: "its pieces are not joined by merging pairs, as is supported" });
    }
    let count = count.unwrap_or(pieces.pieces.len());
    let (mut tokens, mut types) = empty(count);
    let mut scores = vec![-10_000.0; count];
    let mut put = |id: usize, text: &str, score: f32, ty: i32| {
        if let (Some(token), Some(own), Some(kind)) =
            (tokens.get_mut(id), scores.get_mut(id), types.get_mut(id))
        {
            (*token, *own, *kind) = (text.into(), score, ty);
        }
    };
    for (id, piece) in pieces.pieces.iter().enumerate() {
        let ty = match piece.kind {
            UNKNOWN => OF_UNKNOWN,
            CONTROL => OF_CONTROL,
            UNUSED => OF_UNUSED,
            BYTE => OF_BYTE,
            _ => OF_NORMAL,
        };
        put(id, &piece.text, piece.score, ty);
    }
    for (text, id) in added.as_object().into_iter().flatten() {
        if let Some(id) = id.as_u64().and_then(|id| usize::try_from(id).ok()) {
            put(id, text, -1000.0, OF_USER);
        }
    }
    for (id, token) in settings.get("added_tokens_decoder").and_then(Value::as_object).into_iter().flatten() {
        let text = token.get("content").and_then(Value::as_str);
        let (Ok(id), Some(text)) = (id.parse::<usize>(), text) else { continue };
        if token.get("special").and_then(Value::as_bool).unwrap_or(false) || looks_special(text) {
            put(id, text, -1000.0, OF_CONTROL);
        } else {
            put(id, &text.replace('\u{2581}', " "), -1000.0, OF_USER);
        }
    }
    let said = settings.get("add_prefix_space").and_then(Value::as_bool);
    let space_prefix = said.or(Some(false).filter(|_| !pieces.space_prefix));
    Ok(List { model: "llama", pre: "default".into(), tokens, scores, types, merges: vec![], space_prefix })
}

/// The vocabulary of a `tokenizer.json`, which has been read once and is well-formed.
fn of_json(json: &Value, built: &Tokenizer, count: Option<usize>, pre: Option<&str>) -> Result<List, Error> {
    let fault = |what: &str| Error::Json { file: "tokenizer.json".into(), what: what.into() };
    let model = json.get("model").ok_or_else(|| fault("it has no model"))?;
    let kind = model.get("type").and_then(Value::as_str).unwrap_or("BPE");
    let vocab = model.get("vocab").and_then(Value::as_object).filter(|_| kind == "BPE");
    let vocab =
        vocab.ok_or_else(|| fault(&format!("its model is {kind}, and only BPE can be written to a file")))?;
    let flag = |key: &str| model.get(key).and_then(Value::as_bool).unwrap_or(false);
    let parts = json.get("decoder").and_then(|d| d.get("type")).and_then(Value::as_str);
    let pieces = flag("byte_fallback") && parts == Some("Sequence");

    let count = count.unwrap_or(built.len()).max(built.len());
    let (mut tokens, mut types) = empty(count);
    let mut put = |id: u64, text: &str, ty: i32| {
        let place = usize::try_from(id).ok();
        if let Some((token, kind)) = place.and_then(|id| tokens.get_mut(id).zip(types.get_mut(id))) {
            (*token, *kind) = (text.into(), ty);
        }
    };
    let unknown = model.get("unk_token").and_then(Value::as_str);
    for (text, id) in vocab {
        let ty = match text {
            text if pieces && is_byte(text) => OF_BYTE,
            text if pieces && unknown == Some(text) => OF_UNKNOWN,
            _ => OF_NORMAL,
        };
        put(id.as_u64().unwrap_or(u64::MAX), text, ty);
    }
    for token in json.get("added_tokens").and_then(Value::as_array).into_iter().flatten() {
        let text = token.get("content").and_then(Value::as_str);
        let (Some(id), Some(text)) = (token.get("id").and_then(Value::as_u64), text) else { continue };
        if pieces && unknown == Some(text) {
            put(id, text, OF_UNKNOWN);
        } else if token.get("special").and_then(Value::as_bool).unwrap_or(false) || looks_special(text) {
            put(id, text, OF_CONTROL);
        } else {
            put(id, &text.replace('\u{2581}', " "), OF_USER);
        }
    }
    let merges = model.get("merges").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if pieces {
        let scores = ranks(merges, &tokens);
        let space_prefix = Some(false).filter(|_| !puts_space(json));
        return Ok(List {
            model: "llama",
            pre: "default".into(),
            tokens,
            scores,
            types,
            merges: vec![],
            space_prefix,
        });
    }
    let pre = match pre {
        Some(pre) => pre.to_owned(),
        None => pre::name(built)?.to_owned(),
    };
    let merges = merges.iter().map(|merge| {
        let part = |n| merge.get(n).and_then(Value::as_str).map(|part: &str| part.replace(' ', "\u{120}"));
        let pair = || Some(format!("{} {}", part(0)?, part(1)?));
        merge.as_str().map(str::to_owned).or_else(pair).ok_or_else(|| fault("a merge is no pair"))
    });
    let merges = merges.collect::<Result<Vec<String>, Error>>()?;
    Ok(List { model: "gpt2", pre, tokens, scores: vec![], types, merges, space_prefix: None })
}

/// Scores that lead to the order of the merges: by token, minus the rank of the first merge that gives it.
fn ranks(merges: &[Value], tokens: &[String]) -> Vec<f32> {
    let mut ranks: HashMap<String, usize> = HashMap::new();
    for (rank, merge) in merges.iter().enumerate() {
        let part = |n| merge.get(n).and_then(Value::as_str);
        let joined = part(0).zip(part(1)).map(|(left, right)| format!("{left}{right}"));
        let joined = joined.or_else(|| Some(merge.as_str()?.replace(' ', "")));
        if let Some(joined) = joined {
            ranks.entry(joined).or_insert(rank);
        }
    }
    let last = merges.len() + 1;
    tokens.iter().map(|token| -(ranks.get(token).copied().unwrap_or(last) as f32)).collect()
}

/// Whether a tokenizer puts a space before a text: as its normalizer or as its pre-tokenizer does.
fn puts_space(json: &Value) -> bool {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let parts = |key: &str, list: &str| -> Vec<Value> {
        let Some(part) = json.get(key) else { return vec![] };
        part.get(list).and_then(Value::as_array).cloned().unwrap_or_else(|| vec![part.clone()])
    };
    let prepends = |part: &Value| text(part, "type").as_deref() == Some("Prepend");
    let metaspace = |part: &Value| {
        text(part, "type").as_deref() == Some("Metaspace")
            && match text(part, "prepend_scheme") {
                Some(scheme) => scheme != "never",
                None => part.get("add_prefix_space").and_then(Value::as_bool).unwrap_or(true),
            }
    };
    parts("normalizer", "normalizers").iter().any(prepends)
        || parts("pre_tokenizer", "pretokenizers").iter().any(metaspace)
}

/// Whether a token is a byte, as SentencePiece spells them.
fn is_byte(text: &str) -> bool {
    let digits = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    digits.is_some_and(|digits| digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Tokens that steer a model, though their files do not say so (DeepSeek Coder, Gemma, Command R).
fn looks_special(text: &str) -> bool {
    const NAMES: [&str; 4] = ["<pad>", "<mask>", "<2mass>", "[@BOS@]"];
    const AROUND: [(&str, &str); 3] = [("<|", "|>"), ("<｜", "｜>"), ("<unused", ">")];
    NAMES.contains(&text)
        || AROUND.iter().any(|(left, right)| text.starts_with(left) && text.ends_with(right))
}
