//! What int8 rows and an f16 cache cost: the CPU against the f64 reference on the same weights. `examples/kl.rs`
//! measures it on any text; docs/quality.md has the results.

use cera_backend::{KvType, Reference};
use cera_conformance::{PROSE, Runner, mean_kl_divergence, model, text_tokens};
use cera_cpu::{Cpu, Options};

/// A guard for this text, on which 2.02e-3 is measured. The mark, 2e-3, is for the text of docs/quality.md, on which the same
/// measurement gives 1.86e-3.
const GUARD: f64 = 2.1e-3;
/// Tokens compared.
const TOKENS: usize = 512;

#[test]
fn the_cpu_is_close_to_the_reference() {
    let Some(path) = model("smollm2") else { return };
    let tokens = text_tokens(&path, PROSE, TOKENS).unwrap();
    let mut cpu = Cpu::new(Options { threads: Some(1), pin: false, ..Options::default() }).unwrap();
    let mut runner = Runner::open(&mut cpu, &path, KvType::F16, TOKENS, TOKENS).unwrap();
    let vocabulary = runner.vocabulary();
    let ours = runner.logits(&tokens, TOKENS, &[]).unwrap();
    let mut reference = Runner::open(&mut Reference::new(), &path, KvType::F32, TOKENS, TOKENS).unwrap();
    let theirs = reference.logits(&tokens, TOKENS, &[]).unwrap();
    let mean = mean_kl_divergence(&theirs, &ours, vocabulary);
    println!("mean KL divergence of {TOKENS} tokens: {mean:.3e}");
    assert!(mean < GUARD, "mean KL divergence {mean}");
}
