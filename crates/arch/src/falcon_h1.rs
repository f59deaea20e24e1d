//! Falcon-H1 (Zuo et al. 2025, arXiv:2507.22448): each block has attention and Mamba-2's mixer side by side. Its many
//! multipliers are in the weights of a file.

use cera_plan::{Act, Graph, Plan, Rope, RopeStyle, Tensors};

use crate::ssm::Mamba2;
use crate::{Error, config::Config};

/// Records the model.
pub(crate) fn build(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    let mixer = Mamba2::read(c)?;
    let attention_scale = c.positive("attention.scale")?.unwrap_or(1.0 / (c.head_dim as f32).sqrt());
    c.refuse(&[("attention.sliding_window", 0.0)])?;
    let g = Graph::new(tensors, c.eps);
    let mut x = g.embed("token_embd", c.width);
    for n in 0..c.blocks {
        let l = g.layer(n);
        let turn = c.rope(RopeStyle::Halved);
        let rope = Some(Rope { factors: l.rope_factors(turn.dims), ..turn });

        let h = l.rms_norm(x, "attn_norm");
        let mut y = mixer.mix(&g, &l, h);
        let (q, k, v) = (l.linear(h, "attn_q"), l.linear(h, "attn_k"), l.linear(h, "attn_v"));
        let (q, k) = (l.rope(q, c.head_dim, rope), l.rope(k, c.head_dim, rope));
        let mut h = l.attend(q, k, v, c.attention(n, attention_scale, None));
        if n + 1 == c.blocks {
            // No later position looks at the others from here on.
            (x, y, h) = (g.select_rows(x), g.select_rows(y), g.select_rows(h));
        }
        x = g.add(g.add(x, l.linear(y, "ssm_out")), l.linear(h, "attn_output"));

        // The one norm that files name without a suffix.
        let h = l.rms_norm_named(x, "ffn_norm");
        let h = g.glu(l.linear(h, "ffn_gate"), l.linear(h, "ffn_up"), Act::Silu);
        x = g.add(x, l.linear(h, "ffn_down"));
    }
    let x = g.rms_norm(x, "output_norm");
    let logits = g.linear(x, if g.has("output") { "output" } else { "token_embd" });
    Ok(g.finish(logits)?)
}
