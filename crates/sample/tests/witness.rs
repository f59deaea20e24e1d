//! The chain's distributions beside those that `witness/chain.py` computes in numpy.

use cera_sample::{Params, Sampler};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// A row as it is stored: `null` is `-inf`.
type Row = Vec<Option<f32>>;

#[derive(Deserialize)]
struct Fixture {
    rows: Vec<Row>,
    cases: Vec<Case>,
    mirostat: Vec<Sequence>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    row: usize,
    history: Vec<u32>,
    params: Value,
    expected: Vec<(u32, f64)>,
}

#[derive(Deserialize)]
struct Sequence {
    params: Value,
    rows: Vec<Row>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    expected: Vec<(u32, f64)>,
    token: u32,
}

fn fixture() -> Fixture {
    serde_json::from_str(include_str!("fixtures/chain.json")).expect("the fixture")
}

fn sampler(params: &Value) -> Sampler {
    let params: Params = serde_json::from_value(params.clone()).expect("parameters");
    Sampler::new(params).expect("valid parameters")
}

fn logits(row: &Row) -> Vec<f32> {
    row.iter().map(|l| l.unwrap_or(f32::NEG_INFINITY)).collect()
}

/// The largest difference of two probabilities of one token.
fn difference(got: &[(u32, f32)], expected: &[(u32, f64)]) -> f64 {
    let of = |list: &[(u32, f64)], token: u32| list.iter().find(|e| e.0 == token).map_or(0.0, |e| e.1);
    let got: Vec<(u32, f64)> = got.iter().map(|&(t, p)| (t, f64::from(p))).collect();
    let tokens: BTreeSet<u32> = got.iter().chain(expected).map(|e| e.0).collect();
    tokens.iter().map(|&t| (of(&got, t) - of(expected, t)).abs()).fold(0.0, f64::max)
}

/// Tokens whose probability is no mere rounding: those that a filter has surely kept.
fn tokens(list: impl Iterator<Item = (u32, f64)>) -> Vec<u32> {
    list.filter(|e| e.1 > 1e-9).map(|e| e.0).collect()
}

#[test]
fn distributions_are_those_of_the_witness() {
    let f = fixture();
    let mut names = BTreeSet::new();
    for case in &f.cases {
        let mut s = sampler(&case.params);
        case.history.iter().for_each(|t| s.accept(*t));
        let got = s.distribution(&mut logits(&f.rows[case.row])).expect("a distribution");
        let off = difference(&got, &case.expected);
        assert!(off < 2e-6, "{} {}: off by {off}\n{got:?}\n{:?}", case.name, case.params, case.expected);
        let kept = tokens(got.iter().map(|&(t, p)| (t, f64::from(p))));
        assert_eq!(kept, tokens(case.expected.iter().copied()), "{} {}", case.name, case.params);
        names.insert(case.name.as_str());
    }
    assert!(f.cases.len() >= 100 && names.len() >= 14, "{names:?}");
}

#[test]
fn mirostat_moves_its_bound_as_the_witness_does() {
    let f = fixture();
    for sequence in &f.mirostat {
        let mut s = sampler(&sequence.params);
        for (step, row) in sequence.steps.iter().zip(&sequence.rows) {
            let got = s.distribution(&mut logits(row)).expect("a distribution");
            let off = difference(&got, &step.expected);
            assert!(off < 2e-6, "{}: off by {off}\n{got:?}\n{:?}", sequence.params, step.expected);
            let token = s.sample(&mut logits(row)).expect("a token");
            assert_eq!(token, step.token, "{}", sequence.params);
            s.accept(token);
        }
    }
    assert!(f.mirostat.iter().map(|s| s.steps.len()).sum::<usize>() >= 20);
}
