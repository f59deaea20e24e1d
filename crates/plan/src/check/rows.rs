//! The shapes of ops that work on rows by themselves, or on several streams of them.

use super::Check;
use crate::{Error, Op};

impl Check<'_> {
    pub(super) fn row_shapes(&self, op: &Op) -> Result<(), Error> {
        match op {
            Op::ScaleColumns { out, x, w } => {
                self.like(("out", *out), ("x", *x))?;
                let weight = self.weight(*w)?;
                match weight.rows.saturating_mul(weight.cols) {
                    1 => Ok(()),
                    _ => self.vector("w", *w, ("the width of x", self.value(*x)?.width)),
                }
            }
            Op::UnitNorm { out, x, group, .. } => {
                self.like(("out", *out), ("x", *x))?;
                self.heads("x", *x, *group)
            }
            Op::MatchSize { out, x, to } => {
                self.like(("out", *out), ("x", *x))?;
                self.like(("to", *to), ("x", *x))
            }
            Op::Blend { out, base, xs, weights } => {
                self.like(("out", *out), ("base", *base))?;
                xs.iter().try_for_each(|x| self.like(("x", *x), ("base", *base)))?;
                self.same_rows("the weights", weights.of, *base)?;
                let (first, width) = (weights.first, self.value(weights.of)?.width);
                match first.checked_add(xs.len()) {
                    Some(end) if end <= width => Ok(()),
                    _ => {
                        Err(self
                            .fault(format!("weights of {} rows from column {first} on of {width}", xs.len())))
                    }
                }
            }
            Op::Sparsify { out, x, deviations } => {
                self.like(("out", *out), ("x", *x))?;
                match deviations.is_finite() {
                    true => Ok(()),
                    false => Err(self.fault(format!("a threshold of {deviations} deviations"))),
                }
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Shapes;
    use crate::{Graph, Op, Plan, Val};

    fn plan() -> Plan {
        let shapes = Shapes::new(&[
            ("token_embd.weight", &[16, 40]),
            ("columns.weight", &[16]),
            ("one.weight", &[1]),
            ("coefficients.weight", &[16, 4]),
        ]);
        let g = Graph::new(&shapes, 1e-5);
        let x = g.embed("token_embd", 16);
        let by = g.linear(x, "coefficients");
        let y = g.scale_columns(g.scale_columns(x, "columns.weight"), "one.weight");
        let z = g.sparsify(g.match_size(g.unit_norm(y, 8), x), 1.5);
        let out = g.blend(x, &[y, z], by, 2);
        let out = g.select_rows(out);
        g.finish_rows(out).unwrap()
    }

    #[test]
    fn what_the_graph_records_is_right() {
        let plan = plan();
        plan.check().unwrap();
        let names: Vec<_> = plan.ops.iter().map(Op::name).collect();
        assert_eq!(
            names,
            [
                "embed",
                "linear",
                "scale_columns",
                "scale_columns",
                "unit_norm",
                "match_size",
                "sparsify",
                "blend",
                "select_rows"
            ]
        );
    }

    #[test]
    fn faults_are_named() {
        let refused = |name: &str, says: &str, change: &dyn Fn(&mut Op)| {
            let mut plan = plan();
            let op = plan.ops.iter_mut().find(|op| op.name() == name).unwrap();
            change(op);
            let why = plan.check().unwrap_err().to_string();
            assert!(why.contains(name) && why.contains(says), "{why}");
        };
        refused("unit_norm", "not heads of 5", &|op| {
            let Op::UnitNorm { group, .. } = op else { unreachable!() };
            *group = 5;
        });
        refused("match_size", "the width of to is 4", &|op| {
            let Op::MatchSize { to, .. } = op else { unreachable!() };
            *to = Val(1);
        });
        refused("blend", "weights of 2 rows from column 3 on of 4", &|op| {
            let Op::Blend { weights, .. } = op else { unreachable!() };
            weights.first = 3;
        });
        refused("sparsify", "NaN deviations", &|op| {
            let Op::Sparsify { deviations, .. } = op else { unreachable!() };
            *deviations = f32::NAN;
        });
        refused("scale_columns", "is 40", &|op| {
            let Op::ScaleColumns { w, .. } = op else { unreachable!() };
            w.0 = 0;
        });
    }
}
