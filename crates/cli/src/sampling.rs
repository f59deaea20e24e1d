//! The flags that say how tokens are chosen, and the parameters that they mean.

use cera_sample::{Params, Stage};
use clap::Args;

use crate::failure::Failure;

/// How tokens are chosen. Names and defaults are llama.cpp's.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sampling (names and defaults are llama.cpp's)")]
pub struct SamplingArgs {
    /// The steps in their order, with `;` between them; a step that is left out does nothing
    /// [default: penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature].
    #[arg(long, env = "CERA_SAMPLERS", value_name = "NAMES")]
    pub samplers: Option<String>,
    /// Start of the random numbers; the same seed gives the same answer [default: drawn, and shown by --json].
    #[arg(short, long, env = "CERA_SEED")]
    pub seed: Option<u64>,
    /// Temperature; 0 always takes the most likely token.
    #[arg(long, visible_alias = "temperature", env = "CERA_TEMP", default_value = "0.8", value_name = "T")]
    pub temp: f32,
    /// How far the temperature moves to either side with the model's uncertainty; 0 keeps it.
    #[arg(long, env = "CERA_DYNATEMP_RANGE", default_value = "0", value_name = "T")]
    pub dynatemp_range: f32,
    /// The power with which uncertainty turns into temperature.
    #[arg(long, env = "CERA_DYNATEMP_EXP", default_value = "1", value_name = "X")]
    pub dynatemp_exp: f32,
    /// Keep the K most likely tokens; 0 keeps all.
    #[arg(long, env = "CERA_TOP_K", default_value = "40", value_name = "K")]
    pub top_k: u32,
    /// Keep the most likely tokens that together reach this probability; 1 keeps all.
    #[arg(long, env = "CERA_TOP_P", default_value = "0.95", value_name = "P")]
    pub top_p: f32,
    /// Drop tokens less likely than this part of the most likely one; 0 keeps all.
    #[arg(long, env = "CERA_MIN_P", default_value = "0.05", value_name = "P")]
    pub min_p: f32,
    /// Keep the tokens that are about as surprising as is expected, up to this probability; 1 keeps all.
    #[arg(long, visible_alias = "typical-p", env = "CERA_TYPICAL", default_value = "1", value_name = "P")]
    pub typical: f32,
    /// Keep tokens whose logit is within so many standard deviations of the best; 0 and below keep all.
    #[arg(
        long,
        visible_alias = "top-n-sigma",
        env = "CERA_TOP_NSIGMA",
        default_value = "-1",
        value_name = "N"
    )]
    #[arg(allow_negative_numbers = true)]
    pub top_nsigma: f32,
    /// How often the most likely tokens are left out (XTC); 0 is never.
    #[arg(long, env = "CERA_XTC_PROBABILITY", default_value = "0", value_name = "P")]
    pub xtc_probability: f32,
    /// Tokens from this probability up are left out then, but for the least likely of them.
    #[arg(long, env = "CERA_XTC_THRESHOLD", default_value = "0.1", value_name = "P")]
    pub xtc_threshold: f32,
    /// How many of the last tokens the penalties see; 0 none, -1 all.
    #[arg(long, env = "CERA_REPEAT_LAST_N", default_value = "64", value_name = "N")]
    #[arg(allow_negative_numbers = true)]
    pub repeat_last_n: i32,
    /// Makes these tokens less likely; 1 does nothing.
    #[arg(long, env = "CERA_REPEAT_PENALTY", default_value = "1", value_name = "X")]
    pub repeat_penalty: f32,
    /// Taken from their logits, once each; 0 does nothing.
    #[arg(long, env = "CERA_PRESENCE_PENALTY", default_value = "0", value_name = "X")]
    #[arg(allow_negative_numbers = true)]
    pub presence_penalty: f32,
    /// Taken from their logits for each time that they occur; 0 does nothing.
    #[arg(long, env = "CERA_FREQUENCY_PENALTY", default_value = "0", value_name = "X")]
    #[arg(allow_negative_numbers = true)]
    pub frequency_penalty: f32,
    /// Penalty on a token that goes on with a repetition (DRY); 0 is off.
    #[arg(long, env = "CERA_DRY_MULTIPLIER", default_value = "0", value_name = "X")]
    pub dry_multiplier: f32,
    /// Multiplies it for each token that the repetition is longer than allowed.
    #[arg(long, env = "CERA_DRY_BASE", default_value = "1.75", value_name = "X")]
    pub dry_base: f32,
    /// The longest repetition that goes unpunished, in tokens.
    #[arg(long, env = "CERA_DRY_ALLOWED_LENGTH", default_value = "2", value_name = "N")]
    pub dry_allowed_length: u32,
    /// How many of the last tokens are searched for repetitions; 0 none, -1 all.
    #[arg(long, env = "CERA_DRY_PENALTY_LAST_N", default_value = "64", value_name = "N")]
    #[arg(allow_negative_numbers = true)]
    pub dry_penalty_last_n: i32,
    /// A text that ends repetitions, in place of the usual ones; `\n`, `\t`, `\r` and `\\` mean what they do in C, and
    /// `none` is for no text at all. May be given several times [default: \n : " *].
    #[arg(long, env = "CERA_DRY_SEQUENCE_BREAKER", value_name = "TEXT")]
    pub dry_sequence_breaker: Vec<String>,
    /// 2: keep the text's surprise near --mirostat-ent, in place of all steps that drop tokens; 0 is off.
    #[arg(long, env = "CERA_MIROSTAT", default_value = "0", value_name = "VERSION")]
    pub mirostat: u8,
    /// The surprise that Mirostat aims at, in bits.
    #[arg(long, env = "CERA_MIROSTAT_ENT", default_value = "5", value_name = "BITS")]
    pub mirostat_ent: f32,
    /// How fast it gets there.
    #[arg(long, env = "CERA_MIROSTAT_LR", default_value = "0.1", value_name = "X")]
    pub mirostat_lr: f32,
    /// Makes a token more or less likely, by its id: `15043+1`, `15043-1.5`; `15043-inf` rules it out. May be given several
    /// times.
    #[arg(short = 'l', long, env = "CERA_LOGIT_BIAS", value_name = "ID(+/-)BIAS")]
    pub logit_bias: Vec<String>,
}

impl SamplingArgs {
    /// The parameters, checked. Draws a seed where none is given.
    pub fn params(&self) -> Result<Params, Failure> {
        let call = |e: cera_sample::Error| Failure::Call(e.to_string());
        let samplers = match &self.samplers {
            None => Stage::USUAL.to_vec(),
            Some(names) => {
                let names = names.split(';').map(str::trim).filter(|name| !name.is_empty());
                names.map(str::parse).collect::<Result<_, _>>().map_err(call)?
            }
        };
        let dry_sequence_breakers = match self.dry_sequence_breaker.as_slice() {
            [] => Params::default().dry_sequence_breakers,
            [none] if none == "none" => Vec::new(),
            texts => texts.iter().map(|text| unescaped(text)).collect(),
        };
        let params = Params {
            temperature: self.temp,
            dynatemp_range: self.dynatemp_range,
            dynatemp_exponent: self.dynatemp_exp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical,
            top_n_sigma: self.top_nsigma,
            xtc_probability: self.xtc_probability,
            xtc_threshold: self.xtc_threshold,
            repeat_penalty: self.repeat_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            repeat_last_n: self.repeat_last_n,
            dry_multiplier: self.dry_multiplier,
            dry_base: self.dry_base,
            dry_allowed_length: self.dry_allowed_length,
            dry_penalty_last_n: self.dry_penalty_last_n,
            dry_sequence_breakers,
            mirostat: self.mirostat,
            mirostat_tau: self.mirostat_ent,
            mirostat_eta: self.mirostat_lr,
            logit_bias: self.logit_bias.iter().map(|text| bias(text)).collect::<Result<_, _>>()?,
            samplers,
            seed: self.seed.unwrap_or_else(random_seed),
        };
        params.validate().map_err(call)?;
        Ok(params)
    }
}

/// `ID+BIAS` or `ID-BIAS`.
fn bias(text: &str) -> Result<(u32, f32), Failure> {
    let parts = text.find(['+', '-']).and_then(|at| text.split_at_checked(at));
    let read = parts.and_then(|(id, bias)| Some((id.trim().parse().ok()?, bias.parse().ok()?)));
    read.ok_or_else(|| {
        Failure::Call(format!(
            "--logit-bias is `{text}`: it must be a token's id and a signed number, as in 15043-1.5"
        ))
    })
}

/// The text that escapes stand for; a backslash before anything else is one.
fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let meant = match (c, chars.peek()) {
            ('\\', Some('n')) => Some('\n'),
            ('\\', Some('t')) => Some('\t'),
            ('\\', Some('r')) => Some('\r'),
            ('\\', Some('\\')) => Some('\\'),
            _ => None,
        };
        if meant.is_some() {
            chars.next();
        }
        out.push(meant.unwrap_or(c));
    }
    out
}

/// 32 random bits, which any reader of JSON keeps exactly: the standard library seeds its hash maps from the system.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        sampling: SamplingArgs,
    }

    fn params(words: &[&str]) -> Params {
        let words = ["cera"].iter().chain(words);
        <Flags as clap::Parser>::try_parse_from(words).unwrap().sampling.params().unwrap()
    }

    #[test]
    fn every_flag_says_what_it_is_called_for() {
        let seed = 3;
        assert_eq!(params(&["-s", "3"]), Params { seed, ..Params::default() });
        let words = "--seed 3 --temp 0.5 --dynatemp-range 0.1 --dynatemp-exp 2 --top-k 7 --top-p 0.6 --min-p 0.2 \
                     --typical 0.9 --top-nsigma -2 --xtc-probability 0.3 --xtc-threshold 0.4 --repeat-last-n -1 \
                     --repeat-penalty 1.1 --presence-penalty -0.5 --frequency-penalty 0.25 --dry-multiplier 0.8 \
                     --dry-base 1.5 --dry-allowed-length 4 --dry-penalty-last-n 99 --dry-sequence-breaker \\n \
                     --dry-sequence-breaker ; -l 5+1 --logit-bias 6-inf --samplers top-k;TEMP;";
        let words: Vec<&str> = words.split_whitespace().collect();
        let expected = Params {
            temperature: 0.5,
            dynatemp_range: 0.1,
            dynatemp_exponent: 2.0,
            top_k: 7,
            top_p: 0.6,
            min_p: 0.2,
            typical_p: 0.9,
            top_n_sigma: -2.0,
            xtc_probability: 0.3,
            xtc_threshold: 0.4,
            repeat_penalty: 1.1,
            frequency_penalty: 0.25,
            presence_penalty: -0.5,
            repeat_last_n: -1,
            dry_multiplier: 0.8,
            dry_base: 1.5,
            dry_allowed_length: 4,
            dry_penalty_last_n: 99,
            dry_sequence_breakers: vec!["\n".into(), ";".into()],
            mirostat: 0,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            logit_bias: vec![(5, 1.0), (6, f32::NEG_INFINITY)],
            samplers: vec![Stage::TopK, Stage::Temperature],
            seed,
        };
        assert_eq!(params(&words), expected);
        let mirostat = params(&["-s", "3", "--mirostat", "2", "--mirostat-ent", "4", "--mirostat-lr", "0.3"]);
        let expected =
            Params { mirostat: 2, mirostat_tau: 4.0, mirostat_eta: 0.3, seed, ..Params::default() };
        assert_eq!(mirostat, expected);
        let none = params(&["--seed", "3", "--dry-sequence-breaker", "none", "--temperature", "1"]);
        let expected =
            Params { temperature: 1.0, dry_sequence_breakers: Vec::new(), seed, ..Params::default() };
        assert_eq!(none, expected);
    }

    #[test]
    fn biases_are_an_id_and_a_signed_number() {
        assert_eq!(bias("15043+1").ok(), Some((15043, 1.0)));
        assert_eq!(bias("0-1.5e1").ok(), Some((0, -15.0)));
        assert_eq!(bias("7-inf").ok(), Some((7, f32::NEG_INFINITY)));
        for text in ["", "7", "+1", "x-1", "7=1", "7-", "7--1", "-7+1"] {
            assert!(bias(text).is_err(), "{text}");
        }
    }

    #[test]
    fn escapes_are_those_of_c() {
        assert_eq!(unescaped(r"a\n\t\\n\x"), "a\n\t\\n\\x");
        assert_eq!(unescaped("\\"), "\\");
    }
}
