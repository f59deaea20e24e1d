//! Kinds of models: what their keys and tensors are called in a folder and in a GGUF file. One file a group of kin.
//!
//! Names, orders and types are those that llama.cpp's converter gives, so that a folder and the file made of it are the
//! same model.

mod gemma;
mod granite;
mod keys;
mod llama;
mod moe;
mod qwen;

use serde_json::Value;

use crate::Error;
use crate::config::Config;
use crate::numbers::Each;
use crate::view::View;

pub(crate) use keys::Keys;

/// A kind of model.
pub(crate) struct Family {
    /// Its name in GGUF files.
    pub architecture: &'static str,
    /// The classes of transformers that it is.
    pub classes: &'static [&'static str],
    /// What transformers takes for keys that `config.json` leaves out, where it is not nothing.
    pub defaults: fn() -> Value,
    /// Writes keys beyond those that all have, and refuses what would change the result and has no key.
    pub keys: fn(&Config, &mut Keys) -> Result<(), Error>,
    /// What becomes of a tensor.
    pub tensor: fn(&Config, &Found<'_>) -> Result<Fate, Error>,
    /// Tensors that are computed: name and numbers.
    pub made: fn(&Config) -> Result<Vec<Computed>, Error>,
}

/// A tensor that no folder has: its name in GGUF files, and its numbers.
pub(crate) type Computed = (&'static str, Vec<f32>);

/// All of them.
static TABLE: &[&Family] = &[
    &llama::LLAMA,
    &llama::MISTRAL3,
    &llama::SMOLLM3,
    &qwen::QWEN2,
    &qwen::QWEN3,
    &moe::QWEN2MOE,
    &moe::QWEN3MOE,
    &moe::OLMOE,
    &moe::ERNIE,
    &granite::GRANITE,
    &granite::GRANITEMOE,
    &gemma::GEMMA3,
];

/// The kind of a class, and the class as the table has it.
///
/// # Errors
/// [`Error::Class`].
pub(crate) fn find(class: &str) -> Result<(&'static Family, &'static str), Error> {
    let of = |family: &&'static Family| {
        let name = family.classes.iter().find(|name| **name == class)?;
        Some((*family, *name))
    };
    let supported = || classes().collect::<Vec<_>>().join(", ");
    TABLE.iter().find_map(of).ok_or_else(|| Error::Class { found: class.into(), supported: supported() })
}

/// The classes of models whose folders can be read, as `config.json` names them under `architectures`.
pub fn classes() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|family| family.classes).copied()
}

/// No tensors are computed.
fn none_made(_: &Config) -> Result<Vec<Computed>, Error> {
    Ok(vec![])
}

/// A tensor of the folder.
pub(crate) struct Found<'a> {
    /// Its name without what stands before the names of a model for text alone.
    pub name: &'a str,
    /// The block that it belongs to.
    pub block: Option<u32>,
    /// Its name within the block, or the whole name.
    pub rest: &'a str,
    /// Sizes, the one that varies fastest last.
    pub dims: &'a [u64],
}

/// What becomes of a tensor.
pub(crate) enum Fate {
    /// It is no part of the model for text.
    Drop,
    /// No model of the kind has it.
    Unknown,
    /// It becomes these.
    Parts(Vec<Part>),
}

/// A tensor of the model, or one expert's share of it.
pub(crate) struct Part {
    /// The name in a GGUF file.
    pub name: String,
    /// Whose share it is.
    pub expert: Option<u32>,
    pub view: View,
    /// Sizes, the one that varies fastest first.
    pub dims: Vec<u64>,
    pub each: Each,
}

impl<'a> Found<'a> {
    pub fn new(name: &'a str, dims: &'a [u64]) -> Self {
        let name = ["model.language_model.", "language_model.model."]
            .iter()
            .find_map(|long| name.strip_prefix(long))
            .unwrap_or_else(|| name.strip_prefix("language_model.").unwrap_or(name));
        let name = name.strip_prefix("model.").unwrap_or(name);
        let numbered = || {
            let (number, rest) = name.strip_prefix("layers.")?.split_once('.')?;
            Some((number.parse().ok()?, rest))
        };
        match numbered() {
            Some((block, rest)) => Self { name, block: Some(block), rest, dims },
            None => Self { name, block: None, rest: name, dims },
        }
    }

    /// The whole tensor, under a name of a GGUF file without its block's number and its ending.
    pub fn to(&self, stem: &str) -> Part {
        self.whole(&format!("{stem}{}", self.ending()))
    }

    /// The whole tensor, under a name of a GGUF file without its block's number.
    pub fn whole(&self, name: &str) -> Part {
        let name = match self.block {
            Some(block) => format!("blk.{block}.{name}"),
            None => name.into(),
        };
        let dims = self.dims.iter().rev().copied().collect();
        Part { name, expert: None, view: View::whole(self.dims), dims, each: Each::Same }
    }

    /// `.weight` or `.bias`, whichever the name ends with.
    fn ending(&self) -> &'static str {
        if self.rest.ends_with(".bias") { ".bias" } else { ".weight" }
    }

    /// The name without `.weight` or `.bias`.
    pub fn stem(&self) -> &'a str {
        let stem = self.rest.strip_suffix(".weight").or_else(|| self.rest.strip_suffix(".bias"));
        stem.unwrap_or(self.rest)
    }

    /// What a table of stems makes of it.
    pub fn named(&self, names: &[(&str, &str)]) -> Option<Part> {
        let stem = self.stem();
        names.iter().find(|(from, _)| *from == stem).map(|(_, to)| self.to(to))
    }

    /// What most models have, under the names that most have.
    pub fn usual(&self) -> Option<Part> {
        self.named(if self.block.is_some() { BLOCK } else { ENDS })
    }

    /// The error that the tensor does not have the sizes of its place.
    pub fn misfit(&self) -> Error {
        Error::tensor(self.name, format!("its sizes {:?} are not those of its place in the model", self.dims))
    }
}

impl Part {
    /// From the order in which the two halves of each head turn together to that in which neighbours do.
    pub fn neighbours(mut self, t: &Found<'_>, heads: u32) -> Result<Self, Error> {
        if let [rows] = t.dims {
            self.view = View::whole(&[*rows, 1]);
        }
        self.view = self.view.neighbours(heads.into()).ok_or_else(|| t.misfit())?;
        Ok(self)
    }

    /// One of two tensors that are stored as one, whose rows come one behind the other's.
    pub fn half(mut self, t: &Found<'_>, number: u64) -> Result<Self, Error> {
        let rows = self.dims.get_mut(1).ok_or_else(|| t.misfit())?;
        *rows /= 2;
        self.view = self.view.part(2, number).ok_or_else(|| t.misfit())?;
        Ok(self)
    }

    /// The share of an expert.
    pub fn of_expert(mut self, number: u32) -> Self {
        self.expert = Some(number);
        self
    }
}

impl From<Option<Part>> for Fate {
    fn from(part: Option<Part>) -> Self {
        part.map_or(Fate::Unknown, Fate::from)
    }
}

impl From<Part> for Fate {
    fn from(part: Part) -> Self {
        Fate::Parts(vec![part])
    }
}

/// Outside of blocks.
const ENDS: &[(&str, &str)] =
    &[("embed_tokens", "token_embd"), ("norm", "output_norm"), ("lm_head", "output")];

/// In a block.
const BLOCK: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("self_attn.o_proj", "attn_output"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// Usual tensors, the rows of queries and keys put so that neighbours turn together.
fn interleaved(c: &Config, t: &Found<'_>) -> Result<Option<Part>, Error> {
    let heads = match t.stem() {
        "self_attn.q_proj" => c.need("num_attention_heads")?,
        "self_attn.k_proj" => c.count(&["num_key_value_heads", "num_attention_heads"])?.unwrap_or(0),
        _ => return Ok(t.usual()),
    };
    t.usual().map(|part| part.neighbours(t, heads)).transpose()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_class_is_of_one_kind() {
        let all: Vec<&str> = classes().collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert!(find("NoSuchModel").err().unwrap().to_string().contains("LlamaForCausalLM"));
    }

    #[test]
    fn names_are_those_of_the_model_for_text() {
        for long in ["model.layers.3.mlp.up_proj.weight", "model.language_model.layers.3.mlp.up_proj.weight"]
        {
            let found = Found::new(long, &[4, 2]);
            assert_eq!((found.block, found.rest), (Some(3), "mlp.up_proj.weight"));
            let part = found.usual().unwrap();
            assert_eq!(
                (part.name.as_str(), part.dims.as_slice()),
                ("blk.3.ffn_up.weight", [2, 4].as_slice())
            );
        }
        assert_eq!(Found::new("language_model.lm_head.weight", &[1]).usual().unwrap().name, "output.weight");
        assert!(Found::new("model.layers.x.mlp.up_proj.weight", &[1]).usual().is_none());
    }
}
