//! Sampler chain: from one row of logits to one token id.
//!
//! The chain runs in llama.cpp's order unless [`Params::samplers`] has another, so that settings carried over mean the
//! same thing. First of all biases are added. Then:
//!
//! 1. penalties (repetition, frequency, presence) over the last `repeat_last_n` accepted tokens;
//! 2. DRY: penalties on tokens that go on with a repetition;
//! 3. top-n-sigma: logits near the best, by their spread;
//! 4. top-k: the `k` largest logits;
//! 5. typical-p: tokens about as surprising as is expected;
//! 6. top-p: the shortest run of the most probable tokens whose probability reaches `p`
//!    (Holtzman et al. 2019, "The Curious Case of Neural Text Degeneration");
//! 7. min-p: tokens at least `min_p` times as probable as the best (Nguyen et al. 2024, "Turning Up the Heat");
//! 8. XTC: now and then without the most likely tokens;
//! 9. temperature, fixed or by entropy; then one draw.
//!
//! Filters therefore see probabilities at temperature 1, after the penalties, unless another order is asked for. Each
//! keeps tokens by one total order (logit falling, then id rising), so ties never depend on how the selection went about
//! its work. With Mirostat, it alone takes tokens away, behind all other stages.
//!
//! The same parameters, tokens and logits give the same token on every platform: the arithmetic is IEEE
//! addition, multiplication and division in a fixed order, `exp` and `log` come from `libm` in software, and
//! random numbers from a counter-based generator (Philox) indexed by the seed and the number of choices made.

#![forbid(unsafe_code)]

mod constraint;
mod dry;
mod mirostat;
mod params;
mod penalty;
mod rng;
mod row;
mod select;
mod stage;

pub use constraint::{Compiled, Constraint, Grammar, Grammars, Kind, Spelling, TokenTable};
pub use params::Params;
pub use stage::Stage;

use dry::Dry;
use mirostat::Mirostat;
use penalty::Window;
use rng::{Philox, Use};
use row::{Candidate, Row};
use std::sync::Arc;

/// What can be wrong with parameters or logits.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter lies outside its range.
    #[error("sampling parameter `{field}` is {value}: it must be {expected}")]
    Param {
        /// Name of the field of [`Params`].
        field: &'static str,
        /// The value given, as text.
        value: String,
        /// The range, in words.
        expected: &'static str,
    },
    /// No stage of the chain has this name.
    #[error(
        "there is no sampler `{0}`: penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc and temperature are there"
    )]
    Stage(String),
    /// A bias for a token that the model does not have.
    #[error("`logit_bias` names token {token}, but the vocabulary has {vocabulary} tokens")]
    Bias {
        /// The id given.
        token: u32,
        /// Number of ids.
        vocabulary: usize,
    },
    /// Sequence breakers are texts, and the sampler was made without what tokens spell.
    #[error("`dry_sequence_breakers` are texts, but there is no vocabulary to find them in")]
    NoVocabulary,
    /// A logit is NaN or positive infinity, as given or once penalised. Negative infinity is fine: it masks a token.
    #[error(
        "the logit of token {token} is {value}: only finite values, or -inf to rule a token out, can be sampled"
    )]
    Logit {
        /// Token id: the position in the row.
        token: usize,
        /// The value found.
        value: f32,
    },
    /// A grammar cannot be compiled.
    #[error("the {kind} cannot be used: {why}")]
    Grammar {
        /// What it is.
        kind: Kind,
        /// What is wrong with it.
        why: String,
    },
    /// A vocabulary cannot be searched for what a grammar allows.
    #[error("the vocabulary cannot be used with grammars: {0}")]
    Tokens(String),
    /// A grammar cannot be followed any further.
    #[error("the {kind} cannot be followed any further: {why}")]
    Step {
        /// What it is.
        kind: Kind,
        /// Why.
        why: String,
    },
    /// No token is left to choose from: the row is empty or every logit is `-inf`.
    #[error("none of the {vocabulary} tokens can be chosen: every logit is -inf")]
    NoCandidate {
        /// Length of the row of logits.
        vocabulary: usize,
    },
}

/// What tokens spell.
pub trait Vocabulary: Send + Sync {
    /// The bytes that the token adds to a text; empty for one that adds none, or that does not exist.
    fn piece(&self, token: u32) -> &[u8];
}

/// The chain with its state: the accepted tokens as far back as it looks, Mirostat's bound, and the number of choices.
///
/// A clone continues exactly as the original would, so a sequence can be forked, or a step taken back.
#[derive(Debug, Clone)]
pub struct Sampler {
    params: Params,
    argmax: bool,
    window: Window,
    dry: Dry,
    mirostat: Mirostat,
    rng: Philox,
    /// Scratch, kept so that a step allocates nothing once warm.
    candidates: Vec<Candidate>,
    weights: Vec<f32>,
}

impl Sampler {
    /// A sampler that has accepted nothing; the parameters are checked first.
    ///
    /// # Errors
    /// [`Error::Param`]; [`Error::NoVocabulary`] where [`Params::needs_vocabulary`].
    pub fn new(params: Params) -> Result<Self, Error> {
        Self::made(params, None)
    }

    /// The same, for parameters that look into tokens.
    ///
    /// # Errors
    /// [`Error::Param`].
    pub fn with_vocabulary(params: Params, vocabulary: Arc<dyn Vocabulary>) -> Result<Self, Error> {
        Self::made(params, Some(vocabulary))
    }

    fn made(params: Params, vocabulary: Option<Arc<dyn Vocabulary>>) -> Result<Self, Error> {
        params.validate()?;
        if vocabulary.is_none() && params.needs_vocabulary() {
            return Err(Error::NoVocabulary);
        }
        Ok(Self {
            argmax: params.is_argmax(),
            window: Window::new(if params.penalises() { params.repeat_last_n } else { 0 }),
            dry: Dry::new(&params, vocabulary),
            mirostat: Mirostat::new(&params),
            rng: Philox::new(params.seed),
            candidates: Vec::new(),
            weights: Vec::new(),
            params,
        })
    }

    /// The parameters in force.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Records a token of the sequence (prompt or generated): later penalties count it.
    pub fn accept(&mut self, token: u32) {
        self.window.push(token);
        self.dry.push(token);
    }

    /// Chooses a token from one row of logits (`[vocabulary]`, natural-log units up to a constant).
    ///
    /// Biases and penalties are applied to `logits` in place. Does not [`accept`](Self::accept) the token: the caller
    /// does, once it keeps it. Temperature 0 gives the largest logit that is left, ties to the lowest id.
    ///
    /// # Errors
    /// [`Error::Logit`], [`Error::NoCandidate`], [`Error::Bias`]; the sampler is as it was then.
    pub fn sample(&mut self, logits: &mut [f32]) -> Result<u32, Error> {
        if self.argmax {
            return Ok(select::best(logits)?.token);
        }
        let best = self.narrow(logits)?;
        let drawn = draw(&self.weights, self.rng.unit(Use::Token));
        self.rng.advance();
        // The best token left weighs 1, so there is a sum to divide; the fallback only spares a panic.
        let chosen = drawn.and_then(|i| Some((self.candidates.get(i)?.token, *self.weights.get(i)?)));
        let (token, weight) = chosen.unwrap_or((best.token, 1.0));
        self.mirostat.observe(f64::from(weight) / total(&self.weights));
        Ok(token)
    }

    /// What [`sample`](Self::sample) would draw from: the tokens that are left in order of id, and their
    /// probabilities, which sum to 1. Changes `logits` as it does, and nothing else.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub fn distribution(&mut self, logits: &mut [f32]) -> Result<Vec<(u32, f32)>, Error> {
        if self.argmax {
            return Ok(vec![(select::best(logits)?.token, 1.0)]);
        }
        self.narrow(logits)?;
        let total = total(&self.weights);
        let of = |(c, w): (&Candidate, &f32)| (c.token, (f64::from(*w) / total) as f32);
        Ok(self.candidates.iter().zip(&self.weights).map(of).collect())
    }

    /// Runs the chain: leaves the tokens that may be drawn in `candidates`, their weights beside them, 1 for the best
    /// of them, which it gives back.
    fn narrow(&mut self, logits: &mut [f32]) -> Result<Candidate, Error> {
        let p = &self.params;
        p.check_vocabulary(logits.len())?;
        let mut row = Row::new(logits, &mut self.candidates);
        for &(token, bias) in &p.logit_bias {
            row.adjust(token, |logit| logit + bias);
        }
        for stage in p.samplers.iter().filter(|s| p.mirostat == 0 || !s.filters()) {
            match stage {
                Stage::Penalties => self.window.penalise(p, &mut row),
                Stage::Dry => self.dry.penalise(p, &mut row),
                Stage::TopK => row.top_k(p.top_k)?,
                Stage::TopNSigma if p.top_n_sigma > 0.0 => {
                    let (kept, best) = row.list()?;
                    select::top_n_sigma(kept, p.top_n_sigma, best.logit);
                }
                Stage::TypicalP if p.typical_p < 1.0 => {
                    let (kept, best) = row.list()?;
                    select::typical_p(kept, p.typical_p, best.logit);
                    row.changed();
                }
                Stage::TopP if p.top_p < 1.0 => {
                    let (kept, best) = row.list()?;
                    select::top_p(kept, p.top_p, best.logit);
                }
                Stage::MinP if p.min_p > 0.0 => {
                    let (kept, best) = row.list()?;
                    select::min_p(kept, p.min_p, best.logit);
                }
                // A number that is below the probability, so that 0 is never and 1 always.
                Stage::Xtc if self.rng.unit(Use::Xtc) < f64::from(p.xtc_probability) => {
                    let (kept, best) = row.list()?;
                    select::xtc(kept, p.xtc_threshold, best.logit);
                    row.changed();
                }
                Stage::Temperature if p.dynatemp_range > 0.0 => {
                    let (kept, best) = row.list()?;
                    let entropy = select::relative_entropy(kept, best.logit);
                    row.heat(dynamic(p, entropy))?;
                }
                Stage::Temperature => row.heat(p.temperature)?,
                Stage::TopNSigma | Stage::TypicalP | Stage::TopP | Stage::MinP | Stage::Xtc => {}
            }
        }
        self.mirostat.narrow(&mut row)?;
        let (kept, best) = row.list()?;
        self.weights.clear();
        self.weights.extend(kept.iter().map(|c| libm::expf(c.logit - best.logit)));
        Ok(best)
    }
}

/// The temperature by the entropy of the tokens left, as a part of the greatest that they could have: the top of the
/// range where all are alike.
fn dynamic(p: &Params, relative_entropy: f64) -> f32 {
    let (middle, range) = (f64::from(p.temperature), f64::from(p.dynatemp_range));
    let least = (middle - range).max(0.0);
    let part = libm::pow(relative_entropy, f64::from(p.dynatemp_exponent));
    (least + (middle + range - least) * part) as f32
}

fn total(weights: &[f32]) -> f64 {
    weights.iter().copied().map(f64::from).sum()
}

/// Inverts the cumulative distribution of `weights` (any positive scale) at `u` in [0, 1): the first position
/// whose running sum exceeds `u` times the whole. A weight of 0 is never drawn.
///
/// The candidates are in order of id, so a filter that removes nothing changes nothing.
fn draw(weights: &[f32], u: f64) -> Option<usize> {
    let target = u * total(weights);
    let mut reached = 0.0;
    weights.iter().position(|w| {
        reached += f64::from(*w);
        reached > target
    })
}
