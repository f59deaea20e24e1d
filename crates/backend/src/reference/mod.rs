//! The reference backend: what each op means.
//!
//! f64 plain loops over decoded weights (`ops` has one function an op; a fused op is literally the composition
//! of the base ops that it replaces). Other backends are tested against it, op by op with
//! [`LoadedReference::step_traced`], and `fuse` is proved on it.

mod cache;
mod moe;
mod ops;
mod recurrent;
mod streams;

use cera_plan::{
    Attention, Columns, Fused, HeadPrep, KvLayer, LinearPart, Norm, Op, Plan, Rope, RowSet, Val, Wt,
};

use crate::{
    Backend, BlockId, Error, Image, KvShape, Loaded, Rows, SampleRow, SlotId, Slots, StepOutput, Weights,
    check_copy, check_image, check_step,
};
use cache::Cache;

/// The reference backend.
#[derive(Clone, Copy, Default, Debug)]
pub struct Reference;

impl Reference {
    /// The reference backend.
    pub fn new() -> Self {
        Reference
    }

    /// [`Backend::load`], as the type that can also be traced. Each weight is decoded to f32 once.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where [`Plan::check`] refuses the plan, [`Error::Weights`] where a weight's bytes are
    /// not there or do not decode, [`Error::Memory`] where the decoded weights could not be addressed.
    pub fn load_traceable(
        &self,
        weights: &dyn Weights,
        plan: &Plan,
        kv: &KvShape,
    ) -> Result<LoadedReference, Error> {
        plan.check().map_err(|e| Error::Unsupported { backend: "reference", why: e.to_string() })?;
        let decoded = (0..plan.weights.len()).map(|w| decode(weights, plan, Wt(w as u32)));
        Ok(LoadedReference {
            weights: decoded.collect::<Result<_, _>>()?,
            plan: plan.clone(),
            kv: *kv,
            caches: plan.kv.iter().map(|layer| Cache::new(layer, kv.blocks)).collect(),
            slots: Slots::new(plan, kv),
            states: vec![vec![Vec::new(); plan.states.len()]; kv.slots],
        })
    }
}

impl Backend for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn takes(&self, _op: &Fused) -> bool {
        true
    }

    fn load(&mut self, weights: &dyn Weights, plan: &Plan, kv: &KvShape) -> Result<Box<dyn Loaded>, Error> {
        Ok(Box::new(self.load_traceable(weights, plan, kv)?))
    }
}

fn decode(weights: &dyn Weights, plan: &Plan, wt: Wt) -> Result<Vec<f32>, Error> {
    let w = &plan.weights[wt.index()];
    let bytes = weights.bytes(wt)?;
    let expected = w.ty.row_bytes(w.cols).and_then(|b| b.checked_mul(w.rows));
    if expected != Some(bytes.len()) {
        let why = format!(
            "tensor `{}`: {} bytes are not [{}, {}] of {}",
            w.name,
            bytes.len(),
            w.rows,
            w.cols,
            w.ty
        );
        return Err(Error::Weights(why));
    }
    // The bytes are there, so this is no more than a small multiple of the file's size.
    let elements = w.rows.checked_mul(w.cols);
    let memory =
        Error::Memory { what: "decoded weights", bytes: elements.unwrap_or(usize::MAX).saturating_mul(4) };
    let mut out = Vec::new();
    if elements.is_none_or(|n| out.try_reserve_exact(n).is_err()) {
        return Err(memory);
    }
    out.resize(w.rows * w.cols, 0.0);
    cera_quant::decode(w.ty, &bytes, &mut out)
        .map_err(|e| Error::Weights(format!("tensor `{}`: {e}", w.name)))?;
    weights.release(wt);
    Ok(out)
}

/// A plan that is ready to run on the reference.
pub struct LoadedReference {
    plan: Plan,
    kv: KvShape,
    weights: Vec<Vec<f32>>,
    caches: Vec<Cache>,
    slots: Slots,
    /// By slot and state; empty where nothing was stored.
    states: Vec<Vec<Vec<f64>>>,
}

/// What the ops of one step read besides values and weights.
struct Step<'a> {
    rows: &'a Rows<'a>,
    /// The position of each row in its sequence.
    positions: Vec<usize>,
    /// The rows whose logits are wanted.
    wanted: Vec<usize>,
    /// The values that are still to be read.
    values: Vec<Vec<f64>>,
}

/// Sees every op of a step: its index in the plan, the op, and the values that it wrote, each
/// `[rows, width]` in f64.
pub type Trace<'a> = dyn FnMut(usize, &Op, &[(Val, &[f64])]) + 'a;

impl Loaded for LoadedReference {
    fn step(&mut self, rows: &Rows<'_>, sample: &[SampleRow], out: &mut StepOutput) -> Result<(), Error> {
        self.step_traced(rows, sample, out, &mut |_, _, _| {})
    }

    fn copy_blocks(&mut self, pairs: &[(BlockId, BlockId)]) -> Result<(), Error> {
        check_copy(&self.kv, pairs)?;
        for &(from, to) in pairs {
            self.caches.iter_mut().for_each(|c| c.copy(from, to));
        }
        Ok(())
    }

    fn copy_slots(&mut self, pairs: &[(SlotId, SlotId)]) -> Result<(), Error> {
        self.slots.copy(pairs)?;
        for &(from, to) in pairs {
            self.states[to.0 as usize] = self.states[from.0 as usize].clone();
        }
        Ok(())
    }

    fn image(&self) -> Option<Image> {
        let numbers: usize = self.plan.states.iter().map(|state| state.len).sum();
        Some(Image {
            block_bytes: self.caches.iter().map(Cache::block_bytes).sum(),
            slot_bytes: numbers * size_of::<f64>(),
        })
    }

    fn read_block(&mut self, block: BlockId, out: &mut Vec<u8>) -> Result<(), Error> {
        check_copy(&self.kv, &[(block, block)])?;
        self.caches.iter().for_each(|cache| cache.read(block, out));
        Ok(())
    }

    fn write_block(&mut self, block: BlockId, bytes: &[u8]) -> Result<(), Error> {
        let image = self.caches.iter().map(Cache::block_bytes).sum();
        check_image(&self.kv, block, bytes.len(), image)?;
        let mut rest = bytes;
        for cache in &mut self.caches {
            let (own, others) = rest.split_at(cache.block_bytes());
            cache.write(block, own);
            rest = others;
        }
        Ok(())
    }

    fn read_slot(&mut self, slot: SlotId, out: &mut Vec<u8>) -> Result<(), Error> {
        self.slots.copy(&[(slot, slot)])?;
        for (state, spec) in self.states[slot.0 as usize].iter().zip(&self.plan.states) {
            // A state that nothing was stored in is zeros.
            let numbers = state.iter().copied().chain(std::iter::repeat(0.0)).take(spec.len);
            out.extend(numbers.flat_map(f64::to_le_bytes));
        }
        Ok(())
    }

    fn write_slot(&mut self, slot: SlotId, seen: usize, bytes: &[u8]) -> Result<(), Error> {
        let image = self.image().map_or(0, |image| image.slot_bytes);
        check_image(&self.kv, BlockId(0), bytes.len(), image)?;
        self.slots.restore(slot, seen)?;
        let mut numbers =
            bytes.chunks_exact(size_of::<f64>()).map(|b| b.try_into().map_or(0.0, f64::from_le_bytes));
        for (state, spec) in self.states[slot.0 as usize].iter_mut().zip(&self.plan.states) {
            *state = numbers.by_ref().take(spec.len).collect();
        }
        Ok(())
    }
}

impl LoadedReference {
    /// [`Loaded::step`], showing what each op wrote, so that a difference between backends is found at the op
    /// that makes it.
    ///
    /// # Errors
    /// [`Error::Step`] as [`check_step`], or where a sequence attends to positions that no step stored;
    /// [`Error::NotFinite`] at the first op that writes something that is not finite.
    pub fn step_traced(
        &mut self,
        rows: &Rows<'_>,
        sample: &[SampleRow],
        out: &mut StepOutput,
        trace: &mut Trace<'_>,
    ) -> Result<(), Error> {
        check_step(&self.plan, &self.kv, rows, sample)?;
        self.slots.begin(rows)?;
        let mut step = Step {
            rows,
            positions: rows.seqs.iter().flat_map(|s| s.first_pos..s.first_pos + s.rows.len()).collect(),
            wanted: sample.iter().map(|s| s.row).collect(),
            values: vec![Vec::new(); self.plan.values.len()],
        };
        let mut readers = vec![0usize; self.plan.values.len()];
        self.plan.ops.iter().flat_map(Op::reads).for_each(|v| readers[v.index()] += 1);
        readers[self.plan.logits.index()] += 1;
        for i in 0..self.plan.ops.len() {
            let written = self.run(&step, i)?;
            let op = &self.plan.ops[i];
            for (v, data) in &written {
                self.check_finite(&step, i, *v, data)?;
            }
            let seen: Vec<(Val, &[f64])> = written.iter().map(|(v, data)| (*v, &data[..])).collect();
            trace(i, op, &seen);
            for (v, data) in written {
                step.values[v.index()] = data;
            }
            for v in op.reads() {
                readers[v.index()] -= 1;
                if readers[v.index()] == 0 {
                    step.values[v.index()] = Vec::new();
                }
            }
        }
        self.slots.end(rows);
        self.give(&step, sample, out);
        Ok(())
    }

    fn give(&self, step: &Step<'_>, sample: &[SampleRow], out: &mut StepOutput) {
        out.tokens.clear();
        out.logits.clear();
        let vocabulary = self.width(self.plan.logits);
        for (logits, s) in step.values[self.plan.logits.index()].chunks_exact(vocabulary).zip(sample) {
            let logits = logits.iter().map(|&v| v as f32);
            let greatest = logits.clone().enumerate().reduce(|a, b| if b.1 > a.1 { b } else { a });
            out.tokens.push(greatest.map_or(0, |(token, _)| token as u32));
            if s.logits {
                out.logits.extend(logits);
            }
        }
    }

    fn check_finite(&self, step: &Step<'_>, op: usize, v: Val, data: &[f64]) -> Result<(), Error> {
        let Some(at) = data.iter().position(|x| !x.is_finite()) else { return Ok(()) };
        let row = at / self.width(v);
        let row = match self.plan.values[v.index()].rows {
            RowSet::All => row,
            RowSet::Wanted => step.wanted[row],
        };
        Err(Error::NotFinite { row, op, name: self.plan.ops[op].name() })
    }

    fn width(&self, v: Val) -> usize {
        self.plan.values[v.index()].width
    }

    fn weight(&self, w: Wt) -> &[f32] {
        &self.weights[w.index()]
    }

    /// What op `i` writes.
    fn run(&mut self, step: &Step<'_>, i: usize) -> Result<Vec<(Val, Vec<f64>)>, Error> {
        let get = |v: Val| &step.values[v.index()][..];
        let op = self.plan.ops[i].clone();
        let one = |out: Val, data: Vec<f64>| Ok(vec![(out, data)]);
        match op {
            Op::Embed { out, table } => {
                one(out, ops::embed(self.weight(table), self.width(out), step.rows.tokens))
            }
            Op::EmbedPosition { out, table } => {
                one(out, ops::embed_position(self.weight(table), self.width(out), &step.positions))
            }
            Op::LayerNorm { out, x, group, norm, bias } => {
                let bias = bias.map(|b| self.weight(b));
                one(out, ops::layer_norm(get(x), group, self.weight(norm.weight), bias, norm.eps))
            }
            Op::RmsNorm { out, x, norm } | Op::HeadNorm { out, x, norm, .. } => {
                one(out, self.norm(get(x), &norm))
            }
            Op::Linear { out, x, w } => one(out, self.linear(get(x), w)),
            Op::Bias { out, x, b } => one(out, ops::bias(get(x), self.weight(b))),
            Op::HeadLinear { out, x, w, heads } => {
                let cols = self.plan.weights[w.index()].cols;
                one(out, ops::head_linear(get(x), self.width(x), self.weight(w), heads, cols))
            }
            Op::Rope { out, x, head_dim, first, rope } => {
                one(out, self.rope(step, get(x), self.width(out), (head_dim, first), &rope))
            }
            Op::KvWrite { k, v, layer } => {
                self.kv_write(step, get(k), get(v), layer);
                Ok(vec![])
            }
            Op::Attend { out, q, layer, attention } => {
                one(out, self.attend(step, get(q), layer, &attention)?)
            }
            Op::Glu { out, gate, up, act } => one(out, ops::glu(get(gate), get(up), act)),
            Op::Act { out, x, act } => one(out, get(x).iter().map(|&x| ops::activate(x, act)).collect()),
            Op::Add { out, a, b } => one(out, ops::add(get(a), get(b))),
            Op::Scale { out, x, by } => one(out, ops::scale(get(x), by)),
            Op::Mul { out, a, b } => one(out, ops::mul(get(a), get(b))),
            Op::Take { out, x, first, len, every } => one(out, ops::take(get(x), first, len, every)),
            Op::GroupNorm { out, x, norm } => {
                let group = self.plan.weights[norm.weight.index()].cols;
                one(out, ops::group_norm(get(x), self.weight(norm.weight), group, norm.eps))
            }
            Op::ShortConv { out, .. } | Op::SelectiveScan { out, .. } | Op::DeltaNet { out, .. } => {
                one(out, self.recurrent(step, &op))
            }
            Op::Softcap { out, x, cap } => one(out, ops::softcap(get(x), cap)),
            Op::ScaleColumns { out, x, w } => one(out, streams::scale_columns(get(x), self.weight(w))),
            Op::UnitNorm { out, x, group, eps } => one(out, streams::unit_norm(get(x), group, eps)),
            Op::MatchSize { out, x, to } => one(out, streams::match_size(get(x), get(to), self.width(x))),
            Op::Blend { out, base, ref xs, weights: Columns { of, first } } => {
                let xs: Vec<&[f64]> = xs.iter().map(|&x| get(x)).collect();
                one(out, streams::blend(get(base), &xs, self.width(base), get(of), self.width(of), first))
            }
            Op::Sparsify { out, x, deviations } => {
                one(out, streams::sparsify(get(x), self.width(x), deviations))
            }
            Op::Route { out, scores, bias, factors, routing } => {
                let bias = bias.map(|b| self.weight(b));
                let [experts, mut weights] = moe::route(get(scores), self.width(scores), bias, &routing);
                if let Some(factors) = factors.map(|f| self.weight(f)) {
                    let by = experts.iter().map(|&e| f64::from(factors[e as usize]));
                    weights.iter_mut().zip(by).for_each(|(w, by)| *w *= by);
                }
                Ok(vec![(out.experts, experts), (out.weights, weights)])
            }
            Op::Experts { out, x, routed, matrices, act } => {
                let routed = [get(routed.experts), get(routed.weights)];
                one(out, moe::experts(get(x), self.width(x), routed, &matrices, act, |w| self.weight(w)))
            }
            Op::GateRows { out, x, gate } => one(out, moe::gate_rows(get(x), self.width(x), get(gate))),
            Op::SelectRows { out, x } => one(out, ops::select_rows(get(x), self.width(x), &step.wanted)),
            Op::Pool { out, x } => one(out, ops::pool(get(x), self.width(x), step.rows.seqs, &step.wanted)),
            Op::Fused(Fused::AddRmsNorm { sum, out, a, b, norm }) => {
                let added = ops::add(get(a), get(b));
                let normed = self.norm(&added, &norm);
                Ok(vec![(sum, added), (out, normed)])
            }
            Op::Fused(Fused::NormLinear { x, norm, parts }) => {
                let h = self.norm(get(x), &norm);
                let part = |p: &LinearPart| {
                    let product = self.linear(&h, p.w);
                    match p.bias {
                        Some(b) => (p.out, ops::bias(&product, self.weight(b))),
                        None => (p.out, product),
                    }
                };
                Ok(parts.iter().map(part).collect())
            }
            Op::Fused(Fused::NormGlu { out, x, norm, gate, up, act }) => {
                let h = self.norm(get(x), &norm);
                one(out, ops::glu(&self.linear(&h, gate), &self.linear(&h, up), act))
            }
            Op::Fused(Fused::LinearAdd { out, x, w, add }) => {
                one(out, ops::add(&self.linear(get(x), w), get(add)))
            }
            Op::Fused(Fused::HeadNormRopeKvWrite { q_out, q, k, v, head_dim, q_prep, k_prep, layer }) => {
                let queries = self.prepare(step, get(q), self.width(q), head_dim, &q_prep);
                let keys = self.prepare(step, get(k), self.width(k), head_dim, &k_prep);
                self.kv_write(step, &keys, get(v), layer);
                one(q_out, queries)
            }
        }
    }

    fn norm(&self, x: &[f64], norm: &Norm) -> Vec<f64> {
        ops::rms_norm(x, self.weight(norm.weight), norm.eps)
    }

    fn linear(&self, x: &[f64], w: Wt) -> Vec<f64> {
        let shape = &self.plan.weights[w.index()];
        ops::linear(x, self.weight(w), shape.rows, shape.cols)
    }

    fn rope(
        &self,
        step: &Step<'_>,
        x: &[f64],
        width: usize,
        (head_dim, first): (usize, usize),
        rope: &Rope,
    ) -> Vec<f64> {
        ops::rope(x, width, head_dim, first, &step.positions, rope, rope.factors.map(|w| self.weight(w)))
    }

    fn prepare(
        &self,
        step: &Step<'_>,
        x: &[f64],
        width: usize,
        head_dim: usize,
        prep: &HeadPrep,
    ) -> Vec<f64> {
        let normed = prep.norm.map_or_else(|| x.to_vec(), |norm| self.norm(x, &norm));
        match &prep.rope {
            Some(rope) => self.rope(step, &normed, width, (head_dim, 0), rope),
            None => normed,
        }
    }

    fn kv_write(&mut self, step: &Step<'_>, k: &[f64], v: &[f64], layer: KvLayer) {
        let kv = self.plan.kv[layer.index()];
        // Where values are part of the keys, they come first in each head.
        let joined = kv.latent.then(|| {
            let (values, rest) = (v.chunks_exact(kv.value_dim), k.chunks_exact(kv.head_dim - kv.value_dim));
            values.zip(rest).flat_map(|(v, k)| v.iter().chain(k)).copied().collect::<Vec<_>>()
        });
        let k = joined.as_deref().unwrap_or(k);
        let (keys, values) = (kv.heads * kv.head_dim, kv.heads * kv.value_dim);
        for s in step.rows.seqs {
            for (row, position) in s.rows.clone().zip(s.first_pos..) {
                let (k, v) = (&k[row * keys..][..keys], &v[row * values..][..values]);
                self.caches[layer.index()].set(s.blocks, position, k, v);
            }
        }
    }

    fn attend(
        &self,
        step: &Step<'_>,
        q: &[f64],
        layer: KvLayer,
        attention: &Attention,
    ) -> Result<Vec<f64>, Error> {
        let Attention { heads, head_dim, value_dim, .. } = *attention;
        let width = heads * head_dim;
        let sinks = attention.sinks.map(|w| self.weight(w));
        let mut out = Vec::with_capacity(q.len());
        for s in step.rows.seqs {
            let length = s.first_pos + s.rows.len();
            let [keys, values] = self.caches[layer.index()].rows(s.blocks, length)?;
            for (row, position) in s.rows.clone().zip(s.first_pos..) {
                let q = &q[row * width..][..width];
                let key = |j: usize, h: usize| &keys[j][h * head_dim..][..head_dim];
                let value = |j: usize, h: usize| &values[j][h * value_dim..][..value_dim];
                let seen = attention.sees(position, length);
                out.extend(ops::attend(q, (position, seen), attention, sinks, key, value));
            }
        }
        Ok(out)
    }
}
