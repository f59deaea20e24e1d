//! Llama and its kin: Mistral, Mixtral, Qwen 2 and 3, SmolLM 2 and 3, Granite, MiniCPM, OLMo, ERNIE 4.5, GLM 4, Phi 3 and 4,
//! EXAONE 4, Hunyuan, Seed, Arcee, dense or of experts.
//!
//! Llama: Touvron et al. 2023, arXiv:2302.13971. What most of the others add shows in the file itself: biases beside
//! the matrices (Qwen 2), a norm of each head (Qwen 3), divisors of the rope's frequencies (Llama 3). The rest is
//! [`Family`].

use cera_plan::{Act, Graph, Layer, Plan, Rope, RopeStyle, Tensors};

use crate::Error;
use crate::config::{Config, LONG_FACTORS};
use crate::feed_forward::{Choice, Experts, SOFTMAX, Unit, dense, feed_forward};
use crate::joined::queries_keys_values;

/// What differs between the members and does not show in the tensors.
pub(crate) struct Family {
    /// Files of the Llama kind hold rows permuted so that neighbours turn together; the others do not.
    pub style: RopeStyle,
    /// Norms of queries and keys.
    pub query_norms: QueryNorms,
    /// The norms before the halves of a block, where there are any.
    pub norms: Option<[&'static str; 2]>,
    /// Whether norms stand behind the halves, before the sums: `post_attention_norm` and `post_ffw_norm`.
    pub norms_behind: bool,
    /// The half behind attention, where it is dense.
    pub unit: Unit,
    /// How experts are chosen, where the file may have them.
    pub experts: Option<Choice>,
    /// Every how many blocks one goes without positions (SmolLM 3, after arXiv:2501.18795).
    pub no_rope_every: Option<usize>,
    /// Which blocks may have a window.
    pub windows: Windows,
    /// The file has factors for embeddings, residuals and logits, and a switch for rope (Granite 3).
    pub scales: bool,
}

/// Which blocks look back over a window.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Windows {
    /// None, whatever the file.
    None,
    /// Every one, where the file gives it (Mistral 7B, arXiv:2310.06825).
    Every,
    /// Where the file gives a window, all but every so many, or those that it names.
    Local(usize, Local),
}

/// What is particular to the positions of blocks with a window.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Local {
    /// They are not scaled (OLMo 3, arXiv:2512.13961).
    Unscaled,
    /// The others have none (EXAONE 4).
    AlonePlaced,
}

/// Which norms queries and keys have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueryNorms {
    /// Of each head, where the file has them.
    Found,
    /// Of each head.
    Heads,
    /// Of the whole row (OLMoE, arXiv:2409.02060).
    Row,
    /// Of each head, behind its rotation (Hunyuan, arXiv:2411.02265).
    Turned,
}

/// The first of the family.
pub(crate) const LLAMA: Family = Family {
    style: RopeStyle::Interleaved,
    query_norms: QueryNorms::Found,
    norms: Some(["attn_norm", "ffn_norm"]),
    norms_behind: false,
    unit: Unit::Gated(Act::Silu),
    experts: Some(SOFTMAX),
    no_rope_every: None,
    windows: Windows::None,
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
    c.refuse(&[("final_logit_softcapping", 0.0)])?;
    let (window, windowed) = windows(c, family)?;
    let experts = family.experts.map(|choice| Experts::read(c, &choice)).transpose()?.flatten();

    let g = Graph::new(tensors, c.eps);
    let mut x = g.scale(g.embed("token_embd", c.width), scales.embedding);
    for (n, &windowed) in windowed.iter().enumerate() {
        let l = g.layer(n);
        let window = window.filter(|_| windowed);
        let has_rope = scales.rope && family.no_rope_every.is_none_or(|every| !(n + 1).is_multiple_of(every));
        let rope = if has_rope { rope_of(c, &g, &l, family, windowed)? } else { None };
        let prepared = |x, name| match family.query_norms {
            QueryNorms::Found => l.rope(l.head_norm(x, name, c.head_dim), c.head_dim, rope),
            QueryNorms::Heads => l.rope(l.need_head_norm(x, name, c.head_dim), c.head_dim, rope),
            QueryNorms::Row => l.rope(l.rms_norm(x, name), c.head_dim, rope),
            QueryNorms::Turned => l.need_head_norm(l.rope(x, c.head_dim, rope), name, c.head_dim),
        };
        let before = |x, half: usize| family.norms.map_or(x, |names| l.rms_norm(x, names[half]));
        let behind = |x, name| if family.norms_behind { l.rms_norm(x, name) } else { x };

        let h = before(x, 0);
        let attention = c.attention(n, attention_scale, window);
        let [q, k, v] = queries_keys_values(&l, h, &attention);
        let (q, k) = (prepared(q, "attn_q_norm"), prepared(k, "attn_k_norm"));
        let mut h = l.attend(q, k, v, attention);
        if n + 1 == c.blocks {
            // No later position looks at the others from here on.
            (x, h) = (g.select_rows(x), g.select_rows(h));
        }
        let h = behind(l.linear(h, "attn_output"), "post_attention_norm");
        x = g.add(x, g.scale(h, scales.residual));

        let h = before(x, 1);
        let y = match family.unit {
            Unit::Gated(act) => feed_forward(&g, &l, n, h, act, experts.as_ref()),
            unit => dense(c, &g, &l, h, unit)?,
        };
        x = g.add(x, g.scale(behind(y, "post_ffw_norm"), scales.residual));
    }
    let x = g.rms_norm(x, "output_norm");
    let logits = g.linear(x, if g.has("output") { "output" } else { "token_embd" });
    let logits = g.scale(logits, scales.logits);
    Ok(g.finish(logits)?)
}

/// The file's window, and which blocks have it.
fn windows(c: &Config<'_>, family: &Family) -> Result<(Option<usize>, Vec<bool>), Error> {
    let (key, pattern) = ("attention.sliding_window", "attention.sliding_window_pattern");
    if family.windows == Windows::None {
        c.refuse(&[(key, 0.0)])?;
    }
    let window = c.count_or_none(key)?;
    let windowed = match (family.windows, window) {
        (Windows::Local(every, _), Some(_)) => c.windowed(pattern, every)?,
        (Windows::Local(..), None) => vec![false; c.blocks],
        _ => {
            c.refuse(&[(pattern, 0.0)])?;
            vec![window.is_some(); c.blocks]
        }
    };
    Ok((window, windowed))
}

/// How the heads of a block turn, where they do.
fn rope_of(
    c: &Config<'_>,
    g: &Graph<'_>,
    l: &Layer<'_>,
    family: &Family,
    windowed: bool,
) -> Result<Option<Rope>, Error> {
    let Windows::Local(_, local) = family.windows else {
        return scaled_rope(c, g, l, family.style).map(Some);
    };
    let has_windows = c.count_or_none("attention.sliding_window")?.is_some();
    Ok(match local {
        Local::Unscaled if windowed => {
            let rope = c.unscaled_rope(family.style);
            Some(Rope { base: c.positive("rope.freq_base_swa")?.unwrap_or(rope.base), ..rope })
        }
        Local::AlonePlaced if has_windows && !windowed => None,
        _ => Some(scaled_rope(c, g, l, family.style)?),
    })
}

/// The rope that the file describes, with the divisors that it has for all texts, or for those of a length.
fn scaled_rope(c: &Config<'_>, g: &Graph<'_>, l: &Layer<'_>, style: RopeStyle) -> Result<Rope, Error> {
    let rope = c.rope(style);
    let factors = match l.rope_factors(rope.dims) {
        None if c.long_rope || LONG_FACTORS.iter().any(|name| g.has(name)) => {
            Some(l.need_rope_factors(c.long_factors()?, rope.dims))
        }
        factors => factors,
    };
    Ok(Rope { factors, ..rope })
}

/// Records MiniCPM (Hu et al. 2024, arXiv:2404.06395), whose factors are Granite's by other names.
pub(crate) fn minicpm(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    for key in ["embedding_scale", "residual_scale", "logit_scale"] {
        // Files of before 2025 lack them, and mean those of the first models.
        c.need_positive(key)?;
    }
    build(c, tensors, &Family { scales: true, experts: None, ..LLAMA })
}
