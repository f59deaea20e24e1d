//! The checks of mixtures of experts.

use super::Check;
use crate::{Error, ExpertMatrices, ExpertMatrix, GroupScore, Groups, Op, Routed, Routing, Val, Wt};

impl Check<'_> {
    /// `out` has a column for each expert used, and enough experts can be chosen.
    pub(super) fn route(
        &self,
        out: Routed,
        scores: Val,
        bias: Option<Wt>,
        routing: &Routing,
    ) -> Result<(), Error> {
        let experts = self.value(scores)?.width;
        for (name, v) in [("experts", out.experts), ("weights", out.weights)] {
            self.same_rows(name, v, scores)?;
            self.width(name, v, ("the number of experts used", routing.used))?;
        }
        bias.map_or(Ok(()), |b| self.vector("the bias", b, ("the width of scores", experts)))?;
        let Groups { count, used, by } = routing.groups.unwrap_or(Groups::ONE);
        if count == 0 || !experts.is_multiple_of(count) || used == 0 || used > count {
            return Err(self.fault(format!("{used} of {count} groups of {experts} experts")));
        }
        let each = experts / count;
        if by == GroupScore::BestTwo && each < 2 {
            return Err(self.fault(format!("the two best of groups of {each}")));
        }
        if routing.used == 0 || routing.used > used * each {
            return Err(self.fault(format!("{} experts of {} are used", routing.used, used * each)));
        }
        Ok(())
    }

    /// The choice is that of a route over so many experts, and each stack holds a matrix for each of them.
    pub(super) fn experts(&self, x: Val, routed: Routed, m: &ExpertMatrices) -> Result<(), Error> {
        let width = self.value(x)?.width;
        let scores = self.plan.ops.iter().find_map(|op| match op {
            Op::Route { out, scores, .. } if *out == routed => Some(*scores),
            _ => None,
        });
        let Some(scores) = scores else {
            let Routed { experts, weights } = routed;
            return Err(self.fault(format!("values {} and {} are of no route", experts.0, weights.0)));
        };
        self.width("scores", scores, ("the number of experts", m.count))?;
        self.same_rows("experts", routed.experts, x)?;
        let gate = if m.up.is_none() { m.inner.saturating_mul(2) } else { m.inner };
        self.stack("gate", &m.gate, m.count, gate, width)?;
        m.up.map_or(Ok(()), |up| self.stack("up", &up, m.count, m.inner, width))?;
        self.stack("down", &m.down, m.count, width, m.inner)
    }

    fn stack(
        &self,
        name: &str,
        m: &ExpertMatrix,
        count: usize,
        rows: usize,
        cols: usize,
    ) -> Result<(), Error> {
        let w = self.weight(m.w)?;
        self.equal((&format!("the number of columns of {name}"), w.cols), ("what it reads", cols))?;
        let all = count.saturating_mul(rows);
        self.equal((&format!("the number of rows of {name}"), w.rows), ("experts times those of one", all))?;
        let Some(bias) = m.bias else { return Ok(()) };
        let b = self.weight(bias)?;
        self.equal(
            (&format!("the number of rows of the bias of {name}"), b.rows),
            ("that of experts", count),
        )?;
        self.equal((&format!("the length of the bias of {name}"), b.cols), ("that of a product", rows))
    }
}
