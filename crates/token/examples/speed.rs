//! How long a tokenizer takes to load and how fast it encodes, on one thread.
//!
//!     speed FILE TEXT...
//!
//! `FILE` is a GGUF file or a `tokenizer.json`. Each is done five times; the best time is shown.

use std::error::Error;
use std::time::{Duration, Instant};

use cera_token::{HfFiles, Special, Tokenizer};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, texts @ ..] = args.as_slice() else { return Err("usage: speed FILE TEXT...".into()) };
    let (tokenizer, load) = best(|| load(file))?;
    println!("{file}: {} tokens, loaded in {:.3} s", tokenizer.len(), load.as_secs_f64());
    for path in texts {
        let text = std::fs::read_to_string(path)?;
        let (ids, time) = best(|| Ok(tokenizer.encode(&text, Special::AsText)?))?;
        let speed = text.len() as f64 / time.as_secs_f64() / 1e6;
        println!("  {path}: {} bytes, {} tokens, {speed:.1} MB/s", text.len(), ids.len());
    }
    Ok(())
}

fn load(file: &str) -> Result<Tokenizer, Box<dyn Error>> {
    if file.ends_with(".json") {
        let tokenizer = std::fs::read_to_string(file)?;
        return Ok(Tokenizer::from_hf(&HfFiles { tokenizer: &tokenizer, ..HfFiles::default() })?);
    }
    Ok(Tokenizer::from_gguf(cera_gguf::Gguf::open(file)?.metadata(), None)?)
}

fn best<T>(mut run: impl FnMut() -> Result<T, Box<dyn Error>>) -> Result<(T, Duration), Box<dyn Error>> {
    let mut fastest = Duration::MAX;
    let mut last = None;
    for _ in 0..5 {
        let begun = Instant::now();
        last = Some(run()?);
        fastest = fastest.min(begun.elapsed());
    }
    last.map(|last| (last, fastest)).ok_or_else(|| "nothing ran".into())
}
