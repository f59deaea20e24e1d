//! The Kullback-Leibler divergence of the CPU backend, and of a peer, from the f64 reference on a text.
//!
//! `kl MODEL.gguf IDS.json [PEER.logits [REFERENCE.logits]]`
//!
//! `IDS.json` has the text's tokens under the key `ids`. Logits are f32 little-endian, `[tokens, vocabulary]`;
//! `witness/llamacpp_logits.py` writes both for llama.cpp. The reference takes minutes: where a file for its logits
//! is named, they are read from it, or written to it if it is not there.

use std::path::Path;

use cera_backend::{KvType, Reference};
use cera_conformance::{Result, Runner, best, kl_divergence, perplexity};
use cera_cpu::{Cpu, Options};
use serde::Deserialize;

/// Tokens of a step.
const CHUNK: usize = 64;

#[derive(Deserialize)]
struct Text {
    ids: Vec<u32>,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (model, ids, peer, kept) = match args.as_slice() {
        [model, ids] => (model, ids, None, None),
        [model, ids, peer] => (model, ids, Some(peer), None),
        [model, ids, peer, kept] => (model, ids, Some(peer), Some(kept)),
        _ => return Err("usage: kl MODEL.gguf IDS.json [PEER.logits [REFERENCE.logits]]".into()),
    };
    let tokens = serde_json::from_slice::<Text>(&std::fs::read(ids)?)?.ids;

    let mut cpu = Cpu::new(Options::default())?;
    let mut runner = Runner::open(&mut cpu, model.as_ref(), KvType::F16, tokens.len(), CHUNK)?;
    let count = tokens.len() * runner.vocabulary();
    let ours = runner.logits(&tokens, CHUNK, &[])?;
    let reference = match kept.map(Path::new) {
        Some(path) if path.exists() => read(path, count)?,
        _ => {
            let mut runner =
                Runner::open(&mut Reference::new(), model.as_ref(), KvType::F32, tokens.len(), CHUNK)?;
            let logits = runner.logits(&tokens, CHUNK, &[])?;
            if let Some(path) = kept {
                std::fs::write(path, logits.iter().flat_map(|l| l.to_le_bytes()).collect::<Vec<u8>>())?;
            }
            logits
        }
    };

    println!("{} tokens; divergences from the reference, in nats", tokens.len());
    println!("reference: perplexity {:.4}", perplexity(&reference, &tokens));
    show(&format!("cera cpu, {}", cpu.tier()), &reference, &ours, &tokens);
    if let Some(peer) = peer {
        show("peer", &reference, &read(peer.as_ref(), count)?, &tokens);
    }
    Ok(())
}

/// Reads `count` logits.
fn read(path: &Path, count: usize) -> Result<Vec<f32>> {
    let bytes = std::fs::read(path)?;
    if bytes.len() != 4 * count {
        return Err(format!("{}: {} bytes, not {count} logits", path.display(), bytes.len()).into());
    }
    Ok(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
}

/// One line on the logits `q`, beside `reference`.
fn show(name: &str, reference: &[f32], q: &[f32], tokens: &[u32]) {
    let vocabulary = reference.len() / tokens.len();
    let rows = || reference.chunks_exact(vocabulary).zip(q.chunks_exact(vocabulary));
    let mut divergences: Vec<f64> = rows().map(|(p, q)| kl_divergence(p, q)).collect();
    divergences.sort_by(f64::total_cmp);
    let n = divergences.len() as f64;
    let mean = divergences.iter().sum::<f64>() / n;
    let variance = divergences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let same = rows().filter(|(p, q)| best(p) == best(q)).count() as f64;
    println!(
        "{name}: mean {mean:.3e} (standard error {:.0e}), median {:.3e}, greatest {:.3e}; the same best token \
         {:.1} %; perplexity {:.4}",
        (variance / n).sqrt(),
        divergences[divergences.len() / 2],
        divergences[divergences.len() - 1],
        100.0 * same / n,
        perplexity(q, tokens)
    );
}
