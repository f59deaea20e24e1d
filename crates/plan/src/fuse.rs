//! Rewrites a plan with fused ops.
//!
//! Every value is written once, so a pattern is found by following values from op to op, wherever the ops
//! stand in the list. An op that several others merge into takes the place of one of them, chosen so that its
//! inputs are defined before it and its outputs are read after it. A value that a fused op computes on the way
//! is no longer written; all others keep their numbers, so that runs before and after can be compared value by
//! value.

use crate::{Fused, HeadPrep, KvLayer, LinearPart, Op, Plan, Val, Value};

/// Merges ops into the fused ops that `takes` accepts; a plan that means the same.
pub fn fuse(plan: Plan, takes: &dyn Fn(&Fused) -> bool) -> Plan {
    let mut f = Fuser::new(plan, takes);
    f.each(Fuser::linear_add);
    f.each(Fuser::norm_glu);
    f.each(Fuser::norm_linear);
    f.each(Fuser::add_rms_norm);
    f.each(Fuser::head_norm_rope_kv_write);
    f.finish()
}

/// A pattern that was found: `slots` merge into `op`, which stands in `at`, one of them.
struct Found {
    slots: Vec<usize>,
    at: usize,
    op: Fused,
}

struct Fuser<'a> {
    plan: Plan,
    takes: &'a dyn Fn(&Fused) -> bool,
    /// The ops, by their place in the plan as it came; `None` where one was merged away.
    slots: Vec<Option<Op>>,
    /// The slot that writes each value.
    writer: Vec<Option<usize>>,
    /// The slots that read each value, a slot that reads it twice twice. [`LOGITS`] stands for the caller.
    readers: Vec<Vec<usize>>,
    /// The first slot that attends over each layer of the cache.
    attends: Vec<Option<usize>>,
}

const LOGITS: usize = usize::MAX;

impl<'a> Fuser<'a> {
    fn new(mut plan: Plan, takes: &'a dyn Fn(&Fused) -> bool) -> Self {
        let values = plan.values.len();
        let mut f = Fuser {
            takes,
            slots: Vec::new(),
            writer: vec![None; values],
            readers: vec![Vec::new(); values],
            attends: vec![None; plan.kv.len()],
            plan: Plan { ops: Vec::new(), ..plan.clone() },
        };
        f.readers[plan.logits.index()].push(LOGITS);
        for (slot, op) in plan.ops.drain(..).enumerate() {
            if let Op::Attend { layer, .. } = &op {
                f.attends[layer.index()].get_or_insert(slot);
            }
            f.slots.push(None);
            f.put(slot, op);
        }
        f
    }

    fn finish(mut self) -> Plan {
        self.plan.ops = self.slots.into_iter().flatten().collect();
        self.plan
    }

    /// Tries a rule at every op, in order.
    fn each(&mut self, rule: impl Fn(&Self, usize) -> Option<Found>) {
        for slot in 0..self.slots.len() {
            let Some(found) = rule(self, slot) else { continue };
            if !(self.takes)(&found.op) {
                continue;
            }
            for slot in found.slots {
                self.clear(slot);
            }
            self.put(found.at, Op::Fused(found.op));
        }
    }

    fn put(&mut self, slot: usize, op: Op) {
        for v in op.writes() {
            self.writer[v.index()] = Some(slot);
        }
        for v in op.reads() {
            self.readers[v.index()].push(slot);
        }
        self.slots[slot] = Some(op);
    }

    fn clear(&mut self, slot: usize) {
        let Some(op) = self.slots[slot].take() else { return };
        for v in op.writes() {
            self.writer[v.index()] = None;
        }
        for v in op.reads() {
            self.readers[v.index()].retain(|&r| r != slot);
        }
    }

    fn op(&self, slot: usize) -> Option<&Op> {
        self.slots.get(slot)?.as_ref()
    }

    fn written_by(&self, v: Val) -> Option<(usize, &Op)> {
        let slot = self.writer[v.index()]?;
        Some((slot, self.op(slot)?))
    }

    /// The op that alone reads `v`, once.
    fn only_reader(&self, v: Val) -> Option<(usize, &Op)> {
        match *self.readers[v.index()] {
            [slot] => Some((slot, self.op(slot)?)),
            _ => None,
        }
    }

    fn value(&self, v: Val) -> Value {
        self.plan.values[v.index()]
    }

    /// Whether all have a row for the same things: no rule merges across `SelectRows`.
    fn same_rows(&self, mut values: impl Iterator<Item = Val>) -> bool {
        let first = values.next().map(|v| self.value(v).rows);
        values.all(|v| Some(self.value(v).rows) == first)
    }

    /// A sum, one side of which is a product that nothing else reads. The sum's slot comes after both sides.
    fn linear_add(&self, slot: usize) -> Option<Found> {
        let &Op::Add { out, a, b } = self.op(slot)? else { return None };
        let product = |v: Val, add: Val| {
            let (linear, &Op::Linear { x, w, .. }) = self.written_by(v)? else { return None };
            self.only_reader(v)?;
            self.same_rows([out, x, v, add].into_iter()).then_some(Found {
                slots: vec![linear, slot],
                at: slot,
                op: Fused::LinearAdd { out, x, w, add },
            })
        };
        product(b, a).or_else(|| product(a, b))
    }

    /// A norm that only the two matrices of one gated unit read. The unit's slot comes after all of them.
    fn norm_glu(&self, slot: usize) -> Option<Found> {
        let &Op::Glu { out, gate, up, act } = self.op(slot)? else { return None };
        let side = |v: Val| {
            let (linear, &Op::Linear { x, w, .. }) = self.written_by(v)? else { return None };
            self.only_reader(v)?;
            Some((linear, x, w))
        };
        let ((gate_slot, h, gate_w), (up_slot, up_h, up_w)) = (side(gate)?, side(up)?);
        let (norm_slot, &Op::RmsNorm { x, norm, .. }) = self.written_by(h)? else { return None };
        if h != up_h
            || self.readers[h.index()].len() != 2
            || !self.same_rows([x, h, gate, up, out].into_iter())
        {
            return None;
        }
        Some(Found {
            slots: vec![norm_slot, gate_slot, up_slot, slot],
            at: slot,
            op: Fused::NormGlu { out, x, norm, gate: gate_w, up: up_w, act },
        })
    }

    /// A norm that only matrices read, with the biases behind them. The norm's slot comes before every reader.
    fn norm_linear(&self, slot: usize) -> Option<Found> {
        let &Op::RmsNorm { out: h, x, norm } = self.op(slot)? else { return None };
        let (mut slots, mut parts) = (vec![slot], Vec::new());
        for &reader in &self.readers[h.index()] {
            let &Op::Linear { out, w, .. } = self.op(reader)? else { return None };
            slots.push(reader);
            parts.push(match self.only_reader(out) {
                Some((bias, &Op::Bias { out, b, .. })) => {
                    slots.push(bias);
                    LinearPart { out, w, bias: Some(b) }
                }
                _ => LinearPart { out, w, bias: None },
            });
        }
        let outs = parts.iter().map(|p| p.out);
        if parts.is_empty() || !self.same_rows([x, h].into_iter().chain(outs)) {
            return None;
        }
        Some(Found { slots, at: slot, op: Fused::NormLinear { x, norm, parts } })
    }

    /// A sum and its norm. The sum is written too, so others may read it; its slot comes before all of them.
    fn add_rms_norm(&self, slot: usize) -> Option<Found> {
        let &Op::Add { out: sum, a, b } = self.op(slot)? else { return None };
        let (norm_slot, out, norm) = self.readers[sum.index()].iter().find_map(|&r| match self.op(r)? {
            &Op::RmsNorm { out, norm, .. } => Some((r, out, norm)),
            _ => None,
        })?;
        self.same_rows([a, b, sum, out].into_iter()).then_some(Found {
            slots: vec![slot, norm_slot],
            at: slot,
            op: Fused::AddRmsNorm { sum, out, a, b, norm },
        })
    }

    /// The keys on their way to the cache, and the queries that attend over it first. The later of the cache's
    /// write and the queries' last op comes after q, k and v, and before the attention.
    fn head_norm_rope_kv_write(&self, slot: usize) -> Option<Found> {
        let &Op::KvWrite { k, v, layer } = self.op(slot)? else { return None };
        if self.plan.kv[layer.index()].latent {
            return None;
        }
        let attend = self.attends[layer.index()].filter(|&attend| attend > slot)?;
        let &Op::Attend { q: q_out, .. } = self.op(attend)? else { return None };
        let head_dim = self.head_dim(layer);
        let keys = self.head_prep(k, head_dim);
        let queries = self.head_prep(q_out, head_dim);
        // Queries that nothing prepares are not written anew.
        let last = *queries.slots.first()?;
        if !self.same_rows([q_out, queries.from, k, v].into_iter()) {
            return None;
        }
        let op = Fused::HeadNormRopeKvWrite {
            q_out,
            q: queries.from,
            k: keys.from,
            v,
            head_dim,
            q_prep: queries.prep,
            k_prep: keys.prep,
            layer,
        };
        let slots = [&[slot], &*keys.slots, &*queries.slots].concat();
        Some(Found { slots, at: last.max(slot), op })
    }

    fn head_dim(&self, layer: KvLayer) -> usize {
        self.plan.kv[layer.index()].head_dim
    }

    /// Follows `v`, which one op reads, back through a rotation and a norm of heads, each optional.
    fn head_prep(&self, v: Val, head_dim: usize) -> Prepared {
        let mut p = Prepared { from: v, prep: HeadPrep { norm: None, rope: None }, slots: Vec::new() };
        if let Some((slot, &Op::Rope { x, head_dim: d, first: 0, rope, .. })) = self.written_by(v)
            && d == head_dim
            && self.only_reader(v).is_some()
        {
            p.slots.push(slot);
            (p.from, p.prep.rope) = (x, Some(rope));
        }
        if let Some((slot, &Op::HeadNorm { x, head_dim: d, norm, .. })) = self.written_by(p.from)
            && d == head_dim
            && self.only_reader(p.from).is_some()
        {
            p.slots.push(slot);
            (p.from, p.prep.norm) = (x, Some(norm));
        }
        p
    }
}

/// What [`Fuser::head_prep`] found: the value before preparation, and the slots of it, the last op first.
struct Prepared {
    from: Val,
    prep: HeadPrep,
    slots: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Block, plan};
    use crate::{Graph, RowSet};

    /// Every value that is read was written before, once, and keys are stored before they are attended.
    fn check_order(plan: &Plan) {
        let mut written = vec![false; plan.values.len()];
        let mut stored = vec![false; plan.kv.len()];
        for op in &plan.ops {
            for v in op.reads() {
                assert!(written[v.index()], "{op:?} reads {v:?} before it is written");
            }
            for v in op.writes() {
                assert!(!std::mem::replace(&mut written[v.index()], true), "{v:?} is written twice");
            }
            match op {
                Op::KvWrite { layer, .. } | Op::Fused(Fused::HeadNormRopeKvWrite { layer, .. }) => {
                    stored[layer.index()] = true
                }
                Op::Attend { layer, .. } => assert!(stored[layer.index()]),
                _ => {}
            }
        }
        assert!(written[plan.logits.index()]);
    }

    fn names(plan: &Plan) -> Vec<&'static str> {
        check_order(plan);
        plan.ops.iter().map(Op::name).collect()
    }

    #[test]
    fn a_block_with_everything_becomes_five_ops() {
        let fused = fuse(plan(1, &Block { bias: true, head_norm: true, ..Block::default() }), &|_| true);
        assert_eq!(
            names(&fused),
            [
                "embed",
                "norm_linear",
                "head_norm_rope_kv_write",
                "attend",
                "linear_add",
                "norm_glu",
                "linear_add",
                "select_rows",
                "norm_linear",
            ]
        );
        let Op::Fused(Fused::NormLinear { parts, .. }) = &fused.ops[1] else { panic!() };
        assert!(parts.len() == 3 && parts.iter().all(|p| p.bias.is_some()));
    }

    #[test]
    fn norms_behind_the_matrices_merge_with_the_sums() {
        let fused = fuse(plan(1, &Block { post_norm: true, ..Block::default() }), &|f| {
            matches!(f, Fused::AddRmsNorm { .. })
        });
        assert_eq!(names(&fused).iter().filter(|&&n| n == "add_rms_norm").count(), 1);
    }

    #[test]
    fn what_a_backend_refuses_stays() {
        let before = plan(2, &Block { bias: true, head_norm: true, post_norm: true, ..Block::default() });
        assert_eq!(fuse(before.clone(), &|_| false), before);
        let names = |refused: &str| {
            let fused = fuse(before.clone(), &|f| Op::Fused(f.clone()).name() != refused);
            names(&fused)
        };
        for refused in ["norm_linear", "norm_glu", "linear_add", "add_rms_norm", "head_norm_rope_kv_write"] {
            assert!(!names(refused).contains(&refused));
        }
        assert!(names("norm_glu").contains(&"glu"));
    }

    #[test]
    fn layers_without_positions_keep_their_queries() {
        let fused = fuse(plan(1, &Block { rope: false, ..Block::default() }), &|_| true);
        assert!(names(&fused).contains(&"kv_write"));
    }

    #[test]
    fn nothing_merges_where_a_value_has_another_reader() {
        let tensors = crate::testing::Shapes::new(&[
            ("e.weight", &[16, 8]),
            ("w.weight", &[16, 16]),
            ("n.weight", &[16]),
        ]);
        let g = Graph::new(&tensors, 1e-5);
        let x = g.embed("e", 16);
        let y = g.linear(x, "w");
        let sum = g.add(x, y);
        let h = g.rms_norm(sum, "n");
        let z = g.linear(h, "w");
        // `y` and `h` are read twice more; `sum` is read by its norm and by the last sum.
        let t = g.add(g.add(g.add(z, y), h), sum);
        let x = g.select_rows(t);
        let p = g.finish(x).unwrap();
        let fused = fuse(p, &|_| true);
        assert_eq!(
            names(&fused),
            ["embed", "linear", "add_rms_norm", "linear_add", "add", "add", "select_rows"]
        );
    }

    #[test]
    fn logits_are_read_by_the_caller() {
        let tensors = crate::testing::Shapes::new(&[("e.weight", &[16, 8]), ("n.weight", &[16])]);
        let g = Graph::new(&tensors, 1e-5);
        let x = g.select_rows(g.embed("e", 16));
        let x = g.rms_norm(x, "n");
        let p = g.finish(x).unwrap();
        assert_eq!(p.values[p.logits.index()].rows, RowSet::Wanted);
        assert_eq!(fuse(p.clone(), &|_| true), p);
    }
}
