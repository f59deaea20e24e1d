//! llama.cpp's own tokenizer vectors: `models/ggml-vocab-*.gguf` with `.inp` and `.out` beside them.
//!
//! The vocabularies are megabytes each, so they are read from the folder that `CERA_TEST_VOCABS` names
//! (`cargo xtask fetch vocabs`).

use std::path::{Path, PathBuf};

use cera_token::{Error, Shown, Special, Tokenizer};

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("CERA_TEST_VOCABS").map(PathBuf::from);
    if folder.is_none() {
        println!("skipped: llama.cpp's vocabularies not fetched (CERA_TEST_VOCABS names their folder)");
    }
    folder
}

fn load(path: &Path, pre: Option<&str>) -> Result<Tokenizer, Error> {
    let file = cera_gguf::Gguf::open(path).expect("a readable file");
    Tokenizer::from_gguf(file.metadata(), pre)
}

#[test]
fn llama_cpp_vectors() {
    let Some(folder) = folder() else { return };
    let names = [
        "bert-bge",
        "command-r",
        "deepseek-coder",
        "deepseek-llm",
        "falcon",
        "gemma-4",
        "gpt-2",
        "llama-bpe",
        "llama-spm",
        "mpt",
        "phi-3",
        "qwen2",
        "qwen35",
        "refact",
        "starcoder",
    ];
    let mut failures = Vec::new();
    for name in names {
        let path = folder.join(format!("ggml-vocab-{name}.gguf"));
        let read = |end: &str| std::fs::read_to_string(folder.join(format!("ggml-vocab-{name}.gguf.{end}")));
        let (Ok(inputs), Ok(outputs), true) = (read("inp"), read("out"), path.exists()) else {
            println!("skipped: {name} not fetched");
            continue;
        };
        let tokenizer = load(&path, None).unwrap_or_else(|error| panic!("{name}: {error}"));
        let inputs: Vec<&str> = inputs.split("\n__ggml_vocab_test__\n").collect();
        let outputs: Vec<&str> = outputs.lines().collect();
        // The last input has no separator behind it in some files.
        assert!(
            outputs.len() >= 40 && inputs.len() >= outputs.len(),
            "{name}: {} {}",
            inputs.len(),
            outputs.len()
        );
        for (input, output) in inputs.iter().zip(&outputs) {
            let want: Vec<u32> = output.split_whitespace().map(|id| id.parse().expect("an id")).collect();
            let got = tokenizer.encode(input, Special::AsText).expect("every text has tokens");
            if got != want {
                failures.push(format!("{name}: {input:?}\n  want {want:?}\n  got  {got:?}"));
            }
            let text = tokenizer.decode(&got, Shown::All).expect("ids of the vocabulary");
            // WordPiece keeps neither case nor blanks.
            if text != *input && name != "bert-bge" {
                failures.push(format!("{name}: {input:?} comes back as {text:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

/// XLM-RoBERTa's vocabulary: 250,000 pieces and NFKC as a map of characters. The ids are llama.cpp's (`tests/data/gguf`).
#[test]
fn a_real_unigram_vocabulary_agrees_with_llama_cpp() {
    let Some(path) = folder().map(|folder| folder.join("ggml-vocab-nomic-bert-moe.gguf")) else { return };
    if !path.exists() {
        println!("skipped: nomic-bert-moe not fetched");
        return;
    }
    let tokenizer = load(&path, None).expect("a good vocabulary");
    let data: serde_json::Value = serde_json::from_str(include_str!("data/gguf/nomic.json")).unwrap();
    for (i, text) in data["texts"].as_array().unwrap().iter().enumerate() {
        let text = text.as_str().unwrap();
        let wanted = |way: &str| data[way][i].clone();
        let ids = tokenizer.encode(text, Special::AsText).unwrap();
        assert_eq!(serde_json::json!(ids), wanted("as_text"), "{text:?}");
        let ids = tokenizer.encode_whole(text, Special::Parse).unwrap();
        assert_eq!(serde_json::json!(ids), wanted("whole"), "{text:?}");
    }
}

#[test]
fn files_without_a_pre_tokenizer_name_are_refused_until_one_is_given() {
    let Some(folder) = folder() else { return };
    let path = folder.join("ggml-vocab-mpt.gguf");
    assert!(matches!(load(&path, Some("nonesuch")), Err(Error::UnknownPre { pre }) if pre == "nonesuch"));
    for name in ["gpt-neox", "aquila"] {
        assert!(matches!(
            load(&folder.join(format!("ggml-vocab-{name}.gguf")), None),
            Err(Error::MissingPre)
        ));
    }
}
