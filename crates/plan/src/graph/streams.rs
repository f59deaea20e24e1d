//! Recording of ops on rows by themselves, and of several streams of rows side by side.

use super::{Graph, Layer};
use crate::{Attention, Columns, Error, KvLayer, Op, RowSet, Val, Weight};

impl Graph<'_> {
    /// `x` times the tensor of exactly that name, column by column, or times its one number.
    pub fn scale_columns(&self, x: Val, tensor: &str) -> Val {
        let one = self.tensors.find(tensor).is_some_and(|t| t.dims.iter().all(|&d| d == 1));
        let w = self.vector(tensor.to_owned(), if one { 1 } else { self.width(x) });
        let out = self.like(x);
        self.push(Op::ScaleColumns { out, x, w });
        out
    }

    /// The norm of each `group` elements of a row, without factors.
    pub fn unit_norm(&self, x: Val, group: usize) -> Val {
        let width = self.width(x);
        if group == 0 || !width.is_multiple_of(group) {
            self.fault(Error::Config(format!("rows of {width} elements are not groups of {group}")));
        }
        let out = self.like(x);
        self.push(Op::UnitNorm { out, x, group, eps: self.eps });
        out
    }

    /// The norm of each `group` elements of a row, by the one `{name}.weight` of all.
    pub fn norm_of_groups(&self, x: Val, name: &str, group: usize) -> Val {
        let width = self.width(x);
        if group == 0 || !width.is_multiple_of(group) {
            self.fault(Error::Config(format!("rows of {width} elements are not groups of {group}")));
        }
        let norm = self.norm(name, group);
        let out = self.like(x);
        self.push(Op::HeadNorm { out, x, head_dim: group, norm });
        out
    }

    /// The rows of `x`, each as large as that of `to`.
    pub fn match_size(&self, x: Val, to: Val) -> Val {
        self.same_width(x, to, "the sizes of");
        let out = self.like(x);
        self.push(Op::MatchSize { out, x, to });
        out
    }

    /// `base` plus each of `xs` times a number of its row: the columns of `weights` from `first` on.
    pub fn blend(&self, base: Val, xs: &[Val], weights: Val, first: usize) -> Val {
        xs.iter().for_each(|&x| self.same_width(base, x, "the blend of"));
        let width = self.width(weights);
        if first.checked_add(xs.len()).is_none_or(|end| end > width) {
            let why = format!("weights of {} rows from column {first} on of {width}", xs.len());
            self.fault(Error::Config(why));
        }
        let out = self.like(base);
        self.push(Op::Blend { out, base, xs: xs.to_vec(), weights: Columns { of: weights, first } });
        out
    }

    /// What of each row is so many deviations above its mean, and 0 elsewhere.
    pub fn sparsify(&self, x: Val, deviations: f32) -> Val {
        if !deviations.is_finite() {
            self.fault(Error::Config(format!("a threshold of {deviations} deviations")));
        }
        let out = self.like(x);
        self.push(Op::Sparsify { out, x, deviations });
        out
    }

    /// `x` times matrix `n` of the `count` that `{name}.weight` is.
    pub fn linear_of_stack(&self, x: Val, name: &str, n: usize, count: usize) -> Val {
        let (name, cols) = (format!("{name}.weight"), self.width(x));
        let found = self.find(&name, cols);
        let [have_cols, rows, have_count] = [0, 1, 2].map(|i| found.dims.get(i).copied().unwrap_or(1));
        if [have_cols, have_count] != [cols, count] || found.dims.len() > 3 || n >= count || rows == 0 {
            let expected = format!("[{cols}, n, {count}]");
            self.fault(Error::Shape { name: name.clone(), found: format!("{:?}", found.dims), expected });
        }
        let rows = rows.max(1);
        let first_row = n.saturating_mul(rows);
        let w = self.intern(Weight { name, ty: found.ty, first_row, rows, cols });
        let set = self.state.borrow().values[x.index()].rows;
        let out = self.value(set, rows);
        self.push(Op::Linear { out, x, w });
        out
    }
}

impl Layer<'_> {
    /// `x` times the block's tensor of exactly that name; see [`Graph::scale_columns`].
    pub fn scale_columns(&self, x: Val, tensor: &str) -> Val {
        self.g.scale_columns(x, &self.name(tensor))
    }

    /// Attends `q` over a layer of the cache that an earlier block filled.
    pub fn attend_shared(&self, q: Val, layer: KvLayer, attention: Attention) -> Val {
        let Attention { heads, kv_heads, head_dim, value_dim, .. } = attention;
        let (found, expected) = (self.g.width(q), heads.saturating_mul(head_dim));
        if found != expected {
            let why = format!(
                "block {}: queries have {found} elements, but {heads} heads of {head_dim} make {expected}",
                self.n
            );
            self.g.fault(Error::Config(why));
        }
        let kv = self.g.state.borrow().kv.get(layer.index()).copied();
        if kv.is_none_or(|kv| (kv.heads, kv.head_dim, kv.value_dim) != (kv_heads, head_dim, value_dim)) {
            let why = format!(
                "block {}: {kv_heads} heads of {head_dim} do not fit the cache of the block that it shares",
                self.n
            );
            self.g.fault(Error::Config(why));
        }
        let out = self.g.value(RowSet::All, heads.saturating_mul(value_dim));
        self.g.push(Op::Attend { out, q, layer, attention });
        out
    }
}
