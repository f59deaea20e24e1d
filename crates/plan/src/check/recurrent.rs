//! The shapes of ops with a recurrent state, and of those that stand beside them.

use super::Check;
use crate::{Columns, DeltaNet, Error, Op, RowSet, SelectiveScan, ShortConv, StateLayer, Val, Wt};

impl Check<'_> {
    /// A state belongs to one op: two would each find the other's.
    pub(super) fn take_state(&mut self, op: &Op) -> Result<(), Error> {
        let Some(state) = op.state() else { return Ok(()) };
        match self.taken.get_mut(state.index()) {
            Some(taken @ false) => {
                *taken = true;
                Ok(())
            }
            _ => Err(self.fault(format!("state {} is taken along by two ops", state.0))),
        }
    }

    pub(super) fn recurrent_shapes(&self, op: &Op) -> Result<(), Error> {
        match op {
            Op::Take { out, x, first, len, every } => {
                self.same_rows("out", *out, *x)?;
                self.heads("x", *x, *every)?;
                if *len == 0 || first.checked_add(*len).is_none_or(|end| end > *every) {
                    return Err(self.fault(format!("{len} columns from {first} on of each {every}")));
                }
                let taken = self.value(*x)?.width / every * len;
                self.width("out", *out, ("that of the columns taken", taken))
            }
            Op::GroupNorm { out, x, norm } => {
                self.like(("out", *out), ("x", *x))?;
                self.numbers("the norm", norm.weight, ("the width of x", self.value(*x)?.width))
            }
            Op::ShortConv { out, x, conv } => self.short_conv(*out, *x, conv),
            Op::SelectiveScan { out, x, dt, b, c, scan } => self.scan(*out, [x, b, c], *dt, scan),
            Op::DeltaNet { out, qkv, decay, beta, delta } => self.delta(*out, *qkv, [*decay, *beta], delta),
            _ => Ok(()),
        }
    }

    fn short_conv(&self, out: Val, x: Val, conv: &ShortConv) -> Result<(), Error> {
        self.rows("x", x, RowSet::All)?;
        self.like(("out", out), ("x", x))?;
        let (width, w) = (self.value(x)?.width, self.weight(conv.weight)?);
        self.equal(("the number of rows of the weight", w.rows), ("the width of x", width))?;
        if w.cols == 0 {
            return Err(self.fault("a convolution over 0 rows".into()));
        }
        if let Some(bias) = conv.bias {
            self.vector("the bias", bias, ("the width of x", width))?;
        }
        self.state(conv.state, ShortConv::state_len(w.cols, width))
    }

    fn scan(&self, out: Val, [x, b, c]: [&Columns; 3], dt: Val, scan: &SelectiveScan) -> Result<(), Error> {
        let s = &scan.shape;
        if s.groups == 0 || s.heads == 0 || !s.heads.is_multiple_of(s.groups) {
            return Err(self.fault(format!("{} groups do not divide {} heads", s.groups, s.heads)));
        }
        let (channels, group) = (s.channels(), s.group_width());
        for v in [out, x.of, dt, b.of, c.of] {
            self.rows("an operand", v, RowSet::All)?;
        }
        self.width("out", out, ("heads times head_dim", channels))?;
        self.width("dt", dt, ("the number of heads", s.heads))?;
        for (name, columns, len) in [("x", x, channels), ("b", b, group), ("c", c, group)] {
            let width = self.value(columns.of)?.width;
            if columns.first.checked_add(len).is_none_or(|end| end > width) {
                let first = columns.first;
                return Err(
                    self.fault(format!("{name} is {len} columns from {first} on of a row of {width}"))
                );
            }
        }
        let a = self.weight(scan.a)?;
        self.equal(("the number of rows of a", a.rows), ("the number of heads", s.heads))?;
        if a.cols != 1 {
            self.equal(("the number of columns of a", a.cols), ("state_dim", s.state_dim))?;
        }
        self.numbers("skip", scan.skip, ("the number of heads", s.heads))?;
        self.state(scan.state, s.state_len())
    }

    fn delta(&self, out: Val, qkv: Val, gates: [Val; 2], delta: &DeltaNet) -> Result<(), Error> {
        let d = &delta.shape;
        if d.key_heads == 0 || d.value_heads == 0 || !d.value_heads.is_multiple_of(d.key_heads) {
            let why = format!("{} key heads do not divide {} value heads", d.key_heads, d.value_heads);
            return Err(self.fault(why));
        }
        for v in [out, qkv, gates[0], gates[1]] {
            self.rows("an operand", v, RowSet::All)?;
        }
        self.width("qkv", qkv, ("that of queries, keys and values", d.width()))?;
        self.width("out", out, ("that of the values", d.value_width()))?;
        for (name, gate) in ["decay", "beta"].into_iter().zip(gates) {
            self.width(name, gate, ("the number of value heads", d.value_heads))?;
        }
        self.numbers("rate", delta.rate, ("the number of value heads", d.value_heads))?;
        self.state(delta.state, d.state_len())
    }

    /// The weight is `expected` numbers, in any shape.
    fn numbers(&self, name: &str, w: Wt, expected: (&str, usize)) -> Result<(), Error> {
        let w = self.weight(w)?;
        self.equal((&format!("the number of elements of {name}"), w.rows.saturating_mul(w.cols)), expected)
    }

    fn state(&self, state: StateLayer, expected: usize) -> Result<(), Error> {
        let states = &self.plan.states;
        match states.get(state.index()) {
            Some(s) => self.equal(("the length of the state", s.len), ("that of the op", expected)),
            None => Err(self.fault(format!("state {}, but the plan has {}", state.0, states.len()))),
        }
    }
}
