//! BERT (Devlin et al. 2018, arXiv:1810.04805), RoBERTa and XLM-RoBERTa, whose files are of the same kind, and two
//! without tables of positions: Nomic's (Nussbaum et al. 2024, arXiv:2402.01613), whose heads turn, and Jina's second
//! (Günther et al. 2023, arXiv:2310.19923), whose scores lose by distance. Both have gated units.
//!
//! An encoder: rows see all of their sequence. Learned positions and types are added to the tokens' rows, each half of
//! a block is normalised behind its sum, and nothing makes logits: the rows themselves are the result.

use cera_plan::{Act, Attention, Graph, Plan, RopeStyle, Tensors};

use crate::joined::queries_keys_values;
use crate::{Error, config::Config};

/// Records BERT.
pub(crate) fn build(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    build_with(c, tensors, Positions::Table)
}

/// Records Nomic's.
pub(crate) fn build_nomic(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    build_with(c, tensors, Positions::Turns)
}

/// Records Jina's second.
pub(crate) fn build_jina(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    build_with(c, tensors, Positions::Distance(c.positive("attention.max_alibi_bias")?.unwrap_or(8.0)))
}

/// How rows know their places, which tells the three apart.
#[derive(Clone, Copy)]
enum Positions {
    /// A row for each is added; units without gates.
    Table,
    /// Heads turn; gates by SiLU.
    Turns,
    /// Scores lose by distance; gates by GELU, beside what they multiply or before it in one matrix.
    Distance(f32),
}

fn build_with(c: &Config<'_>, tensors: &dyn Tensors, positions: Positions) -> Result<Plan, Error> {
    c.refuse(&[("attention.sliding_window", 0.0), ("attention.scale", 0.0), ("embedding_scale", 1.0)])?;
    let scale = 1.0 / (c.head_dim as f32).sqrt();

    let g = Graph::new(tensors, c.eps);
    let mut x = g.embed("token_embd", c.width);
    if g.has("token_types") {
        // A text by itself is of the first type, and so is a pair of texts where there is no other.
        x = g.add_first_row(x, "token_types");
        if g.scores() && g.rows("token_types") > 1 {
            let why = "pairs of texts whose second has a type of its own (`token_types`) cannot be scored";
            g.fault(cera_plan::Error::Config(why.into()));
        }
    }
    let (mut rope, mut alibi) = (None, None);
    match positions {
        Positions::Table => x = g.add(x, g.embed_position("position_embd", c.width)),
        Positions::Turns => rope = Some(c.rope(RopeStyle::Halved)),
        Positions::Distance(most) => alibi = Some(most),
    }
    let unit = if alibi.is_some() { c.count("feed_forward_length")? } else { 0 };
    x = g.layer_norm(x, "token_embd_norm");
    for n in 0..c.blocks {
        let l = g.layer(n);
        let attention = Attention { causal: false, alibi, ..c.attention(n, scale, None) };

        let [q, k, v] = queries_keys_values(&l, x, &attention);
        let (q, k) = (l.rope(q, c.head_dim, rope), l.rope(k, c.head_dim, rope));
        let mut h = l.attend(q, k, v, attention);
        if n + 1 == c.blocks {
            // No other row looks at these from here on.
            (x, h) = (g.select_rows(x), g.select_rows(h));
        }
        x = l.layer_norm(g.add(x, l.linear(h, "attn_output")), "attn_output_norm");

        let up = l.linear(x, "ffn_up");
        let h = match positions {
            Positions::Turns => g.glu(l.linear(x, "ffn_gate"), up, Act::Silu),
            Positions::Distance(_) if l.has("ffn_gate") => g.glu(l.linear(x, "ffn_gate"), up, Act::GeluErf),
            Positions::Distance(_) if g.width(up) == 2 * unit => {
                let [gate, up] = [0, unit].map(|first| g.take(up, first, unit, 2 * unit));
                g.glu(gate, up, Act::GeluErf)
            }
            Positions::Distance(_) | Positions::Table => g.act(up, Act::GeluErf),
        };
        x = l.layer_norm(g.add(x, l.linear(h, "ffn_down")), "layer_output_norm");
    }
    let x = g.score(g.pool(x), Act::Tanh);
    Ok(g.finish_rows(x)?)
}
