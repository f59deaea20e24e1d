//! `fuse` is proved here: random plans run before and after every choice of rules, and every value that both
//! write is the same to the bit.

mod support;

use std::collections::HashMap;

use cera_backend::{BlockId, KvShape, KvType, Reference, Rows, SampleRow, SeqRows, StepOutput, Weights};
use cera_plan::{Act, Attention, Fused, Graph, Op, Plan, Rope, RopeStyle, Val, fuse};
use proptest::prelude::*;
use support::Checkpoint;

const WIDTH: usize = 16;
const HEAD: usize = 8;

/// A number for each fused op, so that a mask says which a backend takes.
fn rule(f: &Fused) -> u32 {
    match f {
        Fused::AddRmsNorm { .. } => 0,
        Fused::NormLinear { .. } => 1,
        Fused::NormGlu { .. } => 2,
        Fused::LinearAdd { .. } => 3,
        Fused::HeadNormRopeKvWrite { .. } => 4,
    }
}

fn checkpoint() -> Checkpoint {
    let mut c = Checkpoint::default();
    c.add("e.weight", &[WIDTH, 7]);
    c.add("out.weight", &[WIDTH, 7]);
    for name in ["a", "b"] {
        c.add(&format!("{name}.weight"), &[WIDTH, WIDTH]);
        c.add(&format!("blk.0.{name}.weight"), &[WIDTH, WIDTH]);
    }
    c.add("b.bias", &[WIDTH]);
    c.add("blk.0.b.bias", &[WIDTH]);
    c.add("n.weight", &[WIDTH]);
    c.add("blk.0.hn.weight", &[HEAD]);
    c.add("rope_freqs.weight", &[HEAD / 2]);
    c
}

/// A plan from numbers: each step takes its inputs among the latest values, so that patterns come up, with and
/// without readers that forbid to merge them.
fn plan(checkpoint: &Checkpoint, steps: &[(u8, usize, usize)]) -> Plan {
    let g = Graph::new(checkpoint, 1e-5);
    let mut pool = vec![g.embed("e", WIDTH)];
    for (n, &(kind, a, b)) in steps.iter().enumerate() {
        let l = g.layer(0);
        let pick = |i: usize| pool[pool.len() - 1 - i % pool.len().min(3)];
        let (a, b) = (pick(a), pick(b));
        let linear = |x: Val, biased: bool| g.linear(x, if biased { "b" } else { "a" });
        let made: Vec<Val> = match kind % 12 {
            0 | 1 => vec![g.add(a, b)],
            2 => vec![g.rms_norm(a, "n")],
            3 => vec![linear(a, false)],
            4 => vec![linear(a, true)],
            5 => vec![g.scale(a, 0.5)],
            6 => vec![g.add(b, linear(a, false))],
            7 => {
                let h = g.rms_norm(a, "n");
                vec![linear(h, true), linear(h, false)]
            }
            8 => {
                let h = g.rms_norm(a, "n");
                vec![h, g.glu(linear(h, false), linear(h, false), Act::GeluTanh)]
            }
            9 => {
                let h = g.rms_norm(a, "n");
                vec![g.glu(linear(h, false), linear(h, n % 3 == 0), Act::Silu)]
            }
            10 => {
                let sum = g.add(a, b);
                vec![sum, g.rms_norm(sum, "n")]
            }
            _ => {
                let dims = [HEAD, HEAD / 2][n % 2];
                let factors = (dims == HEAD).then(|| l.rope_factors(dims)).flatten();
                let rope = Rope {
                    style: RopeStyle::Halved,
                    dims,
                    base: 100.0,
                    scale: 0.5,
                    yarn: None,
                    magnitude: 1.0,
                    factors,
                };
                let turn = |x: Val, normed: bool| {
                    let x = if normed { l.head_norm(x, "hn", HEAD) } else { x };
                    l.rope(x, HEAD, (n % 5 != 4).then_some(rope))
                };
                let (q, k) = (turn(a, n % 2 == 0), turn(b, n % 3 == 0));
                let window = (n % 4 == 1).then_some(3);
                let attention = Attention {
                    heads: 2,
                    kv_heads: 2,
                    head_dim: HEAD,
                    value_dim: HEAD,
                    scale: 0.3,
                    causal: true,
                    window,
                    softcap: Some(2.0),
                    sinks: None,
                    alibi: None,
                };
                vec![l.attend(q, k, a, attention), q]
            }
        };
        pool.extend(made);
    }
    let x = g.rms_norm(g.select_rows(*pool.last().unwrap()), "n");
    let logits = g.linear(x, "out");
    g.finish(logits).unwrap()
}

/// What each value held, by step.
type Seen = HashMap<(usize, Val), Vec<f64>>;

/// Every value that two steps write: a prompt of two sequences, then one more row of each.
fn values(checkpoint: &Checkpoint, plan: &Plan) -> (Vec<StepOutput>, Seen) {
    let weights = checkpoint.of(plan);
    let kv = KvShape { ty: KvType::F32.into(), blocks: 3, max_rows: 8, slots: 0 };
    let mut model = Reference::new().load_traceable(&weights as &dyn Weights, plan, &kv).unwrap();
    let (first, second) = ([BlockId(2)], [BlockId(0)]);
    let (mut outs, mut seen) = (vec![], Seen::new());
    for (step, (tokens, split, pos)) in
        [(&[1, 2, 3, 4, 5, 6][..], 4, (0, 0)), (&[0, 3][..], 1, (4, 2))].into_iter().enumerate()
    {
        let seqs = [
            SeqRows { rows: 0..split, first_pos: pos.0, blocks: &first, slot: None },
            SeqRows { rows: split..tokens.len(), first_pos: pos.1, blocks: &second, slot: None },
        ];
        let sample = [SampleRow { row: split, logits: true }, SampleRow { row: 0, logits: true }];
        let mut out = StepOutput::default();
        let rows = Rows { tokens, seqs: &seqs };
        model
            .step_traced(&rows, &sample, &mut out, &mut |_, _, written| {
                seen.extend(written.iter().map(|(v, data)| ((step, *v), data.to_vec())));
            })
            .unwrap();
        outs.push(out);
    }
    (outs, seen)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn a_fused_plan_means_the_same(steps in prop::collection::vec(any::<(u8, usize, usize)>(), 1..14)) {
        let checkpoint = checkpoint();
        let before = plan(&checkpoint, &steps);
        let (expected_outs, expected) = values(&checkpoint, &before);
        for mask in 0..32u32 {
            let after = fuse(before.clone(), &|f| mask & 1 << rule(f) != 0);
            prop_assert!(after.ops.iter().all(|op| !matches!(op, Op::Fused(f) if mask & 1 << rule(f) == 0)));
            let (outs, seen) = values(&checkpoint, &after);
            prop_assert_eq!(&outs, &expected_outs);
            for (at, data) in seen {
                prop_assert_eq!(Some(&data), expected.get(&at), "value {:?}, rules {:b}", at, mask);
            }
        }
    }
}

/// The random plans above are of use only if the rules apply to them.
#[test]
fn every_rule_applies_to_some_plan() {
    let checkpoint = checkpoint();
    let mut seen = [false; 5];
    for (kind, read) in (0..12).flat_map(|kind| [(kind, 0), (kind, 1)]) {
        let before = plan(&checkpoint, &[(kind, 0, 0), (5, read, read)]);
        for only in 0..5 {
            let after = fuse(before.clone(), &|f| rule(f) == only);
            seen[only as usize] |= after != before;
        }
    }
    assert_eq!(seen, [true; 5]);
}
