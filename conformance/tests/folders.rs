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

/// Keys that say where a model comes from, those of the tokenizer, which a folder has in files of its own, and those
/// that only a file has.
fn is_of_file(key: &str) -> bool {
    let general = key.starts_with("general.") && key != "general.architecture";
    general || key.starts_with("tokenizer.")
}

/// A value as the record has it.
fn shown(value: &Value) -> serde_json::Value {
    macro_rules! json {
        ($($variant:ident)*) => {
            match value {
                $(Value::$variant(v) => serde_json::json!(v),)*
                Value::Array(Array::Bool(v)) => serde_json::json!(v),
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

/// Keys and tensors are the converter's: names, types, sizes and every byte.
fn converted(name: &str) {
    let (fixture, path) = open(name);
    let folder = Folder::open(path.path(), Floats::Stored).unwrap();
    let keys = folder.metadata();
    for (key, value) in keys.iter().filter(|(key, _)| !is_of_file(key)) {
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
    let missing = fixture.gguf.keys.keys().find(|key| !is_of_file(key) && keys.get(key).is_none());
    assert_eq!(missing, None, "{name}");

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

fn main() {
    let mut trials = vec![Trial::test("tokenizer", || {
        tokenized();
        Ok(())
    })];
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
