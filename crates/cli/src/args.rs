//! Flags that several commands share. Every one has a twin in the environment.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::grammar::GrammarArgs;
use crate::sampling::SamplingArgs;

/// Which model, and how it is loaded.
#[derive(Args, Clone, Debug)]
pub struct ModelArgs {
    /// The model: a path to a GGUF file or a Hugging Face folder, or a short name (`cera list` shows them).
    #[arg(short, long, env = "CERA_MODEL")]
    pub model: String,
    /// What the model runs on. `reference` is slow and exact: it defines what is right.
    #[arg(long, env = "CERA_DEVICE", value_enum, default_value_t = Device::Cpu)]
    pub device: Device,
    /// CPU threads [default: one a physical core that this process may use].
    #[arg(short, long, env = "CERA_THREADS")]
    pub threads: Option<NonZeroUsize>,
    /// CPU instructions to use [default: the best that the machine has].
    #[arg(long, env = "CERA_CPU_TIER", value_enum)]
    pub cpu_tier: Option<Tier>,
    /// The most tokens of prompt and answer together [default: the model's own, at most 4096].
    #[arg(short, long, env = "CERA_CONTEXT", value_name = "TOKENS")]
    pub context: Option<NonZeroUsize>,
    /// Prompt tokens that go through the model in one step; does not change the answer [default: 512].
    #[arg(long, env = "CERA_CHUNK", value_name = "TOKENS")]
    pub chunk: Option<NonZeroUsize>,
    /// How the cache of keys and values keeps its numbers: `q8_0` takes about half of the memory of `f16`, `q4_0` a quarter.
    #[arg(long, env = "CERA_CACHE_TYPE", value_enum, default_value_t = CacheType::F16, value_name = "TYPE")]
    pub cache_type: CacheType,
    /// How it keeps keys, where not as --cache-type says (-ctk).
    #[arg(long, env = "CERA_CACHE_TYPE_K", value_enum, value_name = "TYPE")]
    pub cache_type_k: Option<CacheType>,
    /// How it keeps values, where not as --cache-type says (-ctv).
    #[arg(long, env = "CERA_CACHE_TYPE_V", value_enum, value_name = "TYPE")]
    pub cache_type_v: Option<CacheType>,
    /// Split text as this pre-tokenizer does, in place of the one that the file names.
    #[arg(long, env = "CERA_PRE", value_name = "NAME")]
    pub pre: Option<String>,
    /// Quantize the model to this mix of types while it is loaded, such as q4_k_m; for folders and files of floats.
    #[arg(long, env = "CERA_QUANT", value_name = "MIX")]
    pub quant: Option<cera::Mix>,
}

impl ModelArgs {
    /// All but the model itself, in the words that another process takes.
    pub fn words(&self) -> Vec<String> {
        let ModelArgs { model: _, device, threads, cpu_tier, context, chunk, pre, .. } = self;
        let ModelArgs { cache_type, cache_type_k, cache_type_v, quant, .. } = self;
        let number = |n: &Option<NonZeroUsize>| n.map(|n| n.to_string());
        let flags = [
            ("--device", value_name(device)),
            ("--threads", number(threads)),
            ("--cpu-tier", cpu_tier.as_ref().and_then(value_name)),
            ("--context", number(context)),
            ("--chunk", number(chunk)),
            ("--cache-type", value_name(cache_type)),
            ("--cache-type-k", cache_type_k.as_ref().and_then(value_name)),
            ("--cache-type-v", cache_type_v.as_ref().and_then(value_name)),
            ("--pre", pre.clone()),
            ("--quant", quant.map(|mix| mix.to_string())),
        ];
        let words = flags.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
        words.flatten().collect()
    }
}

/// Where beginnings of prompts are kept between runs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Prompts that were read before")]
pub struct DiskArgs {
    /// Keep what the cache holds of prompts in this folder, and go on from it where a prompt begins like a former one, also
    /// after a restart.
    #[arg(long, env = "CERA_PROMPT_CACHE", value_name = "FOLDER")]
    pub prompt_cache: Option<PathBuf>,
    /// The most bytes of its files; K, M and G stand for thousands, millions and thousands of millions.
    #[arg(long, env = "CERA_PROMPT_CACHE_SIZE", value_name = "BYTES", default_value = "8G", value_parser = size)]
    pub prompt_cache_size: u64,
}

impl DiskArgs {
    /// The engine's option.
    pub fn options(&self) -> Option<cera::DiskOptions> {
        let folder = self.prompt_cache.clone()?;
        Some(cera::DiskOptions { folder, bytes: self.prompt_cache_size })
    }
}

/// A number of bytes.
fn size(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (text.get(..at), 1_000),
        Some((at, 'M' | 'm')) => (text.get(..at), 1_000_000),
        Some((at, 'G' | 'g')) => (text.get(..at), 1_000_000_000),
        _ => (Some(text), 1),
    };
    let number = digits.and_then(|d| d.parse::<u64>().ok()).and_then(|n| n.checked_mul(factor));
    number.ok_or_else(|| "a number of bytes is like 500000, 500M or 8G".into())
}

/// Flags of one dash and several letters, as llama.cpp has them, and what they are called here.
const LETTERS: [(&str, &str); 2] = [("-ctk", "--cache-type-k"), ("-ctv", "--cache-type-v")];

/// The words of a call, with llama.cpp's flags of several letters written out: to the parser `-ctk` would be `-c tk`.
pub fn long_flags(words: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut flags = true;
    words.map(move |word| {
        flags &= word != "--";
        let long = LETTERS.iter().find(|(letters, _)| flags && word == *letters);
        long.map_or(word, |(_, long)| long.into())
    })
}

/// A value as its flag takes it.
pub fn value_name(value: &impl ValueEnum) -> Option<String> {
    value.to_possible_value().map(|v| v.get_name().to_owned())
}

/// What a model runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Device {
    /// The processor.
    Cpu,
    /// Plain loops in double precision.
    Reference,
}

/// How the numbers of the cache are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[allow(missing_docs, reason = "each variant is its name")]
pub enum CacheType {
    F32,
    F16,
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q4_0")]
    Q4_0,
}

/// Instruction sets of the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[allow(missing_docs, reason = "each variant is its name")]
pub enum Tier {
    Scalar,
    Avx2,
    #[value(name = "avxvnni")]
    AvxVnni,
    Avx512,
    Neon,
}

/// How long an answer may be, and what ends it.
#[derive(Args, Clone, Debug)]
pub struct AnswerArgs {
    /// The most tokens to generate; -1 goes on until the model ends or the context is full.
    #[arg(short = 'n', long, env = "CERA_TOKENS", default_value = "-1", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i64).range(-1..))]
    pub tokens: i64,
    /// The fewest tokens to generate: until then the model cannot end its answer, and no --stop counts.
    #[arg(long, env = "CERA_MIN_TOKENS", default_value = "0", value_name = "TOKENS")]
    pub min_tokens: usize,
    /// End the answer at this text, which is not shown. May be given several times.
    #[arg(long, env = "CERA_STOP", value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Go on where the model would end its answer.
    #[arg(long, env = "CERA_IGNORE_EOS", value_parser = FalseyValueParser::new())]
    pub ignore_eos: bool,
    /// With --json: each token's logarithmic probability, and those of the N most likely tokens in its place.
    #[arg(long, env = "CERA_LOGPROBS", value_name = "N")]
    pub logprobs: Option<usize>,
    #[command(flatten)]
    pub grammar: GrammarArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
}

impl AnswerArgs {
    /// The engine's request. Draws a seed where none is given.
    pub fn request(&self) -> Result<cera::Request, Failure> {
        let sampling = self.sampling.params()?;
        if self.stop.iter().any(String::is_empty) {
            return Err(Failure::Call(
                "--stop needs a text: an empty one would stop every answer at once".into(),
            ));
        }
        Ok(cera::Request {
            sampling,
            max_tokens: usize::try_from(self.tokens).ok(),
            stop: self.stop.clone(),
            min_tokens: self.min_tokens,
            ignore_eog: self.ignore_eos,
            grammar: self.grammar.grammar()?,
            logprobs: self.logprobs,
            ..cera::Request::default()
        })
    }
}

/// How a conversation becomes text.
#[derive(Args, Clone, Debug)]
pub struct TemplateArgs {
    /// Use the chat template in this file, in place of the model's own.
    #[arg(long, env = "CERA_CHAT_TEMPLATE", value_name = "FILE")]
    pub chat_template: Option<PathBuf>,
    /// What the model is told before the conversation.
    #[arg(long, env = "CERA_SYSTEM", value_name = "TEXT")]
    pub system: Option<String>,
}

/// Where a text comes from: exactly one of these.
#[derive(Args, Clone, Debug)]
pub struct InputArgs {
    /// The text.
    #[arg(short, long, env = "CERA_PROMPT", value_name = "TEXT", group = "input")]
    pub prompt: Option<String>,
    /// A file that holds it; `-` is standard input.
    #[arg(short, long, env = "CERA_FILE", group = "input")]
    pub file: Option<PathBuf>,
    /// Token ids in its place, with commas or blanks between them.
    #[arg(long, env = "CERA_IDS", group = "input")]
    pub ids: Option<String>,
}

/// How plain text becomes tokens.
#[derive(Args, Clone, Copy, Debug)]
pub struct PlainTextArgs {
    /// Leave out the tokens that the file asks for before and behind every text.
    #[arg(long, env = "CERA_NO_SPECIAL", value_parser = FalseyValueParser::new())]
    pub no_special: bool,
    /// Read the names of special tokens in the text as these tokens; otherwise they are text like any other.
    #[arg(long, env = "CERA_PARSE_SPECIAL", value_parser = FalseyValueParser::new())]
    pub parse_special: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_letters() {
        let cases = [("0", 0), ("12", 12), ("3K", 3_000), ("500m", 500_000_000), ("8G", 8_000_000_000)];
        for (text, bytes) in cases {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1", "1.5G", "8T", "99999999999G", "8é"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
