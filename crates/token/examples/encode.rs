//! Tokens of many texts, for comparison with other tokenizers (`conformance/witness/tokens.py`).
//!
//!     encode FILE as-text|parse|whole [decode] < TEXTS > IDS
//!
//! `FILE` is a GGUF file or a `tokenizer.json`, beside which `tokenizer_config.json` is read. A line of the input is a text as a JSON string, a line of the output
//! its ids, or `error` and what it says; with `decode` the text of the ids follows, as JSON.

use std::error::Error;
use std::io::{BufRead, BufWriter, Write};

use cera_token::{HfFiles, Shown, Special, Tokenizer};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (file, way, decode) = match args.as_slice() {
        [file, way] => (file, way.as_str(), false),
        [file, way, decode] if decode == "decode" => (file, way.as_str(), true),
        _ => return Err("usage: encode FILE as-text|parse|whole [decode]".into()),
    };
    let tokenizer = if file.ends_with(".json") {
        let tokenizer = std::fs::read_to_string(file)?;
        let config = std::fs::read_to_string(file.replace("tokenizer.json", "tokenizer_config.json")).ok();
        let files = HfFiles { tokenizer: &tokenizer, config: config.as_deref(), ..HfFiles::default() };
        Tokenizer::from_hf(&files)?
    } else {
        Tokenizer::from_gguf(cera_gguf::Gguf::open(file)?.metadata(), None)?
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let text: String = serde_json::from_str(&line?)?;
        let ids = match way {
            "as-text" => tokenizer.encode(&text, Special::AsText),
            "parse" => tokenizer.encode(&text, Special::Parse),
            "whole" => tokenizer.encode_whole(&text, Special::Parse),
            _ => return Err("as-text, parse or whole".into()),
        };
        match ids {
            Ok(ids) => {
                let shown: Vec<String> = ids.iter().map(u32::to_string).collect();
                write!(out, "{}", shown.join(" "))?;
                if decode {
                    write!(out, "\t{}", serde_json::to_string(&tokenizer.decode(&ids, Shown::All)?)?)?;
                }
                writeln!(out)?;
            }
            Err(error) => writeln!(out, "error {error}")?,
        }
    }
    Ok(out.flush()?)
}
