//! Gemma 3, text (Gemma Team 2025, arXiv:2503.19786).
//!
//! Norms before and behind each half of a block, a norm of each head, GELU gates, and five blocks that look back
//! over a window for each one that sees everything; the two kinds have ropes of different bases.

use cera_plan::{Act, Graph, Plan, Rope, RopeStyle, Tensors};

use crate::{Error, config::Config};

/// Blocks of the 27B model, the only one whose attention scale is not that of the head's length.
const BLOCKS_OF_27B: usize = 62;

/// Records the model.
pub(crate) fn build(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    c.refuse(&[("embedding_scale", 1.0), ("residual_scale", 1.0), ("logit_scale", 1.0)])?;
    // `query_pre_attn_scalar` is no key of the file. It is the head's length but for 27B, which has the width's share.
    let scalar = if c.blocks == BLOCKS_OF_27B { c.width / c.first_heads() } else { c.head_dim };
    let attention_scale = c.positive("attention.scale")?.unwrap_or(1.0 / (scalar as f32).sqrt());
    let window = c.count_or_none("attention.sliding_window")?;
    let local = c.windowed("attention.sliding_window_pattern", 6)?;
    let cap = c.positive_or_none("final_logit_softcapping")?;
    let global_rope = c.rope(RopeStyle::Halved);
    // The file's scale is for the blocks that see everything.
    let local_rope = Rope {
        base: c.positive("rope.freq_base_swa")?.unwrap_or(10_000.0),
        ..c.unscaled_rope(RopeStyle::Halved)
    };

    let g = Graph::new(tensors, c.eps);
    let mut x = g.scale(g.embed("token_embd", c.width), (c.width as f32).sqrt());
    for (n, &local) in local.iter().enumerate() {
        let l = g.layer(n);
        let window = window.filter(|_| local);
        let rope = Some(if window.is_some() { local_rope } else { global_rope });

        let h = l.rms_norm(x, "attn_norm");
        let (q, k, v) = (l.linear(h, "attn_q"), l.linear(h, "attn_k"), l.linear(h, "attn_v"));
        let q = l.rope(l.need_head_norm(q, "attn_q_norm", c.head_dim), c.head_dim, rope);
        let k = l.rope(l.need_head_norm(k, "attn_k_norm", c.head_dim), c.head_dim, rope);
        let mut h = l.attend(q, k, v, c.attention(n, attention_scale, window));
        if n + 1 == c.blocks {
            // No later position looks at the others from here on.
            (x, h) = (g.select_rows(x), g.select_rows(h));
        }
        x = g.add(x, l.rms_norm(l.linear(h, "attn_output"), "post_attention_norm"));

        let h = l.rms_norm(x, "ffn_norm");
        let h = g.glu(l.linear(h, "ffn_gate"), l.linear(h, "ffn_up"), Act::GeluTanh);
        x = g.add(x, l.rms_norm(l.linear(h, "ffn_down"), "post_ffw_norm"));
    }
    let x = g.rms_norm(x, "output_norm");
    let logits = g.linear(x, if g.has("output") { "output" } else { "token_embd" });
    let logits = g.softcap(logits, cap);
    Ok(g.finish(logits)?)
}
