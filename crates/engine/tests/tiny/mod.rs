//! A model whose answers are known: it counts.
//!
//! A llama of one block over the 256 bytes and three special tokens. Each token's row of the embedding is a unit
//! vector of its own; the block's outputs are zero; the output matrix says that the token after a letter is the
//! next letter, after `Z` the end of the turn, and after anything else an `A`. So the greedy answer to any chat is
//! the alphabet, whatever a backend's rounding.
//!
//! Token ids 0 to 255 are the bytes, in the file's spelling those of GPT-2's byte alphabet.

#![allow(dead_code, reason = "each program of tests uses a part")]

use std::path::{Path, PathBuf};

use cera_gguf::{Metadata, Writer};
use cera_quant::Type;

/// End of text.
pub const END_OF_TEXT: u32 = 256;
/// Begins a turn of a chat.
pub const TURN: u32 = 257;
/// Ends a turn of a chat.
pub const END_OF_TURN: u32 = 258;
/// Number of token ids; the last is the only merged one, `~~`.
pub const VOCABULARY: usize = 260;
/// The most tokens that the model was made for.
pub const CONTEXT: u32 = 4096;

const WIDTH: usize = 288;
const HEADS: usize = 9;
const KV_HEADS: usize = 3;
const FEED_FORWARD: usize = 32;

/// ChatML, as most small models have it.
pub const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// What a file is given besides the weights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Text {
    /// A vocabulary and a chat template.
    Chat,
    /// A vocabulary.
    Plain,
    /// Neither.
    None,
}

/// Writes the model into `folder`; gives its path.
pub fn write(folder: &Path, text: Text) -> PathBuf {
    let mut writer = Writer::new(metadata(text)).unwrap();
    let (w, v) = (WIDTH as u64, VOCABULARY as u64);
    let kv = w * KV_HEADS as u64 / HEADS as u64;
    let ff = FEED_FORWARD as u64;
    let tensors: [(&str, &[u64]); 12] = [
        ("token_embd.weight", &[w, v]),
        ("blk.0.attn_norm.weight", &[w]),
        ("blk.0.attn_q.weight", &[w, w]),
        ("blk.0.attn_k.weight", &[w, kv]),
        ("blk.0.attn_v.weight", &[w, kv]),
        ("blk.0.attn_output.weight", &[w, w]),
        ("blk.0.ffn_norm.weight", &[w]),
        ("blk.0.ffn_gate.weight", &[w, ff]),
        ("blk.0.ffn_up.weight", &[w, ff]),
        ("blk.0.ffn_down.weight", &[ff, w]),
        ("output_norm.weight", &[w]),
        ("output.weight", &[w, v]),
    ];
    for (name, dims) in tensors {
        writer.tensor(name, Type::F32, dims).unwrap();
    }
    let mut body = writer.begin(Vec::new()).unwrap();
    for (name, dims) in tensors {
        let numbers = numbers(name, dims.iter().product::<u64>() as usize);
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        body.write(&bytes).unwrap();
    }
    let path = folder.join("counts.gguf");
    std::fs::write(&path, body.finish().unwrap()).unwrap();
    path
}

/// Writes a file anew beside it, after `change` of its keys and its tensors, each a name, its dimensions and its numbers.
pub fn changed(path: &Path, change: impl FnOnce(&mut Metadata, &mut Vec<Tensor>)) -> PathBuf {
    let file = cera_gguf::Gguf::open(path).unwrap();
    let mut metadata = file.metadata().clone();
    let mut tensors: Vec<Tensor> = file
        .tensors()
        .iter()
        .map(|t| {
            let (numbers, _) = file.tensor_bytes(t).as_chunks();
            let numbers = numbers.iter().map(|b| f32::from_le_bytes(*b)).collect();
            (t.name.clone(), t.dims.clone(), numbers)
        })
        .collect();
    change(&mut metadata, &mut tensors);
    let mut writer = Writer::new(metadata).unwrap();
    for (name, dims, _) in &tensors {
        writer.tensor(name, Type::F32, dims).unwrap();
    }
    let mut body = writer.begin(Vec::new()).unwrap();
    for (_, _, numbers) in &tensors {
        body.write(&numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    }
    let path = path.with_file_name("changed.gguf");
    std::fs::write(&path, body.finish().unwrap()).unwrap();
    path
}

/// A tensor's name, dimensions and numbers.
pub type Tensor = (String, Vec<u64>, Vec<f32>);

/// The token that follows another.
pub fn next(token: usize) -> usize {
    match token {
        0x41..0x5a => token + 1,
        0x5a => END_OF_TURN as usize,
        _ => 0x41,
    }
}

fn numbers(name: &str, count: usize) -> Vec<f32> {
    let mut numbers = vec![0.0; count];
    match name {
        "token_embd.weight" => (0..VOCABULARY).for_each(|t| numbers[t * WIDTH + t] = 1.0),
        "output.weight" => (0..VOCABULARY).for_each(|t| numbers[next(t) * WIDTH + t] = 1.0),
        // Small and not all alike, so that attention has something to do; its output is multiplied by zeros.
        "blk.0.attn_q.weight" | "blk.0.attn_k.weight" | "blk.0.attn_v.weight" => {
            numbers.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 7) as f32 / 16.0 - 0.2);
        }
        name if name.contains("norm") => numbers.fill(1.0),
        _ => {}
    }
    numbers
}

fn metadata(text: Text) -> Metadata {
    let mut m = Metadata::new();
    m.insert("general.architecture", "llama");
    m.insert("general.name", "Counts");
    m.insert("llama.context_length", CONTEXT);
    m.insert("llama.embedding_length", WIDTH as u32);
    m.insert("llama.block_count", 1u32);
    m.insert("llama.feed_forward_length", FEED_FORWARD as u32);
    m.insert("llama.attention.head_count", HEADS as u32);
    m.insert("llama.attention.head_count_kv", KV_HEADS as u32);
    m.insert("llama.attention.layer_norm_rms_epsilon", 1e-5f32);
    m.insert("llama.rope.dimension_count", (WIDTH / HEADS) as u32);
    m.insert("llama.rope.freq_base", 10_000f32);
    m.insert("llama.vocab_size", VOCABULARY as u32);
    if text == Text::None {
        m.insert("tokenizer.ggml.model", "no_vocab");
        return m;
    }
    let mut tokens: Vec<String> = (0..=255).map(|b| byte_letter(b).to_string()).collect();
    tokens.extend(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "~~"].map(String::from));
    let types: Vec<i32> =
        (0..VOCABULARY as u32).map(|t| if (256..259).contains(&t) { 3 } else { 1 }).collect();
    m.insert("tokenizer.ggml.model", "gpt2");
    m.insert("tokenizer.ggml.pre", "gpt-2");
    m.insert("tokenizer.ggml.tokens", tokens);
    m.insert("tokenizer.ggml.token_type", types);
    m.insert("tokenizer.ggml.merges", vec!["~ ~".to_string()]);
    m.insert("tokenizer.ggml.eos_token_id", END_OF_TURN);
    m.insert("tokenizer.ggml.bos_token_id", END_OF_TEXT);
    m.insert("tokenizer.ggml.add_bos_token", false);
    if text == Text::Chat {
        m.insert("tokenizer.chat_template", TEMPLATE);
    }
    m
}

/// GPT-2's letter for a byte: printable bytes stand for themselves, the others follow from U+0100 on.
fn byte_letter(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(0x100 + before).unwrap()
}
