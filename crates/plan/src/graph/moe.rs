//! Recording mixtures of experts.

use super::{Graph, Layer};
use crate::{Act, Error, ExpertMatrices, ExpertMatrix, Groups, Op, Routed, Routing, Val, Weight, Wt};

/// The names of a block's stacks of matrices, as [`Layer::experts`] looks for them.
#[derive(Clone, Copy, Debug)]
pub struct ExpertNames {
    /// Gates and ups in one stack, of each expert the gate first; where the checkpoint lacks it, the next two.
    pub gate_up: &'static str,
    /// Gates.
    pub gate: &'static str,
    /// Ups.
    pub up: &'static str,
    /// Downs.
    pub down: &'static str,
}

impl Graph<'_> {
    /// `x * sigmoid(gate)`, where `gate` is one number a row.
    pub fn gate_rows(&self, x: Val, gate: Val) -> Val {
        let (found, rows) = (self.width(gate), |v: Val| self.state.borrow().values[v.index()].rows);
        if found != 1 {
            self.fault(Error::Config(format!("a gate of rows is one number a row, not {found}")));
        }
        if rows(x) != rows(gate) {
            self.fault(Error::Config("gates of other rows than those of x".to_owned()));
        }
        let out = self.like(x);
        self.push(Op::GateRows { out, x, gate });
        out
    }

    /// The weight for a stack of `count` matrices of `cols` columns (a tensor of three dimensions), and the rows of one.
    pub(super) fn stack(&self, name: String, count: usize, cols: usize) -> (Wt, usize) {
        let found = self.find(&name, cols);
        let dim = |i: usize| found.dims.get(i).copied().unwrap_or(1);
        if dim(0) != cols || dim(2) != count || found.dims.len() > 3 || dim(1) == 0 {
            let expected = format!("[{cols}, n, {count}]");
            self.fault(Error::Shape { name: name.clone(), found: format!("{:?}", found.dims), expected });
        }
        let rows = dim(1).max(1);
        let all = rows.saturating_mul(count.max(1));
        (self.intern(Weight { name, ty: found.ty, first_row: 0, rows: all, cols }), rows)
    }
}

impl Layer<'_> {
    /// The experts of each row by their `scores`. `{bias}.bias`, where the checkpoint has it, counts in the choice and
    /// not in the weight.
    pub fn route(&self, scores: Val, bias: &str, routing: Routing) -> Routed {
        self.route_by(scores, bias, None, routing)
    }

    /// The same, weights being multiplied by the block's tensor `factors`, one number for each expert.
    pub fn route_by(&self, scores: Val, bias: &str, factors: Option<&str>, routing: Routing) -> Routed {
        let count = self.g.width(scores);
        let Routing { used, groups, .. } = routing;
        let Groups { count: groups, used: groups_used, .. } = groups.unwrap_or(Groups::ONE);
        if groups == 0 || !count.is_multiple_of(groups) || groups_used == 0 || groups_used > groups {
            let why = format!("block {}: {groups_used} of {groups} groups of {count} experts", self.n);
            self.g.fault(Error::Config(why));
        } else if used == 0 || used > count / groups * groups_used {
            let why =
                format!("block {}: {used} experts of {} are used", self.n, count / groups * groups_used);
            self.g.fault(Error::Config(why));
        }
        let bias = format!("{}.bias", self.name(bias));
        let bias = self.g.tensors.find(&bias).is_some().then(|| self.g.vector(bias, count));
        let factors = factors.map(|name| self.g.vector(self.name(name), count));
        let rows = self.g.state.borrow().values[scores.index()].rows;
        let out = Routed { experts: self.g.value(rows, used), weights: self.g.value(rows, used) };
        self.g.push(Op::Route { out, scores, bias, factors, routing });
        out
    }

    /// The sum of what each row's experts of `count` make of it, each times its weight:
    /// `down(act(gate(x)) * up(x))`, with the biases that the checkpoint has.
    pub fn experts(&self, x: Val, routed: Routed, count: usize, names: &ExpertNames, act: Act) -> Val {
        let width = self.g.width(x);
        let stack = |name: &str, cols| self.g.stack(format!("{}.weight", self.name(name)), count, cols);
        let bias = |name: &str, rows| {
            let bias = format!("{}.bias", self.name(name));
            self.g.tensors.find(&bias).is_some().then(|| self.g.weight(bias, Some(count), rows))
        };
        let matrix = |name, (w, rows)| ExpertMatrix { w, bias: bias(name, rows) };
        let (gate, up, inner) = if self.has(names.gate_up) {
            let joined = stack(names.gate_up, width);
            if !joined.1.is_multiple_of(2) {
                let why = format!("block {}: gate and up of {} rows together", self.n, joined.1);
                self.g.fault(Error::Config(why));
            }
            (matrix(names.gate_up, joined), None, (joined.1 / 2).max(1))
        } else {
            let (gate, up) = (stack(names.gate, width), stack(names.up, width));
            if gate.1 != up.1 {
                let why = format!("block {}: experts' gates have {} rows, ups {}", self.n, gate.1, up.1);
                self.g.fault(Error::Config(why));
            }
            (matrix(names.gate, gate), Some(matrix(names.up, up)), gate.1)
        };
        let down = stack(names.down, inner);
        if down.1 != width {
            let why = format!("block {}: experts make rows of {} from rows of {width}", self.n, down.1);
            self.g.fault(Error::Config(why));
        }
        let matrices = ExpertMatrices { count, inner, gate, up, down: matrix(names.down, down) };
        let out = self.g.like(x);
        self.g.push(Op::Experts { out, x, routed, matrices, act });
        out
    }
}
