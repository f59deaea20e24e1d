//! Mixtures of experts alone, in every way that they are stored and chosen: near the reference, and with the same bits
//! however many rows a step has, on any threads and instructions.

use std::borrow::Cow;
use std::collections::HashMap;

use cera_backend::{
    Backend, BlockId, Error, KvShape, KvType, Loaded, Reference, Rows, SampleRow, SeqRows, StepOutput,
    Weights,
};
use cera_cpu::{Cpu, Options, Tier};
use cera_plan::{
    Act, ExpertNames, Graph, GroupScore, Groups, Plan, Routing, Scoring, TensorShape, Tensors, Wt,
};
use cera_quant::Type;

/// Elements of a row; tokens too, so that what the experts make can stand for logits.
const WIDTH: usize = 256;
const COUNT: usize = 12;
/// Rows of the longest step.
const ROWS: usize = 150;

const NAMES: ExpertNames = ExpertNames { gate_up: "gate_up", gate: "gate", up: "up", down: "down" };

/// Tensors with numbers that follow from their names.
#[derive(Default)]
struct Checkpoint(HashMap<String, (TensorShape, Vec<u8>)>);

impl Checkpoint {
    fn add(&mut self, name: &str, ty: Type, dims: &[usize], scale: f32) {
        let mut state = name.bytes().fold(17u64, |s, b| s.wrapping_mul(31).wrapping_add(b.into()));
        let numbers: Vec<f32> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            scale * ((state >> 40) as f32 / (1 << 23) as f32 - 1.0)
        })
        .take(dims.iter().product())
        .collect();
        let bytes = cera_quant::encode(ty, &numbers).unwrap();
        self.0.insert(name.to_owned(), (TensorShape { ty, dims: dims.to_vec() }, bytes));
    }
}

impl Tensors for Checkpoint {
    fn find(&self, name: &str) -> Option<TensorShape> {
        self.0.get(name).map(|(shape, _)| shape.clone())
    }
}

struct Stored<'a>(&'a Checkpoint, &'a Plan);

impl Weights for Stored<'_> {
    fn bytes(&self, w: Wt) -> Result<Cow<'_, [u8]>, Error> {
        Ok(Cow::Borrowed(&self.0.0[&self.1.weights[w.index()].name].1))
    }
}

/// A mixture: how it is stored and chosen.
struct Case {
    gate: Type,
    down: Type,
    inner: usize,
    joined: bool,
    biased: bool,
    routing: Routing,
    /// How far from the reference it may be, of the greatest output.
    tolerance: f32,
}

const ROUTING: Routing =
    Routing { used: 3, scoring: Scoring::Softmax, groups: None, normalised: true, scale: 1.0 };

/// What quantizing the activations costs.
const EIGHT_BITS: f32 = 0.02;

fn cases() -> Vec<Case> {
    let plain = |gate, down, inner, tolerance| Case {
        gate,
        down,
        inner,
        joined: false,
        biased: false,
        routing: ROUTING,
        tolerance,
    };
    let in_groups = |by| Some(Groups { count: 4, used: 2, by });
    vec![
        plain(Type::F32, Type::F32, 24, 1e-5),
        plain(Type::F16, Type::BF16, 40, 1e-5),
        plain(Type::Q4_0, Type::Q8_0, 96, EIGHT_BITS),
        plain(Type::Q4_K, Type::Q6_K, 256, EIGHT_BITS),
        // Rows in both forms between the phases.
        plain(Type::Q8_0, Type::F32, 24, EIGHT_BITS),
        plain(Type::F32, Type::Q8_0, 32, EIGHT_BITS),
        Case {
            joined: true,
            biased: true,
            routing: Routing {
                used: 5,
                scoring: Scoring::Sigmoid,
                groups: in_groups(GroupScore::BestTwo),
                normalised: true,
                scale: 2.5,
            },
            ..plain(Type::F32, Type::F32, 24, 1e-5)
        },
        Case {
            joined: true,
            biased: true,
            routing: Routing {
                used: 1,
                scoring: Scoring::SoftmaxOfChosen,
                groups: in_groups(GroupScore::Best),
                normalised: false,
                scale: 1.0,
            },
            ..plain(Type::Q4_0, Type::Q4_0, 64, EIGHT_BITS)
        },
        Case {
            biased: true,
            routing: Routing { used: COUNT, normalised: false, scale: 0.5, ..ROUTING },
            ..plain(Type::MXFP4, Type::Q5_K, 256, EIGHT_BITS)
        },
    ]
}

impl Case {
    fn checkpoint(&self) -> Checkpoint {
        let (mut c, inner) = (Checkpoint::default(), self.inner);
        c.add("embed.weight", Type::F32, &[WIDTH, WIDTH], 1.0);
        c.add("blk.0.router.weight", Type::F32, &[WIDTH, COUNT], 0.3);
        let gates: &[(&str, usize)] = if self.joined { &[("gate_up", 2)] } else { &[("gate", 1), ("up", 1)] };
        for (name, times) in gates {
            c.add(&format!("blk.0.{name}.weight"), self.gate, &[WIDTH, times * inner, COUNT], 0.1);
        }
        c.add("blk.0.down.weight", self.down, &[inner, WIDTH, COUNT], 0.2);
        if self.biased {
            for (name, times) in gates {
                c.add(&format!("blk.0.{name}.bias"), Type::F32, &[times * inner, COUNT], 0.5);
            }
            c.add("blk.0.down.bias", Type::F32, &[WIDTH, COUNT], 0.5);
            c.add("blk.0.choice.bias", Type::F32, &[COUNT], 0.3);
        }
        c
    }

    fn plan(&self, c: &Checkpoint) -> Plan {
        let g = Graph::new(c, 1e-5);
        let l = g.layer(0);
        let x = g.embed("embed", WIDTH);
        let routed = l.route(l.linear(x, "router"), "choice", self.routing);
        let y = l.experts(x, routed, COUNT, &NAMES, Act::Silu);
        let wanted = g.select_rows(y);
        g.finish(wanted).unwrap()
    }
}

/// What a model makes of tokens, `n` in a step.
fn run(model: &mut dyn Loaded, tokens: &[u32], n: usize) -> Vec<f32> {
    let blocks: Vec<BlockId> = (0..8).map(BlockId).collect();
    let mut all = Vec::new();
    for tokens in tokens.chunks(n) {
        let seqs = [SeqRows { rows: 0..tokens.len(), first_pos: 0, blocks: &blocks, slot: None }];
        let sample: Vec<_> = (0..tokens.len()).map(|row| SampleRow { row, logits: true }).collect();
        let mut out = StepOutput::default();
        model.step(&Rows { tokens, seqs: &seqs }, &sample, &mut out).unwrap();
        all.extend(out.logits);
    }
    all
}

#[test]
fn every_kind_of_mixture() {
    // Some tokens come often, so that some experts have more rows than a task or a block.
    let tokens: Vec<u32> = (0..ROWS as u32).map(|i| if i % 2 == 0 { 7 } else { i * i % 256 }).collect();
    for (number, case) in cases().iter().enumerate() {
        let checkpoint = case.checkpoint();
        let plan = case.plan(&checkpoint);
        let kv = KvShape { ty: KvType::F32.into(), blocks: 8, slots: 0, max_rows: ROWS };
        let weights = Stored(&checkpoint, &plan);
        let expected = run(&mut *Reference::new().load(&weights, &plan, &kv).unwrap(), &tokens, ROWS);
        let greatest = expected.iter().fold(0f32, |m, v| m.max(v.abs()));
        let mut bits: Option<Vec<u32>> = None;
        for tier in Tier::available() {
            for threads in [1, 3] {
                let options = Options { threads: Some(threads), tier: Some(tier), pin: false };
                let mut model = Cpu::new(options).unwrap().load(&weights, &plan, &kv).unwrap();
                // Steps of few rows, of which there are many, take some tokens alone.
                for (n, rows) in [(ROWS, ROWS), (1, 12), (3, 12), (4, 24), (23, 69)] {
                    let got = run(&mut *model, &tokens[..rows], n);
                    let these: Vec<u32> = got.iter().map(|v| v.to_bits()).collect();
                    let whole = bits.get_or_insert_with(|| {
                        let off = got.iter().zip(&expected).map(|(a, b)| (a - b).abs());
                        let off = off.fold(0f32, |m, d| if d <= m { m } else { d }) / greatest;
                        println!("case {number}: {off:.1e} of the greatest output off the reference");
                        assert!(off <= case.tolerance, "case {number}: {off} off the reference");
                        these.clone()
                    });
                    assert!(
                        whole.starts_with(&these),
                        "case {number}: {tier}, {threads} threads, {n} rows show"
                    );
                }
            }
        }
    }
}
