//! Any bytes as `tokenizer.json`, behind an optional `tokenizer_config.json` that ends at the first NUL.
#![no_main]

use cera_token::{HfFiles, Shown, Special, Tokenizer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(data) = str::from_utf8(bytes) else { return };
    let (config, tokenizer) = match data.split_once('\0') {
        Some((config, tokenizer)) => (Some(config), tokenizer),
        None => (None, data),
    };
    let files = HfFiles { tokenizer, config, ..HfFiles::default() };
    let Ok(tokenizer) = Tokenizer::from_hf(&files) else { return };
    for text in ["", "A <s>text</s>, 1234 wörds\n\n  and 日本", "\u{0}\u{301}\u{1f600}\r\n\t ''"] {
        if let Ok(ids) = tokenizer.encode_whole(text, Special::Parse) {
            tokenizer.decode(&ids, Shown::All).expect("ids that it gave itself");
        }
    }
});
