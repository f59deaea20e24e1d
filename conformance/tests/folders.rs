//! Hugging Face folders: the keys and tensors that llama.cpp's converter makes of them, and transformers' logits.

use std::collections::BTreeSet;
use std::fs;

use cera_backend::{Backend, KvType, Reference};
use cera_conformance::{FolderFixture, Runner};
use cera_convert::{Floats, Folder, Source};
use cera_cpu::Cpu;
use cera_gguf::{Array, Checkpoint, Value};
use cera_quant::Type;
use libtest_mimic::{Arguments, Trial};
use sha2::{Digest, Sha256};

/// Of the tokenizer, what is long: the record of each folder leaves it out, since all have the same.
const LONG: [&str; 3] = ["tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type"];

/// A value as the record has it.
fn shown(value: &Value) -> serde_json::Value {
    macro_rules! json {
        ($($variant:ident)*) => {
            match value {
                $(Value::$variant(v) => serde_json::json!(v),)*
                Value::Array(Array::Bool(v)) => serde_json::json!(v),
                Value::Array(Array::String(v)) => serde_json::json!(v),
                Value::Array(Array::I32(v)) => serde_json::json!(v),
                Value::Array(Array::U32(v)) => serde_json::json!(v),
                Value::Array(Array::F32(v)) => serde_json::json!(v),
                Value::Array(other) => panic!("an {}", other.type_name()),
            }
        };
    }
    json!(U8 I8 U16 I16 U32 I32 U64 I64 F32 F64 Bool String)
}

fn open(name: &str) -> (FolderFixture, tempfile::TempDir) {
    let fixture = FolderFixture::read(name).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fixture.write(folder.path()).unwrap();
    (fixture, folder)
}

/// The name of the tokenizer's pre-tokenizer, which its ids do not lead to: it is made for these folders.
const PRE: &str = "qwen2";

/// Keys and tensors are the converter's: names, types, sizes and every byte.
fn converted(name: &str) {
    let fixture = FolderFixture::read(name).unwrap();
    let place = tempfile::tempdir().unwrap();
    // The converter names the file after the folder.
    let path = place.path().join(format!("tiny-{name}"));
    fs::create_dir(&path).unwrap();
    fixture.write(&path).unwrap();
    let folder = Folder::open(&path, Floats::Stored).unwrap();
    let error = Folder::open(&path, Floats::Stored).unwrap().for_file(None).err().unwrap();
    assert!(matches!(error, cera_convert::Error::Pre { .. }), "{error}");
    let folder = folder.for_file(Some(PRE)).unwrap();
    let keys = folder.metadata();
    for (key, value) in keys.iter().filter(|(key, _)| !LONG.contains(key)) {
        let found = fixture
            .gguf
            .keys
            .get(key)
            .unwrap_or_else(|| panic!("{name}: the converter has no {key} ({value})"));
        let theirs = found["type"].as_array().unwrap().last().unwrap().as_str().unwrap();
        let theirs = theirs.replace("int", "").replace("float", "f");
        assert_eq!(value.type_name().trim_start_matches("array of "), theirs, "{name}: {key}");
        let same = match value {
            Value::F32(v) => found["value"].as_f64().unwrap() as f32 == *v,
            _ => found["value"] == shown(value),
        };
        assert!(same, "{name}: {key} is {value}, not {}", found["value"]);
    }
    let missing = fixture.gguf.keys.keys().find(|key| keys.get(key).is_none());
    assert_eq!(missing, None, "{name}");
    // The long keys are those of the tiny models' files, which have the same tokenizer.
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/llama.gguf");
    let file = cera_gguf::Gguf::open(file).unwrap();
    for key in LONG {
        assert!(keys.get(key).is_some() && keys.get(key) == file.metadata().get(key), "{name}: {key}");
    }

    let own: BTreeSet<&str> = folder.tensors().iter().map(|t| t.name.as_str()).collect();
    let theirs: BTreeSet<&str> = fixture.gguf.tensors.keys().map(String::as_str).collect();
    assert_eq!(own, theirs, "{name}");
    for t in folder.tensors() {
        let record = &fixture.gguf.tensors[&t.name];
        assert_eq!((t.ty.name(), &t.dims), (record.ty.as_str(), &record.dims), "{name}: {}", t.name);
        let bytes = folder.rows(t, 0, t.rows()).unwrap();
        assert_eq!(bytes.len() as u64, t.bytes, "{name}: {}", t.name);
        let hash: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hash, record.sha256, "{name}: {}", t.name);
        // Rows by themselves are the same rows.
        let row = t.bytes as usize / t.rows() as usize;
        for first in [0, t.rows() / 2, t.rows() - 1] {
            let one = folder.rows(t, first, 1).unwrap();
            assert!(bytes[first as usize * row..][..row] == *one, "{name}: {}, row {first}", t.name);
        }
        assert!(folder.rows(t, t.rows(), 1).is_err());
    }
}

/// Logits are those of transformers, with matrices of 8-bit floats as F32: in BF16 their products with their factors are
/// rounded, which is what the converter does.
fn computed(name: &str) {
    let (fixture, path) = open(name);
    let floats = if name == "fp8" { Floats::As(Type::F32) } else { Floats::Stored };
    let source = Source::from(Folder::open(path.path(), floats).unwrap());
    let [positions, vocabulary] = fixture.logits_shape;
    let cpu = Cpu::new(cera_cpu::Options { threads: Some(1), ..Default::default() }).unwrap();
    let backends: [Box<dyn Backend>; 2] = [Box::new(Reference), Box::new(cpu)];
    for mut backend in backends {
        let mut runner = Runner::load(&mut *backend, source.checkpoint(), KvType::F32, 512, 256).unwrap();
        assert_eq!(runner.width(), vocabulary);
        let logits = runner.logits(&fixture.prompt_ids, positions, &[]).unwrap();
        let differences = logits.iter().zip(&fixture.logits).map(|(a, b)| (a - b).abs());
        let worst = differences.fold(0.0, |w, d| if d <= w { w } else { d });
        println!("{name} on {}: greatest difference {worst:.2e}", backend.name());
        assert!(worst <= 1e-3, "{name} on {}: a logit is off by {worst}", backend.name());
    }
}

/// Text becomes the ids that transformers has, and the files beside say what ends an answer.
fn tokenized() {
    let (fixture, path) = open("llama");
    let tokenizer = Source::open(path.path()).unwrap().tokenizer(None).unwrap().unwrap();
    let prompt = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/llama.json")).unwrap();
    let prompt: serde_json::Value = serde_json::from_str(&prompt).unwrap();
    let ids = tokenizer.encode(prompt["prompt"].as_str().unwrap(), cera_token::Special::AsText).unwrap();
    assert_eq!(ids[..fixture.prompt_ids.len()], fixture.prompt_ids);
    assert_eq!(tokenizer.eog(), [2, 5, 6]);
    assert!(tokenizer.template_source().unwrap().contains("<|im_start|>"));
    let error = Source::open(path.path()).unwrap().tokenizer(Some("qwen2")).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json"), "{error}");
}

/// Keys of tokenizers of other forms are the converter's, and a file of them gives the folder's ids.
fn vocabulary(name: &str) {
    let (_, folder) = open("llama");
    let folder = folder.path();
    for file in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"] {
        fs::remove_file(folder.join(file)).unwrap();
    }
    let config = fs::read_to_string(folder.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["eos_token_id"] = serde_json::json!([2, 5]);
    config["pad_token_id"] = serde_json::Value::Null;
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let files = vocabularies().join(name);
    let mut expected = None;
    for entry in fs::read_dir(files).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("keys.json") {
            expected = Some(fs::read_to_string(path).unwrap());
            continue;
        }
        fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
    }
    let source = Source::open(folder).unwrap();
    let own = source.tokenizer(None).unwrap().unwrap();
    let pre = Some(PRE).filter(|_| !folder.join("tokenizer.model").exists());
    let made = Folder::open(folder, Floats::Stored).unwrap().for_file(pre).unwrap();
    let keys = made.metadata();
    let file = cera_token::Tokenizer::from_gguf(keys, None).unwrap();
    let special = cera_token::Special::AsText;
    for text in TEXTS {
        let ids = file.encode(text, special).unwrap();
        assert_eq!(ids, own.encode(text, special).unwrap(), "{name}: {text:?}");
        assert_eq!(file.decode(&ids, cera_token::Shown::Text).unwrap(), text, "{name}");
    }
    // Pieces of the user's are like others to the converter, and tokens of their own in tokenizer.json.
    if !name.starts_with("pieces") {
        let text = "the<user> of </s> it";
        assert_eq!(file.encode(text, special).unwrap(), own.encode(text, special).unwrap(), "{name}");
    }
    let Some(expected) = expected else { return };
    let expected: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&expected).unwrap();
    let own: BTreeSet<&str> =
        keys.iter().map(|(key, _)| key).filter(|key| key.starts_with("tokenizer.")).collect();
    assert_eq!(own, expected.keys().map(String::as_str).collect(), "{name}");
    for (key, value) in &expected {
        let found = keys.get(key).unwrap();
        let same = match found {
            Value::Array(Array::F32(scores)) => {
                let theirs = value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32);
                theirs.eq(scores.iter().copied())
            }
            found => shown(found) == *value,
        };
        assert!(same, "{name}: {key} is {found}, not {value}");
    }
}

const TEXTS: [&str; 2] = ["The engine counted the rivers: values[i] += 42;", "a  b\n\n größer 東京"];

fn vocabularies() -> std::path::PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/folders/vocabularies").into()
}

/// What a folder's tokenizer cannot be written for is refused by name.
fn refused() {
    let (_, folder) = open("llama");
    let folder = folder.path();
    let error =
        || Folder::open(folder, Floats::Stored).unwrap().for_file(Some(PRE)).err().unwrap().to_string();
    let wrong = Folder::open(folder, Floats::Stored).unwrap().for_file(Some("no-such")).err().unwrap();
    assert!(wrong.to_string().contains("no-such"), "{wrong}");
    // A tokenizer that cuts text into characters.
    let path = folder.join("tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = ".".into();
    fs::write(&path, json.to_string()).unwrap();
    assert!(error().contains(PRE) && error().contains("would not give the ids"), "{}", error());
    fs::write(folder.join("tokenizer.model"), b"no vocabulary").unwrap();
    assert!(error().contains("tokenizer.model"), "{}", error());
    fs::remove_file(folder.join("tokenizer.model")).unwrap();
    fs::remove_file(folder.join("tokenizer.json")).unwrap();
    assert!(error().contains("neither tokenizer.json nor tokenizer.model"), "{}", error());
    assert!(Source::open(folder).unwrap().tokenizer(None).unwrap().is_none());
}

fn main() {
    let mut trials = vec![
        Trial::test("tokenizer", || {
            tokenized();
            Ok(())
        }),
        Trial::test("refused", || {
            refused();
            Ok(())
        }),
    ];
    for entry in fs::read_dir(vocabularies()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        trials.push(Trial::test(format!("{name}::vocabulary"), move || {
            vocabulary(&name);
            Ok(())
        }));
    }
    for name in FolderFixture::names().unwrap() {
        let own = name.clone();
        trials.push(Trial::test(format!("{name}::converted"), move || {
            converted(&own);
            Ok(())
        }));
        trials.push(Trial::test(format!("{name}::computed"), move || {
            computed(&name);
            Ok(())
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
