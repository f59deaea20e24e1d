//! The checks of mixtures of experts.

use super::Check;
use crate::{Error, ExpertMatrices, ExpertMatrix, GroupScore, Groups, Op, Routed, Routing, Val, Wt};

impl Check<'_> {
    /// `out` has a column for each expert used, and enough experts can be chosen.
    pub(super) fn route(
        &self,
        out: Routed,
        scores: Val,
        [bias, factors]: [Option<Wt>; 2],
        routing: &Routing,
    ) -> Result<(), Error> {
        let experts = self.value(scores)?.width;
        for (name, v) in [("experts", out.experts), ("weights", out.weights)] {
            self.same_rows(name, v, scores)?;
            self.width(name, v, ("the number of experts used", routing.used))?;
        }
        bias.map_or(Ok(()), |b| self.vector("the bias", b, ("the width of scores", experts)))?;
        factors.map_or(Ok(()), |f| self.vector("the factors", f, ("the width of scores", experts)))?;
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

#[cfg(test)]
mod tests {
    use crate::show::{Cost, Options, products, show};
    use crate::testing::Shapes;
    use crate::{Act, Error, ExpertNames, Graph, GroupScore, Groups, Op, Plan, Routing, Scoring, Wt};

    const NAMES: ExpertNames = ExpertNames { gate_up: "joined", gate: "gate", up: "up", down: "down" };

    /// Six experts of 8 over rows of 16, two for each row, in groups of three; a gate for the rows.
    fn plan() -> Plan {
        let tensors = Shapes::new(&[
            ("e.weight", &[16, 5]),
            ("blk.0.router.weight", &[16, 6]),
            ("blk.0.choice.bias", &[6]),
            ("blk.0.gate.weight", &[16, 8, 6]),
            ("blk.0.gate.bias", &[8, 6]),
            ("blk.0.up.weight", &[16, 8, 6]),
            ("blk.0.down.weight", &[8, 16, 6]),
            ("blk.0.row.weight", &[16]),
        ]);
        let g = Graph::new(&tensors, 1e-5);
        let l = g.layer(0);
        let x = g.embed("e", 16);
        let groups = Some(Groups { count: 2, used: 1, by: GroupScore::BestTwo });
        let routing = Routing { used: 2, scoring: Scoring::Sigmoid, groups, normalised: true, scale: 2.5 };
        let routed = l.route(l.linear(x, "router"), "choice", routing);
        let y = l.experts(x, routed, 6, &NAMES, Act::Silu);
        let y = g.gate_rows(y, l.linear(x, "row"));
        let wanted = g.select_rows(y);
        g.finish(wanted).unwrap()
    }

    /// The plan, its op of that name spoilt, is refused with these words.
    #[track_caller]
    fn refused(name: &str, words: &str, spoil: impl Fn(&mut Plan, usize)) {
        let mut bad = plan();
        let at = bad.ops.iter().position(|op| op.name() == name).unwrap();
        spoil(&mut bad, at);
        let Err(Error::Config(why)) = bad.check() else { panic!("{name} is not refused") };
        assert!(why.starts_with(&format!("op {at} ({name}): ")) && why.contains(words), "{why}");
    }

    #[test]
    fn choices_fit_their_scores() {
        assert_eq!(plan().check(), Ok(()));
        let routing = |words: &str, change: &dyn Fn(&mut Routing)| {
            refused("route", words, |p, at| {
                let Op::Route { routing, .. } = &mut p.ops[at] else { unreachable!() };
                change(routing);
            });
        };
        routing("the width of experts is 2, but the number of experts used is 3", &|r| r.used = 3);
        let groups = |count, used| Some(Groups { count, used, by: GroupScore::BestTwo });
        routing("1 of 4 groups of 6 experts", &|r| r.groups = groups(4, 1));
        routing("0 of 2 groups", &|r| r.groups = groups(2, 0));
        routing("3 of 2 groups", &|r| r.groups = groups(2, 3));
        routing("the two best of groups of 1", &|r| r.groups = groups(6, 2));
        let best = Some(Groups { count: 6, used: 1, by: GroupScore::Best });
        routing("2 experts of 1 are used", &|r| r.groups = best);
        refused("route", "the length of the bias is 16", |p, at| {
            let norm = p.weights.iter().position(|w| w.name == "blk.0.row.weight").unwrap();
            let Op::Route { bias, .. } = &mut p.ops[at] else { unreachable!() };
            *bias = Some(Wt(norm as u32));
        });
    }

    #[test]
    fn stacks_fit_the_rows_and_the_choice() {
        refused("experts", "are of no route", |p, at| {
            let Op::Experts { routed, .. } = &mut p.ops[at] else { unreachable!() };
            std::mem::swap(&mut routed.experts, &mut routed.weights);
        });
        refused("experts", "the width of scores is 6, but the number of experts is 3", |p, at| {
            let Op::Experts { matrices, .. } = &mut p.ops[at] else { unreachable!() };
            matrices.count = 3;
        });
        refused(
            "experts",
            "the number of rows of gate is 48, but experts times those of one is 96",
            |p, at| {
                let Op::Experts { matrices, .. } = &mut p.ops[at] else { unreachable!() };
                matrices.up = None;
            },
        );
        for name in ["gate.weight", "gate.bias", "up.weight", "down.weight"] {
            refused("experts", "99", |p, _| {
                let w = p.weights.iter_mut().find(|w| w.name == format!("blk.0.{name}")).unwrap();
                w.cols = 99;
            });
        }
    }

    #[test]
    fn a_gate_of_rows_is_one_number() {
        refused("gate_rows", "the width of gate is 16, but that of one number a row is 1", |p, at| {
            let Op::GateRows { x, gate, .. } = &mut p.ops[at] else { unreachable!() };
            *gate = *x;
        });
    }

    #[test]
    fn a_token_costs_the_experts_that_it_takes() {
        let plan = plan();
        let cost = Cost::new(&plan);
        // The router, two experts of three matrices, and the gate of rows.
        assert_eq!(cost.multiply_adds, 16 * 6 + 2 * 3 * 8 * 16 + 16);
        let experts = plan.ops.iter().find(|op| op.name() == "experts").unwrap();
        assert!(products(&plan, experts).iter().all(|(_, rows)| [16, 32].contains(rows)));
        // A row of the table, the router, its bias, two experts with the gate's bias, and the gate of rows.
        assert_eq!(cost.read_bytes, 4 * (16 + 16 * 6 + 6 + 2 * (3 * 8 * 16 + 8) + 16));
        let text = show(&plan, &Options::default());
        assert!(
            text.contains("best 2 by sigmoid in 1 of 2 groups by their two best, normalised, x 2.5"),
            "{text}"
        );
        assert!(text.contains("6 experts of 8, silu"), "{text}");
    }
}
