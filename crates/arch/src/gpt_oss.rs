//! gpt-oss (OpenAI 2025, arXiv:2508.10925).
//!
//! Every other block looks back over a window. Each head has a sink: a score that takes its share of the softmax and has
//! no value. Biases everywhere; experts weighed by the softmax over those that are chosen, and a gate that is clamped.
//!
//! Files do not say whether YaRN's ramp is rounded to whole pairs. The published models say that it is not, and
//! transformers heeds it; llama.cpp rounds. Here it is not rounded.

use cera_plan::{Act, Attention, Graph, Plan, Rope, RopeStyle, Scoring, Tensors};

use crate::feed_forward::{Choice, Experts, SOFTMAX, feed_forward};
use crate::{Error, config::Config};

/// Records the model.
pub(crate) fn build(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    c.refuse(&[("embedding_scale", 1.0), ("residual_scale", 1.0), ("logit_scale", 1.0)])?;
    c.refuse(&[("final_logit_softcapping", 0.0)])?;
    let attention_scale = c.positive("attention.scale")?.unwrap_or(1.0 / (c.head_dim as f32).sqrt());
    let window = c.count_or_none("attention.sliding_window")?;
    let windowed = c.windowed("attention.sliding_window_pattern", 2)?;
    let choice = Choice { scoring: Scoring::SoftmaxOfChosen, normalised: false, ..SOFTMAX };
    let experts = Experts::read(c, &choice)?;
    let rope = match &c.yarn {
        Some(y) => y.apply(c.unscaled_rope(RopeStyle::Halved), false, y.growth(1.0) / y.growth(y.shared)),
        None => c.rope(RopeStyle::Halved),
    };
    let local_rope = Rope { base: c.positive("rope.freq_base_swa")?.unwrap_or(rope.base), ..rope };
    if local_rope != rope && c.yarn.is_some() {
        return Err(c.unsupported("rope.freq_base_swa"));
    }

    let g = Graph::new(tensors, c.eps);
    let mut x = g.embed("token_embd", c.width);
    for (n, &windowed) in windowed.iter().enumerate() {
        let l = g.layer(n);
        let window = window.filter(|_| windowed);
        let rope = Some(if window.is_some() { local_rope } else { rope });
        let attention = c.attention(n, attention_scale, window);
        let attention = Attention { sinks: l.sinks("attn_sinks", attention.heads), ..attention };

        let h = l.rms_norm(x, "attn_norm");
        let (q, k, v) = (l.linear(h, "attn_q"), l.linear(h, "attn_k"), l.linear(h, "attn_v"));
        let mut h = l.attend(l.rope(q, c.head_dim, rope), l.rope(k, c.head_dim, rope), v, attention);
        if n + 1 == c.blocks {
            // No later position looks at the others from here on.
            (x, h) = (g.select_rows(x), g.select_rows(h));
        }
        x = g.add(x, l.linear(h, "attn_output"));

        let h = l.rms_norm(x, "post_attention_norm");
        x = g.add(x, feed_forward(&g, &l, n, h, Act::ClampedSilu, experts.as_ref()));
    }
    let x = g.rms_norm(x, "output_norm");
    let logits = g.linear(x, if g.has("output") { "output" } else { "token_embd" });
    Ok(g.finish(logits)?)
}
