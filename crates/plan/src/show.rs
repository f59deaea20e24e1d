//! Prints a plan, for people.
//!
//! One op a line: what it writes, what it reads, its tensors with types and shapes, its numbers. Blocks that
//! are alike but for their number are printed once.

use std::collections::HashSet;
use std::fmt::Write;

use crate::arena::Arena;
use crate::{
    Act, Attention, Fused, GroupScore, Groups, HeadPrep, Op, Plan, Rope, RopeStyle, Routing, RowSet, Scoring,
    Val, Wt,
};

/// How a plan is printed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Options {
    /// Every block in full, alike or not.
    pub all_blocks: bool,
}

/// The plan as text: its ops, then its totals.
pub fn show(plan: &Plan, options: &Options) -> String {
    let mut out = String::new();
    let sections = sections(plan);
    let mut shown: Vec<&Section> = Vec::new();
    for section in &sections {
        let Some(block) = section.block else {
            lines(&mut out, plan, &section.ops, None);
            continue;
        };
        if options.all_blocks {
            let _ = writeln!(out, "block {block} (blk.{block}.*)");
            lines(&mut out, plan, &section.ops, Some(block));
            continue;
        }
        // A kind of block is printed where its first block stands.
        if shown.iter().any(|s| s.form == section.form) {
            continue;
        }
        let alike: Vec<usize> =
            sections.iter().filter(|s| s.form == section.form).filter_map(|s| s.block).collect();
        let _ = write!(out, "block {}  x {}", ranges(&alike), alike.len());
        match shown.iter().find(|s| s.ops.len() == section.ops.len()) {
            Some(base) => {
                let _ = writeln!(out, ", as block {} except", base.block.unwrap_or_default());
                let differ =
                    section.ops.iter().zip(&section.form).zip(&base.form).filter(|((_, a), b)| a != b);
                let differ: Vec<usize> = differ.map(|((&op, _), _)| op).collect();
                lines(&mut out, plan, &differ, Some(block));
            }
            None => {
                let _ = writeln!(out);
                lines(&mut out, plan, &section.ops, Some(block));
            }
        }
        shown.push(section);
    }
    totals(&mut out, plan);
    out
}

/// What running the plan costs.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Bytes of all weights as stored.
    pub weight_bytes: usize,
    /// Bytes of weights that one token reads: each matrix once, one row of the embedding table.
    pub read_bytes: usize,
    /// Multiply-adds of all matrices for one token whose logits are wanted.
    pub multiply_adds: usize,
    /// Multiply-adds of attention for one token and one position that it looks back at.
    pub attention_per_position: usize,
    /// Bytes of keys and values that are kept for one position, at f16.
    pub kv_bytes_f16: usize,
}

impl Cost {
    /// Counts the plan's ops.
    pub fn new(plan: &Plan) -> Cost {
        let weight = |w: Wt| &plan.weights[w.index()];
        let mut cost = Cost { weight_bytes: plan.weights.iter().map(|w| w.bytes()).sum(), ..Cost::default() };
        let mut read = HashSet::new();
        let mut rows = 0;
        for op in &plan.ops {
            match op {
                Op::Embed { table, .. } | Op::EmbedPosition { table, .. } => {
                    rows += weight(*table).bytes() / weight(*table).rows
                }
                Op::Attend { attention: a, .. } => {
                    cost.attention_per_position += a.heads * (a.head_dim + a.value_dim);
                }
                // Of a stack one token reads the experts that it takes.
                Op::Experts { routed, matrices, .. } => {
                    let used = plan.values[routed.experts.index()].width;
                    let bytes: usize = matrices.weights().map(|w| weight(w).bytes()).sum();
                    rows += bytes / matrices.count.max(1) * used;
                }
                _ => read.extend(op.weights()),
            }
            for (w, rows) in products(plan, op) {
                cost.multiply_adds += rows * weight(w).cols;
            }
        }
        cost.read_bytes = rows + read.into_iter().map(|w| weight(w).bytes()).sum::<usize>();
        let kept = plan.kv.iter().filter(|kv| kv.kept);
        cost.kv_bytes_f16 = kept.map(|kv| 2 * kv.numbers()).sum();
        cost
    }
}

/// The weights that the op multiplies a row with, and with how many of their rows.
pub fn products(plan: &Plan, op: &Op) -> Vec<(Wt, usize)> {
    let whole = |w: &Wt| (*w, plan.weights[w.index()].rows);
    match op {
        Op::Linear { w, .. } | Op::HeadLinear { w, .. } | Op::Fused(Fused::LinearAdd { w, .. }) => {
            vec![whole(w)]
        }
        Op::Fused(Fused::NormLinear { parts, .. }) => parts.iter().map(|p| whole(&p.w)).collect(),
        Op::Fused(Fused::NormGlu { gate, up, .. }) => vec![whole(gate), whole(up)],
        Op::Experts { routed, matrices, .. } => {
            let used = plan.values[routed.experts.index()].width;
            let of_used = |(w, rows): (Wt, usize)| (w, rows / matrices.count.max(1) * used);
            matrices.stacks().map(|(m, _)| of_used(whole(&m.w))).collect()
        }
        Op::Embed { .. }
        | Op::EmbedPosition { .. }
        | Op::RmsNorm { .. }
        | Op::LayerNorm { .. }
        | Op::Act { .. }
        | Op::HeadNorm { .. }
        | Op::Bias { .. }
        | Op::Rope { .. }
        | Op::KvWrite { .. }
        | Op::Attend { .. }
        | Op::Glu { .. }
        | Op::Add { .. }
        | Op::Scale { .. }
        | Op::ScaleColumns { .. }
        | Op::UnitNorm { .. }
        | Op::MatchSize { .. }
        | Op::Blend { .. }
        | Op::Sparsify { .. }
        | Op::Softcap { .. }
        | Op::Route { .. }
        | Op::GateRows { .. }
        | Op::Mul { .. }
        | Op::Take { .. }
        | Op::GroupNorm { .. }
        | Op::ShortConv { .. }
        | Op::SelectiveScan { .. }
        | Op::DeltaNet { .. }
        | Op::SelectRows { .. }
        | Op::Pool { .. }
        | Op::Fused(Fused::AddRmsNorm { .. } | Fused::HeadNormRopeKvWrite { .. }) => vec![],
    }
}

/// Ops that stand together: those of one block, or some that belong to none.
struct Section {
    block: Option<usize>,
    ops: Vec<usize>,
    /// Each op as text, with values and tensors named relative to the block; alike in blocks that are alike.
    form: Vec<[String; 4]>,
}

fn sections(plan: &Plan) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let of_weights = |op: &Op| op.weights().iter().find_map(|w| block_of(&plan.weights[w.index()].name));
    let mut block = None;
    for (i, op) in plan.ops.iter().enumerate() {
        block = match op {
            _ if of_weights(op).is_some() => of_weights(op),
            // Rows are selected for the ops that follow.
            Op::SelectRows { .. } => {
                plan.ops[i..].iter().find(|op| !op.weights().is_empty()).and_then(of_weights)
            }
            // What has no tensor of the block's goes with the op before it.
            Op::Rope { .. } | Op::Fused(Fused::HeadNormRopeKvWrite { .. }) => block,
            _ if op.weights().is_empty() => block,
            _ => None,
        };
        match sections.last_mut() {
            Some(last) if last.block == block => last.ops.push(i),
            _ => sections.push(Section { block, ops: vec![i], form: vec![] }),
        }
    }
    for s in &mut sections {
        let written = s.ops.iter().flat_map(|&op| plan.ops[op].writes());
        let base = written.map(|v| v.0).min().unwrap_or(0);
        // A block reads what the one before it wrote: differences are what counts, and they may be negative.
        let name = |v: Val| format!("{:+}", i64::from(v.0) - i64::from(base));
        s.form = s.ops.iter().map(|&op| parts(plan, &plan.ops[op], s.block, &name)).collect();
    }
    sections
}

/// The number in `blk.N.`.
fn block_of(tensor: &str) -> Option<usize> {
    tensor.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// Prints ops in aligned columns.
fn lines(out: &mut String, plan: &Plan, ops: &[usize], block: Option<usize>) {
    let name = |v: Val| format!("v{}", v.0);
    let lines: Vec<[String; 4]> = ops.iter().map(|&op| parts(plan, &plan.ops[op], block, &name)).collect();
    let widest = |part: usize| lines.iter().map(|l| l[part].len()).max().unwrap_or(0);
    let (op, writes, reads) = (widest(0), widest(1), widest(2));
    for l in &lines {
        let line = format!("  {:<op$}  {:<writes$} <- {:<reads$}  {}", l[0], l[1], l[2], l[3]);
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// An op as text: its name, what it writes, what it reads, and the rest. `name` names values; tensors of `block`
/// go without its prefix.
fn parts(plan: &Plan, op: &Op, block: Option<usize>, name: &dyn Fn(Val) -> String) -> [String; 4] {
    let shape = |v: Val| {
        let value = plan.values[v.index()];
        let rows = match value.rows {
            RowSet::All => "n",
            RowSet::Wanted => "w",
        };
        format!("{} [{rows}, {}]", name(v), value.width)
    };
    let tensor = |w: &Wt| {
        let w = &plan.weights[w.index()];
        let prefix = block.map(|b| format!("blk.{b}."));
        let short = prefix.and_then(|p| w.name.strip_prefix(&p)).unwrap_or(&w.name);
        let short = short.strip_suffix(".weight").unwrap_or(short);
        let first = if w.first_row == 0 { String::new() } else { format!(" from row {}", w.first_row) };
        match w.rows {
            1 => format!("{short} {} [{}]{first}", w.ty, w.cols),
            rows => format!("{short} {} [{rows}, {}]{first}", w.ty, w.cols),
        }
    };
    let list = |values: Vec<Val>, of: &dyn Fn(Val) -> String| {
        values.into_iter().map(of).collect::<Vec<_>>().join(", ")
    };
    let details: Vec<String> = op.weights().iter().map(tensor).chain(numbers(op)).collect();
    [op.name().to_owned(), list(op.writes(), &shape), list(op.reads(), name), details.join("; ")]
}

/// What an op has besides values and weights.
fn numbers(op: &Op) -> Option<String> {
    let rope = |r: &Rope| {
        let style = match r.style {
            RopeStyle::Interleaved => "interleaved",
            RopeStyle::Halved => "halved",
        };
        let scale = if r.scale == 1.0 { String::new() } else { format!(", positions x {}", r.scale) };
        let yarn = r.yarn.map_or(String::new(), |y| format!(" from pair {} to {} on", y.low, y.high));
        let magnitude = if r.magnitude == 1.0 { String::new() } else { format!(", times {}", r.magnitude) };
        format!("{style}, {} turn, base {}{scale}{yarn}{magnitude}", r.dims, r.base)
    };
    let act = |a: &Act| match a {
        Act::Silu => "silu".to_owned(),
        Act::GeluTanh => "gelu (tanh)".to_owned(),
        Act::GeluErf => "gelu".to_owned(),
        Act::GeluQuick => "gelu (sigmoid)".to_owned(),
        Act::Relu => "relu".to_owned(),
        Act::Relu2 => "relu^2".to_owned(),
        Act::Sigmoid => "sigmoid".to_owned(),
        Act::Tanh => "tanh".to_owned(),
        Act::ClampedSilu => "silu, clamped".to_owned(),
    };
    let prep = |p: &HeadPrep| p.rope.as_ref().map(rope);
    match op {
        Op::Rope { rope: r, head_dim, first: 0, .. } => Some(format!("heads of {head_dim}, {}", rope(r))),
        Op::Rope { rope: r, head_dim, first, .. } => {
            Some(format!("heads of {head_dim} from {first} on, {}", rope(r)))
        }
        Op::HeadLinear { heads, .. } => Some(format!("{heads} heads")),
        Op::HeadNorm { norm, head_dim, .. } => Some(format!("heads of {head_dim}, eps {:e}", norm.eps)),
        Op::RmsNorm { norm, .. } | Op::GroupNorm { norm, .. } => Some(format!("eps {:e}", norm.eps)),
        Op::Attend { attention, .. } => Some(attention_numbers(attention)),
        Op::LayerNorm { norm, group, .. } => Some(format!("groups of {group}, eps {:e}", norm.eps)),
        Op::Glu { act: a, .. } | Op::Act { act: a, .. } => Some(act(a)),
        Op::Scale { by, .. } => Some(format!("by {by}")),
        Op::Softcap { cap, .. } => Some(format!("at {cap}")),
        Op::UnitNorm { group, eps, .. } => Some(format!("groups of {group}, eps {eps:e}")),
        Op::Sparsify { deviations, .. } => Some(format!("above {deviations} deviations")),
        Op::Blend { weights, .. } => Some(format!("by columns from {} on", weights.first)),
        Op::Route { routing, .. } => Some(routing_numbers(routing)),
        Op::Experts { matrices, act: a, .. } => {
            Some(format!("{} experts of {}, {}", matrices.count, matrices.inner, act(a)))
        }
        Op::Embed { .. }
        | Op::EmbedPosition { .. }
        | Op::Linear { .. }
        | Op::Bias { .. }
        | Op::KvWrite { .. }
        | Op::Add { .. }
        | Op::GateRows { .. }
        | Op::Mul { .. }
        | Op::ScaleColumns { .. }
        | Op::MatchSize { .. }
        | Op::SelectRows { .. }
        | Op::Pool { .. } => None,
        Op::Take { first, len, every, .. } => Some(format!("{len} columns from {first} of each {every}")),
        Op::ShortConv { conv, .. } => conv.silu.then(|| "silu".to_owned()),
        Op::SelectiveScan { scan, .. } => {
            let s = &scan.shape;
            Some(format!(
                "{} heads of {}, {} groups, states of {}",
                s.heads, s.head_dim, s.groups, s.state_dim
            ))
        }
        Op::DeltaNet { delta, .. } => {
            let d = &delta.shape;
            let heads = format!("{} heads over {}", d.value_heads, d.key_heads);
            Some(format!("{heads}, states of {} x {}, eps {:e}", d.key_dim, d.value_dim, delta.eps))
        }
        Op::Fused(f) => match f {
            Fused::AddRmsNorm { norm, .. } | Fused::NormLinear { norm, .. } => {
                Some(format!("eps {:e}", norm.eps))
            }
            Fused::NormGlu { norm, act: a, .. } => Some(format!("{}, eps {:e}", act(a), norm.eps)),
            Fused::LinearAdd { .. } => None,
            Fused::HeadNormRopeKvWrite { q_prep, k_prep, head_dim, .. } => {
                let turn = prep(q_prep).or_else(|| prep(k_prep));
                Some(
                    [Some(format!("heads of {head_dim}")), turn]
                        .into_iter()
                        .flatten()
                        .collect::<Vec<_>>()
                        .join(", "),
                )
            }
        },
    }
}

fn attention_numbers(a: &Attention) -> String {
    let mut s = format!("{} heads over {} of {}, scale {}", a.heads, a.kv_heads, a.head_dim, a.scale);
    if !a.causal {
        s.push_str(", both ways");
    }
    if a.value_dim != a.head_dim {
        let _ = write!(s, ", values of {}", a.value_dim);
    }
    if let Some(window) = a.window {
        let _ = write!(s, ", window {window}");
    }
    if let Some(cap) = a.softcap {
        let _ = write!(s, ", softcap {cap}");
    }
    if let Some(most) = a.alibi {
        let _ = write!(s, ", alibi {most}");
    }
    s
}

fn routing_numbers(r: &Routing) -> String {
    let scoring = match r.scoring {
        Scoring::Softmax => "softmax",
        Scoring::Sigmoid => "sigmoid",
        Scoring::SoftmaxOfChosen => "softmax of the chosen",
    };
    let mut s = format!("best {} by {scoring}", r.used);
    if let Some(Groups { count, used, by }) = r.groups {
        let by = match by {
            GroupScore::Best => "best",
            GroupScore::BestTwo => "two best",
        };
        let _ = write!(s, " in {used} of {count} groups by their {by}");
    }
    if r.normalised {
        s += ", normalised";
    }
    if r.scale != 1.0 {
        let _ = write!(s, ", x {}", r.scale);
    }
    s
}

fn totals(out: &mut String, plan: &Plan) {
    let (cost, arena) = (Cost::new(plan), Arena::new(plan));
    let mut rows = vec![
        ("ops", grouped(plan.ops.len())),
        ("weights", format!("{} in {} tensors", bytes(cost.weight_bytes), grouped(plan.weights.len()))),
        ("read a token", bytes(cost.read_bytes)),
        (
            "multiply-adds",
            format!(
                "{} a token, and {} for each position it looks back at",
                grouped(cost.multiply_adds),
                grouped(cost.attention_per_position)
            ),
        ),
        (
            "cache",
            format!(
                "{} bytes a position at f16, {} layers",
                grouped(cost.kv_bytes_f16),
                plan.kv.iter().filter(|kv| kv.kept).count()
            ),
        ),
        (
            "arena",
            format!(
                "{} columns of f32 a row (n), {} a row whose logits are wanted (w)",
                grouped(arena.all_columns),
                grouped(arena.wanted_columns)
            ),
        ),
    ];
    if !plan.states.is_empty() {
        let numbers: usize = plan.states.iter().map(|s| s.len).sum();
        let state = format!("{} a sequence, in {} layers", bytes(4 * numbers), plan.states.len());
        rows.insert(5, ("state", state));
    }
    let _ = writeln!(out, "total");
    for (what, number) in rows {
        let _ = writeln!(out, "  {what:<13} {number}");
    }
}

/// Numbers in order as runs: `0-4, 6-10, 12`.
fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    runs.collect::<Vec<_>>().join(", ")
}

/// `1234567` as `1,234,567`.
fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut s = String::new();
    for (i, d) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            s.push(',');
        }
        s.push(d);
    }
    s
}

/// A size, to three digits or more.
fn bytes(n: usize) -> String {
    match n {
        0..10_000 => format!("{} bytes", grouped(n)),
        10_000..10_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        _ => format!("{:.1} MB", n as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Block, plan};

    #[test]
    fn a_fused_model_reads_well() {
        let plan = crate::fuse(plan(30, &Block::default()), &|_| true);
        let expected = include_str!("../tests/show.txt");
        assert_eq!(show(&plan, &Options::default()), expected);
    }

    #[test]
    fn kinds_of_blocks_are_told_apart() {
        let plan = plan(7, &Block { global_every: 3, ..Block::default() });
        let text = show(&plan, &Options::default());
        let heads: Vec<&str> = text.lines().filter(|l| l.starts_with("block")).collect();
        assert_eq!(heads, ["block 0-1, 3-4, 6  x 5", "block 2, 5  x 2, as block 0 except"]);
        let after: Vec<&str> =
            text.lines().skip_while(|l| !l.starts_with("block 2")).skip(1).take(2).collect();
        assert!(after[0].contains("attend") && !after[0].contains("window"), "{text}");
        assert!(after[1].contains("select_rows"), "{text}");
    }

    #[test]
    fn all_blocks_on_request() {
        let plan = plan(3, &Block::default());
        let text = show(&plan, &Options { all_blocks: true });
        assert_eq!(text.matches("block ").count(), 3);
        assert!(text.contains("block 2 (blk.2.*)"));
        assert_eq!(text.lines().filter(|l| l.contains(" <- ")).count(), plan.ops.len());
    }

    #[test]
    fn costs_do_not_change_with_fusing() {
        let before = plan(2, &Block { bias: true, head_norm: true, ..Block::default() });
        let cost = Cost::new(&before);
        assert_eq!(cost, Cost::new(&crate::fuse(before.clone(), &|_| true)));
        let (block, head) = (64 * (64 + 32 + 32 + 64) + 3 * 64 * 96, 64 * 100);
        assert_eq!(cost.multiply_adds, 2 * block + head);
        assert_eq!(cost.attention_per_position, 2 * 2 * 64);
        assert_eq!(cost.kv_bytes_f16, 2 * 2 * 32 * 2);
        // The table is tied to the head: read whole, and one F32 row for the token.
        assert_eq!(cost.read_bytes, cost.weight_bytes + 64 * 4);
    }
}
