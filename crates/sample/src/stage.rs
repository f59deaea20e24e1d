//! The steps of the chain, their names and their usual order.

use crate::Error;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A step of the chain. Each is off at its parameter's neutral value, wherever it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Stage {
    /// Repetition, frequency and presence penalties.
    Penalties,
    /// Penalties on tokens that would go on with a repetition.
    Dry,
    /// Logits within so many standard deviations of the best.
    TopNSigma,
    /// The most likely tokens, by number.
    TopK,
    /// Tokens about as surprising as is expected.
    TypicalP,
    /// The most likely tokens, by their common probability.
    TopP,
    /// Tokens likely enough beside the best.
    MinP,
    /// Now and then without the most likely tokens.
    Xtc,
    /// Temperature, fixed or by entropy.
    Temperature,
}

impl Stage {
    /// The order in which llama.cpp has them.
    pub const USUAL: [Stage; 9] = [
        Stage::Penalties,
        Stage::Dry,
        Stage::TopNSigma,
        Stage::TopK,
        Stage::TypicalP,
        Stage::TopP,
        Stage::MinP,
        Stage::Xtc,
        Stage::Temperature,
    ];

    /// The name that llama.cpp prints.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Penalties => "penalties",
            Stage::Dry => "dry",
            Stage::TopNSigma => "top_n_sigma",
            Stage::TopK => "top_k",
            Stage::TypicalP => "typ_p",
            Stage::TopP => "top_p",
            Stage::MinP => "min_p",
            Stage::Xtc => "xtc",
            Stage::Temperature => "temperature",
        }
    }

    /// Whether it takes tokens away. Mirostat stands in the place of those that do.
    pub(crate) fn filters(self) -> bool {
        !matches!(self, Stage::Penalties | Stage::Dry | Stage::Temperature)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads a name in any way that llama.cpp takes it: `top_k`, `top-k`, `topk`, capital letters or not, and its short names.
impl FromStr for Stage {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let plain: String =
            name.chars().filter(|c| !matches!(c, '_' | '-')).map(|c| c.to_ascii_lowercase()).collect();
        Ok(match plain.as_str() {
            "penalties" => Stage::Penalties,
            "dry" => Stage::Dry,
            "topnsigma" => Stage::TopNSigma,
            "topk" => Stage::TopK,
            "typp" | "typ" | "typical" | "typicalp" => Stage::TypicalP,
            "topp" | "nucleus" => Stage::TopP,
            "minp" => Stage::MinP,
            "xtc" => Stage::Xtc,
            "temperature" | "temp" => Stage::Temperature,
            _ => return Err(Error::Stage(name.to_owned())),
        })
    }
}

impl TryFrom<String> for Stage {
    type Error = Error;

    fn try_from(name: String) -> Result<Self, Error> {
        name.parse()
    }
}

impl From<Stage> for String {
    fn from(stage: Stage) -> Self {
        stage.name().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_has_a_name_that_is_read_back() {
        for stage in Stage::USUAL {
            assert_eq!(stage.name().parse(), Ok(stage));
            assert_eq!(stage.name().replace('_', "-").to_uppercase().parse(), Ok(stage));
            assert_eq!(stage.name().replace('_', "").parse(), Ok(stage));
        }
        assert_eq!("nucleus".parse(), Ok(Stage::TopP));
        let error = "adaptive_p".parse::<Stage>().expect_err("no such stage").to_string();
        assert!(error.contains("adaptive_p") && error.contains("top_n_sigma"), "{error}");
    }
}
