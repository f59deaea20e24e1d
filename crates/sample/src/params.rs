//! The knobs of the chain, their neutral values and their ranges.

use crate::Error;
use serde::{Deserialize, Serialize};

/// Parameters of the chain. The defaults are llama.cpp's; absent fields take them, unknown fields are refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Divides the logits before the draw: finite, at least 0. 0 is greedy, 1 leaves the model's distribution.
    pub temperature: f32,
    /// How many of the largest logits stay; 0 keeps all.
    pub top_k: u32,
    /// Probability that the kept tokens must reach: 0 to 1. 1 keeps all, 0 keeps the best alone.
    pub top_p: f32,
    /// Least probability kept, as a part of the best token's: 0 to 1. 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens in the window: finite, above 0. 1 is neutral.
    /// (Keskar et al. 2019, "CTRL", with the sign handled as every implementation does since.)
    pub repeat_penalty: f32,
    /// Subtracted from a token's logit once per occurrence in the window: finite. 0 is neutral.
    pub frequency_penalty: f32,
    /// Subtracted once from the logit of every token that occurs in the window: finite. 0 is neutral.
    pub presence_penalty: f32,
    /// How many of the last accepted tokens the penalties see: 0 none, -1 all.
    pub repeat_last_n: i32,
    /// Selects the stream of random numbers. Every seed is as good as another; 0 is not special.
    pub seed: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            repeat_last_n: 64,
            seed: 0,
        }
    }
}

impl Params {
    /// The largest logit, always: temperature 0, no penalty.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Checks every field against its range; the error names the first that is out of it.
    pub fn validate(&self) -> Result<(), Error> {
        let in_range = |field, value: f32, ok: bool, expected| {
            if ok { Ok(()) } else { Err(Error::Param { field, value: value.to_string(), expected }) }
        };
        let unit = 0.0..=1.0;
        let t = self.temperature;
        in_range("temperature", t, t.is_finite() && t >= 0.0, "finite and at least 0")?;
        in_range("top_p", self.top_p, unit.contains(&self.top_p), "between 0 and 1")?;
        in_range("min_p", self.min_p, unit.contains(&self.min_p), "between 0 and 1")?;
        let r = self.repeat_penalty;
        in_range("repeat_penalty", r, r.is_finite() && r > 0.0, "finite and above 0")?;
        let f = self.frequency_penalty;
        in_range("frequency_penalty", f, f.is_finite(), "finite")?;
        let p = self.presence_penalty;
        in_range("presence_penalty", p, p.is_finite(), "finite")?;
        if self.repeat_last_n < -1 {
            return Err(Error::Param {
                field: "repeat_last_n",
                value: self.repeat_last_n.to_string(),
                expected: "-1 (all tokens) or at least 0",
            });
        }
        Ok(())
    }
}
