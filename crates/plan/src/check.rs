//! Whether a plan is one that can be run.
//!
//! [`graph`](crate::graph) records only such plans and [`fuse`](crate::fuse) keeps them so, but a plan is plain
//! data that anyone may build. A backend checks it once, at load, and its steps take the rest for granted.

mod moe;
mod recurrent;
mod rows;

use crate::{Error, Fused, HeadPrep, Kv, KvLayer, Norm, Op, Plan, Rope, RowSet, Val, Value, Weight, Wt};

impl Plan {
    /// Whether every op finds its operands, and they fit together: indices are in range, each value is written
    /// once and read only behind that, keys are stored before they are attended to, rows and widths are what the
    /// op says of them, and the logits are written, for the wanted rows.
    ///
    /// # Errors
    /// [`Error::Config`] for the first fault: the op's place in the plan, its name, and the two numbers that do
    /// not fit.
    pub fn check(&self) -> Result<(), Error> {
        let mut check = Check {
            plan: self,
            place: String::new(),
            written: vec![false; self.values.len()],
            stored: vec![false; self.kv.len()],
            taken: vec![false; self.states.len()],
        };
        for (at, op) in self.ops.iter().enumerate() {
            check.place = format!("op {at} ({})", op.name());
            check.op(op)?;
        }
        check.place = "the logits".to_owned();
        check.read(self.logits)?;
        check.rows("they", self.logits, RowSet::Wanted)
    }
}

/// A check that has come as far as `place`.
struct Check<'a> {
    plan: &'a Plan,
    /// The op that is looked at, for errors.
    place: String,
    /// Whether each value was written.
    written: Vec<bool>,
    /// Whether each layer of the cache got this step's keys.
    stored: Vec<bool>,
    /// Whether each recurrent state has an op that takes it along.
    taken: Vec<bool>,
}

impl Check<'_> {
    fn op(&mut self, op: &Op) -> Result<(), Error> {
        op.reads().into_iter().try_for_each(|v| self.read(v))?;
        op.weights().into_iter().try_for_each(|w| self.weight(w).map(drop))?;
        self.shapes(op)?;
        self.take_state(op)?;
        match op {
            Op::KvWrite { layer, .. } | Op::Fused(Fused::HeadNormRopeKvWrite { layer, .. }) => {
                self.store(*layer)?
            }
            Op::Attend { layer, .. } if !self.has_keys(*layer) => {
                return Err(
                    self.fault(format!("layer {} of the cache is read before it is written", layer.0))
                );
            }
            _ => {}
        }
        op.writes().into_iter().try_for_each(|v| self.write(v))
    }

    fn fault(&self, why: String) -> Error {
        Error::Config(format!("{}: {why}", self.place))
    }

    fn value(&self, v: Val) -> Result<Value, Error> {
        let values = &self.plan.values;
        let absent = || self.fault(format!("value {}, but the plan has {}", v.0, values.len()));
        values.get(v.index()).copied().ok_or_else(absent)
    }

    fn weight(&self, w: Wt) -> Result<&Weight, Error> {
        let weights = &self.plan.weights;
        let absent = || self.fault(format!("weight {}, but the plan has {}", w.0, weights.len()));
        weights.get(w.index()).ok_or_else(absent)
    }

    fn kv(&self, layer: KvLayer) -> Result<Kv, Error> {
        let kv = &self.plan.kv;
        let absent = || self.fault(format!("layer {} of the cache, but the plan has {}", layer.0, kv.len()));
        kv.get(layer.index()).copied().ok_or_else(absent)
    }

    fn has_keys(&self, layer: KvLayer) -> bool {
        self.stored.get(layer.index()) == Some(&true)
    }

    fn store(&mut self, layer: KvLayer) -> Result<(), Error> {
        if self.has_keys(layer) {
            return Err(self.fault(format!("layer {} of the cache is written twice", layer.0)));
        }
        if !self.kv(layer)?.kept {
            // It takes the memory of the others of its kind.
            let others = self.stored.iter_mut().zip(&self.plan.kv).filter(|(_, kv)| !kv.kept);
            others.for_each(|(stored, _)| *stored = false);
        }
        if let Some(stored) = self.stored.get_mut(layer.index()) {
            *stored = true;
        }
        Ok(())
    }

    fn read(&self, v: Val) -> Result<(), Error> {
        self.value(v)?;
        match self.written.get(v.index()) {
            Some(true) => Ok(()),
            _ => Err(self.fault(format!("value {} is read before it is written", v.0))),
        }
    }

    fn write(&mut self, v: Val) -> Result<(), Error> {
        if self.value(v)?.width == 0 {
            return Err(self.fault(format!("value {} has rows of 0 elements", v.0)));
        }
        match self.written.get_mut(v.index()) {
            Some(written @ false) => {
                *written = true;
                Ok(())
            }
            _ => Err(self.fault(format!("value {} is written twice", v.0))),
        }
    }

    fn equal(&self, (a, found): (&str, usize), (b, expected): (&str, usize)) -> Result<(), Error> {
        if found == expected {
            return Ok(());
        }
        Err(self.fault(format!("{a} is {found}, but {b} is {expected}")))
    }

    fn width(&self, name: &str, v: Val, expected: (&str, usize)) -> Result<(), Error> {
        self.equal((&format!("the width of {name}"), self.value(v)?.width), expected)
    }

    fn rows(&self, name: &str, v: Val, expected: RowSet) -> Result<(), Error> {
        if self.value(v)?.rows == expected {
            return Ok(());
        }
        let [found, expected] = match expected {
            RowSet::All => ["those wanted", "all"],
            RowSet::Wanted => ["all", "those wanted"],
        };
        Err(self.fault(format!("the rows of {name} (value {}) are {found}, expected {expected}", v.0)))
    }

    /// `v` has the rows of `x`.
    fn same_rows(&self, name: &str, v: Val, x: Val) -> Result<(), Error> {
        self.rows(name, v, self.value(x)?.rows)
    }

    /// `v` has the rows and the width of `x`.
    fn like(&self, (name, v): (&str, Val), (x_name, x): (&str, Val)) -> Result<(), Error> {
        self.same_rows(name, v, x)?;
        self.width(name, v, (&format!("the width of {x_name}"), self.value(x)?.width))
    }

    /// The weight is one row of `expected` elements, or as many rows of one.
    fn vector(&self, name: &str, w: Wt, expected: (&str, usize)) -> Result<(), Error> {
        let w = self.weight(w)?;
        if (w.rows, w.cols) == (expected.1, 1) {
            return Ok(());
        }
        self.equal((&format!("the number of rows of {name}"), w.rows), ("that of a vector", 1))?;
        self.equal((&format!("the length of {name}"), w.cols), expected)
    }

    fn norm(&self, norm: &Norm, x: Val) -> Result<(), Error> {
        self.vector("the norm", norm.weight, ("the width of x", self.value(x)?.width))
    }

    fn head_norm(&self, norm: &Norm, head_dim: usize) -> Result<(), Error> {
        self.vector("the norm", norm.weight, ("head_dim", head_dim))
    }

    fn heads(&self, name: &str, x: Val, head_dim: usize) -> Result<(), Error> {
        let width = self.value(x)?.width;
        if head_dim != 0 && width.is_multiple_of(head_dim) {
            return Ok(());
        }
        Err(self.fault(format!("the width of {name} is {width}, which is not heads of {head_dim}")))
    }

    /// Heads turn by the positions of all rows, so only all rows can be turned.
    fn rope(&self, name: &str, rope: &Rope, x: Val, head_dim: usize) -> Result<(), Error> {
        self.rows(name, x, RowSet::All)?;
        if rope.dims == 0 || !rope.dims.is_multiple_of(2) || rope.dims > head_dim {
            return Err(self.fault(format!("rope turns {} elements of heads of {head_dim}", rope.dims)));
        }
        if rope.yarn.is_some_and(|y| y.low >= y.high || (y.low + y.high).is_nan()) {
            return Err(
                self.fault("yarn scales from a pair that is not behind the last unscaled one".to_owned())
            );
        }
        let half = ("half the elements that turn", rope.dims / 2);
        rope.factors.map_or(Ok(()), |factors| self.vector("the rope factors", factors, half))
    }

    fn prep(&self, name: &str, prep: &HeadPrep, x: Val, head_dim: usize) -> Result<(), Error> {
        self.heads(name, x, head_dim)?;
        prep.norm.map_or(Ok(()), |norm| self.head_norm(&norm, head_dim))?;
        prep.rope.map_or(Ok(()), |rope| self.rope(name, &rope, x, head_dim))
    }

    /// `out = x * w^T`.
    fn linear(&self, out: Val, x: Val, w: Wt) -> Result<(), Error> {
        let (rows, cols) = (self.weight(w)?.rows, self.weight(w)?.cols);
        self.same_rows("out", out, x)?;
        self.width("x", x, ("the number of columns of w", cols))?;
        self.width("out", out, ("the number of rows of w", rows))
    }

    fn bias(&self, b: Wt, out: Val) -> Result<(), Error> {
        self.vector("the bias", b, ("the width of out", self.value(out)?.width))
    }

    /// Keys and values of all rows fill the layer.
    fn to_cache(&self, k: Val, v: Val, layer: KvLayer) -> Result<(), Error> {
        let Kv { heads, head_dim, value_dim, latent, .. } = self.kv(layer)?;
        let of_keys = match latent {
            false => head_dim,
            true if value_dim < head_dim => head_dim - value_dim,
            true => return Err(self.fault(format!("values of {value_dim} in keys of {head_dim}"))),
        };
        for (name, x, of) in [("k", k, of_keys), ("v", v, value_dim)] {
            self.rows(name, x, RowSet::All)?;
            self.width(name, x, ("heads times their length in the layer", heads.saturating_mul(of)))?;
        }
        Ok(())
    }

    /// Each head has a matrix, which takes no more elements than the head has.
    fn head_linear(&self, out: Val, x: Val, w: Wt, heads: usize) -> Result<(), Error> {
        let (rows, cols) = (self.weight(w)?.rows, self.weight(w)?.cols);
        let width = self.value(x)?.width;
        if heads == 0 || !rows.is_multiple_of(heads) || !width.is_multiple_of(heads) || width / heads < cols {
            return Err(self.fault(format!("{rows} rows of {cols} over {heads} heads in rows of {width}")));
        }
        self.same_rows("out", out, x)?;
        let of_head = (rows / heads).saturating_add(width / heads - cols);
        self.width("out", out, ("heads times product and rest", heads.saturating_mul(of_head)))
    }

    fn shapes(&self, op: &Op) -> Result<(), Error> {
        match op {
            Op::Embed { out, table } => {
                self.rows("out", *out, RowSet::All)?;
                self.width("out", *out, ("the number of columns of the table", self.weight(*table)?.cols))
            }
            Op::EmbedPosition { out, table } => {
                self.rows("out", *out, RowSet::All)?;
                self.width("out", *out, ("the number of columns of the table", self.weight(*table)?.cols))
            }
            Op::LayerNorm { out, x, group, norm, bias } => {
                self.like(("out", *out), ("x", *x))?;
                self.heads("x", *x, *group)?;
                let weights = [Some(("the norm", norm.weight)), bias.map(|b| ("the bias", b))];
                weights.into_iter().flatten().try_for_each(|(name, w)| match self.weight(w)?.cols {
                    n if n == *group => self.vector(name, w, ("group", *group)),
                    _ => self.vector(name, w, ("the width of x", self.value(*x)?.width)),
                })
            }
            Op::RmsNorm { out, x, norm } => {
                self.like(("out", *out), ("x", *x))?;
                self.norm(norm, *x)
            }
            Op::HeadNorm { out, x, head_dim, norm } => {
                self.like(("out", *out), ("x", *x))?;
                self.heads("x", *x, *head_dim)?;
                self.head_norm(norm, *head_dim)
            }
            Op::Linear { out, x, w } => self.linear(*out, *x, *w),
            Op::Bias { out, x, b } => {
                self.like(("out", *out), ("x", *x))?;
                self.bias(*b, *out)
            }
            Op::HeadLinear { out, x, w, heads } => self.head_linear(*out, *x, *w, *heads),
            Op::Rope { out, x, head_dim, first, rope } => {
                self.like(("out", *out), ("x", *x))?;
                self.heads("x", *x, *head_dim)?;
                self.rope("x", rope, *x, head_dim.saturating_sub(*first))
            }
            Op::KvWrite { k, v, layer } => self.to_cache(*k, *v, *layer),
            Op::Attend { out, q, layer, attention } => {
                let a = attention;
                let kv = self.kv(*layer)?;
                self.rows("q", *q, RowSet::All)?;
                self.same_rows("out", *out, *q)?;
                if a.causal != kv.kept {
                    let [row, layer] = match a.causal {
                        true => ["no later position", "is not kept"],
                        false => ["later positions", "is kept for later steps"],
                    };
                    return Err(self.fault(format!("a row sees {row}, but the layer {layer}")));
                }
                self.equal(("kv_heads", a.kv_heads), ("the number of heads of the layer", kv.heads))?;
                self.equal(("head_dim", a.head_dim), ("head_dim of the layer", kv.head_dim))?;
                self.equal(("value_dim", a.value_dim), ("value_dim of the layer", kv.value_dim))?;
                self.width("q", *q, ("heads times head_dim", a.heads.saturating_mul(a.head_dim)))?;
                self.width("out", *out, ("heads times value_dim", a.heads.saturating_mul(a.value_dim)))?;
                a.sinks.map_or(Ok(()), |s| self.vector("the sinks", s, ("heads", a.heads)))?;
                if a.kv_heads == 0 || !a.heads.is_multiple_of(a.kv_heads) {
                    let why = format!("{} key heads do not divide {} heads", a.kv_heads, a.heads);
                    return Err(self.fault(why));
                }
                Ok(())
            }
            Op::Glu { out, gate, up, .. } => {
                self.like(("gate", *gate), ("up", *up))?;
                self.like(("out", *out), ("up", *up))
            }
            Op::Add { out, a, b } => {
                self.like(("a", *a), ("b", *b))?;
                self.like(("out", *out), ("b", *b))
            }
            Op::Act { out, x, .. } | Op::Scale { out, x, .. } | Op::Softcap { out, x, .. } => {
                self.like(("out", *out), ("x", *x))
            }
            Op::ScaleColumns { .. }
            | Op::UnitNorm { .. }
            | Op::MatchSize { .. }
            | Op::Blend { .. }
            | Op::Sparsify { .. } => self.row_shapes(op),
            Op::Route { out, scores, bias, factors, routing } => {
                self.route(*out, *scores, [*bias, *factors], routing)
            }
            Op::Experts { out, x, routed, matrices, .. } => {
                self.like(("out", *out), ("x", *x))?;
                self.experts(*x, *routed, matrices)
            }
            Op::GateRows { out, x, gate } => {
                self.like(("out", *out), ("x", *x))?;
                self.same_rows("gate", *gate, *x)?;
                self.width("gate", *gate, ("that of one number a row", 1))
            }
            Op::Mul { out, a, b } => {
                self.like(("a", *a), ("b", *b))?;
                self.like(("out", *out), ("b", *b))
            }
            Op::Take { .. }
            | Op::GroupNorm { .. }
            | Op::ShortConv { .. }
            | Op::SelectiveScan { .. }
            | Op::DeltaNet { .. } => self.recurrent_shapes(op),
            Op::SelectRows { out, x } | Op::Pool { out, x } => {
                self.rows("x", *x, RowSet::All)?;
                self.rows("out", *out, RowSet::Wanted)?;
                self.width("out", *out, ("the width of x", self.value(*x)?.width))
            }
            Op::Fused(fused) => self.fused_shapes(fused),
        }
    }

    fn fused_shapes(&self, fused: &Fused) -> Result<(), Error> {
        match fused {
            Fused::AddRmsNorm { sum, out, a, b, norm } => {
                self.like(("a", *a), ("b", *b))?;
                self.like(("sum", *sum), ("b", *b))?;
                self.like(("out", *out), ("b", *b))?;
                self.norm(norm, *b)
            }
            Fused::NormLinear { x, norm, parts } => {
                self.norm(norm, *x)?;
                parts.iter().try_for_each(|p| {
                    self.linear(p.out, *x, p.w)?;
                    p.bias.map_or(Ok(()), |b| self.bias(b, p.out))
                })
            }
            Fused::NormGlu { out, x, norm, gate, up, .. } => {
                self.norm(norm, *x)?;
                [*gate, *up].into_iter().try_for_each(|w| self.linear(*out, *x, w))
            }
            Fused::LinearAdd { out, x, w, add } => {
                self.linear(*out, *x, *w)?;
                self.like(("add", *add), ("out", *out))
            }
            Fused::HeadNormRopeKvWrite { q_out, q, k, v, head_dim, q_prep, k_prep, layer } => {
                self.like(("q_out", *q_out), ("q", *q))?;
                self.rows("q", *q, RowSet::All)?;
                self.equal(("head_dim", *head_dim), ("head_dim of the layer", self.kv(*layer)?.head_dim))?;
                self.to_cache(*k, *v, *layer)?;
                if self.kv(*layer)?.latent {
                    return Err(self.fault("keys of a layer whose values are part of them".to_owned()));
                }
                self.prep("q", q_prep, *q, *head_dim)?;
                self.prep("k", k_prep, *k, *head_dim)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse;
    use crate::testing::{Block, plan};

    /// A plan with biases and norms everywhere, the same with fused ops, and with sums fused only.
    fn plans() -> [Plan; 3] {
        let block = Block { bias: true, head_norm: true, post_norm: true, ..Block::default() };
        let base = plan(2, &block);
        let sums = fuse(base.clone(), &|f| matches!(f, Fused::AddRmsNorm { .. }));
        [base.clone(), fuse(base, &|_| true), sums]
    }

    /// A plan with its first op of that name, which `spoil` changes, is refused with these words.
    #[track_caller]
    fn refused(plan: &Plan, name: &str, words: &[&str], spoil: impl Fn(&mut Plan, usize)) {
        let at = plan.ops.iter().position(|op| op.name() == name).unwrap();
        let mut bad = plan.clone();
        spoil(&mut bad, at);
        let Err(Error::Config(why)) = bad.check() else { panic!("{name} is not refused") };
        let place = format!("op {at} ({name}): ");
        assert!(why.starts_with(&place), "{why:?} does not name {place:?}");
        words.iter().for_each(|word| assert!(why.contains(word), "no {word:?} in {why:?}"));
    }

    /// The same, where a value that the op reads or writes has another width or other rows.
    #[track_caller]
    fn refused_value(plan: &Plan, name: &str, words: &[&str], spoil: impl Fn(&mut Value)) {
        refused(plan, name, words, |p, at| {
            let out = p.ops[at].writes()[0];
            spoil(&mut p.values[out.index()]);
        });
    }

    #[test]
    fn good_plans_pass() {
        for block in [
            Block::default(),
            Block { bias: true, head_norm: true, post_norm: true, rope: true, global_every: 2 },
            Block { rope: false, ..Block::default() },
        ] {
            let base = plan(3, &block);
            assert_eq!(base.check(), Ok(()));
            assert_eq!(fuse(base, &|_| true).check(), Ok(()));
        }
    }

    #[test]
    fn indices_are_in_range() {
        let [base, fused, _] = plans();
        refused(&base, "linear", &["value 9999, but the plan has"], |p, at| {
            let Op::Linear { x, .. } = &mut p.ops[at] else { unreachable!() };
            *x = Val(9999);
        });
        refused(&base, "add", &["value 9999, but the plan has"], |p, at| {
            let Op::Add { out, .. } = &mut p.ops[at] else { unreachable!() };
            *out = Val(9999);
        });
        refused(&base, "embed", &["weight 9999, but the plan has"], |p, at| {
            let Op::Embed { table, .. } = &mut p.ops[at] else { unreachable!() };
            *table = Wt(9999);
        });
        for name in ["kv_write", "attend"] {
            refused(&base, name, &["layer 7 of the cache, but the plan has 2"], |p, at| {
                match &mut p.ops[at] {
                    Op::KvWrite { layer, .. } | Op::Attend { layer, .. } => *layer = KvLayer(7),
                    _ => unreachable!(),
                }
            });
        }
        refused(&fused, "norm_linear", &["weight 9999"], |p, at| {
            let Op::Fused(Fused::NormLinear { parts, .. }) = &mut p.ops[at] else { unreachable!() };
            parts[0].bias = Some(Wt(9999));
        });
    }

    #[test]
    fn values_are_written_once_before_they_are_read() {
        let [base, fused, sums] = plans();
        refused(&base, "rms_norm", &["is read before it is written"], |p, at| {
            let Op::RmsNorm { x, .. } = &mut p.ops[at] else { unreachable!() };
            *x = p.logits;
        });
        refused(&fused, "norm_glu", &["is read before it is written"], |p, at| {
            let Op::Fused(Fused::NormGlu { out, x, .. }) = &mut p.ops[at] else { unreachable!() };
            *x = *out;
        });
        refused(&base, "add", &["is written twice"], |p, at| {
            let Op::Add { out, a, .. } = &mut p.ops[at] else { unreachable!() };
            *out = *a;
        });
        refused(&sums, "add_rms_norm", &["is written twice"], |p, at| {
            let Op::Fused(Fused::AddRmsNorm { out, sum, .. }) = &mut p.ops[at] else { unreachable!() };
            *out = *sum;
        });
        refused(&base, "attend", &["layer 1 of the cache is read before it is written"], |p, at| {
            let Op::Attend { layer, .. } = &mut p.ops[at] else { unreachable!() };
            *layer = KvLayer(1);
        });
        let mut twice = base.clone();
        let first = base.ops.iter().position(|op| op.name() == "kv_write").unwrap();
        twice.ops.insert(first, base.ops[first].clone());
        let Err(Error::Config(why)) = twice.check() else { panic!("keys may be written twice") };
        assert!(why.contains(&format!("op {} (kv_write): layer 0", first + 1)), "{why}");
    }

    #[test]
    fn the_logits_are_written_for_the_wanted_rows() {
        let [base, _, _] = plans();
        let fault = |spoil: &dyn Fn(&mut Plan)| {
            let mut bad = base.clone();
            spoil(&mut bad);
            bad.check().unwrap_err().to_string()
        };
        let values = base.values.len();
        let said = fault(&|p| p.logits = Val(9999));
        assert_eq!(said, format!("the logits: value 9999, but the plan has {values}"));
        let said = fault(&|p| drop(p.ops.pop()));
        assert_eq!(said, format!("the logits: value {} is read before it is written", base.logits.0));
        let said = fault(&|p| p.logits = p.ops[0].writes()[0]);
        assert!(said.contains("all, expected those wanted"), "{said}");
    }

    #[test]
    fn rows_and_widths_fit_each_op() {
        let [base, fused, sums] = plans();
        for name in ["embed", "rms_norm", "head_norm", "linear", "bias", "rope", "attend", "glu", "add"] {
            refused_value(&base, name, &["is 9999, but", " is "], |v| v.width = 9999);
            refused_value(&base, name, &["those wanted, expected all"], |v| v.rows = RowSet::Wanted);
        }
        // Norms behind the blocks would stand between a matrix and its sum.
        let linear_add = fuse(plan(1, &Block::default()), &|_| true);
        for (plan, name) in [
            (&sums, "add_rms_norm"),
            (&linear_add, "linear_add"),
            (&fused, "norm_linear"),
            (&fused, "norm_glu"),
            (&fused, "head_norm_rope_kv_write"),
        ] {
            refused_value(plan, name, &["is 9999, but"], |v| v.width = 9999);
            refused_value(plan, name, &["those wanted, expected all"], |v| v.rows = RowSet::Wanted);
        }
        refused_value(&base, "select_rows", &["all, expected those wanted"], |v| v.rows = RowSet::All);
        refused_value(&base, "select_rows", &["is 1, but the width of x is 64"], |v| v.width = 1);
        refused(&base, "embed", &["of 0 elements"], |p, at| {
            let Op::Embed { out, table } = p.ops[at] else { unreachable!() };
            p.values[out.index()].width = 0;
            p.weights[table.index()].cols = 0;
        });
    }

    #[test]
    fn weights_fit_each_op() {
        let [base, fused, sums] = plans();
        for plan in [&base, &fused, &sums] {
            let mut seen = std::collections::HashSet::new();
            for op in plan.ops.iter().filter(|op| seen.insert(op.name()) && !op.weights().is_empty()) {
                for w in op.weights() {
                    refused(plan, op.name(), &["9999"], |p, _| p.weights[w.index()].cols = 9999);
                }
            }
        }
        refused(&base, "linear", &["the number of rows of w is 63"], |p, at| {
            let Op::Linear { w, .. } = p.ops[at] else { unreachable!() };
            p.weights[w.index()].rows = 63;
        });
        refused(&base, "rms_norm", &["the number of rows of the norm is 2"], |p, at| {
            let Op::RmsNorm { norm, .. } = p.ops[at] else { unreachable!() };
            p.weights[norm.weight.index()].rows = 2;
        });
    }

    #[test]
    fn heads_and_rotations_fit() {
        let [base, fused, _] = plans();
        for wrong in [0, 48] {
            refused(&base, "head_norm", &["is 64, which is not heads of", &wrong.to_string()], |p, at| {
                let Op::HeadNorm { head_dim, .. } = &mut p.ops[at] else { unreachable!() };
                *head_dim = wrong;
            });
            refused(&base, "rope", &["is 64, which is not heads of", &wrong.to_string()], |p, at| {
                let Op::Rope { head_dim, .. } = &mut p.ops[at] else { unreachable!() };
                *head_dim = wrong;
            });
        }
        for wrong in [0, 3, 18] {
            let said = format!("rope turns {wrong} elements of heads of 16");
            refused(&base, "rope", &[&said], |p, at| {
                let Op::Rope { rope, .. } = &mut p.ops[at] else { unreachable!() };
                rope.dims = wrong;
            });
            refused(&fused, "head_norm_rope_kv_write", &[&said], |p, at| {
                let Op::Fused(Fused::HeadNormRopeKvWrite { k_prep, .. }) = &mut p.ops[at] else {
                    unreachable!()
                };
                k_prep.rope.as_mut().unwrap().dims = wrong;
            });
        }
        refused(&base, "rope", &["the length of the rope factors is 64, but", "is 8"], |p, at| {
            let norm = p.ops.iter().find_map(|op| match op {
                Op::RmsNorm { norm, .. } => Some(norm.weight),
                _ => None,
            });
            let Op::Rope { rope, .. } = &mut p.ops[at] else { unreachable!() };
            rope.factors = norm;
        });
        refused(
            &fused,
            "head_norm_rope_kv_write",
            &["head_dim is 8, but head_dim of the layer is 16"],
            |p, at| {
                let Op::Fused(Fused::HeadNormRopeKvWrite { head_dim, .. }) = &mut p.ops[at] else {
                    unreachable!()
                };
                *head_dim = 8;
            },
        );
    }

    #[test]
    fn attention_fits_its_layer() {
        let [base, fused, _] = plans();
        refused(&base, "kv_write", &["the width of k is 32, but", "is 48"], |p, _| p.kv[0].heads = 3);
        refused(&fused, "head_norm_rope_kv_write", &["the width of k is 32, but", "is 48"], |p, _| {
            p.kv[0].heads = 3
        });
        for (words, heads, kv_heads, head_dim) in [
            ("the width of q is 64, but heads times head_dim is 80", 5, 2, 16),
            ("kv_heads is 4, but the number of heads of the layer is 2", 4, 4, 16),
            ("head_dim is 32, but head_dim of the layer is 16", 2, 2, 32),
        ] {
            refused(&base, "attend", &[words], |p, at| {
                let Op::Attend { attention, .. } = &mut p.ops[at] else { unreachable!() };
                (attention.heads, attention.kv_heads, attention.head_dim) = (heads, kv_heads, head_dim);
            });
        }
        // Three query heads over two key heads, of which everything else fits.
        refused(&base, "attend", &["2 key heads do not divide 3 heads"], |p, at| {
            let Op::Attend { out, q, attention, .. } = &mut p.ops[at] else { unreachable!() };
            attention.heads = 3;
            let (out, q) = (*out, *q);
            let stand_in = p.ops.iter().position(|op| op.writes().contains(&q)).unwrap();
            p.values[out.index()].width = 48;
            p.values[q.index()].width = 48;
            // The query comes from a table of 48 columns, in the place of the op that wrote it.
            let table = Wt(p.weights.len() as u32);
            p.weights.push(Weight { rows: 9, cols: 48, ..p.weights[0].clone() });
            p.ops[stand_in] = Op::Embed { out: q, table };
        });
    }
}
