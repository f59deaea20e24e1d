//! Kinds of vocabulary that llama.cpp has no files of: its ids, on tiny vocabularies (`tests/data/gguf`, made by
//! `conformance/witness/make_vocabularies.py`).

use std::path::Path;

use cera_token::{Error, Shown, Special, Tokenizer, VocabSpec};
use serde_json::Value;

fn data(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn load(name: &str) -> Tokenizer {
    let file = cera_gguf::Gguf::open(data(&format!("gguf/{name}.gguf"))).expect("a readable file");
    Tokenizer::from_gguf(file.metadata(), None).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn json(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(data(name)).expect("a readable file")).expect("good JSON")
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn ids_are_llama_cpps() {
    let mut failures = Vec::new();
    for name in [
        "gemma4",
        "plamo2",
        "rwkv",
        "sarvam",
        "t5",
        "t5_no_space",
        "t5_plain",
        "t5_spaces",
        "whitespace",
        "whitespace_lower",
    ] {
        let (tokenizer, data) = (load(name), json(&format!("gguf/{name}.json")));
        for (i, text) in data["texts"].as_array().unwrap().iter().enumerate() {
            let text = text.as_str().unwrap();
            let as_text = tokenizer.encode(text, Special::AsText).map_err(|error| error.to_string());
            let whole = tokenizer.encode_whole(text, Special::Parse).map_err(|error| error.to_string());
            for (way, got, want) in
                [("as_text", as_text, &data["as_text"][i]), ("whole", whole, &data["whole"][i])]
            {
                if got != Ok(ids(want)) {
                    failures.push(format!("{name} {way} {text:?}\n  want {want}\n  got  {got:?}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn wordpiece_is_that_of_tokenizers() {
    for name in ["bert", "bert_cased"] {
        let (tokenizer, data) = (load(name), json(&format!("hf/{name}.json")));
        for line in data["lines"].as_array().unwrap() {
            let text = line["text"].as_str().unwrap();
            // In the form of `bert_cased`, words have 12 characters at most; GGUF does not carry that.
            if name == "bert_cased"
                && text.split(|c: char| !c.is_alphanumeric()).any(|word| word.chars().count() > 12)
            {
                continue;
            }
            assert_eq!(
                tokenizer.encode(text, Special::AsText).unwrap(),
                ids(&line["as_text"]),
                "{name} {text:?}"
            );
        }
        assert_eq!(tokenizer.encode_whole("", Special::AsText).unwrap(), ids(&data["lines"][0]["whole"]));
        let text =
            tokenizer.decode(&tokenizer.encode("the river", Special::AsText).unwrap(), Shown::Text).unwrap();
        assert_eq!(text, "the river");
    }
}

#[test]
fn bytes_come_back_from_rwkv() {
    let tokenizer = load("rwkv");
    let text = "a\tb\r\n\u{0}\\x'\"é中😀";
    let ids = tokenizer.encode(text, Special::AsText).unwrap();
    assert_eq!(tokenizer.decode(&ids, Shown::All).unwrap(), text);
}

/// A vocabulary without tokens for bytes and unknown words.
fn bare(model: &str) -> VocabSpec<'static> {
    VocabSpec {
        model: model.into(),
        tokens: ["▁a", "b", "▁"].map(String::from).to_vec().into(),
        scores: vec![-1.0; 3].into(),
        add_space_prefix: Some(true),
        ..VocabSpec::default()
    }
}

#[test]
fn text_that_no_token_expresses_is_an_error_where_nothing_stands_for_it() {
    for model in ["t5", "rwkv"] {
        let spec = VocabSpec {
            tokens: ["b".to_string(), "▁".to_string()].to_vec().into(),
            scores: vec![-1.0; 2].into(),
            ..bare(model)
        };
        let tokenizer = Tokenizer::new(spec).unwrap();
        let ids = tokenizer.encode("é", Special::AsText);
        assert!(matches!(ids, Err(Error::NoByte { byte: 0xC3 })), "{model}: {ids:?}");
    }
    assert!(matches!(Tokenizer::new(bare("bert")), Err(Error::MissingSpecial { .. } | Error::NoUnknown)));
}

#[test]
fn hostile_vocabularies_of_every_kind_are_refused_or_work() {
    for model in ["t5", "bert", "rwkv", "plamo2", "whitespace", "llama", "gemma4"] {
        let mut spec = bare(model);
        spec.tokens.to_mut()[1] = "b".repeat(5000);
        let refused = Tokenizer::new(VocabSpec { bos: Some(0), sep: Some(0), unk: Some(2), ..spec });
        if matches!(model, "t5" | "rwkv" | "plamo2" | "bert") {
            assert!(
                matches!(refused, Err(Error::TokenLength { id: 1, bytes: 5000, .. })),
                "{model}: {refused:?}"
            );
        }
        let infinite =
            VocabSpec { scores: vec![f32::NEG_INFINITY, f32::INFINITY, 0.0].into(), ..bare(model) };
        let infinite = VocabSpec { bos: Some(0), sep: Some(0), unk: Some(2), ..infinite };
        if let Ok(tokenizer) = Tokenizer::new(infinite) {
            tokenizer.encode("ab a b", Special::AsText).unwrap();
        }
    }
    let charsmap = VocabSpec { charsmap: vec![1, 2, 3].into(), ..bare("t5") };
    assert!(matches!(Tokenizer::new(charsmap), Err(Error::Charsmap(_))));
}
