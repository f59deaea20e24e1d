//! Any text through tokenizers of several kinds. Byte-level ones give it back; all give the same ids twice, and what is
//! put before or behind a text stands outside of it.
#![no_main]

use std::sync::LazyLock;

use cera_gguf::Gguf;
use cera_token::{HfFiles, Shown, Special, Tokenizer};
use libfuzzer_sys::fuzz_target;

struct Subject {
    tokenizer: Tokenizer,
    /// What it makes of a text has every byte of it.
    exact: bool,
}

static SUBJECTS: LazyLock<Vec<Subject>> = LazyLock::new(|| {
    let gguf = |bytes: &[u8]| {
        let file = Gguf::from_bytes(bytes.to_vec()).expect("a good file");
        Tokenizer::from_gguf(file.metadata(), None).expect("a good vocabulary")
    };
    let json = |record: &str| {
        let record: serde_json::Value = serde_json::from_str(record).expect("JSON");
        let text = record["tokenizer"].to_string();
        Tokenizer::from_hf(&HfFiles { tokenizer: &text, ..HfFiles::default() }).expect("a good tokenizer")
    };
    macro_rules! data {
        ($name:literal) => {
            concat!("../../crates/token/tests/data/", $name)
        };
    }
    vec![
        Subject { tokenizer: gguf(include_bytes!("../../conformance/fixtures/qwen3.gguf")), exact: true },
        Subject { tokenizer: gguf(include_bytes!(data!("gguf/rwkv.gguf"))), exact: false },
        Subject { tokenizer: gguf(include_bytes!(data!("gguf/t5.gguf"))), exact: false },
        Subject { tokenizer: gguf(include_bytes!(data!("gguf/bert.gguf"))), exact: false },
        Subject { tokenizer: json(include_str!(data!("hf/llama3.json"))), exact: false },
        Subject { tokenizer: json(include_str!(data!("hf/llama2.json"))), exact: false },
        Subject { tokenizer: json(include_str!(data!("hf/t5.json"))), exact: false },
    ]
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    for Subject { tokenizer, exact } in SUBJECTS.iter() {
        for special in [Special::AsText, Special::Parse] {
            let Ok(ids) = tokenizer.encode(text, special) else { continue };
            assert_eq!(tokenizer.encode(text, special).expect("as before"), ids);
            let decoded = tokenizer.decode(&ids, Shown::All).expect("ids that it gave itself");
            assert!(!exact || decoded == text, "{decoded:?}");
        }
    }
});
