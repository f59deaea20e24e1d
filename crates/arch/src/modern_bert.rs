//! ModernBERT (Warner et al. 2024, arXiv:2412.13663).
//!
//! An encoder: norms around their mean before each half of a block, but for the first; heads that turn; gated units; and
//! windows to both sides in all blocks but each third, whose ropes have another base.

use cera_plan::{Act, Attention, Graph, Plan, Rope, RopeStyle, Tensors};

use crate::joined::queries_keys_values;
use crate::{Error, config::Config};

/// Records the model.
pub(crate) fn build(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    c.refuse(&[("attention.scale", 0.0), ("embedding_scale", 1.0)])?;
    let scale = 1.0 / (c.head_dim as f32).sqrt();
    let act = match c.text("hidden_activation")? {
        None | Some("gelu") => Act::GeluErf,
        Some("silu") => Act::Silu,
        Some(_) => return Err(c.unsupported("hidden_activation")),
    };
    let unit = c.count("feed_forward_length")?;
    let window = c.count_or_none("attention.sliding_window")?;
    let local = c.windowed_behind("attention.sliding_window_pattern", 3)?;
    let global_rope = c.rope(RopeStyle::Halved);
    let base = c.positive("rope.freq_base_swa")?.unwrap_or(10_000.0);
    let local_rope = Rope { base, ..c.unscaled_rope(RopeStyle::Halved) };

    let g = Graph::new(tensors, c.eps);
    let mut x = g.layer_norm(g.embed("token_embd", c.width), "token_embd_norm");
    for (n, &local) in local.iter().enumerate() {
        let l = g.layer(n);
        let window = window.filter(|_| local);
        let rope = Some(if window.is_some() { local_rope } else { global_rope });
        let attention = Attention { causal: false, ..c.attention(n, scale, window) };

        // The embedding is normalised already.
        let h = if n == 0 && !l.has("attn_norm") { x } else { l.layer_norm(x, "attn_norm") };
        let [q, k, v] = queries_keys_values(&l, h, &attention);
        let (q, k) = (l.rope(q, c.head_dim, rope), l.rope(k, c.head_dim, rope));
        let mut h = l.attend(q, k, v, attention);
        if n + 1 == c.blocks {
            // No other row looks at these from here on.
            (x, h) = (g.select_rows(x), g.select_rows(h));
        }
        x = g.add(x, l.linear(h, "attn_output"));

        let [gate, up] = l.linear_parts(l.layer_norm(x, "ffn_norm"), "ffn_up", [unit; 2]);
        x = g.add(x, l.linear(g.glu(gate, up, act), "ffn_down"));
    }
    let x = g.layer_norm(x, "output_norm");
    let x = g.score(g.pool(x), Act::GeluErf);
    Ok(g.finish_rows(x)?)
}
