//! Gemma 4, text (Google 2026), dense or of experts.
//!
//! Blocks with a window and those without have heads of different lengths, numbers and ropes; the last blocks may share
//! keys and values of earlier ones, and each may get a row of its own of the token, as in Gemma 3n. Experts stand beside
//! the dense unit of their block; a number of its own ends each block.

use cera_plan::{Act, Attention, Graph, Layer, Plan, Rope, RopeStyle, Tensors, Val};

use crate::feed_forward::{Experts, SOFTMAX};
use crate::gemma3n::{Cache, Inputs};
use crate::{Error, config::Config};

/// The name in files.
pub(crate) const NAME: &str = "gemma4";

/// Records the model.
pub(crate) fn build(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    let input = c.count_or_none("embedding_length_per_layer_input")?;
    let window = c.count_or_none("attention.sliding_window")?;
    let local = c.windowed("attention.sliding_window_pattern", 6)?;
    let cap = c.positive_or_none("final_logit_softcapping")?;
    let local_base = c.positive("rope.freq_base_swa")?.unwrap_or(10_000.0);
    let experts = Experts::read(c, &SOFTMAX)?;
    let mut cache = Cache::read(c)?;

    let g = Graph::new(tensors, c.eps);
    let mut x = g.scale(g.embed("token_embd", c.width), (c.width as f32).sqrt());
    let inputs = input.map(|len| Inputs::new(c, &g, x, len));
    for (n, &local) in local.iter().enumerate() {
        let l = g.layer(n);
        let last = n + 1 == c.blocks;
        let rope = c.rope(RopeStyle::Halved);
        let (dim, rope) = match local {
            // The file's scale is for the blocks that see everything.
            true => {
                let rope = c.unscaled_rope(RopeStyle::Halved);
                (c.local_head_dim, Rope { base: local_base, dims: c.local_rope_dims, ..rope })
            }
            // Divisors keep most pairs from turning.
            false => (c.head_dim, Rope { factors: l.rope_factors(rope.dims), ..rope }),
        };
        let attention = c.attention(n, 1.0, window.filter(|_| local));
        let attention = Attention { head_dim: dim, value_dim: dim, ..attention };

        let h = l.rms_norm(x, "attn_norm");
        let mut h = cache.attend(&g, &l, n, h, attention, (local, rope));
        if last {
            // No later position looks at the others from here on.
            (x, h) = (g.select_rows(x), g.select_rows(h));
        }
        x = g.add(x, l.rms_norm(l.linear(h, "attn_output"), "post_attention_norm"));

        let h = feed_forward(&g, &l, x, experts.as_ref());
        x = g.add(x, l.rms_norm(h, "post_ffw_norm"));
        if let Some(inputs) = &inputs {
            x = g.add(x, inputs.of(&g, &l, n, x, last));
        }
        if l.has("layer_output_scale") {
            x = l.scale_columns(x, "layer_output_scale.weight");
        }
    }
    let x = g.rms_norm(x, "output_norm");
    let logits = g.linear(x, if g.has("output") { "output" } else { "token_embd" });
    let logits = g.softcap(logits, cap);
    Ok(g.finish(logits)?)
}

/// The dense unit, and experts beside it, each between norms of its own; the router has one without factors.
fn feed_forward(g: &Graph<'_>, l: &Layer<'_>, x: Val, experts: Option<&Experts>) -> Val {
    let h = l.rms_norm(x, "ffn_norm");
    let dense = g.glu(l.linear(h, "ffn_gate"), l.linear(h, "ffn_up"), Act::GeluTanh);
    let dense = l.linear(dense, "ffn_down");
    let Some(experts) = experts.filter(|_| l.has("ffn_gate_inp")) else { return dense };
    let dense = l.rms_norm(dense, "post_ffw_norm_1");
    let width = g.width(x);
    let scores = g.scale(g.unit_norm(x, width), 1.0 / (width as f32).sqrt());
    let scores = l.linear(l.scale_columns(scores, "ffn_gate_inp.scale"), "ffn_gate_inp");
    let h = l.rms_norm(x, "pre_ffw_norm_2");
    let h = experts.by_scores(l, h, scores, Some("ffn_down_exps.scale"), Act::GeluTanh);
    g.add(dense, l.rms_norm(h, "post_ffw_norm_2"))
}
