//! Tiny models of every family, against transformers in f32: every logit at every position, and the greedy text.

use cera_arch::{Pooling, Purpose};
use cera_backend::{Backend, KvType, Reference};
use cera_conformance::{Fixture, Runner};
use cera_cpu::{Cpu, Options, Tier};
use cera_gguf::Gguf;
use libtest_mimic::{Arguments, Trial};

/// A backend under test.
struct Candidate {
    name: String,
    backend: Box<dyn Backend>,
    /// How far its logits may be from transformers'.
    tolerance: f32,
}

/// The backends that run every family. An f16 cache alone would cost up to 0.03: all keep theirs in f32.
fn backends() -> Vec<Candidate> {
    let reference =
        Candidate { name: "reference".into(), backend: Box::new(Reference::new()), tolerance: 1e-3 };
    let cpu = |tier| {
        let options = Options { threads: Some(1), tier: Some(tier), pin: false };
        let backend = Box::new(Cpu::new(options).expect("an available tier"));
        Candidate { name: format!("cpu, {tier}"), backend, tolerance: 1e-3 }
    };
    [reference].into_iter().chain(Tier::available().into_iter().map(cpu)).collect()
}

fn check(family: &str) {
    let fixture = Fixture::read(family).unwrap();
    for candidate in backends() {
        check_backend(candidate, family, &fixture);
    }
}

/// Runs a fixture on a backend. The prompt's logits are within the tolerance, and have the same bits however it is
/// cut; greedy choices are the same up to the first that the tolerance could turn.
fn check_backend(candidate: Candidate, family: &str, fixture: &Fixture) {
    let Candidate { name, mut backend, tolerance } = candidate;
    let record = &fixture.record;
    let [positions, vocabulary] = record.logits_shape;
    let mut runner = Runner::open(&mut *backend, &fixture.path, KvType::F32, 512, 256).unwrap();
    assert_eq!(runner.width(), vocabulary, "{family} on {name}");

    let whole = runner.logits(&record.prompt_ids, positions, &[]).unwrap();
    assert_eq!(whole.len(), fixture.logits.len());
    let differences = whole.iter().zip(&fixture.logits).map(|(a, b)| (a - b).abs());
    // NaN compares with nothing: look for what is not within.
    let worst = differences.enumerate().fold((0, 0.0), |w, d| if d.1 <= w.1 { w } else { d });
    let (at, difference) = worst;
    println!("{family} on {name}: greatest difference {difference:.2e}");
    assert!(
        difference <= tolerance,
        "{family} on {name}: logit {} of position {} is off by {difference}",
        at % vocabulary,
        at / vocabulary
    );

    let others = [&record.prompt_ids[5..], &record.prompt_ids[..9]];
    if runner.whole() {
        let shared = runner.logits(&record.prompt_ids, positions, &others).unwrap();
        assert!(shared == whole, "{family} on {name}: other sequences show");
        let why = runner.logits(&record.prompt_ids, 7, &[]).unwrap_err().to_string();
        assert!(why.contains("position 7"), "{family} on {name}: {why}");
        check_pooled(&mut *backend, family, fixture, tolerance);
        return;
    }
    for chunk in [1, 7] {
        let cut = runner.logits(&record.prompt_ids, chunk, &[]).unwrap();
        assert!(cut == whole, "{family} on {name}: chunks of {chunk} show");
    }
    let shared = runner.logits(&record.prompt_ids, 16, &others).unwrap();
    assert!(shared == whole, "{family} on {name}: other sequences show");

    let sure = record.greedy_margins.iter().take_while(|&&m| m > 2.0 * tolerance).count();
    assert!(sure > 0, "{family}: no greedy choice is clear of {tolerance}");
    let greedy = runner.greedy(&record.prompt_ids, sure).unwrap();
    assert_eq!(greedy, record.greedy_ids[..sure], "{family} on {name}");
}

/// An encoder's rows pooled: their mean, whatever row of the sequence asks for it and whatever else is in the step, and
/// single rows, which are those that it gives of all.
fn check_pooled(backend: &mut dyn Backend, family: &str, fixture: &Fixture, tolerance: f32) {
    let [positions, width] = fixture.record.logits_shape;
    let prompt = &fixture.record.prompt_ids;
    let file = Gguf::open(&fixture.path).unwrap();
    let plan = cera_arch::build_for(&file, &purpose(Pooling::Mean)).unwrap().plan;
    let mut runner = Runner::load_plan(backend, &file, plan, KvType::F32, 512, 256).unwrap();
    let pooled = runner.logits(prompt, positions, &[&prompt[3..]]).unwrap();
    for (at, row) in pooled.chunks_exact(width).enumerate() {
        for (i, got) in row.iter().enumerate() {
            let column = fixture.logits.iter().skip(i).step_by(width);
            let mean = column.map(|v| f64::from(*v)).sum::<f64>() / positions as f64;
            let off = (f64::from(*got) - mean).abs();
            assert!(
                off <= f64::from(tolerance),
                "{family}: number {i} of the mean, asked by {at}, is off by {off}"
            );
        }
        assert_eq!(row, &pooled[..width], "{family}: row {at} has another mean");
    }
    let plan = cera_arch::build_for(&file, &purpose(Pooling::Last)).unwrap().plan;
    let mut runner = Runner::load_plan(backend, &file, plan, KvType::F32, 512, 256).unwrap();
    let mut last = Vec::new();
    runner
        .each_row(prompt, positions, &[], |p| p + 1 == positions, |_, row| last.extend_from_slice(row))
        .unwrap();
    let expected = &fixture.logits[(positions - 1) * width..];
    assert!(last.iter().zip(expected).all(|(a, b)| (a - b).abs() <= tolerance), "{family}: the last row");
}

fn purpose(pooling: Pooling) -> Purpose {
    Purpose { pooling: Some(pooling), ..Purpose::default() }
}

/// One test a fixture, by the family's name.
fn main() {
    let arguments = Arguments::from_args();
    let family = |name: String| {
        Trial::test(name.clone(), move || {
            check(&name);
            Ok(())
        })
    };
    let trials = Fixture::families().expect("the folder of fixtures").into_iter().map(family);
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
