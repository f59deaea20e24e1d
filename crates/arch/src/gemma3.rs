//! Gemma 3, text (Gemma Team 2025, arXiv:2503.19786), and the encoder made of it, EmbeddingGemma (arXiv:2509.20354).
//!
//! Norms before and behind each half of a block, a norm of each head, GELU gates, and five blocks that look back
//! over a window for each one that sees everything; the two kinds have ropes of different bases.

use cera_plan::{Act, Attention, Graph, Plan, Rope, RopeStyle, Tensors, Val};

use crate::{Error, config::Config};

/// Blocks of the 27B model, the only one whose attention scale is not that of the head's length.
const BLOCKS_OF_27B: usize = 62;

/// Records the model.
pub(crate) fn build(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    let cap = c.positive_or_none("final_logit_softcapping")?;
    let g = Graph::new(tensors, c.eps);
    let x = rows(c, &g, true)?;
    let logits = g.linear(x, if g.has("output") { "output" } else { "token_embd" });
    let logits = g.softcap(logits, cap);
    Ok(g.finish(logits)?)
}

/// Records the encoder: rows see later ones too, windows reach to both sides, and up to two matrices follow the pooling.
pub(crate) fn encoder(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    c.refuse(&[("final_logit_softcapping", 0.0)])?;
    let g = Graph::new(tensors, c.eps);
    let mut x = rows(c, &g, false)?;
    x = g.pool(x);
    for name in ["dense_2", "dense_3"] {
        if g.has(name) {
            x = g.linear(x, name);
        }
    }
    Ok(g.finish_rows(x)?)
}

/// The rows behind the last norm.
fn rows(c: &Config<'_>, g: &Graph<'_>, causal: bool) -> Result<Val, Error> {
    c.refuse(&[("embedding_scale", 1.0), ("residual_scale", 1.0), ("logit_scale", 1.0)])?;
    // `query_pre_attn_scalar` is no key of the file. It is the head's length but for 27B, which has the width's share.
    let scalar = if c.blocks == BLOCKS_OF_27B { c.width / c.first_heads() } else { c.head_dim };
    let attention_scale = c.positive("attention.scale")?.unwrap_or(1.0 / (scalar as f32).sqrt());
    let window = c.count_or_none("attention.sliding_window")?;
    let local = c.windowed("attention.sliding_window_pattern", 6)?;
    let global_rope = c.rope(RopeStyle::Halved);
    // The file's scale is for the blocks that see everything.
    let local_rope = Rope {
        base: c.positive("rope.freq_base_swa")?.unwrap_or(10_000.0),
        ..c.unscaled_rope(RopeStyle::Halved)
    };

    let mut x = g.scale(g.embed("token_embd", c.width), (c.width as f32).sqrt());
    for (n, &local) in local.iter().enumerate() {
        let l = g.layer(n);
        let window = window.filter(|_| local);
        let rope = Some(if window.is_some() { local_rope } else { global_rope });

        let h = l.rms_norm(x, "attn_norm");
        let (q, k, v) = (l.linear(h, "attn_q"), l.linear(h, "attn_k"), l.linear(h, "attn_v"));
        let q = l.rope(l.need_head_norm(q, "attn_q_norm", c.head_dim), c.head_dim, rope);
        let k = l.rope(l.need_head_norm(k, "attn_k_norm", c.head_dim), c.head_dim, rope);
        let attention = Attention { causal, ..c.attention(n, attention_scale, window) };
        let mut h = l.attend(q, k, v, attention);
        if n + 1 == c.blocks {
            // No later position looks at the others from here on.
            (x, h) = (g.select_rows(x), g.select_rows(h));
        }
        x = g.add(x, l.rms_norm(l.linear(h, "attn_output"), "post_attention_norm"));

        let h = l.rms_norm(x, "ffn_norm");
        let h = g.glu(l.linear(h, "ffn_gate"), l.linear(h, "ffn_up"), Act::GeluTanh);
        x = g.add(x, l.rms_norm(l.linear(h, "ffn_down"), "post_ffw_norm"));
    }
    Ok(g.rms_norm(x, "output_norm"))
}
