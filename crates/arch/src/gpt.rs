//! Decoders with layer norms: GPT-2 and StarCoder, GPT-NeoX, Phi 1 and 2, StarCoder 2, StableLM, Falcon, Nemotron,
//! Jais 2, Command R.
//!
//! GPT-2: Radford et al. 2019. The others turn heads by their positions where it adds a table (Su et al. 2021,
//! arXiv:2104.09864), and many let both halves of a block read the same row (Wang and Komatsuzaki 2021). Biases stand
//! where the file has them; the rest is [`Family`].

use cera_plan::{Act, Graph, Layer, Plan, Rope, RopeStyle, Tensors};

use crate::feed_forward::{Unit, dense};
use crate::joined::queries_keys_values;
use crate::{Error, config::Config};

/// What differs between the members and does not show in the tensors.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    /// How heads turn. Where they do not, a table of positions is added to the tokens' rows.
    pub style: Option<RopeStyle>,
    /// What the halves of a block read.
    pub halves: Halves,
    /// The half behind attention.
    pub unit: Unit,
    /// Where some blocks have a window: every how many of them one has none, and no positions either (Command R7B, after
    /// arXiv:2501.18795), unless the file says it otherwise.
    pub global_every: Option<usize>,
    /// The file has a factor for the logits.
    pub logit_scale: bool,
}

/// What the halves of a block read, and by which norms.
#[derive(Clone, Copy)]
pub(crate) enum Halves {
    /// The second one reads what the first one has been added to.
    InTurn,
    /// Both read the block's row, normalised once.
    Shared,
    /// Each reads the block's row by its own norm, or they are in turn: `use_parallel_residual` says which (GPT-NeoX).
    Said,
    /// Shared where the block has no second norm, else in turn (StableLM). Files of models in turn may call themselves
    /// parallel, since that is what llama.cpp's converter takes for granted.
    Found,
    /// Each by its own norm where the block has two, named as Falcon's are; else shared.
    Falcon,
}

pub(crate) const GPT2: Family = Family {
    style: None,
    halves: Halves::InTurn,
    unit: Unit::Plain(Act::GeluTanh),
    global_every: None,
    logit_scale: false,
};

/// Two norms in turn, and heads whose halves turn (StarCoder 2, arXiv:2402.19173). Its window of 4,096 positions is not
/// in files.
pub(crate) const STARCODER2: Family = Family { style: Some(RopeStyle::Halved), ..GPT2 };

/// Black et al. 2022, arXiv:2204.06745; Pythia, arXiv:2304.01373.
pub(crate) const NEOX: Family =
    Family { halves: Halves::Said, unit: Unit::Plain(Act::GeluErf), ..STARCODER2 };

/// Gunasekar et al. 2023, arXiv:2306.11644.
pub(crate) const PHI: Family = Family { halves: Halves::Shared, ..STARCODER2 };

/// Almazrouei et al. 2023, arXiv:2311.16867.
pub(crate) const FALCON: Family =
    Family { halves: Halves::Falcon, unit: Unit::Plain(Act::GeluErf), ..STARCODER2 };

/// Bellagente et al. 2024, arXiv:2402.17834.
pub(crate) const STABLELM: Family =
    Family { halves: Halves::Found, unit: Unit::Gated(Act::Silu), ..STARCODER2 };

/// Squared rectifiers (Nemotron 4, arXiv:2402.16819; Jais 2). Nemotron's norms are stored less by one, and converters add it.
pub(crate) const NEMOTRON: Family = Family { unit: Unit::Plain(Act::Relu2), ..STARCODER2 };

/// Cohere 2024, of the first generation.
pub(crate) const COMMAND_R: Family = Family {
    style: Some(RopeStyle::Interleaved),
    halves: Halves::Shared,
    unit: Unit::Gated(Act::Silu),
    global_every: None,
    logit_scale: true,
};

/// Cohere 2025, arXiv:2504.00698.
pub(crate) const COHERE2: Family = Family { global_every: Some(4), ..COMMAND_R };

/// Blocks of GPT-NeoX 20B, which alone of its kind was trained with the other form of GELU; files do not say it.
const BLOCKS_OF_NEOX_20B: usize = 44;

/// Records GPT-NeoX.
pub(crate) fn neox(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    let act = if c.blocks == BLOCKS_OF_NEOX_20B { Act::GeluTanh } else { Act::GeluErf };
    build(c, tensors, &Family { unit: Unit::Plain(act), ..NEOX })
}

/// The norms of one block's halves, and whether both read the block's row.
struct Norms {
    attention: &'static str,
    /// None: the one of attention.
    unit: Option<&'static str>,
    parallel: bool,
}

impl Norms {
    fn read(c: &Config<'_>, l: &Layer<'_>, halves: Halves) -> Result<Norms, Error> {
        let two = |parallel| Norms { attention: "attn_norm", unit: Some("ffn_norm"), parallel };
        let shared = Norms { attention: "attn_norm", unit: None, parallel: true };
        Ok(match halves {
            Halves::InTurn => two(false),
            Halves::Shared => shared,
            Halves::Said => two(c.flag("use_parallel_residual")?.unwrap_or(true)),
            Halves::Found => {
                c.heed("use_parallel_residual");
                if l.has("ffn_norm") { two(false) } else { shared }
            }
            Halves::Falcon if l.has("attn_norm_2") => {
                Norms { attention: "attn_norm_2", unit: Some("attn_norm"), parallel: true }
            }
            Halves::Falcon => shared,
        })
    }
}

/// Records the model.
pub(crate) fn build(c: &Config<'_>, tensors: &dyn Tensors, family: &Family) -> Result<Plan, Error> {
    c.refuse(&[("attention.scale", 0.0), ("embedding_scale", 1.0), ("residual_scale", 1.0)])?;
    c.refuse(&[("final_logit_softcapping", 0.0)])?;
    let logit_scale = if family.logit_scale { c.positive("logit_scale")? } else { None };
    if !family.logit_scale {
        c.refuse(&[("logit_scale", 1.0)])?;
    }
    let (window, global) = match family.global_every {
        Some(every) => {
            let windowed = c.windowed("attention.sliding_window_pattern", every)?;
            (c.count_or_none("attention.sliding_window")?, windowed.iter().map(|w| !w).collect())
        }
        None => {
            c.refuse(&[("attention.sliding_window", 0.0), ("attention.sliding_window_pattern", 0.0)])?;
            (None, vec![false; c.blocks])
        }
    };
    let scale = 1.0 / (c.head_dim as f32).sqrt();

    let g = Graph::new(tensors, c.eps);
    let mut x = g.embed("token_embd", c.width);
    if family.style.is_none() {
        x = g.add(x, g.embed_position("position_embd", c.width));
    }
    for (n, &global) in global.iter().enumerate() {
        let l = g.layer(n);
        let norms = Norms::read(c, &l, family.halves)?;
        let attention = c.attention(n, scale, window.filter(|_| !global));
        let rope = family.style.filter(|_| !global).map(|style| {
            let turn = c.rope(style);
            Rope { factors: l.rope_factors(turn.dims), ..turn }
        });

        let mut h = l.layer_norm(x, norms.attention);
        let [q, k, v] = queries_keys_values(&l, h, &attention);
        let q = l.rope(l.head_layer_norm(q, "attn_q_norm", c.head_dim), c.head_dim, rope);
        let k = l.rope(l.head_layer_norm(k, "attn_k_norm", c.head_dim), c.head_dim, rope);
        let mut attended = l.attend(q, k, v, attention);
        if n + 1 == c.blocks {
            // No later position looks at the others from here on.
            (x, attended) = (g.select_rows(x), g.select_rows(attended));
            if norms.unit.is_none() {
                h = g.select_rows(h);
            }
        }
        let sum = g.add(x, l.linear(attended, "attn_output"));
        if let Some(norm) = norms.unit {
            h = l.layer_norm(if norms.parallel { x } else { sum }, norm);
        }
        x = g.add(sum, dense(c, &g, &l, h, family.unit)?);
    }
    let x = g.layer_norm(x, "output_norm");
    let logits = g.linear(x, if g.has("output") { "output" } else { "token_embd" });
    let logits = g.scale(logits, logit_scale.unwrap_or(1.0));
    Ok(g.finish(logits)?)
}
