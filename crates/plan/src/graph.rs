//! Records a plan from straight-line code.
//!
//! An architecture's function calls these methods in the order of its paper. Nothing is returned as a
//! `Result` on the way, so that such a function reads as the model's definition: the first fault is kept, the
//! values that follow it are placeholders, and [`Graph::finish`] returns the fault.

mod latent;
mod moe;
mod recurrent;
mod streams;

pub use moe::ExpertNames;

use std::cell::RefCell;
use std::collections::HashMap;

use cera_quant::Type;

use crate::{
    Act, Attention, Error, Kv, KvLayer, Norm, Op, Plan, RecurrentState, Rope, RowSet, Val, Value, Weight, Wt,
};

/// A tensor of the checkpoint, as the graph needs to know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorShape {
    /// How its numbers are stored.
    pub ty: Type,
    /// Dimensions, the one that varies fastest first (GGUF's order).
    pub dims: Vec<usize>,
}

/// The tensors of a checkpoint, by name.
pub trait Tensors {
    /// The tensor of that name, if the checkpoint has it.
    fn find(&self, name: &str) -> Option<TensorShape>;

    /// What the checkpoint's plan is to give.
    fn asked(&self) -> Asked {
        Asked::Logits
    }
}

/// What a plan is to give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// The logits of each wanted row.
    Logits,
    /// Each wanted row as the output matrix would get it.
    Rows,
    /// For each wanted row the mean of all such rows of its sequence.
    Mean,
    /// What a head makes of each wanted row, or of the mean of all such rows of its sequence.
    Score {
        /// Whether of the mean.
        mean: bool,
    },
}

impl Asked {
    /// Whether all rows of a sequence go on to the end.
    fn is_of_mean(self) -> bool {
        matches!(self, Asked::Mean | Asked::Score { mean: true })
    }
}

/// A plan being recorded.
pub struct Graph<'a> {
    tensors: &'a dyn Tensors,
    eps: f32,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    ops: Vec<Op>,
    values: Vec<Value>,
    weights: Vec<Weight>,
    weight_of: HashMap<Weight, Wt>,
    kv: Vec<Kv>,
    states: Vec<RecurrentState>,
    fault: Option<Error>,
    /// Whether a head that scores was recorded.
    scored: bool,
}

/// One block of the model: the graph with `blk.N.` before each tensor's name.
pub struct Layer<'a> {
    g: &'a Graph<'a>,
    n: usize,
}

impl<'a> Graph<'a> {
    /// An empty graph over a checkpoint; `eps` belongs to every norm.
    pub fn new(tensors: &'a dyn Tensors, eps: f32) -> Self {
        Graph { tensors, eps, state: RefCell::default() }
    }

    /// Block `n` of the model.
    pub fn layer(&'a self, n: usize) -> Layer<'a> {
        Layer { g: self, n }
    }

    /// Whether scores are asked for.
    pub fn scores(&self) -> bool {
        matches!(self.tensors.asked(), Asked::Score { .. })
    }

    /// Rows of the matrix `{name}.weight`; 0 where the checkpoint has none.
    pub fn rows(&self, name: &str) -> usize {
        let found = self.tensors.find(&format!("{name}.weight"));
        found.and_then(|shape| shape.dims.get(1).copied()).unwrap_or(0)
    }

    /// Whether the checkpoint has `{name}.weight`.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.find(&format!("{name}.weight")).is_some()
    }

    /// Elements in a row of `x`.
    pub fn width(&self, x: Val) -> usize {
        self.state.borrow().values[x.index()].width
    }

    /// The tokens' rows of the embedding table `{name}.weight`, which must be `width` wide.
    pub fn embed(&self, name: &str, width: usize) -> Val {
        let table = self.matrix(name, width);
        let out = self.value(RowSet::All, width);
        self.push(Op::Embed { out, table });
        out
    }

    /// The rows of the table `{name}.weight`, which must be `width` wide, by position.
    pub fn embed_position(&self, name: &str, width: usize) -> Val {
        let table = self.matrix(name, width);
        let out = self.value(RowSet::All, width);
        self.push(Op::EmbedPosition { out, table });
        out
    }

    /// The layer norm of each row, by `{name}.weight` and, where the checkpoint has one, `{name}.bias`.
    pub fn layer_norm(&self, x: Val, name: &str) -> Val {
        let width = self.width(x);
        let norm = self.norm(name, width);
        let bias = format!("{name}.bias");
        let bias = self.tensors.find(&bias).is_some().then(|| self.vector(bias, width));
        let out = self.like(x);
        self.push(Op::LayerNorm { out, x, group: width, norm, bias });
        out
    }

    /// `x` plus the first row of the matrix `{name}.weight`.
    pub fn add_first_row(&self, x: Val, name: &str) -> Val {
        let (name, cols) = (format!("{name}.weight"), self.width(x));
        let (ty, _) = self.shape(&name, None, cols);
        let b = self.intern(Weight { name, ty, first_row: 0, rows: 1, cols });
        let out = self.like(x);
        self.push(Op::Bias { out, x, b });
        out
    }

    /// `act(x)`.
    pub fn act(&self, x: Val, act: Act) -> Val {
        let out = self.like(x);
        self.push(Op::Act { out, x, act });
        out
    }

    /// The norm of each row, by `{name}.weight`.
    pub fn rms_norm(&self, x: Val, name: &str) -> Val {
        let norm = self.norm(name, self.width(x));
        let out = self.like(x);
        self.push(Op::RmsNorm { out, x, norm });
        out
    }

    /// `x` times `{name}.weight`, plus `{name}.bias` where the checkpoint has one.
    pub fn linear(&self, x: Val, name: &str) -> Val {
        let w = self.matrix(name, self.width(x));
        let width = self.state.borrow().weights[w.index()].rows;
        let rows = self.state.borrow().values[x.index()].rows;
        let out = self.value(rows, width);
        self.push(Op::Linear { out, x, w });
        let bias = format!("{name}.bias");
        if self.tensors.find(&bias).is_none() {
            return out;
        }
        let b = self.vector(bias, width);
        let biased = self.like(out);
        self.push(Op::Bias { out: biased, x: out, b });
        biased
    }

    /// `x` times a part of `{name}.weight` for each of `rows`, which are the rows of the parts in order and together all
    /// of the matrix's; plus the same parts of `{name}.bias` where the checkpoint has one.
    pub fn linear_parts<const N: usize>(&self, x: Val, name: &str, rows: [usize; N]) -> [Val; N] {
        let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
        let (total, cols) = (rows.iter().sum(), self.width(x));
        let (ty, _) = self.shape(&weight, Some(total), cols);
        let bias_ty = self.tensors.find(&bias).map(|_| self.shape(&bias, Some(1), total).0);
        if let Some(ty) = bias_ty.filter(|ty| ty.block_len() != 1) {
            self.fault(Error::Type { name: bias.clone(), ty: ty.name() });
        }
        let set = self.state.borrow().values[x.index()].rows;
        let mut first_row = 0;
        rows.map(|rows| {
            let w = self.intern(Weight { name: weight.clone(), ty, first_row, rows, cols });
            let mut out = self.value(set, rows);
            self.push(Op::Linear { out, x, w });
            if let Some(ty) = bias_ty {
                // One number a row, so that a range of it is a range of rows.
                let b = self.intern(Weight { name: bias.clone(), ty, first_row, rows, cols: 1 });
                let product = out;
                out = self.like(product);
                self.push(Op::Bias { out, x: product, b });
            }
            first_row += rows;
            out
        })
    }

    /// `a + b`.
    pub fn add(&self, a: Val, b: Val) -> Val {
        self.same_width(a, b, "the sum of");
        let out = self.like(a);
        self.push(Op::Add { out, a, b });
        out
    }

    /// `act(gate) * up`.
    pub fn glu(&self, gate: Val, up: Val, act: Act) -> Val {
        self.same_width(gate, up, "the gated unit of");
        let out = self.like(up);
        self.push(Op::Glu { out, gate, up, act });
        out
    }

    /// `x * by`; nothing is recorded for a factor of 1.
    pub fn scale(&self, x: Val, by: f32) -> Val {
        if by == 1.0 {
            return x;
        }
        let out = self.like(x);
        self.push(Op::Scale { out, x, by });
        out
    }

    /// `cap * tanh(x / cap)`, where there is a cap.
    pub fn softcap(&self, x: Val, cap: Option<f32>) -> Val {
        let Some(cap) = cap else { return x };
        let out = self.like(x);
        self.push(Op::Softcap { out, x, cap });
        out
    }

    /// The rows of `x` whose logits are wanted. All rows go on where their mean is asked for.
    pub fn select_rows(&self, x: Val) -> Val {
        if self.tensors.asked().is_of_mean() {
            return x;
        }
        let out = self.value(RowSet::Wanted, self.width(x));
        self.push(Op::SelectRows { out, x });
        out
    }

    /// The wanted rows of `x`, or the mean of its rows, as is asked for; `x` itself where rows were selected before.
    pub fn pool(&self, x: Val) -> Val {
        let Value { rows, width } = self.state.borrow().values[x.index()];
        match (rows, self.tensors.asked().is_of_mean()) {
            (RowSet::Wanted, _) => x,
            (RowSet::All, true) => {
                let out = self.value(RowSet::Wanted, width);
                self.push(Op::Pool { out, x });
                out
            }
            (RowSet::All, false) => self.select_rows(x),
        }
    }

    /// What the head that scores makes of pooled rows, where scores are asked for: the matrix `cls` with `act` and the norm
    /// `cls.norm` behind it, and the matrix `cls.output`, those of them that the checkpoint has.
    pub fn score(&self, x: Val, act: Act) -> Val {
        if !self.scores() {
            return x;
        }
        let mut scores = x;
        if self.has("cls") {
            scores = self.act(self.linear(scores, "cls"), act);
            if self.has("cls.norm") {
                scores = self.layer_norm(scores, "cls.norm");
            }
        }
        if self.has("cls.output") {
            scores = self.linear(scores, "cls.output");
        }
        if scores == x {
            self.fault(Error::Missing("cls.output.weight".into()));
        }
        self.state.borrow_mut().scored = true;
        scores
    }

    /// Ends the recording with the value that holds the logits. Where rows are asked for, the output matrix and what
    /// follows it are left out, and its rows are pooled.
    pub fn finish(self, logits: Val) -> Result<Plan, Error> {
        if self.tensors.asked() == Asked::Logits {
            return self.finish_rows(logits);
        }
        let rows = self.before_output(logits);
        let rows = self.pool(rows);
        let rows = self.score(rows, Act::Tanh);
        self.finish_rows(rows)
    }

    /// The rows that the output matrix reads; ops from there on are taken back.
    fn before_output(&self, logits: Val) -> Val {
        let mut state = self.state.borrow_mut();
        let mut at = logits;
        while let Some(op) = state.ops.pop_if(|op| op.writes() == [at]) {
            match op {
                Op::Scale { x, .. } | Op::Softcap { x, .. } | Op::Bias { x, .. } => at = x,
                Op::Linear { x, .. } => {
                    let used = state.ops.iter().flat_map(Op::weights).map(|w| w.index() + 1);
                    let used = used.max().unwrap_or(0);
                    state.weights.truncate(used);
                    state.weight_of.retain(|_, w| w.index() < used);
                    return x;
                }
                _ => break,
            }
        }
        let why = "rows in place of logits are asked for, but the logits do not come from an output matrix";
        state.fault.get_or_insert_with(|| Error::Config(why.into()));
        logits
    }

    /// Ends the recording with the value that holds what a model without logits gives.
    pub fn finish_rows(self, logits: Val) -> Result<Plan, Error> {
        let scores = self.scores();
        let State { ops, values, weights, kv, states, fault, scored, .. } = self.state.into_inner();
        if scores && !scored {
            return Err(Error::Config("the architecture has no head that scores pairs of texts".into()));
        }
        match fault {
            Some(fault) => Err(fault),
            None => Ok(Plan { ops, values, weights, kv, states, logits }),
        }
    }

    /// Keeps a fault of the configuration, unless there was one before it.
    pub fn fault(&self, error: Error) {
        self.state.borrow_mut().fault.get_or_insert(error);
    }

    fn push(&self, op: Op) {
        self.state.borrow_mut().ops.push(op);
    }

    fn value(&self, rows: RowSet, width: usize) -> Val {
        let values = &mut self.state.borrow_mut().values;
        values.push(Value { rows, width });
        Val(values.len() as u32 - 1)
    }

    fn like(&self, x: Val) -> Val {
        let v = self.state.borrow().values[x.index()];
        self.value(v.rows, v.width)
    }

    fn same_width(&self, a: Val, b: Val, what: &str) {
        let (wa, wb) = (self.width(a), self.width(b));
        if wa != wb {
            self.fault(Error::Config(format!("{what} rows of {wa} and {wb} elements")));
        }
        let rows = |x: Val| self.state.borrow().values[x.index()].rows;
        if rows(a) != rows(b) {
            self.fault(Error::Config(format!("{what} rows of all tokens and rows of the wanted ones")));
        }
    }

    fn norm(&self, name: &str, width: usize) -> Norm {
        Norm { weight: self.vector(format!("{name}.weight"), width), eps: self.eps }
    }

    fn matrix(&self, name: &str, cols: usize) -> Wt {
        self.weight(format!("{name}.weight"), None, cols)
    }

    fn vector(&self, tensor: String, len: usize) -> Wt {
        self.weight(tensor, Some(1), len)
    }

    /// The weight for a whole tensor of `cols` columns, and of `rows` rows where that is known.
    fn weight(&self, name: String, rows: Option<usize>, cols: usize) -> Wt {
        let (ty, rows) = self.shape(&name, rows, cols);
        self.intern(Weight { name, ty, first_row: 0, rows, cols })
    }

    /// The type and the rows of a tensor, which is to have `cols` columns, and `rows` rows where that is known.
    fn shape(&self, name: &str, rows: Option<usize>, cols: usize) -> (Type, usize) {
        let found = self.find(name, cols);
        // Trailing dimensions of 1 say nothing.
        let significant = found.dims.iter().rposition(|&d| d != 1).map_or(1, |i| i + 1);
        let dims = &found.dims[..significant.min(found.dims.len())];
        let (have_cols, have_rows) = match *dims {
            [c] => (c, 1),
            [c, r] => (c, r),
            _ => (0, 0),
        };
        if have_cols != cols || rows.is_some_and(|r| r != have_rows) || have_rows == 0 {
            let expected = match rows {
                Some(1) => format!("[{cols}]"),
                Some(r) => format!("[{cols}, {r}]"),
                None => format!("[{cols}, n]"),
            };
            self.fault(Error::Shape { name: name.to_owned(), found: format!("{:?}", found.dims), expected });
        }
        (found.ty, have_rows.max(1))
    }

    /// The tensor of that name; where the checkpoint lacks it, one row of `cols`, and a fault.
    fn find(&self, name: &str, cols: usize) -> TensorShape {
        self.tensors.find(name).unwrap_or_else(|| {
            self.fault(Error::Missing(name.to_owned()));
            TensorShape { ty: Type::F32, dims: vec![cols] }
        })
    }

    /// The weight of that description. A tensor used twice (tied embeddings) is one weight.
    fn intern(&self, weight: Weight) -> Wt {
        if weight.ty.codec().is_none() {
            self.fault(Error::Type { name: weight.name.clone(), ty: weight.ty.name() });
        }
        let State { weights, weight_of, .. } = &mut *self.state.borrow_mut();
        *weight_of.entry(weight).or_insert_with_key(|weight| {
            weights.push(weight.clone());
            Wt(weights.len() as u32 - 1)
        })
    }
}

impl Layer<'_> {
    fn name(&self, name: &str) -> String {
        format!("blk.{}.{name}", self.n)
    }

    /// Whether the block has `{name}.weight`.
    pub fn has(&self, name: &str) -> bool {
        self.g.has(&self.name(name))
    }

    /// The norm of each row.
    pub fn rms_norm(&self, x: Val, name: &str) -> Val {
        self.g.rms_norm(x, &self.name(name))
    }

    /// The layer norm of each row.
    pub fn layer_norm(&self, x: Val, name: &str) -> Val {
        self.g.layer_norm(x, &self.name(name))
    }

    /// `x` times parts of the block's matrix; see [`Graph::linear_parts`].
    pub fn linear_parts<const N: usize>(&self, x: Val, name: &str, rows: [usize; N]) -> [Val; N] {
        self.g.linear_parts(x, &self.name(name), rows)
    }

    /// `x` times the block's matrix, plus its bias where the checkpoint has one.
    pub fn linear(&self, x: Val, name: &str) -> Val {
        self.g.linear(x, &self.name(name))
    }

    /// Keeps a fault where a row of `x` is not whole heads.
    fn whole_heads(&self, x: Val, head_dim: usize) {
        let width = self.g.width(x);
        if head_dim == 0 || !width.is_multiple_of(head_dim) {
            let why = format!("block {}: rows of {width} elements are not heads of {head_dim}", self.n);
            self.g.fault(Error::Config(why));
        }
    }

    /// The norm of each head of `head_dim` elements, where the checkpoint has such a norm.
    pub fn head_norm(&self, x: Val, name: &str, head_dim: usize) -> Val {
        if self.has(name) { self.need_head_norm(x, name, head_dim) } else { x }
    }

    /// The norm of each head of `head_dim` elements, which the checkpoint must have.
    pub fn need_head_norm(&self, x: Val, name: &str, head_dim: usize) -> Val {
        self.whole_heads(x, head_dim);
        let norm = self.g.norm(&self.name(name), head_dim);
        let out = self.g.like(x);
        self.g.push(Op::HeadNorm { out, x, head_dim, norm });
        out
    }

    /// The layer norm of each head by itself, by a row of its own of `{name}.weight [heads, head_dim]`, where the
    /// checkpoint has such a norm.
    pub fn head_layer_norm(&self, x: Val, name: &str, head_dim: usize) -> Val {
        if !self.has(name) {
            return x;
        }
        self.whole_heads(x, head_dim);
        let (name, width) = (self.name(&format!("{name}.weight")), self.g.width(x));
        let (ty, _) = self.g.shape(&name, Some(width / head_dim.max(1)), head_dim);
        if ty.block_len() != 1 {
            self.g.fault(Error::Type { name: name.clone(), ty: ty.name() });
        }
        let weight = self.g.intern(Weight { name, ty, first_row: 0, rows: 1, cols: width });
        let out = self.g.like(x);
        let norm = Norm { weight, eps: self.g.eps };
        self.g.push(Op::LayerNorm { out, x, group: head_dim, norm, bias: None });
        out
    }

    /// The rotation of each head of `head_dim` elements; a layer without positions has none.
    pub fn rope(&self, x: Val, head_dim: usize, rope: Option<Rope>) -> Val {
        rope.map_or(x, |rope| self.rope_from(x, head_dim, 0, rope))
    }

    /// The rotation of the last elements of each head of `head_dim`, as many as the rope turns.
    pub fn rope_last(&self, x: Val, head_dim: usize, rope: Rope) -> Val {
        self.rope_from(x, head_dim, head_dim.saturating_sub(rope.dims), rope)
    }

    fn rope_from(&self, x: Val, head_dim: usize, first: usize, rope: Rope) -> Val {
        self.whole_heads(x, head_dim);
        if rope.dims == 0 || !rope.dims.is_multiple_of(2) || rope.dims > head_dim {
            self.g.fault(Error::Config(format!("rope turns {} elements of heads of {head_dim}", rope.dims)));
        }
        let out = self.g.like(x);
        self.g.push(Op::Rope { out, x, head_dim, first, rope });
        out
    }

    /// The weight that holds the rope's frequency divisors, where the checkpoint has it.
    pub fn rope_factors(&self, dims: usize) -> Option<Wt> {
        let name = "rope_freqs";
        self.g.has(name).then(|| self.need_rope_factors(name, dims))
    }

    /// The rope's frequency divisors `{name}.weight`, which the checkpoint must have.
    pub fn need_rope_factors(&self, name: &str, dims: usize) -> Wt {
        self.g.vector(format!("{name}.weight"), dims / 2)
    }

    /// Stores `k` and `v` in a new layer of the cache, then attends `q` over it.
    pub fn attend(&self, q: Val, k: Val, v: Val, attention: Attention) -> Val {
        self.attend_over(q, k, v, attention, false).0
    }

    /// The same, with the layer, for later blocks to attend over.
    pub fn attend_and_share(&self, q: Val, k: Val, v: Val, attention: Attention) -> (Val, KvLayer) {
        self.attend_over(q, k, v, attention, false)
    }

    fn attend_over(&self, q: Val, k: Val, v: Val, attention: Attention, latent: bool) -> (Val, KvLayer) {
        let Attention { heads, kv_heads, head_dim, value_dim, window, causal, .. } = attention;
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            let why = format!("block {}: {kv_heads} key heads do not divide {heads} heads", self.n);
            self.g.fault(Error::Config(why));
        }
        let of_keys = if latent { head_dim.saturating_sub(value_dim) } else { head_dim };
        for (x, what, heads, dim) in [
            (q, "queries", heads, head_dim),
            (k, "keys", kv_heads, of_keys),
            (v, "values", kv_heads, value_dim),
        ] {
            let (found, expected) = (self.g.width(x), heads.saturating_mul(dim));
            if found != expected {
                self.g.fault(Error::Config(format!(
                    "block {}: {what} have {found} elements, but {heads} heads of {dim} make {expected}",
                    self.n
                )));
            }
        }
        let layer = {
            let kv = &mut self.g.state.borrow_mut().kv;
            kv.push(Kv { heads: kv_heads, head_dim, value_dim, latent, window, kept: causal });
            KvLayer(kv.len() as u32 - 1)
        };
        self.g.push(Op::KvWrite { k, v, layer });
        let out = self.g.value(RowSet::All, heads.saturating_mul(value_dim));
        self.g.push(Op::Attend { out, q, layer, attention });
        (out, layer)
    }
}
