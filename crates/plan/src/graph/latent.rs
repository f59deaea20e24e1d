//! Recording attention over latents, and what else few families ask of attention.

use super::Layer;
use crate::{Attention, Error, Op, Val, Wt};

impl Layer<'_> {
    /// The first `cols` elements of each of `heads` heads times the head's own matrix; what is left of the head follows
    /// the product.
    pub fn head_linear(&self, x: Val, name: &str, heads: usize, cols: usize) -> Val {
        let (w, rows) = self.g.stack(format!("{}.weight", self.name(name)), heads, cols);
        let (width, of) = (self.g.width(x), self.g.state.borrow().values[x.index()].rows);
        if heads == 0 || !width.is_multiple_of(heads) || width / heads < cols {
            let why = format!("block {}: rows of {width} elements are not {heads} heads of {cols}", self.n);
            self.g.fault(Error::Config(why));
        }
        let rest = (width / heads.max(1)).saturating_sub(cols);
        let out = self.g.value(of, heads.saturating_mul(rows.saturating_add(rest)));
        self.g.push(Op::HeadLinear { out, x, w, heads });
        out
    }

    /// The scores without values of `heads` heads, where the checkpoint has them.
    pub fn sinks(&self, name: &str, heads: usize) -> Option<Wt> {
        self.has(name).then(|| self.g.vector(format!("{}.weight", self.name(name)), heads))
    }

    /// Stores keys whose first elements are the values, then attends `q` over them. `rest` is what follows the values
    /// in each head.
    pub fn attend_latent(&self, q: Val, rest: Val, values: Val, attention: Attention) -> Val {
        self.attend_over(q, rest, values, attention, true).0
    }
}
