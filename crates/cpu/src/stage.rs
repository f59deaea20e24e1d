//! From a plan's ops to the stages that the threads run.
//!
//! A stage is one op with its operands found: weights packed, rope frequencies computed, panels split by
//! bytes. Between stages the threads meet at a barrier.

pub mod recurrent;
pub mod streams;

use std::sync::Arc;

use cera_backend::{Error, KvShape, KvType, Weights};
use cera_plan::{
    Act, Attention, ExpertMatrices, ExpertMatrix, Fused, HeadPrep, KvLayer, Norm, Op, Plan, Rope, RopeStyle,
    Routed, Routing, Val, Weight, Wt,
};

use crate::format::{GROUP, PANEL};
use crate::kernels::Kernels;
use crate::kernels::attend::MAX_HEAD;
use crate::pack::{Layout, Matrix, memory};
use recurrent::Recurrent;
use streams::Streams;

/// The backend's name in errors.
pub const NAME: &str = "cpu";

/// What a stage does.
pub enum Stage {
    /// Tokens to rows of the table.
    Embed { out: Val, table: Wt },
    /// Positions to rows of the table.
    EmbedPosition { out: Val, table: Wt },
    /// Normalises groups of elements around their mean.
    LayerNorm { out: Val, x: Val, group: usize, norm: Norm, bias: Option<Wt> },
    /// Normalises rows, or the heads of rows.
    Norm { out: Val, x: Val, norm: Norm },
    /// One or more matrices over the same rows.
    Linear(Linear),
    /// Adds a row to every row.
    Bias { out: Val, x: Val, b: Wt },
    /// Each head times its own matrix.
    HeadLinear(HeadLinear),
    /// Turns heads of so many elements, from that element on; `rope` indexes [`Stages::ropes`].
    Rope { out: Val, x: Val, head: (usize, usize), rope: usize },
    /// Keys and values to the cache.
    KvWrite { k: Val, v: Val, layer: KvLayer },
    /// Attention over the cache.
    Attend { out: Val, q: Val, layer: KvLayer, attention: Attention },
    /// `act(gate) * up`.
    Glu { out: Val, gate: Val, up: Val, act: Act },
    /// `act(x)`.
    Act { out: Val, x: Val, act: Act },
    /// `a + b`.
    Add { out: Val, a: Val, b: Val },
    /// `x * by`.
    Scale { out: Val, x: Val, by: f32 },
    /// `cap * tanh(x / cap)`.
    Softcap { out: Val, x: Val, cap: f32 },
    /// What is done to rows by themselves, and to several streams of them.
    Streams(Streams),
    /// Which experts each row takes.
    Route(Route),
    /// What they make of it.
    Experts(Experts),
    /// `x * sigmoid(gate)`, one gate a row.
    GateRows { out: Val, x: Val, gate: Val },
    /// `a * b`.
    Mul { out: Val, a: Val, b: Val },
    /// Of each `every` columns the `len` from `first` on.
    Take { out: Val, x: Val, first: usize, len: usize, every: usize },
    /// Normalises groups of columns, of `group` each.
    GroupNorm { out: Val, x: Val, norm: Norm, group: usize },
    /// What takes a state from row to row.
    Recurrent(Recurrent),
    /// The rows whose logits are wanted.
    SelectRows { out: Val, x: Val },
    /// The mean of the rows of each wanted row's sequence.
    Pool { out: Val, x: Val },
    /// `sum = a + b`, `out = norm(sum)`.
    AddNorm { sum: Val, out: Val, a: Val, b: Val, norm: Norm },
    /// Queries prepared; keys prepared and, with values, stored.
    HeadsToCache {
        q_out: Val,
        q: Val,
        k: Val,
        v: Val,
        head_dim: usize,
        q_prep: Prep,
        k_prep: Prep,
        layer: KvLayer,
    },
}

/// What happens to each head before attention.
#[derive(Clone, Copy)]
pub struct Prep {
    /// The norm of each head.
    pub norm: Option<Norm>,
    /// The rotation, by its index into [`Stages::ropes`].
    pub rope: Option<usize>,
}

/// One or more matrices that read the same rows.
pub struct Linear {
    /// The rows.
    pub x: Val,
    /// Normalises them first.
    pub norm: Option<Norm>,
    /// The matrices.
    pub parts: Vec<Part>,
    /// Joins the first two parts into the first's output.
    pub glu: Option<Act>,
    /// Some part wants quantized rows.
    pub quantized: bool,
    /// Some part is precise.
    pub precise: bool,
    /// Panels, counted through the parts (of a gated unit: pairs of panels).
    pub panels: usize,
    /// The greatest bytes of a panel, of a gated unit those of a pair.
    pub panel_bytes: usize,
    /// For each thread, where its panels start when they are split by bytes; one more than threads.
    pub split: Vec<usize>,
}

/// One matrix of a [`Linear`].
pub struct Part {
    /// The matrix.
    pub w: Wt,
    /// Where its product goes.
    pub out: Val,
    /// A row added to every row.
    pub bias: Option<Wt>,
    /// Rows added to the rows.
    pub add: Option<Val>,
    /// The product is the logits, of a quantized matrix: what quantization leaves out of the rows is quantized
    /// too, and multiplied with.
    pub precise: bool,
}

/// A matrix for each head.
#[derive(Clone, Copy)]
pub struct HeadLinear {
    /// Where products go, what is left of each head behind its own.
    pub out: Val,
    /// The heads.
    pub x: Val,
    /// The stack of matrices.
    pub w: Wt,
    /// Heads in a row.
    pub heads: usize,
    /// Rows of a matrix.
    pub rows: usize,
    /// Elements of a head that are multiplied.
    pub cols: usize,
}

/// The choice of experts.
#[derive(Clone, Copy)]
pub struct Route {
    /// Where numbers and weights go.
    pub out: Routed,
    /// The scores.
    pub scores: Val,
    /// Counts in the choice.
    pub bias: Option<Wt>,
    /// Multiply the weights.
    pub factors: Option<Wt>,
    /// How it is made.
    pub routing: Routing,
}

/// Experts over rows that chose them.
#[derive(Clone, Copy)]
pub struct Experts {
    /// The rows.
    pub x: Val,
    /// Their sums.
    pub out: Val,
    /// The choice.
    pub routed: Routed,
    /// The stacks of matrices.
    pub matrices: ExpertMatrices,
    /// Joins gate and up.
    pub act: Act,
    /// Gate or up wants quantized rows.
    pub quantized: bool,
    /// Gate or up wants rows of floats.
    pub float: bool,
    /// Down wants quantized rows.
    pub down_quantized: bool,
}

/// A rotation with its frequencies.
pub struct RopeTable {
    /// How elements pair up.
    pub style: RopeStyle,
    /// Radians a position, one for each pair.
    pub frequencies: Vec<f64>,
    /// Multiplies cosines and sines.
    pub magnitude: f64,
    spec: Rope,
}

/// A plan made ready.
pub struct Stages {
    /// One stage for each op.
    pub stages: Vec<Stage>,
    /// Packed matrices, by weight; the others are vectors.
    pub matrices: Vec<Option<Matrix>>,
    /// Decoded vectors, by weight; empty for matrices.
    pub vectors: Vec<Vec<f32>>,
    /// Every rotation of the plan.
    pub ropes: Vec<RopeTable>,
    /// The product that becomes the logits.
    logits: Val,
}

fn unsupported(why: String) -> Error {
    Error::Unsupported { backend: NAME, why }
}

impl Stages {
    /// Packs the weights and finds every op's operands. `threads` share the panels of one row's product.
    pub fn new(
        kernels: &Kernels,
        weights: &dyn Weights,
        plan: &Plan,
        kv: &KvShape,
        threads: usize,
    ) -> Result<Stages, Error> {
        check(plan, kv)?;
        // How many matrices a weight is; none: a vector.
        let mut matrices = vec![0; plan.weights.len()];
        for op in &plan.ops {
            for (w, count) in matrices_of(op) {
                let before = std::mem::replace(&mut matrices[w.index()], count);
                if before != 0 && before != count {
                    let name = &plan.weights[w.index()].name;
                    return Err(unsupported(format!("tensor `{name}` as {before} matrices and as {count}")));
                }
            }
        }
        let mut all = Stages {
            stages: Vec::new(),
            matrices: Vec::new(),
            vectors: Vec::new(),
            ropes: Vec::new(),
            logits: logits_product(plan),
        };
        let mut layouts = Vec::new();
        let mut total = 0usize;
        for (spec, &count) in plan.weights.iter().zip(&matrices) {
            let layout = (count > 0).then(|| {
                let unsupported =
                    || unsupported(format!("tensor `{}` has type {}", spec.name, spec.ty.name()));
                Layout::stack(kernels, spec.ty, count, spec.rows / count, spec.cols).ok_or_else(unsupported)
            });
            let layout = layout.transpose()?;
            let bytes = layout.as_ref().map_or(0, Layout::bytes);
            total = total.checked_add(bytes).ok_or(Error::Memory { what: "weights", bytes: usize::MAX })?;
            layouts.push(layout);
        }
        let mut memory = memory(total).map_err(|_| Error::Memory { what: "weights", bytes: total })?;
        let mut rest = &mut memory[..];
        for (i, (spec, layout)) in plan.weights.iter().zip(&layouts).enumerate() {
            let wt = Wt(i as u32);
            let bytes = weights.bytes(wt)?;
            let mut vector = Vec::new();
            match layout {
                Some(layout) => {
                    let (own, others) = rest.split_at_mut(layout.bytes());
                    rest = others;
                    if !layout.pack(&bytes, own) {
                        let (name, n) = (&spec.name, bytes.len());
                        return Err(Error::Weights(format!("tensor `{name}`: {n} bytes cannot be packed")));
                    }
                }
                None => {
                    vector = vec![0.0; spec.rows * spec.cols];
                    cera_quant::decode(spec.ty, &bytes, &mut vector)
                        .map_err(|e| Error::Weights(format!("tensor `{}`: {e}", spec.name)))?;
                }
            }
            all.vectors.push(vector);
            weights.release(wt);
        }
        let memory = memory.make_read_only().map_err(|_| Error::Memory { what: "weights", bytes: total })?;
        let memory = Arc::new(memory);
        let mut at = 0;
        for layout in layouts {
            let start = at;
            at += layout.as_ref().map_or(0, Layout::bytes);
            all.matrices.push(layout.map(|layout| Matrix::new(layout, Arc::clone(&memory), start)));
        }
        for op in &plan.ops {
            let stage = match (all.recurrent(plan, op), streams::stage(op)) {
                (Some(recurrent), _) => Stage::Recurrent(recurrent),
                (_, Some(streams)) => Stage::Streams(streams),
                _ => all.stage(op, plan, threads),
            };
            all.stages.push(stage);
        }
        Ok(all)
    }

    fn stage(&mut self, op: &Op, plan: &Plan, threads: usize) -> Stage {
        match op {
            Op::Embed { out, table } => Stage::Embed { out: *out, table: *table },
            Op::EmbedPosition { out, table } => Stage::EmbedPosition { out: *out, table: *table },
            Op::LayerNorm { out, x, group, norm, bias } => {
                Stage::LayerNorm { out: *out, x: *x, group: *group, norm: *norm, bias: *bias }
            }
            Op::RmsNorm { out, x, norm } | Op::HeadNorm { out, x, norm, .. } => {
                Stage::Norm { out: *out, x: *x, norm: *norm }
            }
            Op::Linear { out, x, w } => self.linear(*x, None, vec![self.part(*w, *out)], None, threads),
            Op::Bias { out, x, b } => Stage::Bias { out: *out, x: *x, b: *b },
            Op::HeadLinear { out, x, w, heads } => {
                let Weight { rows, cols, .. } = plan.weights[w.index()];
                Stage::HeadLinear(HeadLinear {
                    out: *out,
                    x: *x,
                    w: *w,
                    heads: *heads,
                    rows: rows / heads,
                    cols,
                })
            }
            Op::Rope { out, x, head_dim, first, rope } => {
                Stage::Rope { out: *out, x: *x, head: (*head_dim, *first), rope: self.rope(rope) }
            }
            Op::KvWrite { k, v, layer } => Stage::KvWrite { k: *k, v: *v, layer: *layer },
            Op::Attend { out, q, layer, attention } => {
                Stage::Attend { out: *out, q: *q, layer: *layer, attention: *attention }
            }
            Op::Glu { out, gate, up, act } => Stage::Glu { out: *out, gate: *gate, up: *up, act: *act },
            Op::Act { out, x, act } => Stage::Act { out: *out, x: *x, act: *act },
            Op::Add { out, a, b } => Stage::Add { out: *out, a: *a, b: *b },
            Op::Scale { out, x, by } => Stage::Scale { out: *out, x: *x, by: *by },
            Op::Softcap { out, x, cap } => Stage::Softcap { out: *out, x: *x, cap: *cap },
            Op::ScaleColumns { .. }
            | Op::UnitNorm { .. }
            | Op::MatchSize { .. }
            | Op::Blend { .. }
            | Op::Sparsify { .. } => unreachable!("made by `streams`"),
            Op::Route { out, scores, bias, factors, routing } => Stage::Route(Route {
                out: *out,
                scores: *scores,
                bias: *bias,
                factors: *factors,
                routing: *routing,
            }),
            Op::Experts { out, x, routed, matrices, act } => self.experts(*out, *x, *routed, matrices, *act),
            Op::GateRows { out, x, gate } => Stage::GateRows { out: *out, x: *x, gate: *gate },
            Op::Mul { out, a, b } => Stage::Mul { out: *out, a: *a, b: *b },
            Op::Take { out, x, first, len, every } => {
                Stage::Take { out: *out, x: *x, first: *first, len: *len, every: *every }
            }
            Op::GroupNorm { out, x, norm } => {
                let group = plan.weights[norm.weight.index()].cols;
                Stage::GroupNorm { out: *out, x: *x, norm: *norm, group }
            }
            Op::ShortConv { .. } | Op::SelectiveScan { .. } | Op::DeltaNet { .. } => {
                unreachable!("made by `recurrent`")
            }
            Op::SelectRows { out, x } => Stage::SelectRows { out: *out, x: *x },
            Op::Pool { out, x } => Stage::Pool { out: *out, x: *x },
            Op::Fused(fused) => match fused {
                Fused::AddRmsNorm { sum, out, a, b, norm } => {
                    Stage::AddNorm { sum: *sum, out: *out, a: *a, b: *b, norm: *norm }
                }
                Fused::NormLinear { x, norm, parts } => {
                    let parts =
                        parts.iter().map(|p| Part { bias: p.bias, ..self.part(p.w, p.out) }).collect();
                    self.linear(*x, Some(*norm), parts, None, threads)
                }
                Fused::NormGlu { out, x, norm, gate, up, act } => {
                    let parts = vec![self.part(*gate, *out), self.part(*up, *out)];
                    self.linear(*x, Some(*norm), parts, Some(*act), threads)
                }
                Fused::LinearAdd { out, x, w, add } => {
                    let part = Part { add: Some(*add), ..self.part(*w, *out) };
                    self.linear(*x, None, vec![part], None, threads)
                }
                Fused::HeadNormRopeKvWrite { q_out, q, k, v, head_dim, q_prep, k_prep, layer } => {
                    Stage::HeadsToCache {
                        q_out: *q_out,
                        q: *q,
                        k: *k,
                        v: *v,
                        head_dim: *head_dim,
                        q_prep: self.prep(q_prep),
                        k_prep: self.prep(k_prep),
                        layer: *layer,
                    }
                }
            },
        }
    }

    /// The packed form of a weight that a stage multiplies with.
    pub fn matrix(&self, w: Wt) -> &Matrix {
        self.matrices[w.index()].as_ref().expect("`new` packed every matrix")
    }

    fn part(&self, w: Wt, out: Val) -> Part {
        let precise = out == self.logits && self.matrix(w).is_quantized();
        Part { w, out, bias: None, add: None, precise }
    }

    fn linear(
        &self,
        x: Val,
        norm: Option<Norm>,
        parts: Vec<Part>,
        glu: Option<Act>,
        threads: usize,
    ) -> Stage {
        let weights: Vec<&Matrix> = parts.iter().map(|p| self.matrix(p.w)).collect();
        let quantized = weights.iter().any(|m| m.is_quantized());
        // Bytes of each panel, in the order in which they are counted.
        let bytes: Vec<usize> = match glu {
            Some(_) => vec![weights.iter().map(|m| m.panel_bytes()).sum(); weights[0].panels()],
            None => weights.iter().flat_map(|m| vec![m.panel_bytes(); m.panels()]).collect(),
        };
        let total: usize = bytes.iter().sum();
        let mut split = vec![0];
        let mut before = 0;
        for (i, b) in bytes.iter().enumerate() {
            // A panel belongs to the thread in whose share of the bytes its middle lies.
            while split.len() < threads && (before + b / 2) * threads >= split.len() * total {
                split.push(i);
            }
            before += b;
        }
        split.resize(threads, bytes.len());
        split.push(bytes.len());
        let precise = parts.iter().any(|p| p.precise);
        let panel_bytes = bytes.iter().copied().max().unwrap_or(1);
        Stage::Linear(Linear {
            x,
            norm,
            parts,
            glu,
            quantized,
            precise,
            panels: bytes.len(),
            panel_bytes,
            split,
        })
    }

    fn experts(&self, out: Val, x: Val, routed: Routed, matrices: &ExpertMatrices, act: Act) -> Stage {
        let quantized = |m: &ExpertMatrix| self.matrix(m.w).is_quantized();
        let first = [Some(matrices.gate), matrices.up];
        Stage::Experts(Experts {
            x,
            out,
            routed,
            matrices: *matrices,
            act,
            quantized: first.iter().flatten().any(quantized),
            float: first.iter().flatten().any(|m| !quantized(m)),
            down_quantized: quantized(&matrices.down),
        })
    }

    fn prep(&mut self, p: &HeadPrep) -> Prep {
        Prep { norm: p.norm, rope: p.rope.as_ref().map(|r| self.rope(r)) }
    }

    fn rope(&mut self, rope: &Rope) -> usize {
        if let Some(i) = self.ropes.iter().position(|r| r.spec == *rope) {
            return i;
        }
        let factors = rope.factors.map(|w| self.vectors[w.index()].as_slice()).unwrap_or(&[]);
        let frequencies = (0..rope.dims / 2)
            .map(|i| {
                let exponent = -2.0 * i as f64 / rope.dims as f64;
                let factor = factors.get(i).map_or(1.0, |f| f64::from(*f));
                // libm's bits, unlike the system's, are the same everywhere.
                libm::pow(f64::from(rope.base), exponent) * rope.stretch(i) / factor
            })
            .collect();
        let magnitude = f64::from(rope.magnitude);
        self.ropes.push(RopeTable { style: rope.style, frequencies, magnitude, spec: *rope });
        self.ropes.len() - 1
    }
}

/// The weights that an op multiplies with, and how many matrices each is.
fn matrices_of(op: &Op) -> Vec<(Wt, usize)> {
    match op {
        Op::Embed { table, .. } | Op::EmbedPosition { table, .. } => vec![(*table, 1)],
        Op::Linear { w, .. } => vec![(*w, 1)],
        Op::HeadLinear { w, heads, .. } => vec![(*w, *heads)],
        Op::Experts { matrices, .. } => matrices.stacks().map(|(m, count)| (m.w, count)).collect(),
        Op::RmsNorm { .. }
        | Op::LayerNorm { .. }
        | Op::Act { .. }
        | Op::HeadNorm { .. }
        | Op::Bias { .. }
        | Op::Rope { .. }
        | Op::KvWrite { .. }
        | Op::Attend { .. }
        | Op::Glu { .. }
        | Op::Add { .. }
        | Op::Scale { .. }
        | Op::Softcap { .. }
        | Op::ScaleColumns { .. }
        | Op::UnitNorm { .. }
        | Op::MatchSize { .. }
        | Op::Blend { .. }
        | Op::Sparsify { .. }
        | Op::Route { .. }
        | Op::GateRows { .. }
        | Op::Mul { .. }
        | Op::Take { .. }
        | Op::GroupNorm { .. }
        | Op::ShortConv { .. }
        | Op::SelectiveScan { .. }
        | Op::DeltaNet { .. }
        | Op::SelectRows { .. }
        | Op::Pool { .. } => vec![],
        Op::Fused(f) => match f {
            Fused::NormLinear { parts, .. } => parts.iter().map(|p| (p.w, 1)).collect(),
            Fused::NormGlu { gate, up, .. } => vec![(*gate, 1), (*up, 1)],
            Fused::LinearAdd { w, .. } => vec![(*w, 1)],
            Fused::AddRmsNorm { .. } | Fused::HeadNormRopeKvWrite { .. } => vec![],
        },
    }
}

/// The value behind the logits, before they are scaled or capped.
fn logits_product(plan: &Plan) -> Val {
    plan.ops.iter().rev().fold(plan.logits, |v, op| match op {
        Op::Scale { out, x, .. } | Op::Softcap { out, x, .. } | Op::Bias { out, x, .. } if *out == v => *x,
        _ => v,
    })
}

/// What the kernels take for granted.
fn check(plan: &Plan, kv: &KvShape) -> Result<(), Error> {
    plan.check().map_err(|e| unsupported(e.to_string()))?;
    if kv.blocks == 0 || kv.max_rows == 0 {
        return Err(unsupported(format!("a cache of {} blocks, steps of {} rows", kv.blocks, kv.max_rows)));
    }
    for layer in &plan.kv {
        for dim in [layer.head_dim, layer.value_dim] {
            if dim == 0 || dim % PANEL != 0 || dim > MAX_HEAD {
                return Err(unsupported(format!(
                    "heads of {dim} elements; multiples of {PANEL} up to {MAX_HEAD} work"
                )));
            }
        }
        for (ty, dim) in [(kv.ty.keys, layer.head_dim), (kv.ty.values, layer.value_dim)] {
            let name = match ty {
                KvType::Q8_0 => "q8_0",
                KvType::Q4_0 => "q4_0",
                KvType::F32 | KvType::F16 => continue,
            };
            if dim % GROUP != 0 {
                return Err(unsupported(format!(
                    "a {name} cache of heads of {dim} elements; multiples of {GROUP} work"
                )));
            }
        }
    }
    recurrent::check(plan)?;
    for op in &plan.ops {
        let attention = match op {
            Op::Attend { attention, .. } => attention,
            _ => continue,
        };
        if attention.kv_heads == 0 || attention.heads % attention.kv_heads != 0 {
            return Err(unsupported(format!(
                "{} query heads over {} key heads",
                attention.heads, attention.kv_heads
            )));
        }
    }
    Ok(())
}
