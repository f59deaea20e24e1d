//! Small vocabularies, made here.

#![allow(dead_code, reason = "each test file uses some of these")]

use cera_token::{Tokenizer, VocabSpec};

/// A byte-level vocabulary: 256 bytes, then `he`, `ll`, `hell`, then ChatML's tokens from 259 on, then `<think>`.
pub fn bpe() -> VocabSpec<'static> {
    let printable = |b: u32| matches!(b, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut next = 256;
    let mut tokens: Vec<String> = (0..256)
        .map(|byte| {
            let code = if printable(byte) {
                byte
            } else {
                next += 1;
                next - 1
            };
            char::from_u32(code).unwrap().to_string()
        })
        .collect();
    tokens.extend(["he", "ll", "hell"].map(String::from));
    let mut types = vec![1; tokens.len()];
    tokens.extend(["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(String::from));
    types.extend([3, 3, 3]);
    tokens.push("<think>".into());
    types.push(4);
    VocabSpec {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens: tokens.into(),
        types: types.into(),
        merges: vec!["h e".into(), "l l".into(), "he ll".into()].into(),
        bos: Some(259),
        eos: Some(261),
        chat_template: Some(CHATML.into()),
        ..VocabSpec::default()
    }
}

/// A SentencePiece vocabulary: `<unk>`, `<s>`, `</s>`, 256 bytes from 3 on, then a few pieces from 259 on.
pub fn spm() -> VocabSpec<'static> {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).to_vec();
    let mut types = vec![2, 3, 3];
    let mut scores = vec![0.0; 3];
    tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    types.extend([6; 256]);
    scores.extend([0.0; 256]);
    for (i, piece) in
        ["▁", "a", "b", "c", "ab", "bc", "▁ab", "</", "s>", "<", "/", "s", ">"].into_iter().enumerate()
    {
        tokens.push(piece.into());
        types.push(1);
        scores.push(-(i as f32));
    }
    VocabSpec {
        model: "llama".into(),
        tokens: tokens.into(),
        types: types.into(),
        scores: scores.into(),
        ..VocabSpec::default()
    }
}

pub const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

pub fn tokenizer(spec: VocabSpec<'_>) -> Tokenizer {
    Tokenizer::new(spec).expect("a good vocabulary")
}
