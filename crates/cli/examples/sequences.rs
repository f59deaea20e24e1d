//! The engine itself, without a service: sequences side by side in the same steps.
//!
//! ```console
//! $ cargo run --release --example sequences -- MODEL.gguf
//! ```

use std::error::Error;

use cera::{Engine, Options, Part, Want};
use cera_cpu::Cpu;
use cera_token::{Shown, Special};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("the model's file, please")?;
    let options = Options { context: Some(256), sequences: 3, ..Options::default() };
    let mut engine = Engine::load(path.as_ref(), Box::new(Cpu::new(Default::default())?), &options)?;
    let tokenizer = engine.tokenizer()?.clone();

    let mut sequences = Vec::new();
    for prompt in ["One, two, three,", "Monday, Tuesday,", "a b c d e f"] {
        let mut sequence = engine.sequence();
        sequence.append(&tokenizer.encode_whole(prompt, Special::AsText)?)?;
        sequences.push(sequence);
    }
    for _ in 0..16 {
        // The first step reads the prompts, the others one token of each sequence.
        let mut parts: Vec<Part<'_>> = Vec::new();
        for sequence in &mut sequences {
            let rows = sequence.pending().len();
            parts.push(Part { sequence, rows, want: Want::Token });
        }
        let likeliest = engine.step(&mut parts)?.tokens.clone();
        for (sequence, token) in sequences.iter_mut().zip(likeliest) {
            sequence.append(&[token])?;
        }
    }
    for sequence in &sequences {
        println!("{}", tokenizer.decode(sequence.tokens(), Shown::Text)?);
    }
    Ok(())
}
