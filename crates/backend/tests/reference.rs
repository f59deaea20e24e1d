//! The reference as a backend: chunks, sequences side by side, copied blocks, faults.

mod support;

use cera_backend::{
    BLOCK, Backend, BlockId, Error, KvShape, KvType, KvTypes, Loaded, Reference, Rows, SampleRow, SeqRows,
    StepOutput,
};
use cera_plan::{Act, Attention, Graph, Plan, Rope, RopeStyle};
use support::Checkpoint;

const VOCABULARY: usize = 11;
const KV: KvShape =
    KvShape { ty: KvTypes { keys: KvType::F32, values: KvType::F32 }, blocks: 6, max_rows: 64, slots: 0 };

fn checkpoint() -> Checkpoint {
    let mut c = Checkpoint::default();
    c.add("e.weight", &[16, VOCABULARY]);
    for n in 0..2 {
        c.add(&format!("blk.{n}.n.weight"), &[16]);
        for (name, rows) in [("q", 16), ("k", 8), ("v", 8), ("o", 16)] {
            c.add(&format!("blk.{n}.{name}.weight"), &[16, rows]);
        }
        c.add(&format!("blk.{n}.g.weight"), &[16, 16]);
    }
    c
}

fn plan(checkpoint: &Checkpoint) -> Plan {
    let g = Graph::new(checkpoint, 1e-5);
    let mut x = g.embed("e", 16);
    for n in 0..2 {
        let l = g.layer(n);
        let rope = Some(Rope {
            style: RopeStyle::Interleaved,
            dims: 8,
            base: 50.0,
            scale: 1.0,
            yarn: None,
            magnitude: 1.0,
            factors: None,
        });
        let window = (n == 1).then_some(5);
        let attention = Attention {
            heads: 2,
            kv_heads: 1,
            head_dim: 8,
            value_dim: 8,
            scale: 0.4,
            causal: true,
            window,
            softcap: None,
            sinks: None,
            alibi: None,
        };
        let h = l.rms_norm(x, "n");
        let (q, k, v) = (l.linear(h, "q"), l.linear(h, "k"), l.linear(h, "v"));
        x = g.add(x, l.linear(l.attend(l.rope(q, 8, rope), l.rope(k, 8, rope), v, attention), "o"));
        x = g.add(x, g.glu(l.linear(x, "g"), x, Act::Silu));
    }
    let logits = g.linear(g.select_rows(x), "e");
    g.finish(logits).unwrap()
}

fn load(checkpoint: &Checkpoint) -> Box<dyn Loaded> {
    let plan = plan(checkpoint);
    Reference::new().load(&checkpoint.of(&plan), &plan, &KV).unwrap()
}

/// Runs rows of one sequence and gives the logits of all of them.
fn run(model: &mut dyn Loaded, tokens: &[u32], first_pos: usize, blocks: &[BlockId]) -> Vec<f32> {
    let seqs = [SeqRows { rows: 0..tokens.len(), first_pos, blocks, slot: None }];
    let sample: Vec<_> = (0..tokens.len()).map(|row| SampleRow { row, logits: true }).collect();
    let mut out = StepOutput::default();
    model.step(&Rows { tokens, seqs: &seqs }, &sample, &mut out).unwrap();
    out.logits
}

fn tokens(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| i * i % VOCABULARY as u32).collect()
}

#[test]
fn chunks_do_not_show() {
    let checkpoint = checkpoint();
    let tokens = tokens(50);
    let blocks = [BlockId(3), BlockId(1)];
    let whole = run(&mut *load(&checkpoint), &tokens, 0, &blocks);
    assert_eq!(whole.len(), 50 * VOCABULARY);
    for chunk in [1, 7, 32] {
        let mut model = load(&checkpoint);
        let parts = tokens.chunks(chunk).enumerate();
        let cut: Vec<f32> = parts.flat_map(|(i, t)| run(&mut *model, t, i * chunk, &blocks)).collect();
        assert_eq!(cut, whole, "chunks of {chunk}");
    }
}

#[test]
fn sequences_side_by_side_do_not_show() {
    let checkpoint = checkpoint();
    let (a, b) = (tokens(5), [4, 4, 9]);
    let alone = [
        run(&mut *load(&checkpoint), &a, 0, &[BlockId(0)]),
        run(&mut *load(&checkpoint), &b, 0, &[BlockId(0)]),
    ];
    let both: Vec<u32> = a.iter().chain(&b).copied().collect();
    let (first, second) = ([BlockId(5)], [BlockId(2)]);
    let seqs = [
        SeqRows { rows: 0..5, first_pos: 0, blocks: &first, slot: None },
        SeqRows { rows: 5..8, first_pos: 0, blocks: &second, slot: None },
    ];
    // Rows in another order than their own, one of them without logits.
    let sample = [(7, true), (4, false), (0, true)].map(|(row, logits)| SampleRow { row, logits });
    let mut out = StepOutput::default();
    load(&checkpoint).step(&Rows { tokens: &both, seqs: &seqs }, &sample, &mut out).unwrap();
    assert_eq!(out.logits, [&alone[1][2 * VOCABULARY..], &alone[0][..VOCABULARY]].concat());
    let greatest =
        |row: &[f32]| (0..VOCABULARY).rev().max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as u32;
    let rows = [&alone[1][2 * VOCABULARY..], &alone[0][4 * VOCABULARY..], &alone[0][..VOCABULARY]];
    assert_eq!(out.tokens, rows.map(greatest));
}

#[test]
fn copied_blocks_hold_what_was_there() {
    let checkpoint = checkpoint();
    let tokens = tokens(40);
    let whole = run(&mut *load(&checkpoint), &tokens, 0, &[BlockId(0), BlockId(1)]);
    let mut model = load(&checkpoint);
    run(&mut *model, &tokens[..BLOCK + 2], 0, &[BlockId(0), BlockId(1)]);
    model.copy_blocks(&[(BlockId(0), BlockId(4)), (BlockId(1), BlockId(5))]).unwrap();
    // The originals go on with something else.
    run(&mut *model, &[1, 1, 1], 30, &[BlockId(0), BlockId(1)]);
    let rest = run(&mut *model, &tokens[BLOCK + 2..], BLOCK + 2, &[BlockId(4), BlockId(5)]);
    assert_eq!(rest, whole[(BLOCK + 2) * VOCABULARY..]);
    assert!(matches!(model.copy_blocks(&[(BlockId(0), BlockId(6))]), Err(Error::Step(_))));
}

#[test]
fn the_first_op_that_is_not_finite_is_named() {
    let mut checkpoint = checkpoint();
    let mut k: Vec<f32> = vec![0.1; 16 * 8];
    k[20] = f32::NAN;
    checkpoint.set("blk.1.k.weight", &[16, 8], &k);
    let plan = plan(&checkpoint);
    let mut model = Reference::new().load(&checkpoint.of(&plan), &plan, &KV).unwrap();
    let blocks = [BlockId(0)];
    let seqs = [SeqRows { rows: 0..2, first_pos: 0, blocks: &blocks, slot: None }];
    let rows = Rows { tokens: &[1, 2], seqs: &seqs };
    let error = model.step(&rows, &[], &mut StepOutput::default()).unwrap_err();
    let Error::NotFinite { row: 0, op, name: "linear" } = error else { panic!("{error}") };
    let weight = plan.ops[op].weights()[0];
    assert_eq!(plan.weights[weight.index()].name, "blk.1.k.weight");

    // One token's row of the table: the rows of other tokens do not see it.
    let mut table = vec![0.5; 16 * VOCABULARY];
    table[3 * 16] = f32::INFINITY;
    checkpoint.add("blk.1.k.weight", &[16, 8]);
    checkpoint.set("e.weight", &[16, VOCABULARY], &table);
    let mut model = load(&checkpoint);
    let rows = Rows { tokens: &[1, 3], seqs: &seqs };
    let error = model.step(&rows, &[], &mut StepOutput::default()).unwrap_err();
    assert_eq!(error, Error::NotFinite { row: 1, op: 0, name: "embed" });
}

#[test]
fn steps_that_contradict_the_plan_are_refused() {
    let checkpoint = checkpoint();
    let mut model = load(&checkpoint);
    let mut step = |tokens: &[u32], first_pos, blocks: &[BlockId], row| {
        let seqs = [SeqRows { rows: 0..tokens.len(), first_pos, blocks, slot: None }];
        let sample = [SampleRow { row, logits: false }];
        match model.step(&Rows { tokens, seqs: &seqs }, &sample, &mut StepOutput::default()) {
            Err(Error::Step(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    let b = [BlockId(0)];
    assert!(step(&[], 0, &b, 0).contains("0 rows"));
    assert!(step(&[1; 65], 0, &b, 0).contains("65 rows"));
    assert!(step(&[11], 0, &b, 0).contains("token 11"));
    assert!(step(&[1], 0, &b, 1).contains("row 1"));
    assert!(step(&[1], 32, &b, 0).contains("33 positions"));
    assert!(step(&[1], usize::MAX, &b, 0).contains("positions"));
    assert!(step(&[1], 0, &[BlockId(6)], 0).contains("block 6"));
    // Positions that no step stored.
    assert!(step(&[1], 2 * BLOCK, &[BlockId(0), BlockId(1), BlockId(2)], 0).contains("never stored"));
}
