//! The ops: what a step can do.
//!
//! Every op is a pure function of its inputs (values, weights, the step's positions) except
//! [`Op::KvWrite`], which fills the cache that a later [`Op::Attend`] of the same layer reads, and the ops of the module
//! `recurrent`, which take a state from row to row of a sequence and from step to step. The meaning
//! of each op is the code of the reference backend; what is written here is its shape.
//!
//! Shapes below read `[rows, width]`, row-major. `rows` is the number of tokens in the step, or, behind
//! [`Op::SelectRows`], the number of rows whose logits are wanted.

use std::ops::Range;

use crate::experts::{ExpertMatrices, Routed, Routing};
use crate::{Columns, DeltaNet, SelectiveScan, ShortConv};

/// A value: an activation of `rows x width` f32, by its index into [`Plan::values`](crate::Plan::values).
/// Each value is written by exactly one op.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Val(pub u32);

/// A weight, by its index into [`Plan::weights`](crate::Plan::weights).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Wt(pub u32);

/// A recurrent state, by its index into [`Plan::states`](crate::Plan::states).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StateLayer(pub u32);

/// A layer of the key-value cache, by its index into [`Plan::kv`](crate::Plan::kv).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct KvLayer(pub u32);

impl Val {
    /// The value's place in `Plan::values`.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Wt {
    /// The weight's place in `Plan::weights`.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl StateLayer {
    /// The state's place in `Plan::states`.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl KvLayer {
    /// The layer's place in `Plan::kv`.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Root-mean-square normalisation (Zhang and Sennrich 2019): `x / sqrt(mean(x^2) + eps) * weight`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Norm {
    /// `[width]`, or `[head_dim]` where each head is normalised by itself.
    pub weight: Wt,
    /// Added to the mean square.
    pub eps: f32,
}

/// An activation, alone or of a gated linear unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))` (Hendrycks and Gimpel 2016).
    GeluTanh,
    /// `x / 2 * (1 + erf(x / sqrt(2)))` (Hendrycks and Gimpel 2016).
    GeluErf,
    /// `x / (1 + exp(-1.702 x))`, the same paper's other approximation.
    GeluQuick,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)^2` (So et al. 2021, arXiv:2109.08668).
    Relu2,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// `y / (1 + exp(-1.702 y))` for `y = min(x, 7)` (gpt-oss, arXiv:2508.10925). As a gate it multiplies
    /// `max(-7, min(up, 7)) + 1`.
    ClampedSilu,
}

/// Which two elements of a head turn together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RopeStyle {
    /// Elements `2i` and `2i + 1`: the layout of the RoFormer paper, and of Llama files in GGUF.
    Interleaved,
    /// Elements `i` and `i + dims / 2`: the layout of GPT-NeoX.
    Halved,
}

/// Rotary position embedding (Su et al. 2021). Pair `i` of each head turns by
/// `position * stretch(i) * base^(-2 i / dims) / factors[i]` radians, and grows by `magnitude`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rope {
    /// How a head's elements pair up.
    pub style: RopeStyle,
    /// Elements of each head that turn, even; the rest pass through.
    pub dims: usize,
    /// The base of the frequencies (theta).
    pub base: f32,
    /// Multiplies every position (linear scaling: 1 / factor).
    pub scale: f32,
    /// Which pairs `scale` leaves alone.
    pub yarn: Option<Yarn>,
    /// Multiplies cosines and sines.
    pub magnitude: f32,
    /// `[dims / 2]` divisors of the frequencies (Llama 3's scaling).
    pub factors: Option<Wt>,
}

/// YaRN (Peng et al. 2023, arXiv:2309.00071): pairs that turn fast are not scaled, slow ones are, and those between
/// `low` and `high` are in part.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Yarn {
    /// Up to this pair positions are as they are.
    pub low: f32,
    /// From this pair on they are scaled; greater than `low`.
    pub high: f32,
}

impl Rope {
    /// What the positions of pair `i` are multiplied with.
    pub fn stretch(&self, i: usize) -> f64 {
        let scale = f64::from(self.scale);
        let Some(Yarn { low, high }) = self.yarn else { return scale };
        let (low, high) = (f64::from(low), f64::from(high));
        let scaled = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
        scale * scaled + (1.0 - scaled)
    }
}

/// Attention of grouped query heads over a layer of the cache. Which positions of its own sequence a row sees,
/// [`Attention::sees`] says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`. Query head `h` reads key head `h / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Elements of one head of queries and keys.
    pub head_dim: usize,
    /// Elements of one head of values.
    pub value_dim: usize,
    /// Multiplies each score, before softcap and softmax.
    pub scale: f32,
    /// Whether a row sees no later positions. Else it sees all that its sequence has in the step.
    pub causal: bool,
    /// Sliding window in positions. Where attention is causal it ends with the row's own position, which counts; else
    /// half of it reaches to either side (Beltagy et al. 2020, arXiv:2004.05150), rounded down.
    pub window: Option<usize>,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// `[heads]`: a score of each head that counts in the softmax's sum and has no value (Xiao et al. 2023,
    /// arXiv:2309.17453, as gpt-oss learns it). Neither scaled nor capped.
    pub sinks: Option<Wt>,
    /// Positions weigh less the further they are (ALiBi: Press et al. 2021, arXiv:2108.12409): a score loses its distance
    /// times [`Attention::slope`], which this number is the base of. After the cap.
    pub alibi: Option<f32>,
}

impl Attention {
    /// What a score of query head `head` loses for each position of distance: `2^(-alibi (h + 1) / n)` for the first `n`
    /// heads, `n` being the greatest power of two that is no more than there are; the others lie between these.
    pub fn slope(&self, head: usize) -> f32 {
        let Some(most) = self.alibi else { return 0.0 };
        let whole = self.heads.checked_ilog2().map_or(1, |log| 1usize << log);
        let step = f64::from(most) / whole as f64;
        let exponent = match head.checked_sub(whole) {
            None => step * (head + 1) as f64,
            Some(further) => step / 2.0 * (2 * further + 1) as f64,
        };
        libm::exp2(-exponent) as f32
    }

    /// The positions that a row at `position` sees, of a sequence that has `length` of them.
    #[inline]
    pub fn sees(&self, position: usize, length: usize) -> Range<usize> {
        match (self.causal, self.window) {
            (true, None) => 0..position + 1,
            (true, Some(window)) => (position + 1).saturating_sub(window)..position + 1,
            (false, None) => 0..length,
            (false, Some(window)) => {
                position.saturating_sub(window / 2)..length.min(position.saturating_add(window / 2 + 1))
            }
        }
    }
}

/// One matrix that reads a normalised row, with the bias that follows it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinearPart {
    /// `[rows, w.rows]`.
    pub out: Val,
    /// The matrix.
    pub w: Wt,
    /// `[w.rows]`, added to the product.
    pub bias: Option<Wt>,
}

/// A query or key on its way to attention: the optional norm of each head, then the rotation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HeadPrep {
    /// Normalises each head first.
    pub norm: Option<Norm>,
    /// Turns each head; layers without positions have none.
    pub rope: Option<Rope>,
}

/// The base ops: every backend runs all of them.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "a variant's line says what its fields are")]
pub enum Op {
    /// `out[r] = table[token[r]]`; table is `[vocabulary, width]`.
    Embed { out: Val, table: Wt },
    /// `out[r] = table[position[r]]`; table is `[positions, width]`, and no step goes beyond it.
    EmbedPosition { out: Val, table: Wt },
    /// Normalises each row.
    RmsNorm { out: Val, x: Val, norm: Norm },
    /// Normalises each head (`head_dim` elements) of each row by itself.
    HeadNorm { out: Val, x: Val, head_dim: usize, norm: Norm },
    /// Layer normalisation (Ba et al. 2016, arXiv:1607.06450) of each `group` elements of a row by themselves:
    /// `(x - mean) / sqrt(variance + eps) * weight + bias`. Both are of a group's length, the same for all groups, or of
    /// the row's.
    LayerNorm { out: Val, x: Val, group: usize, norm: Norm, bias: Option<Wt> },
    /// `out = x * w^T`; `w` is `[out.width, x.width]`.
    Linear { out: Val, x: Val, w: Wt },
    /// `out = x + b`, `b` being one row.
    Bias { out: Val, x: Val, b: Wt },
    /// Each of `heads` heads times its own matrix: its first `w.cols` elements times `w_h^T`, `w` being `[heads * n, w.cols]`.
    /// What is left of the head follows the product.
    HeadLinear { out: Val, x: Val, w: Wt, heads: usize },
    /// Turns each head of each row by the row's position, from its element `first` on.
    Rope { out: Val, x: Val, head_dim: usize, first: usize, rope: Rope },
    /// Stores keys `[rows, kv_heads * head_dim]` and values `[rows, kv_heads * value_dim]` at the rows' positions of their
    /// sequences. In a layer where values are part of the keys `k` is what follows them in each head.
    KvWrite { k: Val, v: Val, layer: KvLayer },
    /// Attention of `q [rows, heads * head_dim]` over the layer's cache; `out` is `[rows, heads * value_dim]`.
    Attend { out: Val, q: Val, layer: KvLayer, attention: Attention },
    /// `out = act(gate) * up`, element by element.
    Glu { out: Val, gate: Val, up: Val, act: Act },
    /// `out = act(x)`, element by element.
    Act { out: Val, x: Val, act: Act },
    /// `out = a + b`.
    Add { out: Val, a: Val, b: Val },
    /// `out = x * by`.
    Scale { out: Val, x: Val, by: f32 },
    /// `out = x * w`, column by column; `w` is a row of x's width, or one number.
    ScaleColumns { out: Val, x: Val, w: Wt },
    /// Each `group` elements of a row divided by the root of their mean square: `x / sqrt(mean(x^2) + eps)`.
    UnitNorm { out: Val, x: Val, group: usize, eps: f32 },
    /// Each row brought to the size of the row of `to`: `out = x * sqrt(mean(to^2) / max(mean(x^2), 1e-5))`.
    MatchSize { out: Val, x: Val, to: Val },
    /// `out = base + sum_i w_i * xs_i`, where `w_i` is column `i` of `weights`: one number a row for each of `xs`.
    Blend { out: Val, base: Val, xs: Vec<Val>, weights: Columns },
    /// What of a row is far above its mean: `out = max(0, x - mean - deviations * sqrt(variance))` (the statistical top-k of
    /// You et al. 2025, arXiv:2506.06644).
    Sparsify { out: Val, x: Val, deviations: f32 },
    /// `out = cap * tanh(x / cap)`.
    Softcap { out: Val, x: Val, cap: f32 },
    /// Chooses experts for each row by `scores [rows, experts]`; `bias [experts]` counts in the choice, not in the weight.
    /// `factors [experts]` multiply the weights of those that are chosen, last.
    Route { out: Routed, scores: Val, bias: Option<Wt>, factors: Option<Wt>, routing: Routing },
    /// `out` = the sum over a row's experts of `weight * down(act(gate(x)) * up(x))`; `out` has x's shape.
    Experts { out: Val, x: Val, routed: Routed, matrices: ExpertMatrices, act: Act },
    /// `out = x / (1 + exp(-gate))`, `gate` being one number a row.
    GateRows { out: Val, x: Val, gate: Val },
    /// `out = a * b`, element by element.
    Mul { out: Val, a: Val, b: Val },
    /// Of each `every` columns of `x` the `len` from `first` on, side by side: parts of heads that a file stores joined.
    Take { out: Val, x: Val, first: usize, len: usize, every: usize },
    /// Normalises each group of columns by itself; `norm` is `[groups, width / groups]`.
    GroupNorm { out: Val, x: Val, norm: Norm },
    /// Convolves each column with the rows before it.
    ShortConv { out: Val, x: Val, conv: ShortConv },
    /// Takes the states of channels from row to row. `x` and `out` are `[rows, heads * head_dim]`, `dt` is
    /// `[rows, heads]`, `b` and `c` are `[rows, groups * state_dim]`.
    SelectiveScan { out: Val, x: Columns, dt: Val, b: Columns, c: Columns, scan: SelectiveScan },
    /// Takes the states of heads from row to row. `qkv` holds queries, keys and values side by side; `decay` and `beta`
    /// are `[rows, value_heads]`, `out` is `[rows, value_heads * value_dim]`.
    DeltaNet { out: Val, qkv: Val, decay: Val, beta: Val, delta: DeltaNet },
    /// Keeps the rows whose logits are wanted, in the order they are asked for.
    SelectRows { out: Val, x: Val },
    /// For each wanted row the mean of all rows of its sequence, which the step must hold whole.
    Pool { out: Val, x: Val },
    /// An op made by [`fuse`](crate::fuse).
    Fused(Fused),
}

/// Ops made only by [`fuse`](crate::fuse). A backend may refuse any of them; each means exactly the base
/// ops that it replaces.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "a variant's line says what its fields are")]
pub enum Fused {
    /// `sum = a + b; out = rms_norm(sum)`.
    AddRmsNorm { sum: Val, out: Val, a: Val, b: Val, norm: Norm },
    /// `h = rms_norm(x)`, then each part's `out = h * w^T (+ bias)`.
    NormLinear { x: Val, norm: Norm, parts: Vec<LinearPart> },
    /// `h = rms_norm(x); out = act(h * gate^T) * (h * up^T)`.
    NormGlu { out: Val, x: Val, norm: Norm, gate: Wt, up: Wt, act: Act },
    /// `out = x * w^T + add`.
    LinearAdd { out: Val, x: Val, w: Wt, add: Val },
    /// `q_out = rope(head_norm(q))`; `rope(head_norm(k))` and `v` go to the cache. Heads have `head_dim` elements.
    HeadNormRopeKvWrite {
        q_out: Val,
        q: Val,
        k: Val,
        v: Val,
        head_dim: usize,
        q_prep: HeadPrep,
        k_prep: HeadPrep,
        layer: KvLayer,
    },
}

impl Op {
    /// The values that the op reads.
    pub fn reads(&self) -> Vec<Val> {
        match self {
            Op::Embed { .. } | Op::EmbedPosition { .. } => vec![],
            Op::RmsNorm { x, .. }
            | Op::LayerNorm { x, .. }
            | Op::Act { x, .. }
            | Op::HeadNorm { x, .. }
            | Op::Linear { x, .. }
            | Op::HeadLinear { x, .. }
            | Op::Bias { x, .. }
            | Op::Rope { x, .. }
            | Op::Scale { x, .. }
            | Op::ScaleColumns { x, .. }
            | Op::UnitNorm { x, .. }
            | Op::Sparsify { x, .. }
            | Op::Softcap { x, .. }
            | Op::Take { x, .. }
            | Op::GroupNorm { x, .. }
            | Op::ShortConv { x, .. }
            | Op::SelectRows { x, .. }
            | Op::Pool { x, .. } => vec![*x],
            Op::SelectiveScan { x, dt, b, c, .. } => vec![x.of, *dt, b.of, c.of],
            Op::DeltaNet { qkv, decay, beta, .. } => vec![*qkv, *decay, *beta],
            Op::KvWrite { k, v, .. } => vec![*k, *v],
            Op::Attend { q, .. } => vec![*q],
            Op::Glu { gate, up, .. } => vec![*gate, *up],
            Op::Route { scores, .. } => vec![*scores],
            Op::Experts { x, routed, .. } => vec![*x, routed.experts, routed.weights],
            Op::GateRows { x, gate, .. } => vec![*x, *gate],
            Op::MatchSize { x, to, .. } => vec![*x, *to],
            Op::Blend { base, xs, weights, .. } => {
                [*base, weights.of].into_iter().chain(xs.iter().copied()).collect()
            }
            Op::Add { a, b, .. } | Op::Mul { a, b, .. } => vec![*a, *b],
            Op::Fused(f) => match f {
                Fused::AddRmsNorm { a, b, .. } => vec![*a, *b],
                Fused::NormLinear { x, .. } | Fused::NormGlu { x, .. } => vec![*x],
                Fused::LinearAdd { x, add, .. } => vec![*x, *add],
                Fused::HeadNormRopeKvWrite { q, k, v, .. } => vec![*q, *k, *v],
            },
        }
    }

    /// The values that the op writes.
    pub fn writes(&self) -> Vec<Val> {
        match self {
            Op::KvWrite { .. } => vec![],
            Op::Route { out, .. } => vec![out.experts, out.weights],
            Op::Embed { out, .. }
            | Op::EmbedPosition { out, .. }
            | Op::LayerNorm { out, .. }
            | Op::Act { out, .. }
            | Op::RmsNorm { out, .. }
            | Op::HeadNorm { out, .. }
            | Op::Linear { out, .. }
            | Op::HeadLinear { out, .. }
            | Op::Bias { out, .. }
            | Op::Rope { out, .. }
            | Op::Attend { out, .. }
            | Op::Glu { out, .. }
            | Op::Add { out, .. }
            | Op::Scale { out, .. }
            | Op::ScaleColumns { out, .. }
            | Op::UnitNorm { out, .. }
            | Op::MatchSize { out, .. }
            | Op::Blend { out, .. }
            | Op::Sparsify { out, .. }
            | Op::Softcap { out, .. }
            | Op::Experts { out, .. }
            | Op::GateRows { out, .. }
            | Op::Mul { out, .. }
            | Op::Take { out, .. }
            | Op::GroupNorm { out, .. }
            | Op::ShortConv { out, .. }
            | Op::SelectiveScan { out, .. }
            | Op::DeltaNet { out, .. }
            | Op::SelectRows { out, .. }
            | Op::Pool { out, .. } => vec![*out],
            Op::Fused(f) => match f {
                Fused::AddRmsNorm { sum, out, .. } => vec![*sum, *out],
                Fused::NormLinear { parts, .. } => parts.iter().map(|p| p.out).collect(),
                Fused::NormGlu { out, .. } | Fused::LinearAdd { out, .. } => vec![*out],
                Fused::HeadNormRopeKvWrite { q_out, .. } => vec![*q_out],
            },
        }
    }

    /// The weights that the op reads.
    pub fn weights(&self) -> Vec<Wt> {
        fn rope(r: &Rope) -> Option<Wt> {
            r.factors
        }
        fn prep(p: &HeadPrep) -> impl Iterator<Item = Wt> {
            p.norm.map(|n| n.weight).into_iter().chain(p.rope.as_ref().and_then(rope))
        }
        match self {
            Op::Embed { table, .. } | Op::EmbedPosition { table, .. } => vec![*table],
            Op::LayerNorm { norm, bias, .. } => std::iter::once(norm.weight).chain(*bias).collect(),
            Op::RmsNorm { norm, .. } | Op::HeadNorm { norm, .. } | Op::GroupNorm { norm, .. } => {
                vec![norm.weight]
            }
            Op::ShortConv { conv, .. } => [conv.weight].into_iter().chain(conv.bias).collect(),
            Op::SelectiveScan { scan, .. } => vec![scan.a, scan.skip],
            Op::DeltaNet { delta, .. } => vec![delta.rate],
            Op::Linear { w, .. } | Op::HeadLinear { w, .. } | Op::ScaleColumns { w, .. } => vec![*w],
            Op::Bias { b, .. } => vec![*b],
            Op::Rope { rope: r, .. } => rope(r).into_iter().collect(),
            Op::Route { bias, factors, .. } => bias.iter().chain(factors).copied().collect(),
            Op::Experts { matrices, .. } => matrices.weights().collect(),
            Op::Attend { attention, .. } => attention.sinks.into_iter().collect(),
            Op::KvWrite { .. }
            | Op::Glu { .. }
            | Op::Act { .. }
            | Op::Add { .. }
            | Op::Scale { .. }
            | Op::UnitNorm { .. }
            | Op::MatchSize { .. }
            | Op::Blend { .. }
            | Op::Sparsify { .. }
            | Op::Softcap { .. }
            | Op::GateRows { .. }
            | Op::Mul { .. }
            | Op::Take { .. }
            | Op::SelectRows { .. }
            | Op::Pool { .. } => vec![],
            Op::Fused(f) => match f {
                Fused::AddRmsNorm { norm, .. } => vec![norm.weight],
                Fused::NormLinear { norm, parts, .. } => {
                    let parts = parts.iter().flat_map(|p| [Some(p.w), p.bias]).flatten();
                    std::iter::once(norm.weight).chain(parts).collect()
                }
                Fused::NormGlu { norm, gate, up, .. } => vec![norm.weight, *gate, *up],
                Fused::LinearAdd { w, .. } => vec![*w],
                Fused::HeadNormRopeKvWrite { q_prep, k_prep, .. } => {
                    prep(q_prep).chain(prep(k_prep)).collect()
                }
            },
        }
    }

    /// Whether the op computes each output element from the same element (or the same row, read whole before
    /// it is written) of `input`, so that `input`'s memory may become the output's where it dies here.
    pub fn may_alias(&self, input: Val) -> bool {
        match self {
            Op::RmsNorm { .. }
            | Op::HeadNorm { .. }
            | Op::LayerNorm { .. }
            | Op::Act { .. }
            | Op::Bias { .. }
            | Op::Rope { .. }
            | Op::Glu { .. }
            | Op::Add { .. }
            | Op::Scale { .. }
            | Op::Mul { .. }
            | Op::GroupNorm { .. }
            | Op::ScaleColumns { .. }
            | Op::UnitNorm { .. }
            | Op::Sparsify { .. }
            | Op::Softcap { .. } => true,
            Op::Blend { base, xs, weights, .. } => {
                input == *base && input != weights.of && !xs.contains(&input)
            }
            Op::GateRows { x, gate, .. } => input == *x && input != *gate,
            Op::Embed { .. }
            | Op::EmbedPosition { .. }
            | Op::Linear { .. }
            | Op::HeadLinear { .. }
            | Op::KvWrite { .. }
            | Op::Attend { .. }
            | Op::Route { .. }
            | Op::Experts { .. }
            | Op::Take { .. }
            | Op::MatchSize { .. }
            | Op::ShortConv { .. }
            | Op::SelectiveScan { .. }
            | Op::DeltaNet { .. }
            | Op::SelectRows { .. }
            | Op::Pool { .. } => false,
            Op::Fused(f) => match f {
                Fused::AddRmsNorm { .. } => true,
                Fused::LinearAdd { add, x, .. } => input == *add && input != *x,
                Fused::HeadNormRopeKvWrite { q, k, v, .. } => input == *q && input != *k && input != *v,
                Fused::NormLinear { .. } | Fused::NormGlu { .. } => false,
            },
        }
    }

    /// The recurrent state that the op takes along.
    pub fn state(&self) -> Option<StateLayer> {
        match self {
            Op::ShortConv { conv, .. } => Some(conv.state),
            Op::SelectiveScan { scan, .. } => Some(scan.state),
            Op::DeltaNet { delta, .. } => Some(delta.state),
            _ => None,
        }
    }

    /// The op's name, as `cera plan` prints it.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Embed { .. } => "embed",
            Op::EmbedPosition { .. } => "embed_position",
            Op::RmsNorm { .. } => "rms_norm",
            Op::LayerNorm { .. } => "layer_norm",
            Op::HeadNorm { .. } => "head_norm",
            Op::Linear { .. } => "linear",
            Op::HeadLinear { .. } => "head_linear",
            Op::Bias { .. } => "bias",
            Op::Rope { .. } => "rope",
            Op::KvWrite { .. } => "kv_write",
            Op::Attend { .. } => "attend",
            Op::Glu { .. } => "glu",
            Op::Act { .. } => "act",
            Op::Add { .. } => "add",
            Op::Scale { .. } => "scale",
            Op::ScaleColumns { .. } => "scale_columns",
            Op::UnitNorm { .. } => "unit_norm",
            Op::MatchSize { .. } => "match_size",
            Op::Blend { .. } => "blend",
            Op::Sparsify { .. } => "sparsify",
            Op::Softcap { .. } => "softcap",
            Op::Route { .. } => "route",
            Op::Experts { .. } => "experts",
            Op::GateRows { .. } => "gate_rows",
            Op::Mul { .. } => "mul",
            Op::Take { .. } => "take",
            Op::GroupNorm { .. } => "group_norm",
            Op::ShortConv { .. } => "short_conv",
            Op::SelectiveScan { .. } => "selective_scan",
            Op::DeltaNet { .. } => "delta_net",
            Op::SelectRows { .. } => "select_rows",
            Op::Pool { .. } => "pool",
            Op::Fused(f) => match f {
                Fused::AddRmsNorm { .. } => "add_rms_norm",
                Fused::NormLinear { .. } => "norm_linear",
                Fused::NormGlu { .. } => "norm_glu",
                Fused::LinearAdd { .. } => "linear_add",
                Fused::HeadNormRopeKvWrite { .. } => "head_norm_rope_kv_write",
            },
        }
    }
}
