//! Gemma 3n, text (Gemma Team 2025).
//!
//! Several streams of rows run side by side, one of which goes through a block, while the others are guessed from all of
//! them and set right by what the block made of it (AltUp: Baykal et al. 2023, arXiv:2301.13310). Each block gets a row of
//! its own of the token, besides; a matrix of low rank goes past attention (LAuReL: Menghani et al. 2024,
//! arXiv:2411.07501); the first blocks keep the greatest gates alone; the last ones look at keys and values of earlier ones.

use std::f32::consts::FRAC_1_SQRT_2;

use cera_plan::{Act, Attention, Graph, KvLayer, Layer, Plan, Rope, RopeStyle, Tensors, Val};

use crate::{Error, config::Config};

/// Records the model.
pub(crate) fn build(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    let streams = c.count("altup.num_inputs")?;
    let active = c.count_or_none("altup.active_idx")?.unwrap_or(0);
    if active >= streams {
        return Err(c.value("altup.active_idx", active, format!("there are {streams} streams")));
    }
    let input = c.count("embedding_length_per_layer_input")?;
    // What is not finite says that the block keeps all gates.
    let thresholds = c.floats_per_block("activation_sparsity_scale")?.unwrap_or_default();
    let window = c.count_or_none("attention.sliding_window")?;
    let local = c.windowed("attention.sliding_window_pattern", 5)?;
    let cap = c.positive_or_none("final_logit_softcapping")?;
    let ropes = ropes(c)?;
    let mut cache = Cache::read(c)?;

    let g = Graph::new(tensors, c.eps);
    let x = g.scale(g.embed("token_embd", c.width), (c.width as f32).sqrt());
    let inputs = Inputs::new(c, &g, x, input);
    let further =
        (1..streams).map(|i| g.match_size(g.linear_of_stack(x, "altup_proj", i - 1, streams - 1), x));
    let mut xs: Vec<Val> = std::iter::once(x).chain(further).collect();
    for (n, &local) in local.iter().enumerate() {
        let l = g.layer(n);
        let last = n + 1 == c.blocks;
        let mut predicted = predict(&g, &l, &xs, active);
        let h = l.rms_norm(predicted[active], "attn_norm");
        let past = l.rms_norm(l.linear(l.linear(h, "laurel_l"), "laurel_r"), "laurel_post_norm");
        let mut past = g.add(past, h);
        let attention = c.attention(n, 1.0, window.filter(|_| local));
        let mut h = cache.attend(&g, &l, n, h, attention, (local, ropes[usize::from(local)]));
        if last {
            // No later position looks at the others from here on.
            predicted = predicted.into_iter().map(|x| g.select_rows(x)).collect();
            (h, past) = (g.select_rows(h), g.select_rows(past));
        }
        let h = g.add(l.rms_norm(l.linear(h, "attn_output"), "post_attention_norm"), predicted[active]);
        let x = g.scale(g.add(h, past), FRAC_1_SQRT_2);

        let h = l.rms_norm(x, "ffn_norm");
        let mut gate = l.linear(h, "ffn_gate");
        if let Some(&threshold) = thresholds.get(n).filter(|t| t.is_finite()) {
            gate = g.sparsify(gate, threshold);
        }
        let h = l.linear(g.glu(gate, l.linear(h, "ffn_up"), Act::GeluTanh), "ffn_down");
        let x = g.add(x, l.rms_norm(h, "post_ffw_norm"));

        xs = correct(&g, &l, &predicted, active, x);
        let own = inputs.of(&g, &l, n, l.scale_columns(xs[active], "altup_correct_scale.weight"), last);
        xs.iter_mut().skip(1).for_each(|x| *x = g.add(*x, own));
    }
    let first = xs[0];
    let mut x = first;
    for (i, &further) in xs.iter().enumerate().skip(1) {
        let further = g.linear_of_stack(further, "altup_unembd_proj", i - 1, streams - 1);
        x = g.add(x, g.match_size(further, first));
    }
    let x = g.rms_norm(g.scale(x, 1.0 / streams as f32), "output_norm");
    let logits = g.linear(x, if g.has("output") { "output" } else { "token_embd" });
    let logits = g.softcap(logits, cap);
    Ok(g.finish(logits)?)
}

/// The ropes of blocks that see everything, and of those with a window.
fn ropes(c: &Config<'_>) -> Result<[Rope; 2], Error> {
    // The file's scale is for the blocks that see everything.
    let base = c.positive("rope.freq_base_swa")?.unwrap_or(10_000.0);
    Ok([c.rope(RopeStyle::Halved), Rope { base, ..c.unscaled_rope(RopeStyle::Halved) }])
}

/// How much each stream has to do with a row, between -1 and 1.
fn modalities(g: &Graph<'_>, l: &Layer<'_>, x: Val) -> Val {
    let h = l.rms_norm(x, "altup_router_norm");
    let h = l.linear(g.scale(h, 1.0 / g.width(x) as f32), "altup_router");
    // A cap of 1 is the hyperbolic tangent.
    g.softcap(h, Some(1.0))
}

/// What each stream will be behind the block: itself, and of each other what the block's matrix says.
fn predict(g: &Graph<'_>, l: &Layer<'_>, xs: &[Val], active: usize) -> Vec<Val> {
    let by = l.linear(modalities(g, l, xs[active]), "altup_predict_coef");
    xs.iter().enumerate().map(|(i, &x)| g.blend(x, xs, by, i * xs.len())).collect()
}

/// What each stream was to be, set right by how far `x`, what the block made, is from what the active one was to be.
fn correct(g: &Graph<'_>, l: &Layer<'_>, predicted: &[Val], active: usize, x: Val) -> Vec<Val> {
    let by = l.linear(modalities(g, l, x), "altup_correct_coef");
    let off = g.add(x, g.scale(predicted[active], -1.0));
    predicted.iter().enumerate().map(|(i, &p)| g.blend(g.add(p, off), &[off], by, i)).collect()
}

/// The row that each block gets of the token itself: from a table of its own, and from the row that goes into the first.
pub(crate) struct Inputs {
    all: Val,
    /// Elements of one block's.
    len: usize,
    blocks: usize,
}

impl Inputs {
    /// Records those of all blocks; `x` is the embedding as it goes into the first.
    pub fn new(c: &Config<'_>, g: &Graph<'_>, x: Val, len: usize) -> Inputs {
        let of_token = g.embed("per_layer_token_embd", len.saturating_mul(c.blocks));
        let of_token = g.scale(of_token, (len as f32).sqrt());
        let of_row = g.scale(g.linear(x, "per_layer_model_proj"), 1.0 / (c.width as f32).sqrt());
        let of_row = g.norm_of_groups(of_row, "per_layer_proj_norm", len);
        Inputs { all: g.scale(g.add(of_row, of_token), FRAC_1_SQRT_2), len, blocks: c.blocks }
    }

    /// What block `n` adds for its own, gated by `x`, whose rows are the wanted ones where `wanted`.
    pub fn of(&self, g: &Graph<'_>, l: &Layer<'_>, n: usize, x: Val, wanted: bool) -> Val {
        let own = g.take(self.all, n * self.len, self.len, self.len.saturating_mul(self.blocks));
        let own = if wanted { g.select_rows(own) } else { own };
        let h = g.mul(g.act(l.linear(x, "inp_gate"), Act::GeluTanh), own);
        l.rms_norm(l.linear(h, "proj"), "post_norm")
    }
}

/// Keys and values: each block's own, but for the last blocks, which share those of the last before them that is of their
/// kind (with a window, or without).
pub(crate) struct Cache<'a> {
    c: &'a Config<'a>,
    /// The first block that has none of its own.
    first: usize,
    layers: [Option<KvLayer>; 2],
}

impl<'a> Cache<'a> {
    /// Reads how many blocks share, and leaves out what files hold of keys and values for these.
    pub fn read(c: &'a Config<'a>) -> Result<Self, Error> {
        let shared = c.count_or_none("attention.shared_kv_layers")?.unwrap_or(0);
        let Some(first) = c.blocks.checked_sub(shared).filter(|&first| first > 0) else {
            let why = format!("of {} blocks", c.blocks);
            return Err(c.value("attention.shared_kv_layers", shared, why));
        };
        for n in first..c.blocks {
            for name in ["attn_k", "attn_v", "attn_k_norm"] {
                c.leave_out(format!("blk.{n}.{name}.weight"));
            }
        }
        Ok(Cache { c, first, layers: [None; 2] })
    }

    /// Block `n`'s attention over normalised rows, up to its output matrix. Queries and keys are normalised by heads and
    /// turn by the rope; values are normalised without factors, and are the keys where there is no matrix for them.
    pub fn attend(
        &mut self,
        g: &Graph<'_>,
        l: &Layer<'_>,
        n: usize,
        h: Val,
        attention: Attention,
        (local, rope): (bool, Rope),
    ) -> Val {
        let dim = attention.head_dim;
        let q = l.need_head_norm(l.linear(h, "attn_q"), "attn_q_norm", dim);
        let q = l.rope(q, dim, Some(rope));
        let layer = &mut self.layers[usize::from(local)];
        if n < self.first {
            let k = l.linear(h, "attn_k");
            let v = if l.has("attn_v") { l.linear(h, "attn_v") } else { k };
            let k = l.rope(l.need_head_norm(k, "attn_k_norm", dim), dim, Some(rope));
            let (out, own) = l.attend_and_share(q, k, g.unit_norm(v, dim), attention);
            *layer = Some(own);
            return out;
        }
        match *layer {
            Some(layer) => l.attend_shared(q, layer, attention),
            None => {
                let why = "it is to share keys and values of an earlier block of its kind, but there is none";
                g.fault(self.c.of_block(n, why));
                q
            }
        }
    }
}
