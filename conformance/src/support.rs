//! What runs, as the checks find it: the page `docs/support.md`.

use std::fmt::Write as _;

use cera_backend::{Backend, KvType, Reference};
use cera_cpu::{Cpu, Options, Tier};
use cera_gguf::Gguf;
use cera_quant::Type;

use crate::drawn::{VOCABULARY, drawn};
use crate::{Fixture, Result, Runner, encoded, is_matrix, mean_kl_divergence};

/// Tokens of the text that formats are compared on.
const TOKENS: usize = 48;

/// The page.
///
/// # Errors
/// A check could not be run, or found a fault: such a family or format is no supported one.
pub fn support() -> Result<String> {
    let mut page = String::from(HEAD);
    families(&mut page)?;
    page.push_str(FORMATS);
    formats(&mut page)?;
    page.push_str(TAIL);
    Ok(page)
}

const HEAD: &str = "# What runs

Written by `cargo run --release -p cera-conformance --example support`, from the checks themselves. A test runs them again and
compares this page with what they find, so nothing stands here that was not checked.

## Families

Each family has a tiny model with random weights, and the logits that transformers computes for it in f32 at every position of a
prompt. Differences are the greatest of all logits, whose standard deviation is about 2. Behind them stand the mean KL
divergences from transformers' logits when the same model's matrices are in Q8_0 and in Q4_0: ours, and llama.cpp's on the same
file (- where it does not run the file, or was not asked). On each tier of the processor the bits are the same however the
prompt is cut and whatever else is in the step (`tests/tiny.rs`, `tests/bits.rs`), and the greedy text is transformers'. Encoders
give rows and no logits: their differences are those of the rows' numbers, whose standard deviation is about 13.

| model | `general.architecture` | reference | cpu | Q8_0 | llama.cpp | Q4_0 | llama.cpp |
|---|---|---|---|---|---|---|---|
";

const FORMATS: &str = "
## Formats of weights

Decoding gives ggml's bits, for random blocks and for the odd ones (`crates/quant/tests/vectors.rs`). *cpu* says whether the
processor multiplies with the format as it is; where it does, every tier gives the same bits, and the column behind it has the
mean KL divergence from the f64 reference over the same encoded weights: what the activations in bytes cost. *encoded* is the
mean divergence from the f32 weights, of a model with random weights, which is no measure of a real model's loss.

| format | bits a weight | encoder | cpu | against the reference | encoded |
|---|---|---|---|---|---|
";

const TAIL: &str = "
## Text

| | checked against |
|---|---|
| tokenizers of GGUF files: BPE with every pre-tokenizer of llama.cpp, SentencePiece BPE and unigram, WordPiece, RWKV, PLaMo 2 | llama.cpp's `.inp/.out` vectors, and files of each kind made for it |
| `tokenizer.json` | the crate `tokenizers`, on each form and on random lines |
| chat templates | Jinja2 as transformers sets it up, on the 70 templates of llama.cpp's collection and 19 conversations each |
";

fn load(backend: &mut dyn Backend, file: &Gguf, cache: KvType, tokens: &[u32]) -> Result<Vec<f32>> {
    let mut runner = Runner::load(backend, file, cache, tokens.len(), tokens.len())?;
    runner.logits(tokens, tokens.len(), &[])
}

fn cpu(tier: Option<Tier>) -> Result<Cpu> {
    Ok(Cpu::new(Options { threads: Some(1), tier, pin: false })?)
}

fn families(page: &mut String) -> Result<()> {
    for name in Fixture::families()? {
        let fixture = Fixture::read(&name)?;
        let file = Gguf::open(&fixture.path)?;
        let ids = &fixture.record.prompt_ids;
        let vocabulary = fixture.record.logits_shape[1];
        let difference = |backend: &mut dyn Backend| -> Result<f32> {
            let logits = load(backend, &file, KvType::F32, ids)?;
            Ok(logits.iter().zip(&fixture.logits).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max))
        };
        let (reference, own) = (difference(&mut Reference::new())?, difference(&mut cpu(None)?)?);
        let architecture: &str = file.metadata().need("general.architecture")?;
        write!(page, "| {name} | `{architecture}` | {reference:.1e} | {own:.1e} |")?;
        if fixture.record.greedy_ids.is_empty() {
            page.push_str(" - | - | - | - |\n");
            continue;
        }
        for ty in [Type::Q8_0, Type::Q4_0] {
            let file = encoded(&file, |t| Some(ty).filter(|_| is_matrix(t, ty.block_len())))?;
            let logits = load(&mut cpu(None)?, &file, KvType::F16, ids)?;
            let ours = mean_kl_divergence(&fixture.logits, &logits, vocabulary);
            let peer = fixture.peer.get(ty.name()).map_or("-".to_owned(), |kl| format!("{kl:.1e}"));
            write!(page, " {ours:.1e} | {peer} |")?;
        }
        page.push('\n');
    }
    Ok(())
}

fn formats(page: &mut String) -> Result<()> {
    let plain = drawn()?;
    let tokens: Vec<u32> = (0..TOKENS as u32).map(|i| i * 37 % VOCABULARY as u32).collect();
    let whole = load(&mut Reference::new(), &plain, KvType::F32, &tokens)?;
    for &ty in Type::ALL.iter().filter(|ty| ty.codec().is_some()) {
        let bits = 8.0 * ty.block_bytes() as f64 / ty.block_len() as f64;
        write!(page, "| {} | {bits:.4} |", ty.name())?;
        let choose = |t: &cera_gguf::TensorInfo| Some(ty).filter(|_| is_matrix(t, ty.block_len()));
        let Ok(file) = encoded(&plain, choose) else {
            page.push_str(" no | | | |\n");
            continue;
        };
        let reference = load(&mut Reference::new(), &file, KvType::F32, &tokens)?;
        let loss = mean_kl_divergence(&whole, &reference, VOCABULARY);
        let mut found: Option<Vec<f32>> = None;
        for tier in Tier::available() {
            match load(&mut cpu(Some(tier))?, &file, KvType::F32, &tokens) {
                Ok(logits) => {
                    if *found.get_or_insert_with(|| logits.clone()) != logits {
                        return Err(format!("{}: {tier} has other bits", ty.name()).into());
                    }
                }
                Err(e) if found.is_some() => return Err(e),
                Err(_) => break,
            }
        }
        let (runs, cost) = match found {
            Some(logits) => {
                ("yes", format!("{:.1e}", mean_kl_divergence(&reference, &logits, VOCABULARY).max(0.0)))
            }
            None => ("no", "-".to_owned()),
        };
        writeln!(page, " yes | {runs} | {cost} | {loss:.1e} |")?;
    }
    Ok(())
}
