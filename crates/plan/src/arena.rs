//! Where each value of a plan lives.
//!
//! Memory is two regions of columns, one for the values that have a row for each token of the step and one for
//! those that have a row for each row whose logits are wanted: the logits of a whole prompt are never
//! allocated when only the last row's are asked for. A region of `c` columns in a step of `n` rows is `c * n`
//! f32. The plan is straight-line code, so lifetimes are known exactly and places are given once, at load.

use crate::{Op, Plan, RowSet, Val};

/// Columns come in multiples of this: 64 bytes of f32, a cache line and a vector register of AVX-512.
pub const COLUMNS: usize = 16;

/// Where a value lives: elements `[offset * n, (offset + width) * n)` of its region, a dense `[n, width]`,
/// where `n` is the number of rows that the step has of that kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The region.
    pub rows: RowSet,
    /// The first column.
    pub offset: usize,
}

/// The places of all values, and the size of both regions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arena {
    /// The place of each value, by [`Val`]. A value that no op writes has no memory; its place says column 0.
    pub places: Vec<Place>,
    /// Columns of the region of [`RowSet::All`].
    pub all_columns: usize,
    /// Columns of the region of [`RowSet::Wanted`].
    pub wanted_columns: usize,
}

impl Arena {
    /// Gives each value a place, so that no two values that are alive at once overlap. An op's inputs stay alive
    /// through the op, but where one dies there and the op allows it, the output takes over its place.
    pub fn new(plan: &Plan) -> Arena {
        let dies = last_uses(plan);
        let mut places: Vec<Place> = plan.values.iter().map(|v| Place { rows: v.rows, offset: 0 }).collect();
        let (mut all, mut wanted) = (Region::default(), Region::default());
        for (i, op) in plan.ops.iter().enumerate() {
            let reads = op.reads();
            // Inputs that die here; `inherit` takes from it what an output takes over.
            let mut dying: Vec<Val> = Vec::new();
            for &r in &reads {
                if dies[r.index()] == i && !dying.contains(&r) {
                    dying.push(r);
                }
            }
            let writes = op.writes();
            for &out in &writes {
                places[out.index()].offset = match inherit(plan, op, out, &mut dying) {
                    Some(input) => places[input.index()].offset,
                    None => {
                        let v = plan.values[out.index()];
                        region(v.rows, &mut all, &mut wanted).take(columns(v.width))
                    }
                };
            }
            let unread = writes.into_iter().filter(|w| dies[w.index()] == i);
            for dead in dying.into_iter().chain(unread) {
                let v = plan.values[dead.index()];
                let offset = places[dead.index()].offset;
                region(v.rows, &mut all, &mut wanted).give(offset, columns(v.width));
            }
        }
        Arena { places, all_columns: all.top, wanted_columns: wanted.top }
    }
}

/// The index of the last op that uses each value; the logits are used after all of them.
fn last_uses(plan: &Plan) -> Vec<usize> {
    let mut dies = vec![0; plan.values.len()];
    for (i, op) in plan.ops.iter().enumerate() {
        for v in op.reads().into_iter().chain(op.writes()) {
            dies[v.index()] = i;
        }
    }
    if let Some(d) = dies.get_mut(plan.logits.index()) {
        *d = plan.ops.len();
    }
    dies
}

/// An input that dies at `op` and whose memory may become that of `out`.
fn inherit(plan: &Plan, op: &Op, out: Val, dying: &mut Vec<Val>) -> Option<Val> {
    let fits = |&input: &Val| op.may_alias(input) && plan.values[input.index()] == plan.values[out.index()];
    let at = dying.iter().position(fits)?;
    Some(dying.remove(at))
}

fn region<'a>(rows: RowSet, all: &'a mut Region, wanted: &'a mut Region) -> &'a mut Region {
    match rows {
        RowSet::All => all,
        RowSet::Wanted => wanted,
    }
}

fn columns(width: usize) -> usize {
    width.next_multiple_of(COLUMNS)
}

/// A stretch of columns that grows at its end, and the holes in it.
#[derive(Default)]
struct Region {
    top: usize,
    /// `(start, end)`, in order, none touching another.
    holes: Vec<(usize, usize)>,
}

impl Region {
    /// The smallest hole that is large enough, else new columns, which may begin in a hole at the end.
    fn take(&mut self, columns: usize) -> usize {
        let fitting = self.holes.iter().enumerate().filter(|(_, (start, end))| end - start >= columns);
        if let Some((at, _)) = fitting.min_by_key(|(_, (start, end))| end - start) {
            let (start, end) = self.holes[at];
            match start + columns == end {
                true => drop(self.holes.remove(at)),
                false => self.holes[at].0 = start + columns,
            }
            return start;
        }
        let start = match self.holes.pop_if(|(_, end)| *end == self.top) {
            Some((start, _)) => start,
            None => self.top,
        };
        self.top = start + columns;
        start
    }

    fn give(&mut self, start: usize, columns: usize) {
        let mut hole = (start, start + columns);
        let at = self.holes.partition_point(|h| h.0 < start);
        if self.holes.get(at).is_some_and(|next| next.0 == hole.1) {
            hole.1 = self.holes.remove(at).1;
        }
        match at.checked_sub(1).and_then(|before| self.holes.get_mut(before)) {
            Some(before) if before.1 == hole.0 => before.1 = hole.1,
            _ => self.holes.insert(at, hole),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Act, Fused, LinearPart, Norm, Value, Wt};

    /// Runs the plan with memory that remembers, for each column, which value was written there last, and
    /// fails where an op finds another value than the one it reads.
    fn check(plan: &Plan) -> Arena {
        let arena = Arena::new(plan);
        let mut memory = [vec![None; arena.all_columns], vec![None; arena.wanted_columns]];
        let span = |v: Val| {
            let (p, value) = (arena.places[v.index()], plan.values[v.index()]);
            assert_eq!(p.rows, value.rows);
            assert_eq!(p.offset % COLUMNS, 0);
            (p.rows as usize, p.offset..p.offset + value.width)
        };
        let holds = |memory: &[Vec<Option<Val>>; 2], v: Val| {
            let (region, columns) = span(v);
            assert!(
                memory[region][columns].iter().all(|&c| c == Some(v)),
                "{v:?} was overwritten in {plan:?}"
            );
        };
        for op in &plan.ops {
            for &r in &op.reads() {
                holds(&memory, r);
            }
            for &w in &op.writes() {
                let (region, columns) = span(w);
                // Within the op, an output may lie only on an input that the op allows, and wholly on it.
                for &r in &op.reads() {
                    let (other, input) = span(r);
                    let apart = other != region || columns.end <= input.start || input.end <= columns.start;
                    assert!(apart || op.may_alias(r) && input == columns, "{op:?}: {w:?} lies on {r:?}");
                }
                memory[region][columns].fill(Some(w));
            }
            for &w in &op.writes() {
                holds(&memory, w);
            }
        }
        holds(&memory, plan.logits);
        arena
    }

    /// A plan from numbers: each takes its inputs among the values before it.
    fn plan(steps: &[(u8, usize, usize, usize)]) -> Plan {
        const WIDTHS: [usize; 5] = [16, 1, 24, 40, 64];
        let norm = Norm { weight: Wt(0), eps: 1e-5 };
        let mut values = vec![Value { rows: RowSet::All, width: 16 }];
        let mut ops = vec![Op::Embed { out: Val(0), table: Wt(0) }];
        for &(kind, a, b, width) in steps {
            let a = Val((a % values.len()) as u32);
            let of_a = values[a.index()];
            let alike: Vec<usize> = (0..values.len()).filter(|&i| values[i] == of_a).collect();
            let b = Val(alike[b % alike.len()] as u32);
            let other = Value { rows: of_a.rows, width: WIDTHS[width % WIDTHS.len()] };
            let mut value = |v: Value| {
                values.push(v);
                Val(values.len() as u32 - 1)
            };
            ops.push(match kind % 10 {
                0 => Op::Add { out: value(of_a), a, b },
                1 => Op::Scale { out: value(of_a), x: a, by: 2.0 },
                2 => Op::RmsNorm { out: value(of_a), x: a, norm },
                3 => Op::Linear { out: value(other), x: a, w: Wt(0) },
                4 => Op::Glu { out: value(of_a), gate: a, up: b, act: Act::Silu },
                5 if of_a.rows == RowSet::All => {
                    Op::SelectRows { out: value(Value { rows: RowSet::Wanted, ..of_a }), x: a }
                }
                5 | 6 => Op::Softcap { out: value(of_a), x: a, cap: 3.0 },
                7 => Op::Fused(Fused::AddRmsNorm { sum: value(of_a), out: value(of_a), a, b, norm }),
                8 => {
                    let part = |out| LinearPart { out, w: Wt(0), bias: None };
                    let parts = vec![part(value(other)), part(value(of_a))];
                    Op::Fused(Fused::NormLinear { x: a, norm, parts })
                }
                _ => Op::Fused(Fused::LinearAdd { out: value(of_a), x: a, w: Wt(0), add: b }),
            });
        }
        let logits = Val(values.len() as u32 - 1);
        Plan { ops, values, weights: vec![], kv: vec![], states: vec![], logits }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn no_two_live_values_overlap(steps in prop::collection::vec(any::<(u8, usize, usize, usize)>(), 0..40)) {
            check(&plan(&steps));
        }
    }

    #[test]
    fn a_chain_needs_one_place() {
        let arena = check(&plan(&[(1, 0, 0, 0), (1, 1, 0, 0), (2, 2, 0, 0)]));
        assert_eq!((arena.all_columns, arena.wanted_columns), (16, 0));
    }

    #[test]
    fn a_linear_never_writes_over_its_input() {
        assert_eq!(check(&plan(&[(3, 0, 0, 0)])).all_columns, 32);
    }

    #[test]
    fn a_residual_stream_adds_in_place() {
        // x; h = norm(x); y = linear(h); x + y: three places are alive at once, two of them while `y` is written.
        let arena = check(&plan(&[(2, 0, 0, 0), (3, 1, 0, 0), (0, 0, 1, 0)]));
        assert_eq!(arena.all_columns, 48);
    }

    #[test]
    fn wanted_rows_have_their_own_region() {
        let arena = check(&plan(&[(5, 0, 0, 0), (3, 1, 0, 4)]));
        assert_eq!((arena.all_columns, arena.wanted_columns), (16, 16 + 64));
    }

    #[test]
    fn a_value_that_nothing_reads_is_given_back() {
        let arena = check(&plan(&[(3, 0, 0, 4), (3, 0, 0, 4), (3, 0, 0, 4)]));
        assert_eq!(arena.all_columns, 16 + 64);
    }
}
