//! Which tokens stay: top-k, top-p and min-p by partial selection.
//!
//! A vocabulary has up to a few hundred thousand entries of which a few dozen matter, so nothing here sorts it
//! whole: top-k is one pass with a rising threshold, top-p sorts ever larger blocks of the best until the mass
//! is reached. Every function leaves `kept` in order of id, with the `-inf` tokens gone.

use crate::Error;
use std::cmp::Ordering;

/// A token and its logit after penalties.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) token: u32,
    pub(crate) logit: f32,
}

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
    if kept.len() > k {
        kept.select_nth_unstable_by(k - 1, better_first);
        kept.truncate(k);
    }
    kept.sort_unstable_by_key(|c| c.token);
}

/// Keeps the shortest run of best tokens whose probability within `kept` reaches `p`; at least one.
///
/// `best` is the largest logit of the row.
pub(crate) fn top_p(kept: &mut Vec<Candidate>, p: f32, best: f32) {
    if p >= 1.0 {
        return;
    }
    let weight = |c: &Candidate| f64::from(libm::expf(c.logit - best));
    // Summed in order of id, so that the bits do not depend on how a selection shuffled the rest.
    let wanted = f64::from(p) * kept.iter().map(weight).sum::<f64>();
    let mut reached = 0.0;
    let mut done = 0;
    let mut block = 64;
    while done < kept.len() {
        let rest = &mut kept[done..];
        let n = block.min(rest.len());
        if n < rest.len() {
            rest.select_nth_unstable_by(n - 1, better_first);
        }
        rest[..n].sort_unstable_by(better_first);
        for (i, c) in rest[..n].iter().enumerate() {
            reached += weight(c);
            if reached >= wanted {
                kept.truncate(done + i + 1);
                kept.sort_unstable_by_key(|c| c.token);
                return;
            }
        }
        done += n;
        block *= 4;
    }
    // The two sums may part in the last bit: then everything stays.
    kept.sort_unstable_by_key(|c| c.token);
}

/// Keeps tokens at least `p` times as probable as the best: logits from `best + ln p` up.
pub(crate) fn min_p(kept: &mut Vec<Candidate>, p: f32, best: f32) {
    if p > 0.0 {
        let least = libm::logf(p);
        kept.retain(|c| c.logit - best >= least);
    }
}
