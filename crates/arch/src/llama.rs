//! Llama and its kin: Mistral, Mixtral, Qwen 2 and 3, SmolLM 2 and 3, Granite, OLMoE, ERNIE 4.5, GLM 4.5, dense or of experts.
//!
//! Llama: Touvron et al. 2023, arXiv:2302.13971. What most of the others add shows in the file itself: biases beside
//! the matrices (Qwen 2), a norm of each head (Qwen 3), divisors of the rope's frequencies (Llama 3). The rest is
//! [`Family`].

use cera_plan::{Act, Graph, Plan, Rope, RopeStyle, Tensors};

use crate::Error;
use crate::config::Config;
use crate::feed_forward::{Choice, Experts, SOFTMAX, feed_forward};
use crate::joined::queries_keys_values;

/// What differs between the members and does not show in the tensors.
pub(crate) struct Family {
    /// Files of the Llama kind hold rows permuted so that neighbours turn together; the others do not.
    pub style: RopeStyle,
    /// Norms of queries and keys.
    pub query_norms: QueryNorms,
    /// The name of the norm between attention and what follows it.
    pub second_norm: &'static str,
    /// How experts are chosen, where the file may have them.
    pub experts: Option<Choice>,
    /// Every how many blocks one goes without positions (SmolLM 3, after arXiv:2501.18795).
    pub no_rope_every: Option<usize>,
    /// The file may give every block a window (Mistral 7B, arXiv:2310.06825).
    pub window: bool,
    /// The file has factors for embeddings, residuals and logits, and a switch for rope (Granite 3).
    pub scales: bool,
}

/// Which norms queries and keys have before they turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueryNorms {
    /// Of each head, where the file has them.
    Found,
    /// Of each head.
    Heads,
    /// Of the whole row (OLMoE, arXiv:2409.02060).
    Row,
}

/// The first of the family.
pub(crate) const LLAMA: Family = Family {
    style: RopeStyle::Interleaved,
    query_norms: QueryNorms::Found,
    second_norm: "ffn_norm",
    experts: Some(SOFTMAX),
    no_rope_every: None,
    window: true,
    scales: false,
};

/// What Granite's keys say; 1 and on for the others.
struct Scales {
    embedding: f32,
    residual: f32,
    logits: f32,
    rope: bool,
}

impl Scales {
    fn read(c: &Config<'_>, family: &Family) -> Result<Self, Error> {
        if !family.scales {
            c.refuse(&[("embedding_scale", 1.0), ("residual_scale", 1.0), ("logit_scale", 1.0)])?;
            return Ok(Scales { embedding: 1.0, residual: 1.0, logits: 1.0, rope: true });
        }
        Ok(Scales {
            embedding: c.positive("embedding_scale")?.unwrap_or(1.0),
            residual: c.positive("residual_scale")?.unwrap_or(1.0),
            // Granite divides.
            logits: 1.0 / c.positive("logit_scale")?.unwrap_or(1.0),
            rope: c.flag("rope.scaling.finetuned")?.unwrap_or(true),
        })
    }
}

/// Records the model.
pub(crate) fn build(c: &Config<'_>, tensors: &dyn Tensors, family: &Family) -> Result<Plan, Error> {
    let scales = Scales::read(c, family)?;
    let attention_scale = c.positive("attention.scale")?.unwrap_or(1.0 / (c.head_dim as f32).sqrt());
    if !family.window {
        c.refuse(&[("attention.sliding_window", 0.0)])?;
    }
    c.refuse(&[("attention.sliding_window_pattern", 0.0), ("final_logit_softcapping", 0.0)])?;
    let window = c.count_or_none("attention.sliding_window")?;
    let experts = family.experts.map(|choice| Experts::read(c, &choice)).transpose()?.flatten();

    let g = Graph::new(tensors, c.eps);
    let mut x = g.scale(g.embed("token_embd", c.width), scales.embedding);
    for n in 0..c.blocks {
        let l = g.layer(n);
        let has_rope = scales.rope && family.no_rope_every.is_none_or(|every| !(n + 1).is_multiple_of(every));
        let turn = c.rope(family.style);
        let rope = has_rope.then(|| Rope { factors: l.rope_factors(turn.dims), ..turn });
        let query_norm = |x, name| match family.query_norms {
            QueryNorms::Found => l.head_norm(x, name, c.head_dim),
            QueryNorms::Heads => l.need_head_norm(x, name, c.head_dim),
            QueryNorms::Row => l.rms_norm(x, name),
        };

        let h = l.rms_norm(x, "attn_norm");
        let attention = c.attention(n, attention_scale, window);
        let [q, k, v] = queries_keys_values(&l, h, &attention);
        let q = l.rope(query_norm(q, "attn_q_norm"), c.head_dim, rope);
        let k = l.rope(query_norm(k, "attn_k_norm"), c.head_dim, rope);
        let mut h = l.attend(q, k, v, attention);
        if n + 1 == c.blocks {
            // No later position looks at the others from here on.
            (x, h) = (g.select_rows(x), g.select_rows(h));
        }
        x = g.add(x, g.scale(l.linear(h, "attn_output"), scales.residual));

        let h = l.rms_norm(x, family.second_norm);
        let y = feed_forward(&g, &l, n, h, Act::Silu, experts.as_ref());
        x = g.add(x, g.scale(y, scales.residual));
    }
    let x = g.rms_norm(x, "output_norm");
    let logits = g.linear(x, if g.has("output") { "output" } else { "token_embd" });
    let logits = g.scale(logits, scales.logits);
    Ok(g.finish(logits)?)
}
