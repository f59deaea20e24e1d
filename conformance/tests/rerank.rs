//! Heads that score pairs of texts: tiny models beside transformers (`witness/rerank.py`).

use std::path::Path;

use cera::{Engine, Norm, Options, Pooling};
use cera_backend::{Backend, KvType, Reference};
use cera_cpu::{Cpu, Tier};
use serde::Deserialize;

/// What f32 sums in another order differ by, and what the CPU's f32 costs, at most.
const TOLERANCE: f32 = 1e-4;

#[derive(Deserialize)]
struct Record {
    ids: Vec<u32>,
    outputs: Vec<f32>,
}

fn engine(name: &str, backend: Box<dyn Backend>) -> Engine {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/rerank/{name}.gguf"));
    let (pooling, cache) = (Some(Pooling::Rank), KvType::F32.into());
    let options = Options { pooling, cache, context: Some(256), ..Options::default() };
    Engine::load(&path, backend, &options).unwrap()
}

fn cpu(tier: Tier) -> Box<dyn Backend> {
    let options = cera_cpu::Options { threads: Some(2), tier: Some(tier), pin: false };
    Box::new(Cpu::new(options).unwrap())
}

fn record(name: &str) -> Record {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/rerank/{name}.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn heads_give_what_transformers_gives() {
    for name in ["xlm-roberta", "modern-bert", "qwen3"] {
        let Record { ids, outputs } = record(name);
        // Another sequence beside it, and the same one again.
        let sequences = [ids[3..].to_vec(), ids.clone(), ids];
        let near = |found: &[Vec<f32>], what: &str| {
            println!("{name} on {what}: {:?} for {outputs:?}", found[1]);
            assert_eq!(found[1].len(), outputs.len());
            for (found, output) in found[1].iter().zip(&outputs) {
                assert!((found - output).abs() < TOLERANCE, "{name} on {what}: {found} for {output}");
            }
            assert_eq!(found[1], found[2], "{name} on {what}: beside others");
            assert_ne!(found[0], found[1], "{name} on {what}");
        };
        let reference = engine(name, Box::new(Reference)).embed(&sequences, Norm::None).unwrap();
        near(&reference, "reference");
        let mut first: Option<Vec<Vec<f32>>> = None;
        for tier in Tier::available() {
            let found = engine(name, cpu(tier)).embed(&sequences, Norm::None).unwrap();
            near(&found, &tier.to_string());
            assert_eq!(*first.get_or_insert_with(|| found.clone()), found, "{name} on {tier}");
        }
    }
}

#[test]
fn documents_are_scored_by_the_files_own_words() {
    let mut engine = engine("qwen3", cpu(Tier::best()));
    let documents = ["the river", "a stone in the sun", "the river"];
    let scores = engine.rank("water", &documents).unwrap();
    assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)), "{scores:?}");
    assert_eq!(scores[0], scores[2]);
    assert_ne!(scores[0], scores[1]);
    // The score is the probability of yes behind the template's text.
    let ids = engine.tokenizer().unwrap().encode_pair("water", documents[1]).unwrap();
    let text = engine.tokenizer().unwrap().decode(&ids, cera_token::Shown::All).unwrap();
    assert!(text.contains("<Query>: water\n<Document>: a stone in the sun<|im_end|>"), "{text}");
    let outputs = engine.embed(&[ids], Norm::None).unwrap().remove(0);
    let probability = 1.0 / (1.0 + (outputs[1] - outputs[0]).exp());
    assert!((scores[1] - probability).abs() < 1e-6);

    let long = "river ".repeat(300);
    let error = engine.rank("water", &[long]).unwrap_err().to_string();
    assert!(error.contains("256"), "{error}");
}
