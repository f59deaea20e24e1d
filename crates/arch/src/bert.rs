//! BERT (Devlin et al. 2018, arXiv:1810.04805), and RoBERTa and XLM-RoBERTa, whose files are of the same kind.
//!
//! An encoder: rows see all of their sequence. Learned positions and types are added to the tokens' rows, each half of
//! a block is normalised behind its sum, and nothing makes logits: the rows themselves are the result.

use cera_plan::{Act, Attention, Graph, Plan, Tensors};

use crate::{Error, config::Config};

/// Records the model.
pub(crate) fn build(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    c.refuse(&[("attention.sliding_window", 0.0), ("attention.scale", 0.0), ("embedding_scale", 1.0)])?;
    let scale = 1.0 / (c.head_dim as f32).sqrt();

    let g = Graph::new(tensors, c.eps);
    let mut x = g.embed("token_embd", c.width);
    if g.has("token_types") {
        // A text by itself is of the first type. Pairs of texts, whose second is of the other, are not taken.
        x = g.add_first_row(x, "token_types");
    }
    x = g.add(x, g.embed_position("position_embd", c.width));
    x = g.layer_norm(x, "token_embd_norm");
    for n in 0..c.blocks {
        let l = g.layer(n);
        let attention = Attention { causal: false, ..c.attention(n, scale, None) };

        let (q, k, v) = (l.linear(x, "attn_q"), l.linear(x, "attn_k"), l.linear(x, "attn_v"));
        let mut h = l.attend(q, k, v, attention);
        if n + 1 == c.blocks {
            // No other row looks at these from here on.
            (x, h) = (g.select_rows(x), g.select_rows(h));
        }
        x = l.layer_norm(g.add(x, l.linear(h, "attn_output")), "attn_output_norm");

        let h = g.act(l.linear(x, "ffn_up"), Act::GeluErf);
        x = l.layer_norm(g.add(x, l.linear(h, "ffn_down")), "layer_output_norm");
    }
    let x = g.pool(x);
    Ok(g.finish_rows(x)?)
}
