//! Sampler chain: from one row of logits to one token id.
//!
//! The chain runs in llama.cpp's order, so that settings carried over mean the same thing:
//!
//! 1. penalties (repetition, frequency, presence) over the last `repeat_last_n` accepted tokens;
//! 2. top-k: the `k` largest logits;
//! 3. top-p: the shortest run of the most probable tokens whose probability reaches `p`
//!    (Holtzman et al. 2019, "The Curious Case of Neural Text Degeneration");
//! 4. min-p: tokens at least `min_p` times as probable as the best (Nguyen et al. 2024, "Turning Up the Heat");
//! 5. temperature, then one draw.
//!
//! Filters 2 to 4 therefore see probabilities at temperature 1, after the penalties. Each keeps a prefix of one
//! total order (logit falling, then id rising), so ties never depend on how the selection went about its work.
//!
//! The same parameters, tokens and logits give the same token on every platform: the arithmetic is IEEE
//! addition, multiplication and division in a fixed order, `exp` and `log` come from `libm` in software, and
//! random numbers from a counter-based generator (Philox) indexed by the seed and the number of draws.

#![forbid(unsafe_code)]

mod params;
mod penalty;
mod rng;
mod select;

pub use params::Params;

use penalty::Window;
use rng::Philox;
use select::Candidate;

/// What can be wrong with parameters or logits.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
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
    /// No token is left to choose from: the row is empty or every logit is `-inf`.
    #[error("none of the {vocabulary} tokens can be chosen: every logit is -inf")]
    NoCandidate {
        /// Length of the row of logits.
        vocabulary: usize,
    },
}

/// The chain with its state: the window of accepted tokens and the number of draws so far.
///
/// A clone continues exactly as the original would, so a sequence can be forked, or a step taken back.
#[derive(Debug, Clone)]
pub struct Sampler {
    params: Params,
    window: Window,
    rng: Philox,
    /// Scratch, kept so that a step allocates nothing once warm.
    candidates: Vec<Candidate>,
    weights: Vec<f32>,
}

impl Sampler {
    /// A sampler that has accepted nothing; the parameters are checked first.
    pub fn new(params: Params) -> Result<Self, Error> {
        params.validate()?;
        Ok(Self {
            window: Window::new(params.repeat_last_n),
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
    }

    /// Chooses a token from one row of logits (`[vocabulary]`, natural-log units up to a constant).
    ///
    /// Penalties are applied to `logits` in place. Does not [`accept`](Self::accept) the token: the caller does,
    /// once it keeps it. Temperature 0 gives the largest logit, ties to the lowest id, and draws no random number.
    pub fn sample(&mut self, logits: &mut [f32]) -> Result<u32, Error> {
        self.window.penalise(&self.params, logits);
        let best = select::best(logits)?;
        let p = &self.params;
        if p.temperature == 0.0 {
            return Ok(best.token);
        }
        let kept = &mut self.candidates;
        select::top_k(logits, p.top_k, kept);
        select::top_p(kept, p.top_p, best.logit);
        select::min_p(kept, p.min_p, best.logit);
        self.weights.clear();
        self.weights.extend(kept.iter().map(|c| libm::expf((c.logit - best.logit) / p.temperature)));
        let drawn = draw(&self.weights, self.rng.next_unit());
        // The best token is always kept and weighs 1, so there is a sum to divide; the fallback only spares a panic.
        Ok(drawn.and_then(|i| kept.get(i)).map_or(best.token, |c| c.token))
    }
}

/// Inverts the cumulative distribution of `weights` (any positive scale) at `u` in [0, 1): the first position
/// whose running sum exceeds `u` times the whole. A weight of 0 is never drawn.
///
/// The candidates are in order of id, so a filter that removes nothing changes nothing.
fn draw(weights: &[f32], u: f64) -> Option<usize> {
    let total: f64 = weights.iter().copied().map(f64::from).sum();
    let target = u * total;
    let mut reached = 0.0;
    weights.iter().position(|w| {
        reached += f64::from(*w);
        reached > target
    })
}
