//! Rows and parameters at their edges: each ends in a token or in an error that says why, whatever the stages.

use cera_sample::{Error, Params, Sampler, Stage, Vocabulary};
use std::sync::Arc;

const NONE: f32 = f32::NEG_INFINITY;

/// Every token is a digit, 10 and above nothing.
struct Digits;

impl Vocabulary for Digits {
    fn piece(&self, token: u32) -> &[u8] {
        b"0123456789".get(token as usize..=token as usize).unwrap_or_default()
    }
}

fn sampler(params: Params) -> Sampler {
    Sampler::with_vocabulary(params, Arc::new(Digits)).expect("valid parameters")
}

/// Parameters that make each stage work, and some at their limits.
fn settings() -> Vec<Params> {
    let plain = || Params { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Params::default() };
    vec![
        plain(),
        Params::default(),
        Params::greedy(),
        Params { temperature: 1e30, ..plain() },
        Params { temperature: f32::from_bits(1), ..plain() },
        Params { temperature: f32::MAX, dynatemp_range: f32::MAX, ..plain() },
        Params { temperature: 0.0, dynatemp_range: 1.0, ..plain() },
        Params { temperature: 1.0, dynatemp_range: 5.0, dynatemp_exponent: 0.0, ..plain() },
        Params { top_k: 1, ..plain() },
        Params { top_p: 0.0, ..plain() },
        Params { min_p: 1.0, ..plain() },
        Params { typical_p: 0.0, ..plain() },
        Params { typical_p: 0.5, ..plain() },
        Params { top_n_sigma: 1e-30, ..plain() },
        Params { top_n_sigma: f32::MAX, ..plain() },
        Params { xtc_probability: 1.0, xtc_threshold: 0.0, ..plain() },
        Params { xtc_probability: 1.0, xtc_threshold: 0.5, ..plain() },
        Params { repeat_penalty: 2.0, presence_penalty: 1.0, frequency_penalty: 1.0, ..plain() },
        Params { dry_multiplier: f32::MAX, dry_base: f32::MAX, dry_allowed_length: 0, ..plain() },
        Params { mirostat: 2, ..plain() },
        Params { mirostat: 2, mirostat_tau: 0.0, mirostat_eta: f32::MAX, ..plain() },
        Params { samplers: Vec::new(), ..plain() },
        Params {
            samplers: vec![Stage::Temperature, Stage::Penalties],
            repeat_penalty: 1.5,
            temperature: 0.5,
            ..plain()
        },
    ]
}

#[test]
fn rows_of_every_shape_give_a_token_that_can_be_chosen() {
    let rows: [&[f32]; 9] = [
        &[0.0],
        &[NONE, 1.0],
        &[3.5; 9],
        &[NONE, -1e30, NONE],
        &[0.0, -0.0, 0.0],
        &[f32::MIN, f32::MAX],
        &[f32::MAX; 4],
        &[f32::MIN; 4],
        &[1e-40, 2e-40, -1e-40],
    ];
    for params in settings() {
        for row in rows {
            let mut s = sampler(params.clone());
            for _ in 0..4 {
                let token = s.sample(&mut row.to_vec()).unwrap_or_else(|e| panic!("{e}: {params:?} {row:?}"));
                assert!(row[token as usize] > NONE, "{token} is ruled out: {params:?} {row:?}");
                let d = s.distribution(&mut row.to_vec()).expect("a distribution");
                let sum: f32 = d.iter().map(|e| e.1).sum();
                assert!((sum - 1.0).abs() < 1e-5, "{sum}: {params:?} {row:?}");
            }
        }
    }
}

#[test]
fn rows_without_a_choice_are_refused_whatever_the_stages() {
    for params in settings() {
        let mut s = sampler(Params { logit_bias: vec![], ..params });
        assert_eq!(s.sample(&mut []), Err(Error::NoCandidate { vocabulary: 0 }));
        assert_eq!(s.sample(&mut [NONE; 3]), Err(Error::NoCandidate { vocabulary: 3 }));
        assert!(matches!(s.sample(&mut [0.0, f32::NAN]), Err(Error::Logit { token: 1, .. })));
        assert!(matches!(s.sample(&mut [0.0, f32::INFINITY]), Err(Error::Logit { token: 1, .. })));
    }
}

#[test]
fn what_may_be_found_on_a_device_is_what_the_chain_chooses() {
    // 31 * 37 leaves 40 behind 41.
    let row: Vec<f32> = (0..50).map(|i| ((i * 37) % 41) as f32 / 3.0).collect();
    for params in settings().into_iter().filter(Params::is_argmax) {
        let mut s = sampler(params.clone());
        s.accept(7);
        assert_eq!(s.sample(&mut row.clone()), Ok(31), "{params:?}");
    }
    let not = |p: Params| assert!(!p.is_argmax(), "{p:?}");
    not(Params { typical_p: 0.5, ..Params::greedy() });
    not(Params { xtc_probability: 0.5, ..Params::greedy() });
    not(Params { dry_multiplier: 0.5, ..Params::greedy() });
    not(Params { repeat_penalty: 1.1, ..Params::greedy() });
    not(Params { dynatemp_range: 0.1, ..Params::greedy() });
    not(Params { logit_bias: vec![(0, 1.0)], ..Params::greedy() });
    not(Params { samplers: vec![Stage::TopK], ..Params::greedy() });
    assert!(Params { mirostat: 2, top_k: 3, ..Params::greedy() }.is_argmax());
}

#[test]
fn biases_move_tokens_rule_them_out_and_must_name_one() {
    let with = |logit_bias| sampler(Params { logit_bias, ..Params::greedy() });
    assert_eq!(with(vec![(2, 5.0)]).sample(&mut [1.0, 2.0, 0.0]), Ok(2));
    assert_eq!(with(vec![(1, NONE)]).sample(&mut [1.0, 2.0, 0.0]), Ok(0));
    assert_eq!(with(vec![(0, NONE)]).sample(&mut [1.0]), Err(Error::NoCandidate { vocabulary: 1 }));
    let beyond = with(vec![(3, 1.0)]).sample(&mut [0.0; 3]);
    assert_eq!(beyond, Err(Error::Bias { token: 3, vocabulary: 3 }));
    let over = with(vec![(0, f32::MAX), (0, f32::MAX)]).sample(&mut [0.0; 3]);
    assert_eq!(over, Err(Error::Logit { token: 0, value: f32::INFINITY }));
}

#[test]
fn breakers_need_a_vocabulary() {
    let dry = Params { dry_multiplier: 0.8, ..Params::greedy() };
    assert!(dry.needs_vocabulary());
    assert_eq!(Sampler::new(dry.clone()).err(), Some(Error::NoVocabulary));
    let without = Params { dry_sequence_breakers: Vec::new(), ..dry.clone() };
    let choose = |mut s: Sampler| {
        [1, 2, 5, 1, 2].into_iter().for_each(|t| s.accept(t));
        s.sample(&mut [0.0, 0.0, 0.0, 0.0, 0.0, 0.5])
    };
    // 5 would go on with 1, 2: it loses 0.8, unless 2 breaks.
    assert_eq!(choose(Sampler::new(without).expect("no text to find")), Ok(0));
    assert_eq!(choose(sampler(dry.clone())), Ok(0));
    assert_eq!(choose(sampler(Params { dry_sequence_breakers: vec!["2".into()], ..dry })), Ok(5));
}

/// XTC's own random number decides how often the best tokens are left out.
#[test]
fn xtc_leaves_out_as_often_as_it_is_told() {
    let params = Params { xtc_probability: 0.3, xtc_threshold: 0.1, temperature: 0.0, ..Params::default() };
    let mut s = sampler(params);
    let second = (0..10_000).filter(|_| s.sample(&mut [2.0, 1.0, -9.0]) == Ok(1)).count();
    // 0.3, with a standard deviation of 46 in 10,000.
    assert!((2_800..3_200).contains(&second), "{second}");
}

/// A filter that draws no tokens out shifts no random number of the others.
#[test]
fn a_stage_that_is_on_but_takes_nothing_changes_nothing() {
    let row: Vec<f32> = (0..200).map(|i| ((i * 61) % 97) as f32 / 20.0).collect();
    let base = Params { temperature: 1.3, seed: 9, ..Params::default() };
    let on = Params { xtc_probability: 0.5, xtc_threshold: 0.9, top_n_sigma: 1e9, ..base.clone() };
    let (mut a, mut b) = (sampler(base), sampler(on));
    for _ in 0..50 {
        assert_eq!(a.sample(&mut row.clone()), b.sample(&mut row.clone()));
    }
}
