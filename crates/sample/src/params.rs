//! The knobs of the chain, their neutral values and their ranges.

use crate::{Error, Stage};
use serde::{Deserialize, Serialize};

/// The most sequence breakers, and the most bytes of one. Each accepted token is looked through for all of them.
const MAX_BREAKERS: usize = 64;
const MAX_BREAKER_BYTES: usize = 64;

/// Parameters of the chain. The defaults are llama.cpp's; absent fields take them, unknown fields are refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Divides the logits before the draw: finite, at least 0. 0 is greedy, 1 leaves the model's distribution.
    pub temperature: f32,
    /// How far the temperature may move to either side with the entropy of the tokens that are left, down to 0 at
    /// most: finite, at least 0. 0 keeps it where it is.
    pub dynatemp_range: f32,
    /// How the entropy, as a part of the greatest possible, turns into a place within that range: its power. Finite,
    /// at least 0.
    pub dynatemp_exponent: f32,
    /// How many of the largest logits stay; 0 keeps all.
    pub top_k: u32,
    /// Probability that the kept tokens must reach: 0 to 1. 1 keeps all, 0 keeps the best alone.
    pub top_p: f32,
    /// Least probability kept, as a part of the best token's: 0 to 1. 0 keeps all.
    pub min_p: f32,
    /// Probability that the tokens nearest to the expected surprise must pass: 0 to 1. 1 keeps all, 0 the nearest alone.
    /// (Meister et al. 2022, "Locally Typical Sampling".)
    pub typical_p: f32,
    /// Keeps logits within so many standard deviations of the best: finite. 0 and below keep all.
    /// (Tang et al. 2024, "Top-nσ: Not All Logits Are You Need".)
    pub top_n_sigma: f32,
    /// How often the most likely tokens are left out (XTC, "exclude top choices"): 0 to 1. 0 is never.
    pub xtc_probability: f32,
    /// Where at least two tokens have this probability, all of them go but the least likely: 0 to 1. Above 0.5 there
    /// can be no two.
    pub xtc_threshold: f32,
    /// Divides positive and multiplies negative logits of tokens in the window: finite, above 0. 1 is neutral.
    /// (Keskar et al. 2019, "CTRL", with the sign handled as every implementation does since.)
    pub repeat_penalty: f32,
    /// Subtracted from a token's logit once per occurrence in the window: finite. 0 is neutral.
    pub frequency_penalty: f32,
    /// Subtracted once from the logit of every token that occurs in the window: finite. 0 is neutral.
    pub presence_penalty: f32,
    /// How many of the last accepted tokens the penalties see: 0 none, -1 all.
    pub repeat_last_n: i32,
    /// Penalty on a token that would go on with a repetition of [`dry_allowed_length`](Self::dry_allowed_length) tokens
    /// ("don't repeat yourself"): finite, at least 0. 0 is off.
    pub dry_multiplier: f32,
    /// Multiplies that penalty for each token that the repetition is longer: finite, at least 1.
    pub dry_base: f32,
    /// The longest repetition that goes unpunished, in tokens.
    pub dry_allowed_length: u32,
    /// How many of the last accepted tokens are searched for repetitions: 0 none, -1 all.
    pub dry_penalty_last_n: i32,
    /// Texts that end a repetition: what lies before them is not seen. At most 64, of 1 to 64 bytes each.
    pub dry_sequence_breakers: Vec<String>,
    /// 0, or 2: Mirostat's second version in place of all stages that take tokens away
    /// (Basu et al. 2020, "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity").
    pub mirostat: u8,
    /// The surprise that Mirostat aims at, in bits: finite, at least 0.
    pub mirostat_tau: f32,
    /// How fast it gets there: finite, at least 0.
    pub mirostat_eta: f32,
    /// Added to logits before all else, by token: finite, or -inf to rule a token out. Several for one token add up.
    pub logit_bias: Vec<(u32, f32)>,
    /// The stages in their order, each at most once; a stage that is not named takes no part.
    pub samplers: Vec<Stage>,
    /// Selects the stream of random numbers. Every seed is as good as another; 0 is not special.
    pub seed: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            top_n_sigma: -1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            repeat_last_n: 64,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_penalty_last_n: 64,
            dry_sequence_breakers: ["\n", ":", "\"", "*"].map(String::from).to_vec(),
            mirostat: 0,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            logit_bias: Vec::new(),
            samplers: Stage::USUAL.to_vec(),
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
        let number = |field, value: f32, ok: bool, expected| {
            if ok { Ok(()) } else { Err(Error::Param { field, value: value.to_string(), expected }) }
        };
        let unit = |field, value: f32| number(field, value, (0.0..=1.0).contains(&value), "between 0 and 1");
        let at_least = |field, value: f32, least: f32, expected| {
            number(field, value, value.is_finite() && value >= least, expected)
        };
        let finite = |field, value: f32| number(field, value, value.is_finite(), "finite");
        let window = |field, value: i32| match value {
            ..-1 => {
                let expected = "-1 (all tokens) or at least 0";
                Err(Error::Param { field, value: value.to_string(), expected })
            }
            _ => Ok(()),
        };
        at_least("temperature", self.temperature, 0.0, "finite and at least 0")?;
        at_least("dynatemp_range", self.dynatemp_range, 0.0, "finite and at least 0")?;
        at_least("dynatemp_exponent", self.dynatemp_exponent, 0.0, "finite and at least 0")?;
        unit("top_p", self.top_p)?;
        unit("min_p", self.min_p)?;
        unit("typical_p", self.typical_p)?;
        finite("top_n_sigma", self.top_n_sigma)?;
        unit("xtc_probability", self.xtc_probability)?;
        unit("xtc_threshold", self.xtc_threshold)?;
        let r = self.repeat_penalty;
        number("repeat_penalty", r, r.is_finite() && r > 0.0, "finite and above 0")?;
        finite("frequency_penalty", self.frequency_penalty)?;
        finite("presence_penalty", self.presence_penalty)?;
        window("repeat_last_n", self.repeat_last_n)?;
        at_least("dry_multiplier", self.dry_multiplier, 0.0, "finite and at least 0")?;
        at_least("dry_base", self.dry_base, 1.0, "finite and at least 1")?;
        window("dry_penalty_last_n", self.dry_penalty_last_n)?;
        self.validate_breakers()?;
        self.validate_mirostat()?;
        for (token, bias) in &self.logit_bias {
            if bias.is_nan() || *bias == f32::INFINITY {
                let value = format!("{bias} for token {token}");
                return Err(Error::Param { field: "logit_bias", value, expected: "finite, or -inf" });
            }
        }
        for (i, stage) in self.samplers.iter().enumerate() {
            if self.samplers.iter().take(i).any(|s| s == stage) {
                let value = format!("{stage} for the second time");
                return Err(Error::Param { field: "samplers", value, expected: "each stage at most once" });
            }
        }
        Ok(())
    }

    fn validate_breakers(&self) -> Result<(), Error> {
        let refuse = |value| {
            let expected = "at most 64 texts of 1 to 64 bytes";
            Err(Error::Param { field: "dry_sequence_breakers", value, expected })
        };
        let count = self.dry_sequence_breakers.len();
        if count > MAX_BREAKERS {
            return refuse(format!("{count} texts"));
        }
        match self.dry_sequence_breakers.iter().position(|b| b.is_empty() || b.len() > MAX_BREAKER_BYTES) {
            Some(i) => refuse(format!(
                "{} bytes long at number {i}",
                self.dry_sequence_breakers.get(i).map_or(0, String::len)
            )),
            None => Ok(()),
        }
    }

    fn validate_mirostat(&self) -> Result<(), Error> {
        let refuse =
            |expected| Err(Error::Param { field: "mirostat", value: self.mirostat.to_string(), expected });
        for (field, value) in [("mirostat_tau", self.mirostat_tau), ("mirostat_eta", self.mirostat_eta)] {
            if !value.is_finite() || value < 0.0 {
                let expected = "finite and at least 0";
                return Err(Error::Param { field, value: value.to_string(), expected });
            }
        }
        match self.mirostat {
            0 => Ok(()),
            // These are off unless somebody asks for them, so to leave them out would be to ignore an option.
            2 if self.typical_p < 1.0 || self.top_n_sigma > 0.0 || self.xtc_probability > 0.0 => {
                refuse("0 beside typical_p, top_n_sigma or xtc_probability: Mirostat takes their place")
            }
            2 => Ok(()),
            1 => refuse("0 (off) or 2: the first version is not there, the second does the same more simply"),
            _ => refuse("0 (off) or 2"),
        }
    }

    /// Checks that every token with a bias is one of `vocabulary` ids.
    ///
    /// # Errors
    /// [`Error::Bias`] names the first that is not.
    pub fn check_vocabulary(&self, vocabulary: usize) -> Result<(), Error> {
        let beyond = |token: u32| usize::try_from(token).map_or(true, |t| t >= vocabulary);
        match self.logit_bias.iter().find(|(token, _)| beyond(*token)) {
            Some(&(token, _)) => Err(Error::Bias { token, vocabulary }),
            None => Ok(()),
        }
    }

    /// Whether the choice is always the largest logit, exactly as the model gives the row. A device that has found
    /// that token may then spare the row.
    pub fn is_argmax(&self) -> bool {
        let fixed = self.temperature == 0.0 && self.dynatemp_range == 0.0 && self.has(Stage::Temperature);
        let moved = self.penalises() || self.uses_dry() || !self.logit_bias.is_empty();
        let best_may_go = self.mirostat == 0
            && (self.has(Stage::TypicalP) && self.typical_p < 1.0
                || self.has(Stage::Xtc) && self.xtc_probability > 0.0);
        fixed && !moved && !best_may_go
    }

    fn has(&self, stage: Stage) -> bool {
        self.samplers.contains(&stage)
    }

    /// Whether any of the three penalties does anything.
    pub(crate) fn penalises(&self) -> bool {
        let neutral =
            self.repeat_penalty == 1.0 && self.frequency_penalty == 0.0 && self.presence_penalty == 0.0;
        !neutral && self.repeat_last_n != 0 && self.has(Stage::Penalties)
    }

    /// Whether repetitions are looked for.
    pub(crate) fn uses_dry(&self) -> bool {
        self.dry_multiplier > 0.0 && self.dry_penalty_last_n != 0 && self.has(Stage::Dry)
    }

    /// Whether a sampler must be able to look into tokens: [`Sampler::with_vocabulary`](crate::Sampler::with_vocabulary).
    pub fn needs_vocabulary(&self) -> bool {
        self.uses_dry() && !self.dry_sequence_breakers.is_empty()
    }
}
