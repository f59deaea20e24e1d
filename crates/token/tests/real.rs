//! Ids that llama.cpp gives for the vocabularies of real models (`tests/data/real.json`, made with the
//! llama-cpp-python package 0.3.36): its own test texts, prose, and random runs of scripts, blanks and symbols.
//!
//! The models are read from the folder that `CERA_TEST_MODELS` names, as `smollm2.gguf` and so on.

use std::time::{Duration, Instant};

use cera_token::{Shown, Special, Tokenizer};
use serde_json::Value;

#[test]
fn real_vocabularies_agree_with_llama_cpp() {
    let data: Value = serde_json::from_str(include_str!("data/real.json")).expect("good JSON");
    let texts: Vec<&str> =
        data["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let folder = std::env::var_os("CERA_TEST_MODELS").map(std::path::PathBuf::from);
    let mut failures = Vec::new();
    for (name, wanted) in data["models"].as_object().unwrap() {
        let path = folder.as_ref().map(|folder| folder.join(format!("{name}.gguf")));
        let Some(path) = path.filter(|path| path.exists()) else {
            println!("skipped: {name} not fetched");
            continue;
        };
        let file = cera_gguf::Gguf::open(path).expect("a readable file");
        let tokenizer = Tokenizer::from_gguf(file.metadata(), None).expect("a good vocabulary");
        for (special, key) in [(Special::AsText, "as_text"), (Special::Parse, "parse")] {
            let wanted = wanted[key].as_array().unwrap();
            assert_eq!(wanted.len(), texts.len());
            for (text, wanted) in texts.iter().zip(wanted) {
                let ids = tokenizer.encode(text, special).expect("every text has tokens");
                let wanted: Vec<u32> =
                    wanted.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
                // An HTML tag to Qwen, whose merges give it, and to Gemma, which keeps it whole; llama.cpp makes it a
                // control token, by its text.
                let known = *text == "</s>"
                    && match special {
                        Special::Parse => name == "qwen0.5",
                        Special::AsText => name == "gemma270m" && ids == [212],
                    };
                if ids != wanted && !known {
                    failures.push(format!("{name} {special:?} {text:?}\n  want {wanted:?}\n  got  {ids:?}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

/// Large vocabularies load and long texts are encoded in no time that anybody waits for: under 0.3 s, over 10 MB/s. The
/// bounds here are for a busy machine and tests that run side by side.
#[test]
fn loading_and_encoding_are_fast() {
    let folder = std::env::var_os("CERA_TEST_MODELS").map(std::path::PathBuf::from);
    for name in ["gemma270m", "qwen0.5", "smollm2"] {
        let path = folder.as_ref().map(|folder| folder.join(format!("{name}.gguf")));
        let Some(path) = path.filter(|path| path.exists()) else {
            println!("skipped: {name} not fetched");
            continue;
        };
        let file = cera_gguf::Gguf::open(path).expect("a readable file");
        let begun = Instant::now();
        let tokenizer = Tokenizer::from_gguf(file.metadata(), None).expect("a good vocabulary");
        let load = begun.elapsed();
        assert!(load < Duration::from_secs(10), "{name} loads in {load:?}");
        let text = include_str!("../../../conformance/text/river.txt").repeat(400);
        let begun = Instant::now();
        let ids = tokenizer.encode(&text, Special::AsText).expect("every text has tokens");
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(10), "{name}: {} bytes in {took:?}", text.len());
        assert_eq!(tokenizer.decode(&ids, Shown::All).expect("ids of the vocabulary"), text);
    }
}
