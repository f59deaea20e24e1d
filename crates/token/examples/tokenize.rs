//! Times a tokenizer: `tokenize MODEL.gguf [TEXT FILE]`.

use std::time::Instant;

use cera_token::{Shown, Special, Tokenizer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().ok_or("which model?")?;
    let file = cera_gguf::Gguf::open(&model)?;
    let start = Instant::now();
    let tokenizer = Tokenizer::from_gguf(file.metadata(), None)?;
    println!("{} tokens, ready after {:?}", tokenizer.len(), start.elapsed());
    if let Some(path) = arguments.next() {
        let text = std::fs::read_to_string(path)?;
        for special in [Special::AsText, Special::Parse] {
            let start = Instant::now();
            let ids = tokenizer.encode(&text, special)?;
            let seconds = start.elapsed().as_secs_f64();
            println!("{special:?}: {} tokens, {:.1} MB/s", ids.len(), text.len() as f64 / seconds / 1e6);
            assert_eq!(tokenizer.decode(&ids, Shown::All)?, text, "the text must come back");
        }
    }
    Ok(())
}
