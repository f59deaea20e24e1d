//! Gemma 1 to 3, text (Gemma Team 2024 and 2025, arXiv:2403.08295, arXiv:2408.00118, arXiv:2503.19786), and the encoder
//! made of the last, EmbeddingGemma (arXiv:2509.20354).
//!
//! All have GELU gates and rows scaled by the root of their width. From the second on there are norms behind each half
//! of a block too, and blocks that look back over a window between those that see everything. The second caps scores;
//! the third has norms of heads in their place, and its two kinds of blocks have ropes of different bases.

use cera_plan::{Act, Attention, Graph, Plan, Rope, RopeStyle, Tensors, Val};

use crate::{Error, config::Config};

/// What differs between the members.
struct Generation {
    /// Each half of a block is normalised behind its last matrix.
    norms_behind: bool,
    /// Queries and keys are normalised by heads.
    head_norms: bool,
    /// Where scores and logits are capped, where the file does not say it; without this, scores are not.
    caps: Option<(f32, f32)>,
    /// Every which block sees everything, where the file does not say it, and the others' window, likewise.
    windows: Option<(usize, Option<usize>)>,
    /// The rope's base in blocks with a window, where the file does not say it; without one it is that of the others.
    local_base: Option<f32>,
    /// Blocks of the model that scales scores by the width's share of a head, which is no key of the file. The others do by
    /// a head's length.
    blocks_of_largest: usize,
}

const FIRST: Generation = Generation {
    norms_behind: false,
    head_norms: false,
    caps: None,
    windows: None,
    local_base: None,
    blocks_of_largest: 0,
};
const SECOND: Generation = Generation {
    norms_behind: true,
    caps: Some((50.0, 30.0)),
    windows: Some((2, Some(4096))),
    blocks_of_largest: 46,
    ..FIRST
};
const THIRD: Generation = Generation {
    norms_behind: true,
    head_norms: true,
    windows: Some((6, None)),
    local_base: Some(10_000.0),
    blocks_of_largest: 62,
    ..FIRST
};

/// Records the first generation.
pub(crate) fn build1(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    c.refuse(&[("attention.sliding_window", 0.0), ("attention.sliding_window_pattern", 0.0)])?;
    build(c, tensors, &FIRST)
}

/// Records the second.
pub(crate) fn build2(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    build(c, tensors, &SECOND)
}

/// Records the third.
pub(crate) fn build3(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    build(c, tensors, &THIRD)
}

fn build(c: &Config<'_>, tensors: &dyn Tensors, of: &Generation) -> Result<Plan, Error> {
    let cap = c.positive_or_none("final_logit_softcapping")?.or(of.caps.map(|(_, logits)| logits));
    let g = Graph::new(tensors, c.eps);
    let x = rows(c, &g, of, true)?;
    let logits = g.linear(x, if g.has("output") { "output" } else { "token_embd" });
    let logits = g.softcap(logits, cap);
    Ok(g.finish(logits)?)
}

/// Records the encoder: rows see later ones too, windows reach to both sides, and up to two matrices follow the pooling.
pub(crate) fn encoder(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    c.refuse(&[("final_logit_softcapping", 0.0)])?;
    let g = Graph::new(tensors, c.eps);
    let mut x = rows(c, &g, &THIRD, false)?;
    x = g.pool(x);
    for name in ["dense_2", "dense_3"] {
        if g.has(name) {
            x = g.linear(x, name);
        }
    }
    Ok(g.finish_rows(x)?)
}

/// The rows behind the last norm.
fn rows(c: &Config<'_>, g: &Graph<'_>, of: &Generation, causal: bool) -> Result<Val, Error> {
    c.refuse(&[("embedding_scale", 1.0), ("residual_scale", 1.0), ("logit_scale", 1.0)])?;
    let scalar = if c.blocks == of.blocks_of_largest { c.width / c.first_heads() } else { c.head_dim };
    let attention_scale = c.positive("attention.scale")?.unwrap_or(1.0 / (scalar as f32).sqrt());
    let softcap = match of.caps {
        Some((scores, _)) => Some(c.positive_or_none("attn_logit_softcapping")?.unwrap_or(scores)),
        None => None,
    };
    let (window, local) = match of.windows {
        None => (None, vec![false; c.blocks]),
        Some((every, default)) => {
            let window = c.count_or_none("attention.sliding_window")?.or(default);
            (window, c.windowed("attention.sliding_window_pattern", every)?)
        }
    };
    let global_rope = c.rope(RopeStyle::Halved);
    let local_rope = match of.local_base {
        // The file's scale is for the blocks that see everything.
        Some(base) => Rope {
            base: c.positive("rope.freq_base_swa")?.unwrap_or(base),
            ..c.unscaled_rope(RopeStyle::Halved)
        },
        None => Rope { base: c.positive("rope.freq_base_swa")?.unwrap_or(global_rope.base), ..global_rope },
    };

    let mut x = g.scale(g.embed("token_embd", c.width), (c.width as f32).sqrt());
    for (n, &local) in local.iter().enumerate() {
        let l = g.layer(n);
        let window = window.filter(|_| local);
        let rope = Some(if window.is_some() { local_rope } else { global_rope });
        let head_norm = |x, name| if of.head_norms { l.need_head_norm(x, name, c.head_dim) } else { x };
        let norm_behind = |x, name| if of.norms_behind { l.rms_norm(x, name) } else { x };

        let h = l.rms_norm(x, "attn_norm");
        let (q, k, v) = (l.linear(h, "attn_q"), l.linear(h, "attn_k"), l.linear(h, "attn_v"));
        let q = l.rope(head_norm(q, "attn_q_norm"), c.head_dim, rope);
        let k = l.rope(head_norm(k, "attn_k_norm"), c.head_dim, rope);
        let attention = Attention { causal, softcap, ..c.attention(n, attention_scale, window) };
        let mut h = l.attend(q, k, v, attention);
        if n + 1 == c.blocks {
            // No later position looks at the others from here on.
            (x, h) = (g.select_rows(x), g.select_rows(h));
        }
        x = g.add(x, norm_behind(l.linear(h, "attn_output"), "post_attention_norm"));

        let h = l.rms_norm(x, "ffn_norm");
        let h = g.glu(l.linear(h, "ffn_gate"), l.linear(h, "ffn_up"), Act::GeluTanh);
        x = g.add(x, norm_behind(l.linear(h, "ffn_down"), "post_ffw_norm"));
    }
    Ok(g.rms_norm(x, "output_norm"))
}
