//! Which tokens stay, by partial selection.
//!
//! A vocabulary has up to a few hundred thousand entries of which a few dozen matter, so nothing here sorts it
//! whole: top-k is one pass with a rising threshold, top-p and typical-p sort ever larger blocks of the first until
//! the mass is reached. Every function leaves `kept` in order of id, with the `-inf` tokens gone; where one takes
//! `best`, it is the largest logit in `kept`, which only XTC and typical-p may take away.

use crate::Error;
use crate::row::Candidate;
use std::cmp::Ordering;

/// The one order in which tokens are better or worse: larger logit first, then smaller id. Logits are never NaN
/// here ([`best`] has refused them) and -0 equals +0, as comparison of floats has it.
fn better_first(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.token.cmp(&b.token))
}

fn enumerate(logits: &[f32]) -> impl Iterator<Item = Candidate> + '_ {
    (0..=u32::MAX).zip(logits).map(|(token, &logit)| Candidate { token, logit })
}

/// The best token. Refuses NaN, `+inf` and a row with nothing to choose.
pub(crate) fn best(logits: &[f32]) -> Result<Candidate, Error> {
    // Sixteen running maxima, and a note of what is neither finite nor -inf: a loop without branches, which the
    // compiler turns into vector code. Equal values need no order here, since their position is looked up below.
    let (mut most, mut usable) = ([f32::NEG_INFINITY; 16], true);
    let (rows, rest) = logits.as_chunks::<16>();
    for row in rows {
        for (m, &l) in most.iter_mut().zip(row) {
            *m = if l > *m { l } else { *m };
            usable &= l < f32::INFINITY;
        }
    }
    let most = most.iter().chain(rest).fold(f32::NEG_INFINITY, |m, &l| if l > m { l } else { m });
    if !usable || rest.iter().any(|l| l.is_nan()) || most == f32::INFINITY {
        return Err(unusable(logits));
    }
    let found = enumerate(logits).find(|c| c.logit == most && most > f32::NEG_INFINITY);
    found.ok_or(Error::NoCandidate { vocabulary: logits.len() })
}

/// The same of a list, from a row of `vocabulary` logits; `-inf` must be gone from it.
pub(crate) fn best_of(kept: &[Candidate], vocabulary: usize) -> Result<Candidate, Error> {
    if let Some(c) = kept.iter().find(|c| c.logit.is_nan() || c.logit == f32::INFINITY) {
        return Err(Error::Logit { token: usize::try_from(c.token).unwrap_or(usize::MAX), value: c.logit });
    }
    kept.iter().copied().min_by(better_first).ok_or(Error::NoCandidate { vocabulary })
}

/// The error for the first logit that is NaN or `+inf`.
fn unusable(logits: &[f32]) -> Error {
    let bad = logits.iter().enumerate().find(|(_, l)| l.is_nan() || **l == f32::INFINITY);
    let (token, &value) = bad.unwrap_or((0, &f32::NAN));
    Error::Logit { token, value }
}

/// Fills `kept` with the `k` best tokens of the row; all of them for `k` = 0.
pub(crate) fn top_k(logits: &[f32], k: u32, kept: &mut Vec<Candidate>) {
    kept.clear();
    let k = usize::try_from(k).unwrap_or(usize::MAX);
    let possible = enumerate(logits).filter(|c| c.logit > f32::NEG_INFINITY);
    if k == 0 || k >= logits.len() {
        kept.extend(possible);
        return;
    }
    // Room for a batch beside the k best so far: a full buffer is cut back to k, and the worst survivor is the
    // threshold that later tokens must beat. Equal logits lose, since they have the larger id.
    let room = k.saturating_add(k.max(64));
    let mut threshold = f32::NEG_INFINITY;
    for c in possible {
        if c.logit <= threshold {
            continue;
        }
        kept.push(c);
        if kept.len() >= room {
            let (_, worst, _) = kept.select_nth_unstable_by(k - 1, better_first);
            threshold = worst.logit;
            kept.truncate(k);
        }
    }
    cut_to(kept, k);
}

/// [`top_k`] of what an earlier filter has kept.
pub(crate) fn cut(kept: &mut Vec<Candidate>, k: u32) {
    cut_to(kept, usize::try_from(k).unwrap_or(usize::MAX));
}

fn cut_to(kept: &mut Vec<Candidate>, k: usize) {
    if kept.len() > k && k > 0 {
        kept.select_nth_unstable_by(k - 1, better_first);
        kept.truncate(k);
    }
    kept.sort_unstable_by_key(|c| c.token);
}

/// Keeps the shortest run of best tokens whose probability within `kept` reaches `p`; at least one.
pub(crate) fn top_p(kept: &mut Vec<Candidate>, p: f32, best: f32) {
    if p >= 1.0 {
        return;
    }
    let weight = |c: &Candidate| f64::from(libm::expf(c.logit - best));
    // Summed in order of id, so that the bits do not depend on how a selection shuffled the rest.
    let wanted = f64::from(p) * kept.iter().map(weight).sum::<f64>();
    shortest_run(kept, better_first, weight, |reached| reached >= wanted);
}

/// Keeps the tokens whose surprise is nearest to the expected one, the entropy, until their probability passes `p`; at
/// least one.
///
/// The surprise of a token is `ln(sum) - d`, with `d` its logit behind the best and `sum` that of `exp(d)`. The entropy is
/// the mean of the surprises, so `ln(sum)` drops out of their difference: it is that of `d` from its own mean.
pub(crate) fn typical_p(kept: &mut Vec<Candidate>, p: f32, best: f32) {
    if p >= 1.0 {
        return;
    }
    let behind = |c: &Candidate| f64::from(c.logit) - f64::from(best);
    let weight = |c: &Candidate| libm::exp(behind(c));
    let (mut sum, mut mean) = (0.0, 0.0);
    for c in kept.iter() {
        sum += weight(c);
        mean += weight(c) * behind(c);
    }
    mean /= sum;
    let off = |c: &Candidate| (behind(c) - mean).abs();
    let nearer = |a: &Candidate, b: &Candidate| off(a).total_cmp(&off(b)).then_with(|| better_first(a, b));
    let passed = f64::from(p) * sum;
    shortest_run(kept, nearer, weight, |reached| reached > passed);
}

/// Keeps the first tokens by `order`, up to the one with which the sum of their weights is `enough`.
fn shortest_run(
    kept: &mut Vec<Candidate>,
    order: impl Fn(&Candidate, &Candidate) -> Ordering,
    weight: impl Fn(&Candidate) -> f64,
    enough: impl Fn(f64) -> bool,
) {
    let mut reached = 0.0;
    let mut done = 0;
    let mut block = 64;
    'found: while done < kept.len() {
        let rest = &mut kept[done..];
        let n = block.min(rest.len());
        if n < rest.len() {
            rest.select_nth_unstable_by(n - 1, &order);
        }
        rest[..n].sort_unstable_by(&order);
        for (i, c) in rest[..n].iter().enumerate() {
            reached += weight(c);
            if enough(reached) {
                kept.truncate(done + i + 1);
                break 'found;
            }
        }
        done += n;
        block *= 4;
    }
    // Where nothing was enough, the two sums part in the last bit: then everything stays.
    kept.sort_unstable_by_key(|c| c.token);
}

/// Keeps tokens at least `p` times as probable as the best: logits from `best + ln p` up.
pub(crate) fn min_p(kept: &mut Vec<Candidate>, p: f32, best: f32) {
    if p > 0.0 {
        let least = libm::logf(p);
        kept.retain(|c| c.logit - best >= least);
    }
}

/// Keeps logits at most `n` standard deviations (of the logits in `kept`) below the best.
pub(crate) fn top_n_sigma(kept: &mut Vec<Candidate>, n: f32, best: f32) {
    let count = kept.len() as f64;
    let mean = kept.iter().map(|c| f64::from(c.logit)).sum::<f64>() / count;
    let variance = kept.iter().map(|c| (f64::from(c.logit) - mean).powi(2)).sum::<f64>() / count;
    let least = f64::from(best) - f64::from(n) * variance.sqrt();
    kept.retain(|c| f64::from(c.logit) >= least);
}

/// Leaves out the tokens of probability `threshold` or more, but for the least likely of them.
pub(crate) fn xtc(kept: &mut Vec<Candidate>, threshold: f32, best: f32) {
    let weight = |c: &Candidate| libm::exp(f64::from(c.logit) - f64::from(best));
    let least = f64::from(threshold) * kept.iter().map(weight).sum::<f64>();
    let top = |c: &Candidate| weight(c) >= least;
    if let Some(last) = kept.iter().copied().filter(top).max_by(better_first) {
        kept.retain(|c| c.token == last.token || !top(c));
    }
}

/// Keeps tokens of at most `most` bits of surprise; the best token stays in any case.
pub(crate) fn surprise(kept: &mut Vec<Candidate>, most: f64, best: Candidate) {
    let behind = |c: &Candidate| f64::from(c.logit) - f64::from(best.logit);
    let sum: f64 = kept.iter().map(|c| libm::exp(behind(c))).sum();
    let ln_sum = libm::log(sum);
    kept.retain(|c| c.token == best.token || (ln_sum - behind(c)) / std::f64::consts::LN_2 <= most);
}

/// The entropy of the tokens, as a part of the greatest that so many can have: 0 to 1. 0 for less than two tokens.
pub(crate) fn relative_entropy(kept: &[Candidate], best: f32) -> f64 {
    if kept.len() < 2 {
        return 0.0;
    }
    let (mut sum, mut mean) = (0.0, 0.0);
    for c in kept {
        let behind = f64::from(c.logit) - f64::from(best);
        sum += libm::exp(behind);
        mean += libm::exp(behind) * behind;
    }
    let entropy = libm::log(sum) - mean / sum;
    (entropy / libm::log(kept.len() as f64)).clamp(0.0, 1.0)
}
