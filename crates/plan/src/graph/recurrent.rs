//! Recording of the ops with a recurrent state, and of those that stand beside them.

use super::{Graph, Layer};
use crate::{
    Columns, DeltaNet, DeltaShape, Error, Norm, Op, RecurrentState, ScanShape, SelectiveScan, ShortConv,
    StateLayer, Val,
};

impl Graph<'_> {
    /// `a * b`.
    pub fn mul(&self, a: Val, b: Val) -> Val {
        self.same_width(a, b, "the product of");
        let out = self.like(a);
        self.push(Op::Mul { out, a, b });
        out
    }

    /// Of each `every` columns of `x` the `len` from `first` on.
    pub fn take(&self, x: Val, first: usize, len: usize, every: usize) -> Val {
        let width = self.width(x);
        let fits = len > 0 && first.checked_add(len).is_some_and(|end| end <= every);
        if !fits || !width.is_multiple_of(every) {
            let why = format!("{len} columns from {first} on of each {every}, of rows of {width}");
            self.fault(Error::Config(why));
        }
        let rows = self.state.borrow().values[x.index()].rows;
        let out = self.value(rows, (width / every.max(1)).saturating_mul(len));
        self.push(Op::Take { out, x, first, len, every });
        out
    }

    /// A new recurrent state of so many numbers.
    fn new_state(&self, len: usize) -> StateLayer {
        let states = &mut self.state.borrow_mut().states;
        states.push(RecurrentState { len });
        StateLayer(states.len() as u32 - 1)
    }
}

impl Layer<'_> {
    /// `x` plus the block's `{name}.bias`.
    pub fn bias(&self, x: Val, name: &str) -> Val {
        let b = self.g.vector(self.name(&format!("{name}.bias")), self.g.width(x));
        let out = self.g.like(x);
        self.g.push(Op::Bias { out, x, b });
        out
    }

    /// The norm of each row, by the block's tensor of exactly that name.
    pub fn rms_norm_named(&self, x: Val, tensor: &str) -> Val {
        let norm = Norm { weight: self.g.vector(self.name(tensor), self.g.width(x)), eps: self.g.eps };
        let out = self.g.like(x);
        self.g.push(Op::RmsNorm { out, x, norm });
        out
    }

    /// The norm of each of `groups` groups of columns by itself, whose factors differ.
    pub fn group_norm(&self, x: Val, name: &str, groups: usize) -> Val {
        let width = self.g.width(x);
        if groups == 0 || !width.is_multiple_of(groups) {
            self.g.fault(Error::Config(format!(
                "block {}: rows of {width} elements are not {groups} groups",
                self.n
            )));
        }
        let weight = self.g.weight(self.name(&format!("{name}.weight")), Some(groups), width / groups.max(1));
        let norm = Norm { weight, eps: self.g.eps };
        let out = self.g.like(x);
        // One group is the row.
        self.g.push(if groups == 1 { Op::RmsNorm { out, x, norm } } else { Op::GroupNorm { out, x, norm } });
        out
    }

    /// Each column of `x` convolved with the `taps - 1` rows before it, by `{name}.weight`, with a bias where the
    /// checkpoint has one.
    pub fn short_conv(&self, x: Val, name: &str, taps: usize, silu: bool) -> Val {
        let width = self.g.width(x);
        let weight = self.g.weight(self.name(&format!("{name}.weight")), Some(width), taps);
        let bias = self.name(&format!("{name}.bias"));
        let bias = self.g.tensors.find(&bias).is_some().then(|| self.g.vector(bias, width));
        let state = self.g.new_state(ShortConv::state_len(taps, width));
        let out = self.g.like(x);
        self.g.push(Op::ShortConv { out, x, conv: ShortConv { weight, bias, silu, state } });
        out
    }

    /// A selective scan by `ssm_a` and `ssm_d`.
    pub fn selective_scan(&self, x: Columns, dt: Val, b: Columns, c: Columns, shape: ScanShape) -> Val {
        let name = self.name("ssm_a");
        // A rate for each head, or for each number of a state.
        let shared = self.g.tensors.find(&name).is_some_and(|t| t.dims.first() == Some(&1));
        let a = self.g.weight(name, Some(shape.heads), if shared { 1 } else { shape.state_dim });
        let skip = self.head_numbers("ssm_d", shape.heads);
        let state = self.g.new_state(shape.state_len());
        let rows = self.g.state.borrow().values[x.of.index()].rows;
        let out = self.g.value(rows, shape.channels());
        let scan = SelectiveScan { shape, a, skip, state };
        self.g.push(Op::SelectiveScan { out, x, dt, b, c, scan });
        out
    }

    /// The gated delta rule over queries, keys and values that lie side by side, with the rates `ssm_a`.
    pub fn delta_net(&self, qkv: Val, decay: Val, beta: Val, shape: DeltaShape, eps: f32) -> Val {
        let rate = self.head_numbers("ssm_a", shape.value_heads);
        let state = self.g.new_state(shape.state_len());
        let rows = self.g.state.borrow().values[qkv.index()].rows;
        let out = self.g.value(rows, shape.value_width());
        let delta = DeltaNet { shape, eps, rate, state };
        self.g.push(Op::DeltaNet { out, qkv, decay, beta, delta });
        out
    }

    /// A number for each head, which files store as a row or as a column.
    fn head_numbers(&self, name: &str, heads: usize) -> crate::Wt {
        let name = self.name(name);
        let column = self.g.tensors.find(&name).is_some_and(|t| t.dims.first() == Some(&1));
        let [rows, cols] = if column { [heads, 1] } else { [1, heads] };
        self.g.weight(name, Some(rows), cols)
    }
}
