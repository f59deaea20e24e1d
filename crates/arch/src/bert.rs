//! BERT (Devlin et al. 2018, arXiv:1810.04805), RoBERTa and XLM-RoBERTa, whose files are of the same kind, and Nomic's BERT
//! (Nussbaum et al. 2024, arXiv:2402.01613), whose heads turn in place of a table of positions, and whose units are gated.
//!
//! An encoder: rows see all of their sequence. Learned positions and types are added to the tokens' rows, each half of
//! a block is normalised behind its sum, and nothing makes logits: the rows themselves are the result.

use cera_plan::{Act, Attention, Graph, Plan, RopeStyle, Tensors};

use crate::joined::queries_keys_values;
use crate::{Error, config::Config};

/// Records BERT.
pub(crate) fn build(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    build_with(c, tensors, false)
}

/// Records Nomic's.
pub(crate) fn build_nomic(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    build_with(c, tensors, true)
}

/// Heads of `nomic` turn, and its units have a gate.
fn build_with(c: &Config<'_>, tensors: &dyn Tensors, nomic: bool) -> Result<Plan, Error> {
    c.refuse(&[("attention.sliding_window", 0.0), ("attention.scale", 0.0), ("embedding_scale", 1.0)])?;
    let scale = 1.0 / (c.head_dim as f32).sqrt();

    let g = Graph::new(tensors, c.eps);
    let mut x = g.embed("token_embd", c.width);
    if g.has("token_types") {
        // A text by itself is of the first type. Pairs of texts, whose second is of the other, are not taken.
        x = g.add_first_row(x, "token_types");
    }
    if !nomic {
        x = g.add(x, g.embed_position("position_embd", c.width));
    }
    let rope = nomic.then(|| c.rope(RopeStyle::Halved));
    x = g.layer_norm(x, "token_embd_norm");
    for n in 0..c.blocks {
        let l = g.layer(n);
        let attention = Attention { causal: false, ..c.attention(n, scale, None) };

        let [q, k, v] = queries_keys_values(&l, x, &attention);
        let (q, k) = (l.rope(q, c.head_dim, rope), l.rope(k, c.head_dim, rope));
        let mut h = l.attend(q, k, v, attention);
        if n + 1 == c.blocks {
            // No other row looks at these from here on.
            (x, h) = (g.select_rows(x), g.select_rows(h));
        }
        x = l.layer_norm(g.add(x, l.linear(h, "attn_output")), "attn_output_norm");

        let up = l.linear(x, "ffn_up");
        let h = if nomic { g.glu(l.linear(x, "ffn_gate"), up, Act::Silu) } else { g.act(up, Act::GeluErf) };
        x = l.layer_norm(g.add(x, l.linear(h, "ffn_down")), "layer_output_norm");
    }
    let x = g.pool(x);
    Ok(g.finish_rows(x)?)
}
