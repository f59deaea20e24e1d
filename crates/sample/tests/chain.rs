//! The chain as its user sees it: against a naive oracle, against the distribution it must have, and at its edges.

use cera_sample::{Error, Params, Sampler, Stage};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Everything off but the draw.
fn plain() -> Params {
    Params { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Params::default() }
}

fn sampler(params: Params) -> Sampler {
    Sampler::new(params).expect("valid parameters")
}

/// The chain written down once more, naively: a full sort and probabilities in f64. Returns token -> probability.
fn oracle(params: &Params, history: &[u32], logits: &[f32]) -> BTreeMap<u32, f64> {
    let window = match params.repeat_last_n {
        -1 => history,
        n => &history[history.len().saturating_sub(n as usize)..],
    };
    let mut row: Vec<(u32, f64)> = Vec::new();
    for (id, &logit) in logits.iter().enumerate() {
        let count = window.iter().filter(|t| **t as usize == id).count() as f32;
        let mut l = logit;
        if count > 0.0 {
            l = if l > 0.0 { l / params.repeat_penalty } else { l * params.repeat_penalty };
            l -= count * params.frequency_penalty + params.presence_penalty;
        }
        row.push((id as u32, f64::from(l)));
    }
    row.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let best = row[0].1;
    if params.temperature == 0.0 {
        return BTreeMap::from([(row[0].0, 1.0)]);
    }
    if params.top_k > 0 {
        row.truncate(params.top_k as usize);
    }
    row.retain(|c| c.1 > f64::NEG_INFINITY);
    let mass: f64 = row.iter().map(|c| (c.1 - best).exp()).sum();
    let mut reached = 0.0;
    let mut keep = 0;
    for c in &row {
        reached += (c.1 - best).exp() / mass;
        keep += 1;
        if reached >= f64::from(params.top_p) {
            break;
        }
    }
    if params.top_p < 1.0 {
        row.truncate(keep);
    }
    row.retain(|c| (c.1 - best).exp() >= f64::from(params.min_p) * (1.0 - 1e-6));
    let weights: Vec<f64> =
        row.iter().map(|c| ((c.1 - best) / f64::from(params.temperature)).exp()).collect();
    let total: f64 = weights.iter().sum();
    row.iter().zip(weights).map(|(c, w)| (c.0, w / total)).collect()
}

/// Pearson's statistic of `draws` samples against `expected`, and its degrees of freedom. Rare tokens are pooled.
fn chi_squared(s: &mut Sampler, logits: &[f32], expected: &BTreeMap<u32, f64>, draws: u32) -> (f64, f64) {
    let mut seen = BTreeMap::<u32, f64>::new();
    for _ in 0..draws {
        let token = s.sample(&mut logits.to_vec()).expect("a token");
        assert!(expected.contains_key(&token), "token {token} should have been filtered out");
        *seen.entry(token).or_default() += 1.0;
    }
    let (mut chi2, mut cells) = (0.0, 0.0);
    let (mut rare_seen, mut rare_expected) = (0.0, 0.0);
    for (token, p) in expected {
        let (n, e) = (seen.get(token).copied().unwrap_or(0.0), p * f64::from(draws));
        if e < 10.0 {
            rare_seen += n;
            rare_expected += e;
        } else {
            chi2 += (n - e).powi(2) / e;
            cells += 1.0;
        }
    }
    if rare_expected >= 10.0 {
        chi2 += (rare_seen - rare_expected).powi(2) / rare_expected;
        cells += 1.0;
    }
    (chi2, cells - 1.0)
}

/// Five standard deviations of the chi-squared distribution: with fixed seeds this either always holds or never.
fn plausible((chi2, df): (f64, f64)) -> bool {
    chi2 <= df + 5.0 * (2.0 * df.max(1.0)).sqrt()
}

#[test]
fn draws_follow_the_distribution() {
    let logits: Vec<f32> = (0..300).map(|i| ((i * 37) % 101) as f32 / 17.0).collect();
    let history = [5, 5, 80, 299, 7];
    for (i, params) in [
        plain(),
        Params { temperature: 0.3, ..plain() },
        Params { temperature: 2.5, ..plain() },
        Params { top_k: 10, ..plain() },
        Params { top_p: 0.5, ..plain() },
        Params { min_p: 0.2, temperature: 1.7, ..plain() },
        Params { top_k: 50, top_p: 0.8, min_p: 0.1, temperature: 0.7, ..plain() },
        Params { repeat_penalty: 1.3, frequency_penalty: 0.4, presence_penalty: 0.2, top_k: 90, ..plain() },
        Params::default(),
    ]
    .into_iter()
    .enumerate()
    {
        let expected = oracle(&params, &history, &logits);
        let mut s = sampler(Params { seed: i as u64, ..params.clone() });
        history.iter().for_each(|t| s.accept(*t));
        let found = chi_squared(&mut s, &logits, &expected, 40_000);
        assert!(plausible(found), "{params:?}: chi2 {} of {} degrees", found.0, found.1);
    }
}

/// Proof that the check above can fail: the wrong temperature is caught.
#[test]
fn a_wrong_distribution_is_noticed() {
    let logits: Vec<f32> = (0..50).map(|i| i as f32 / 10.0).collect();
    let expected = oracle(&plain(), &[], &logits);
    let mut s = sampler(Params { temperature: 1.05, ..plain() });
    assert!(!plausible(chi_squared(&mut s, &logits, &expected, 40_000)));
}

#[test]
fn top_p_edges() {
    // Four equal tokens: a quarter each, exactly.
    let kept = |top_p| {
        let mut s = sampler(Params { top_p, ..plain() });
        let mut seen: Vec<u32> = (0..200).map(|_| s.sample(&mut [1.0; 4]).expect("a token")).collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    };
    assert_eq!(kept(0.0), [0], "0 keeps the best alone, the lowest id among equals");
    assert_eq!(kept(0.25), [0], "reaching p exactly is enough");
    assert_eq!(kept(0.26), [0, 1]);
    assert_eq!(kept(0.5), [0, 1]);
    assert_eq!(kept(0.75), [0, 1, 2]);
    assert_eq!(kept(0.99), [0, 1, 2, 3]);
    assert_eq!(kept(1.0), [0, 1, 2, 3]);
}

#[test]
fn top_p_beyond_the_first_block() {
    // 2,000 equal tokens: half of them, by id, whatever order the selection visits them in.
    let mut s = sampler(Params { top_p: 0.5, ..plain() });
    let seen: Vec<u32> = (0..1000).map(|_| s.sample(&mut vec![0.0; 2000]).expect("a token")).collect();
    assert!(seen.iter().all(|t| *t < 1000));
    assert!(seen.iter().any(|t| *t > 950), "the tail of the kept half is reachable");
}

#[test]
fn greedy_takes_the_lowest_of_equals() {
    let mut s = sampler(Params::greedy());
    assert_eq!(s.sample(&mut [1.0, 3.0, -2.0, 3.0]), Ok(1));
    assert_eq!(s.sample(&mut [f32::NEG_INFINITY, -3.4e38]), Ok(1));
    assert_eq!(s.sample(&mut [-0.0, 0.0]), Ok(0));
}

/// Wherever in a row it stands, whatever the row's length: the best is found and what is unusable is named.
#[test]
fn every_position_counts() {
    let mut s = sampler(Params::greedy());
    for len in [1, 15, 16, 17, 47, 48] {
        for at in 0..len {
            let with = |value| {
                let mut row: Vec<f32> = (0..len).map(|i| -((i % 7) as f32)).collect();
                row[at] = value;
                row
            };
            assert_eq!(s.sample(&mut with(0.5)), Ok(at as u32));
            assert!(matches!(s.sample(&mut with(f32::NAN)), Err(Error::Logit { token, .. }) if token == at));
            assert!(
                matches!(s.sample(&mut with(f32::INFINITY)), Err(Error::Logit { token, .. }) if token == at)
            );
        }
    }
}

#[test]
fn extreme_values_stay_defined() {
    let tiny = f32::from_bits(1);
    let mut s = sampler(Params { temperature: tiny, ..plain() });
    assert_eq!(s.sample(&mut [1.0, 2.0, 1.5]), Ok(1));
    let mut s = sampler(Params { temperature: f32::MAX, ..plain() });
    assert!(s.sample(&mut [f32::MIN, f32::MAX]).is_ok());
    let mut s = sampler(Params { min_p: 1.0, ..plain() });
    assert_eq!(s.sample(&mut [0.0, 5.0, 4.999]), Ok(1));
    let mut s = sampler(Params { top_k: u32::MAX, ..plain() });
    assert!(s.sample(&mut [0.0, 5.0]).is_ok());
}

#[test]
fn unusable_logits_are_named() {
    for params in [Params::greedy(), Params::default()] {
        let mut s = sampler(params);
        let Err(Error::Logit { token: 2, value }) = s.sample(&mut [0.0, 1.0, f32::NAN]) else {
            panic!("NaN must be refused")
        };
        assert!(value.is_nan());
        let infinite = s.sample(&mut [0.0, f32::INFINITY]);
        assert_eq!(infinite, Err(Error::Logit { token: 1, value: f32::INFINITY }));
        assert_eq!(s.sample(&mut [f32::NEG_INFINITY; 3]), Err(Error::NoCandidate { vocabulary: 3 }));
        assert_eq!(s.sample(&mut []), Err(Error::NoCandidate { vocabulary: 0 }));
    }
    // A penalty that overflows is a fault of the logit it made, not a NaN further on.
    let mut s = sampler(Params { frequency_penalty: f32::MIN, ..plain() });
    s.accept(0);
    s.accept(0);
    assert_eq!(s.sample(&mut [0.0, 0.0]), Err(Error::Logit { token: 0, value: f32::INFINITY }));
}

#[test]
fn parameters_out_of_range_are_named() {
    let d = Params::default;
    for (params, field, value) in [
        (Params { temperature: -0.1, ..d() }, "temperature", "-0.1"),
        (Params { temperature: f32::INFINITY, ..d() }, "temperature", "inf"),
        (Params { top_p: 1.5, ..d() }, "top_p", "1.5"),
        (Params { top_p: f32::NAN, ..d() }, "top_p", "NaN"),
        (Params { min_p: -1.0, ..d() }, "min_p", "-1"),
        (Params { repeat_penalty: 0.0, ..d() }, "repeat_penalty", "0"),
        (Params { frequency_penalty: f32::NAN, ..d() }, "frequency_penalty", "NaN"),
        (Params { presence_penalty: f32::INFINITY, ..d() }, "presence_penalty", "inf"),
        (Params { repeat_last_n: -2, ..d() }, "repeat_last_n", "-2"),
        (Params { dynatemp_range: -1.0, ..d() }, "dynatemp_range", "-1"),
        (Params { dynatemp_exponent: f32::NAN, ..d() }, "dynatemp_exponent", "NaN"),
        (Params { typical_p: 1.01, ..d() }, "typical_p", "1.01"),
        (Params { top_n_sigma: f32::INFINITY, ..d() }, "top_n_sigma", "inf"),
        (Params { xtc_probability: -0.5, ..d() }, "xtc_probability", "-0.5"),
        (Params { xtc_threshold: 2.0, ..d() }, "xtc_threshold", "2"),
        (Params { dry_multiplier: -0.5, ..d() }, "dry_multiplier", "-0.5"),
        (Params { dry_base: 0.5, ..d() }, "dry_base", "0.5"),
        (Params { dry_penalty_last_n: -7, ..d() }, "dry_penalty_last_n", "-7"),
        (Params { dry_sequence_breakers: vec![String::new()], ..d() }, "dry_sequence_breakers", "0 bytes"),
        (Params { dry_sequence_breakers: vec!["x".repeat(65)], ..d() }, "dry_sequence_breakers", "65 bytes"),
        (Params { dry_sequence_breakers: vec!["x".into(); 65], ..d() }, "dry_sequence_breakers", "65 texts"),
        (Params { mirostat: 1, ..d() }, "mirostat", "second"),
        (Params { mirostat: 3, ..d() }, "mirostat", "3"),
        (Params { mirostat: 2, xtc_probability: 0.1, ..d() }, "mirostat", "xtc_probability"),
        (Params { mirostat_tau: -1.0, ..d() }, "mirostat_tau", "-1"),
        (Params { mirostat_eta: f32::NAN, ..d() }, "mirostat_eta", "NaN"),
        (Params { logit_bias: vec![(5, f32::NAN)], ..d() }, "logit_bias", "token 5"),
        (Params { logit_bias: vec![(5, f32::INFINITY)], ..d() }, "logit_bias", "inf"),
        (Params { samplers: vec![Stage::TopK, Stage::TopK], ..d() }, "samplers", "top_k"),
    ] {
        let error = Sampler::new(params).expect_err(field);
        let text = error.to_string();
        assert!(text.contains(field) && text.contains(value), "{text}");
    }
    assert_eq!(d().validate(), Ok(()));
}

#[test]
fn parameters_read_from_json() {
    let p: Params =
        serde_json::from_str(r#"{"temperature": 0.5, "seed": 18446744073709551615}"#).expect("valid");
    assert_eq!(p, Params { temperature: 0.5, seed: u64::MAX, ..Params::default() });
    assert!(serde_json::from_str::<Params>(r#"{"temprature": 0.5}"#).is_err(), "no field is ignored");
    let p: Params =
        serde_json::from_str(r#"{"samplers": ["top-k", "TEMP"], "logit_bias": [[3, -1.5]]}"#).expect("valid");
    assert_eq!(p.samplers, [Stage::TopK, Stage::Temperature]);
    assert_eq!(p.logit_bias, [(3, -1.5)]);
    assert!(serde_json::from_str::<Params>(r#"{"samplers": ["top-q"]}"#).is_err());
    let text = serde_json::to_string(&Params::default()).expect("text");
    assert_eq!(serde_json::from_str::<Params>(&text).expect("valid"), Params::default());
}

/// The bits that every platform must give: a change here is a change of everyone's seeded output.
#[test]
fn the_stream_is_pinned() {
    let logits: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 1009) as f32 / 100.0).collect();
    let mut s = sampler(Params { seed: 42, temperature: 1.3, ..Params::default() });
    let tokens: Vec<u32> = (0..12).map(|_| s.sample(&mut logits.clone()).expect("a token")).collect();
    // As a separate script in Python computes them, in double precision throughout.
    assert_eq!(tokens, [620, 996, 818, 752, 310, 310, 231, 343, 541, 277, 521, 310]);
}

fn a_case() -> impl Strategy<Value = (Params, Vec<u32>, Vec<f32>)> {
    let logit = prop_oneof![9 => (-80i32..80).prop_map(|q| q as f32 / 8.0), 1 => Just(f32::NEG_INFINITY)];
    let row = prop::collection::vec(logit, 1..400).prop_map(|mut row| {
        row.push(0.5); // one token at least can be chosen
        row
    });
    let params = (
        prop_oneof![Just(0.0f32), 0.05f32..3.0],
        prop_oneof![Just(0u32), 1u32..500],
        prop_oneof![Just(1.0f32), 0.0f32..1.0],
        prop_oneof![Just(0.0f32), 0.001f32..1.0],
        prop_oneof![Just(1.0f32), 0.5f32..2.0],
        (-1.0f32..1.0, -1.0f32..1.0),
        -1i32..20,
        any::<u64>(),
    )
        .prop_map(|(temperature, top_k, top_p, min_p, repeat_penalty, (f, p), repeat_last_n, seed)| Params {
            temperature,
            top_k,
            top_p,
            min_p,
            repeat_penalty,
            frequency_penalty: f,
            presence_penalty: p,
            repeat_last_n,
            seed,
            ..Params::default()
        });
    (params, prop::collection::vec(0u32..420, 0..40), row)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is drawn, the oracle gives it a probability; and two samplers agree draw by draw.
    #[test]
    fn only_tokens_that_the_oracle_keeps((params, history, logits) in a_case()) {
        let expected = oracle(&params, &history, &logits);
        let (mut a, mut b) = (sampler(params.clone()), sampler(params));
        for t in &history {
            a.accept(*t);
            b.accept(*t);
        }
        for _ in 0..40 {
            let token = a.sample(&mut logits.clone()).expect("a token");
            prop_assert!(expected.contains_key(&token), "{token} not in {expected:?}");
            prop_assert_eq!(b.sample(&mut logits.clone()), Ok(token));
        }
        let mut fork = a.clone();
        prop_assert_eq!(fork.sample(&mut logits.clone()), a.sample(&mut logits.clone()));
    }

    /// Cold draws from a filtered set reach every token kept: the filters drop nothing that the oracle keeps.
    #[test]
    fn every_token_that_the_oracle_keeps((params, history, logits) in a_case()) {
        let params = Params { temperature: 1e6, ..params };
        let expected = oracle(&params, &history, &logits);
        prop_assume!(expected.len() <= 12);
        let mut s = sampler(params);
        history.iter().for_each(|t| s.accept(*t));
        let seen: std::collections::BTreeSet<u32> =
            (0..400).map(|_| s.sample(&mut logits.clone()).expect("a token")).collect();
        prop_assert_eq!(seen, expected.into_keys().collect());
    }

    /// Filters set so that nothing is removed leave every draw as it was.
    #[test]
    fn a_filter_that_removes_nothing_changes_nothing((params, _, logits) in a_case()) {
        let open = Params { temperature: 0.9, seed: params.seed, ..plain() };
        let wide = Params { top_k: logits.len() as u32, min_p: 1e-30, ..open.clone() };
        let (mut a, mut b) = (sampler(open), sampler(wide));
        for _ in 0..20 {
            prop_assert_eq!(a.sample(&mut logits.clone()), b.sample(&mut logits.clone()));
        }
    }

    /// Seeds select different streams.
    #[test]
    fn seeds_differ(seed in any::<u64>()) {
        let run = |seed| {
            let mut s = sampler(Params { seed, ..plain() });
            (0..16).map(|_| s.sample(&mut [0.0; 256]).expect("a token")).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(seed), run(seed));
        prop_assert_ne!(run(seed), run(seed.wrapping_add(1)));
        prop_assert_ne!(run(seed), run(seed ^ 1 << 40));
    }
}
