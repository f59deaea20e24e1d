//! A model wide enough for every format of blocks, its weights drawn here.

use cera_gguf::{Gguf, Metadata, Writer};
use cera_quant::Type;

use crate::Result;

/// Tokens that the model knows.
pub const VOCABULARY: usize = 128;
const WIDTH: u64 = 256;
const FEED_FORWARD: u64 = 512;
const HEADS: u64 = 4;
const KV_HEADS: u64 = 2;

/// A llama of one block in F32, the same each time.
///
/// # Errors
/// None that its caller could bring about.
pub fn drawn() -> Result<Gguf> {
    let mut m = Metadata::new();
    m.insert("general.architecture", "llama");
    m.insert("llama.context_length", 512u32);
    m.insert("llama.embedding_length", WIDTH as u32);
    m.insert("llama.block_count", 1u32);
    m.insert("llama.feed_forward_length", FEED_FORWARD as u32);
    m.insert("llama.attention.head_count", HEADS as u32);
    m.insert("llama.attention.head_count_kv", KV_HEADS as u32);
    m.insert("llama.attention.layer_norm_rms_epsilon", 1e-5f32);
    m.insert("llama.rope.freq_base", 10_000f32);
    m.insert("tokenizer.ggml.model", "no_vocab");
    let kv = WIDTH / HEADS * KV_HEADS;
    let tensors: [(&str, &[u64]); 12] = [
        ("token_embd.weight", &[WIDTH, VOCABULARY as u64]),
        ("blk.0.attn_norm.weight", &[WIDTH]),
        ("blk.0.attn_q.weight", &[WIDTH, WIDTH]),
        ("blk.0.attn_k.weight", &[WIDTH, kv]),
        ("blk.0.attn_v.weight", &[WIDTH, kv]),
        ("blk.0.attn_output.weight", &[WIDTH, WIDTH]),
        ("blk.0.ffn_norm.weight", &[WIDTH]),
        ("blk.0.ffn_gate.weight", &[WIDTH, FEED_FORWARD]),
        ("blk.0.ffn_up.weight", &[WIDTH, FEED_FORWARD]),
        ("blk.0.ffn_down.weight", &[FEED_FORWARD, WIDTH]),
        ("output_norm.weight", &[WIDTH]),
        ("output.weight", &[WIDTH, VOCABULARY as u64]),
    ];
    let mut writer = Writer::new(m)?;
    for (name, dims) in tensors {
        writer.tensor(name, Type::F32, dims)?;
    }
    let mut body = writer.begin(Vec::new())?;
    let mut random = Random(1);
    for (name, dims) in tensors {
        let scale = if name.contains("norm") { 0.0 } else { 2.0 / (dims[0] as f32).sqrt() };
        let centre = if name.contains("norm") { 1.0 } else { 0.0 };
        let numbers = (0..dims.iter().product()).map(|_| centre + scale * random.bell());
        body.write(&numbers.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())?;
    }
    Ok(Gguf::from_bytes(body.finish()?)?)
}

/// Knuth's linear congruential generator (MMIX).
struct Random(u64);

impl Random {
    /// The sum of four evenly distributed numbers: deviation 0.58 around 0.
    fn bell(&mut self) -> f32 {
        let one = |_| {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        (0..4).map(one).sum()
    }
}
