//! Embeddings of a real model beside transformers': the same tokens, and vectors that point the same way.
//!
//! `golden/MODEL.vectors.json` holds texts, their tokens and their vectors (`witness/README.md` says how it was made).

use std::path::Path;

use cera_arch::{Pooling, Purpose, build_for};
use cera_backend::{Backend, KvType, Reference};
use cera_conformance::{Runner, model};
use cera_cpu::{Cpu, Options};
use cera_gguf::Gguf;
use cera_token::Special;
use serde::Deserialize;

/// The least cosine of two vectors that count as the same.
const LEAST: f64 = 0.9999;

#[derive(Deserialize)]
struct Golden {
    text: String,
    ids: Vec<u32>,
    /// Of length 1.
    vector: Vec<f32>,
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn vectors_of_minilm_are_transformers() {
    let Some(path) = model("minilm") else { return };
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/minilm.vectors.json");
    let golden: Vec<Golden> = serde_json::from_slice(&std::fs::read(golden).unwrap()).unwrap();
    let file = Gguf::open(&path).unwrap();
    let tokenizer = cera::tokenizer(file.metadata(), None).unwrap().expect("a tokenizer");
    let cpu = Cpu::new(Options { threads: Some(1), pin: false, ..Options::default() }).unwrap();
    let backends: [(&str, Box<dyn Backend>); 2] =
        [("cpu", Box::new(cpu)), ("reference", Box::new(Reference))];
    for (name, mut backend) in backends {
        let model = build_for(&file, &Purpose::default()).unwrap();
        assert_eq!(model.pooling, Some(Pooling::Mean), "what the file says");
        let mut runner = Runner::load_plan(&mut *backend, &file, model.plan, KvType::F32, 64, 64).unwrap();
        for Golden { text, ids, vector } in &golden {
            let tokens = tokenizer.encode_whole(text, Special::AsText).unwrap();
            assert_eq!(&tokens, ids, "tokens of `{text}`");
            let mut found = Vec::new();
            let see = |_, row: &[f32]| found.extend_from_slice(row);
            runner.each_row(ids, ids.len(), &[], |position| position == 0, see).unwrap();
            assert_eq!(found.len(), vector.len());
            let cosine = cosine(&found, vector);
            println!("{name}, `{text}`: cosine {cosine:.7}");
            assert!(cosine > LEAST, "{name}, `{text}`: cosine {cosine}");
        }
    }
}
