//! LFM2 (Liquid AI 2025, arXiv:2511.23404), dense or of experts: blocks of gated short convolutions, and some of attention.

use cera_plan::{Act, Graph, Plan, RopeStyle, Scoring, Tensors};

use crate::feed_forward::{Choice, Experts, SOFTMAX, feed_forward};
use crate::{Error, config::Config};

/// Records the dense model.
pub(crate) fn build(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    build_with(c, tensors, None)
}

/// Records the model of experts, which are judged by sigmoids.
pub(crate) fn build_moe(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    let experts = Experts::read(c, &Choice { scoring: Scoring::Sigmoid, ..SOFTMAX })?;
    build_with(c, tensors, experts.as_ref())
}

fn build_with(c: &Config<'_>, tensors: &dyn Tensors, experts: Option<&Experts>) -> Result<Plan, Error> {
    c.refuse(&[("attention.sliding_window", 0.0)])?;
    let taps = c.count("shortconv.l_cache")?;
    let attention_scale = 1.0 / (c.head_dim as f32).sqrt();
    let g = Graph::new(tensors, c.eps);
    let mut x = g.embed("token_embd", c.width);
    for n in 0..c.blocks {
        let l = g.layer(n);
        let h = l.rms_norm(x, "attn_norm");
        let (mut h, out) = if c.attends(n) {
            let (q, k, v) = (l.linear(h, "attn_q"), l.linear(h, "attn_k"), l.linear(h, "attn_v"));
            let rope = Some(c.rope(RopeStyle::Halved));
            let q = l.rope(l.need_head_norm(q, "attn_q_norm", c.head_dim), c.head_dim, rope);
            let k = l.rope(l.need_head_norm(k, "attn_k_norm", c.head_dim), c.head_dim, rope);
            (l.attend(q, k, v, c.attention(n, attention_scale, None)), "attn_output")
        } else {
            let [gate, behind, u] = l.linear_parts(h, "shortconv.in_proj", [c.width; 3]);
            let u = l.short_conv(g.mul(gate, u), "shortconv.conv", taps, false);
            (g.mul(behind, u), "shortconv.out_proj")
        };
        if n + 1 == c.blocks {
            // No later position looks at the others from here on.
            (x, h) = (g.select_rows(x), g.select_rows(h));
        }
        x = g.add(x, l.linear(h, out));
        let h = l.rms_norm(x, "ffn_norm");
        x = g.add(x, feed_forward(&g, &l, n, h, Act::Silu, experts));
    }
    // The last norm, by the name that the files give it.
    let x = g.rms_norm(x, "token_embd_norm");
    let logits = g.linear(x, if g.has("output") { "output" } else { "token_embd" });
    Ok(g.finish(logits)?)
}
