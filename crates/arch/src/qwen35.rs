//! Qwen 3.5 and Qwen3-Next, text, dense or of experts: three blocks of gated delta nets (arXiv:2412.06464) for each one of
//! attention, whose output has a gate of its own.

use cera_plan::{Act, DeltaShape, Graph, Layer, Plan, RopeStyle, Tensors, Val};

use crate::feed_forward::{Experts, SOFTMAX, feed_forward};
use crate::ssm::Sizes;
use crate::{Error, config::Config};

/// Added to the sum of squares of a query or key of the delta rule; no key of the file.
const UNIT_EPS: f32 = 1e-6;

/// Records Qwen 3.5, dense.
pub(crate) fn build(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    // Files hold value heads in the order in which key heads repeat.
    build_with(c, tensors, true, None)
}

/// Records Qwen 3.5 of experts.
pub(crate) fn build_moe(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    let experts = Experts::read(c, &SOFTMAX)?;
    build_with(c, tensors, true, experts.as_ref())
}

/// Records Qwen3-Next, whose files hold the value heads of a key head side by side.
pub(crate) fn build_next(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    let experts = Experts::read(c, &SOFTMAX)?;
    build_with(c, tensors, false, experts.as_ref())
}

fn build_with(
    c: &Config<'_>,
    tensors: &dyn Tensors,
    tiled: bool,
    experts: Option<&Experts>,
) -> Result<Plan, Error> {
    let s = Sizes::read(c)?;
    let key_heads = c.count("ssm.group_count")?;
    if !s.rank.is_multiple_of(key_heads) || !s.inner.is_multiple_of(s.rank) {
        let why = format!("{key_heads} key heads, and an inner size of {}", s.inner);
        return Err(c.value("ssm.time_step_rank", s.rank, why));
    }
    let delta =
        DeltaShape { key_heads, value_heads: s.rank, key_dim: s.state, value_dim: s.inner / s.rank, tiled };
    let attends = c.attending()?;
    let attention_scale = c.positive("attention.scale")?.unwrap_or(1.0 / (c.head_dim as f32).sqrt());
    let g = Graph::new(tensors, c.eps);
    let mut x = g.embed("token_embd", c.width);
    for (n, attends) in attends.into_iter().enumerate() {
        let l = g.layer(n);
        let h = l.rms_norm(x, "attn_norm");
        let (mut h, out) = if attends {
            // Each query head has its gate beside it.
            let both = l.linear(h, "attn_q");
            let part = |first| g.take(both, first, c.head_dim, 2 * c.head_dim);
            let (q, gate) = (part(0), part(c.head_dim));
            let (k, v) = (l.linear(h, "attn_k"), l.linear(h, "attn_v"));
            let rope = Some(c.rope(RopeStyle::Halved));
            let q = l.rope(l.need_head_norm(q, "attn_q_norm", c.head_dim), c.head_dim, rope);
            let k = l.rope(l.need_head_norm(k, "attn_k_norm", c.head_dim), c.head_dim, rope);
            let y = l.attend(q, k, v, c.attention(n, attention_scale, None));
            (g.glu(gate, y, Act::Sigmoid), "attn_output")
        } else {
            (delta_net(&g, &l, h, &s, delta), "ssm_out")
        };
        if n + 1 == c.blocks {
            // No later position looks at the others from here on.
            (x, h) = (g.select_rows(x), g.select_rows(h));
        }
        x = g.add(x, l.linear(h, out));
        let h = l.rms_norm(x, "post_attention_norm");
        x = g.add(x, feed_forward(&g, &l, n, h, Act::Silu, experts));
    }
    let x = g.rms_norm(x, "output_norm");
    let logits = g.linear(x, if g.has("output") { "output" } else { "token_embd" });
    Ok(g.finish(logits)?)
}

/// A gated delta net over normalised rows, up to its output matrix.
fn delta_net(g: &Graph<'_>, l: &Layer<'_>, h: Val, s: &Sizes, shape: DeltaShape) -> Val {
    if l.has("ssm_in") {
        let why = "`ssm_in` joins queries, keys, values and gates, as converters did in 2025: convert anew";
        g.fault(cera_plan::Error::Config(why.to_owned()));
    }
    let (qkv, z) = (l.linear(h, "attn_qkv"), l.linear(h, "attn_gate"));
    let (beta, decay) = if l.has("ssm_ba") {
        // For each key head the numbers of its value heads, beta before decay.
        let both = l.linear(h, "ssm_ba");
        let of_key = shape.value_heads / shape.key_heads;
        (g.take(both, 0, of_key, 2 * of_key), g.take(both, of_key, of_key, 2 * of_key))
    } else {
        (l.linear(h, "ssm_beta"), l.linear(h, "ssm_alpha"))
    };
    let decay = l.bias(decay, "ssm_dt");
    let qkv = l.short_conv(qkv, "ssm_conv1d", s.taps, true);
    let y = l.delta_net(qkv, decay, beta, shape, UNIT_EPS);
    g.glu(z, l.need_head_norm(y, "ssm_norm", shape.value_dim), Act::Silu)
}
