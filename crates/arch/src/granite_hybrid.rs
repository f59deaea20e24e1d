//! Granite 4 (IBM 2025), dense or of experts: blocks of Mamba-2's mixer and of attention, with Granite's multipliers.

use cera_plan::{Act, Graph, Plan, Rope, RopeStyle, Tensors};

use crate::feed_forward::{Experts, SOFTMAX, feed_forward};
use crate::ssm::Mamba2;
use crate::{Error, config::Config};

/// Records the model.
pub(crate) fn build(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    let mixer = Mamba2::read(c)?;
    let attention_scale = c.positive("attention.scale")?.unwrap_or(1.0 / (c.head_dim as f32).sqrt());
    c.refuse(&[("attention.sliding_window", 0.0), ("final_logit_softcapping", 0.0)])?;
    let experts = Experts::read(c, &SOFTMAX)?;
    let residual = c.positive("residual_scale")?.unwrap_or(1.0);
    let has_rope = c.flag("rope.scaling.finetuned")?.unwrap_or(true);

    let g = Graph::new(tensors, c.eps);
    let embedding = c.positive("embedding_scale")?.unwrap_or(1.0);
    let mut x = g.scale(g.embed("token_embd", c.width), embedding);
    for n in 0..c.blocks {
        let l = g.layer(n);
        let h = l.rms_norm(x, "attn_norm");
        let (mut h, out) = if c.attends(n) {
            let turn = c.rope(RopeStyle::Interleaved);
            let rope = has_rope.then(|| Rope { factors: l.rope_factors(turn.dims), ..turn });
            let (q, k, v) = (l.linear(h, "attn_q"), l.linear(h, "attn_k"), l.linear(h, "attn_v"));
            let (q, k) = (l.rope(q, c.head_dim, rope), l.rope(k, c.head_dim, rope));
            (l.attend(q, k, v, c.attention(n, attention_scale, None)), "attn_output")
        } else {
            (mixer.mix(&g, &l, h), "ssm_out")
        };
        if n + 1 == c.blocks {
            // No later position looks at the others from here on.
            (x, h) = (g.select_rows(x), g.select_rows(h));
        }
        x = g.add(x, g.scale(l.linear(h, out), residual));

        let h = l.rms_norm(x, "ffn_norm");
        x = g.add(x, g.scale(feed_forward(&g, &l, n, h, Act::Silu, experts.as_ref()), residual));
    }
    let x = g.rms_norm(x, "output_norm");
    let logits = g.linear(x, if g.has("output") { "output" } else { "token_embd" });
    // Granite divides.
    let logits = g.scale(logits, 1.0 / c.positive("logit_scale")?.unwrap_or(1.0));
    Ok(g.finish(logits)?)
}
