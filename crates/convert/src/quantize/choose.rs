//! Which type each tensor gets.
//!
//! The rules are llama.cpp's (`llama-quant.cpp`), so that a name means the same mix in either program: matrices that errors
//! show most in get more bits, as do those of the first and last blocks in some mixes.

use cera_gguf::{Metadata, TensorInfo};
use cera_quant::Type;

use super::{Mix, Recipe};
use crate::Error;

/// What a matrix is for, as far as rules tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Output,
    Embedding,
    Query,
    Key,
    /// Values, alone or joined with others.
    Value,
    AttentionOutput,
    Up,
    Gate,
    Down,
    Other,
}

/// Parts of names, the first that fits counts.
const ROLES: [(&str, Role); 9] = [
    ("attn_qkv.weight", Role::Value),
    ("attn_kv_b.weight", Role::Value),
    ("attn_v.weight", Role::Value),
    ("attn_k.weight", Role::Key),
    ("attn_q.weight", Role::Query),
    ("attn_output.weight", Role::AttentionOutput),
    ("ffn_up", Role::Up),
    ("ffn_gate", Role::Gate),
    ("ffn_down", Role::Down),
];

impl Role {
    fn of(name: &str) -> Self {
        match name {
            "output.weight" => Self::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => Self::Embedding,
            _ => ROLES.iter().find(|(part, _)| name.contains(part)).map_or(Self::Other, |(_, role)| *role),
        }
    }
}

/// Parts of the names of matrices that are kept as they are: small, or more easily hurt than the size is worth.
const KEPT: [&str; 37] = [
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
    "position_embd.weight",
    "token_types.weight",
];

/// The same in models of one architecture.
const KEPT_OF_GLM5: [&str; 14] = [
    "hc_",
    "indexer.attn_q_b",
    "indexer.attn_k",
    "indexer.proj",
    "indexer_compressor_gate",
    "indexer_compressor_ape",
    "ssm_f_a.weight",
    "ssm_f_b.weight",
    "ssm_g_a.weight",
    "ssm_g_b.weight",
    "ssm_beta.weight",
    "attn_kv_a_mqa.weight",
    "attn_k_b.weight",
    "attn_v_b.weight",
];

/// Architectures with rules of their own.
const FALCON: &str = "falcon";
const GLM5: &str = "glm5-next";
const BAILING: &str = "bailingmoe3";

/// Chooses types of tensors, which have to come in [`order`](place).
pub(super) struct Chooser<'a> {
    recipe: &'a Recipe,
    facts: Facts,
    values: Counter,
    downs: Counter,
    gates: Counter,
    ups: Counter,
}

/// What is known of the model.
struct Facts {
    architecture: String,
    blocks: u32,
    experts: u32,
    /// Query heads that share a head of keys and values.
    group: u32,
    /// Whether it has the shape of Llama 2 and 3 of 70 thousand million weights.
    seventy: bool,
    /// Whether the token embedding is the output matrix too.
    tied: bool,
}

/// How many tensors of a role came, and how many there are.
struct Counter {
    at: u32,
    of: u32,
}

/// The type of a tensor, and whether it is one that its rows fit where that of the mix is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    pub ty: Type,
    pub fallback: bool,
}

/// Where a tensor comes: by block, and by name within.
pub(super) fn place(name: &str) -> (i64, &str) {
    (block(name).map_or(-1, i64::from), name)
}

/// The number of a tensor's block.
fn block(name: &str) -> Option<u32> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

impl<'a> Chooser<'a> {
    /// # Errors
    /// A key of the model is not what it should be.
    pub fn new(recipe: &'a Recipe, metadata: &Metadata, tensors: &[TensorInfo]) -> Result<Self, Error> {
        let facts = Facts::read(metadata, tensors)?;
        let values = tensors.iter().filter(|t| Role::of(&t.name) == Role::Value).count();
        let counter = |of| Counter { at: 0, of };
        Ok(Self {
            recipe,
            values: counter(u32::try_from(values).unwrap_or(u32::MAX)),
            downs: counter(facts.blocks),
            gates: counter(facts.blocks),
            ups: counter(facts.blocks),
            facts,
        })
    }

    /// The type of the next tensor; its own where it is kept as it is.
    ///
    /// # Errors
    /// [`Error::Tensor`].
    pub fn choose(&mut self, t: &TensorInfo) -> Result<Choice, Error> {
        let of = |ty| Choice { ty, fallback: false };
        if !self.may_change(t) {
            return Ok(of(t.ty));
        }
        let (recipe, role) = (self.recipe, Role::of(&t.name));
        let named = recipe.tensors.iter().find(|(pattern, _)| pattern.is_match(&t.name)).map(|(_, ty)| *ty);
        if role == Role::Embedding
            && let Some(ty) = recipe.embedding
            && (named.is_none() || t.name == "token_embd.weight")
        {
            return Ok(of(ty));
        }
        if role == Role::Output
            && let Some(ty) = recipe.output
        {
            return Ok(of(ty));
        }
        let plain = recipe.mix.ty().block_len() == 1;
        let ty = match named {
            Some(ty) => ty,
            None if recipe.pure || plain => recipe.mix.ty(),
            None => self.of_mix(t, role)?,
        };
        fit(t, ty)
    }

    /// Whether a tensor is of those that are encoded.
    fn may_change(&self, t: &TensorInfo) -> bool {
        let name = t.name.as_str();
        let matrix = t.dims.iter().rposition(|&dim| dim != 1).is_some_and(|last| last > 0);
        let glm = self.facts.architecture == GLM5 && KEPT_OF_GLM5.iter().any(|part| name.contains(part));
        matrix
            && name.ends_with("weight")
            && !(self.recipe.leave_output && name == "output.weight")
            && !KEPT.iter().any(|part| name.contains(part))
            && !glm
    }

    /// The type that the mix gives.
    fn of_mix(&mut self, t: &TensorInfo, role: Role) -> Result<Type, Error> {
        use Mix::*;
        let (mix, ty, f) = (self.recipe.mix, self.recipe.mix.ty(), &self.facts);
        const EIGHT_BITS: [&str; 3] = ["attn_q_a", "attn_q_b", "nextn.eh_proj"];
        if f.architecture == GLM5 && EIGHT_BITS.iter().any(|part| t.name.contains(part)) {
            return Ok(Type::Q8_0);
        }
        // Codebooks of two bits and less.
        let two = matches!(mix, IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S | IQ2_M);
        if role == Role::Output || (f.tied && role == Role::Embedding) {
            let whole = t.cols().is_multiple_of(ty.block_len() as u64);
            return Ok(match self.recipe.output {
                Some(ty) => ty,
                None if mix == MXFP4_MOE || f.architecture == FALCON || !whole => Type::Q8_0,
                None if two || mix == IQ3_XXS => Type::Q5_K,
                None if ty == Type::Q8_0 => ty,
                None => Type::Q6_K,
            });
        }
        if mix == MXFP4_MOE {
            let experts = t.dims.get(2).is_some_and(|&n| n > 1);
            let forward = matches!(role, Role::Up | Role::Gate | Role::Down);
            let some = experts && (f.architecture != BAILING || forward);
            return Ok(if some { Type::MXFP4 } else { Type::Q8_0 });
        }
        if role == Role::Embedding {
            return Ok(match mix {
                IQ2_XXS | IQ2_XS | IQ1_S | IQ1_M => Type::Q2_K,
                IQ2_S | IQ2_M | IQ3_XXS => Type::IQ3_S,
                TQ1_0 | TQ2_0 | Q2_0 => Type::Q4_K,
                _ => ty,
            });
        }
        if two { Ok(self.of_two_bits(role)) } else { self.of_role(t, role) }
    }

    /// The same in a mix of codebooks of two bits and less.
    fn of_two_bits(&mut self, role: Role) -> Type {
        use Mix::*;
        let (mix, ty, f) = (self.recipe.mix, self.recipe.mix.ty(), &self.facts);
        let larger = matches!(mix, IQ2_S | IQ2_M);
        let eight = f.experts == 8;
        match role {
            Role::Value if f.group >= 4 || f.experts >= 4 => Type::Q4_K,
            Role::Value if larger => Type::IQ3_S,
            Role::Value => Type::Q2_K,
            Role::Key if eight => Type::Q4_K,
            Role::Down => {
                let (at, of) = self.downs.next();
                match (at < of / 8, larger) {
                    (false, _) => ty,
                    (true, true) => Type::IQ3_S,
                    (true, false) => Type::Q2_K,
                }
            }
            Role::AttentionOutput if eight => Type::Q5_K,
            Role::AttentionOutput if larger => Type::IQ3_S,
            Role::AttentionOutput if matches!(mix, IQ1_S | IQ1_M) => Type::IQ2_XXS,
            _ => ty,
        }
    }

    /// The same in any other mix.
    fn of_role(&mut self, t: &TensorInfo, role: Role) -> Result<Type, Error> {
        use Mix::*;
        let (mix, ty) = (self.recipe.mix, self.recipe.mix.ty());
        let blind = self.recipe.importances.is_none();
        let (experts, group) = (self.facts.experts, self.facts.group);
        let falcon = self.facts.architecture == FALCON;
        Ok(match role {
            Role::Value => {
                let (at, of) = self.values.next();
                let ty = match mix {
                    Q2_K if group < 4 => Type::Q3_K,
                    Q2_K | IQ3_M => Type::Q4_K,
                    Q2_K_S | IQ3_XXS | IQ3_XS | IQ3_S if group >= 4 => Type::Q4_K,
                    IQ3_XXS if blind => Type::IQ3_S,
                    Q3_K_M if at < 2 => Type::Q5_K,
                    Q3_K_M => Type::Q4_K,
                    Q3_K_L => Type::Q5_K,
                    IQ4_NL | IQ4_XS if group >= 4 => Type::Q5_K,
                    Q4_K_M | Q5_K_M if is_marked(at, of) => Type::Q6_K,
                    Q4_K_S if at < 4 => Type::Q5_K,
                    _ => ty,
                };
                match ty {
                    _ if experts == 8 => Type::Q8_0,
                    // Eight heads share them: they are small, and errors in them count for all.
                    Type::Q3_K | Type::Q4_K if self.facts.seventy => Type::Q5_K,
                    ty => ty,
                }
            }
            Role::Key if experts == 8 => Type::Q8_0,
            Role::Key | Role::Query if mix == IQ3_XS => Type::IQ3_XXS,
            Role::Key | Role::Query if mix == IQ3_XXS => Type::IQ2_S,
            Role::Down => {
                let (at, of) = self.downs.place(t, experts)?;
                let early = at < of / 8;
                match mix {
                    Q2_K => Type::Q3_K,
                    Q2_K_S if early => Type::Q4_K,
                    IQ3_XXS if blind && early => Type::Q4_K,
                    IQ3_XXS if blind => Type::Q3_K,
                    Q3_K_M if at < of / 16 => Type::Q5_K,
                    Q3_K_M if !falcon || is_marked(at, of) => Type::Q4_K,
                    IQ3_M if early || (experts == 8 && is_marked(at, of)) => Type::Q4_K,
                    Q3_K_L if falcon => Type::Q4_K,
                    Q3_K_L => Type::Q5_K,
                    Q4_K_M if falcon && at < of / 16 => Type::Q6_K,
                    Q4_K_M if falcon && is_marked(at, of) => Type::Q5_K,
                    Q4_K_M | Q5_K_M if !(falcon && mix == Q4_K_M) && is_marked(at, of) => Type::Q6_K,
                    IQ4_NL | IQ4_XS if early && blind => Type::Q5_K,
                    Q4_K_S if early && !falcon => Type::Q5_K,
                    // By importance these two may go astray in the first blocks; without it they are what they always were.
                    Q4_0 if early && !blind => Type::Q4_1,
                    Q5_0 if early && !blind => Type::Q5_1,
                    _ => ty,
                }
            }
            Role::AttentionOutput if falcon => {
                if mix == Q3_K_L {
                    Type::Q4_K
                } else {
                    ty
                }
            }
            Role::AttentionOutput if experts == 8 => match mix {
                Q2_K | IQ3_XS | IQ3_XXS | Q3_K_S | Q3_K_M | IQ4_NL | Q4_K_S | Q4_K_M | IQ3_S | IQ3_M
                | IQ4_XS => Type::Q5_K,
                _ => ty,
            },
            Role::AttentionOutput => match mix {
                Q2_K => Type::Q3_K,
                IQ3_XXS => Type::IQ3_S,
                Q3_K_M | IQ3_M => Type::Q4_K,
                Q3_K_L => Type::Q5_K,
                _ => ty,
            },
            Role::Gate | Role::Up => {
                let counter = if role == Role::Gate { &mut self.gates } else { &mut self.ups };
                let (at, of) = counter.place(t, experts)?;
                let middle = at >= of / 8 && u64::from(at) < seven_eighths(of);
                if mix == IQ3_XS && middle { Type::IQ3_XXS } else { ty }
            }
            _ => ty,
        })
    }
}

impl Counter {
    /// The number of the next tensor, and of all.
    fn next(&mut self) -> (u32, u32) {
        let at = self.at;
        self.at += 1;
        (at, self.of)
    }

    /// The same; of a model with experts the block's number, since a block may have several tensors of the role.
    fn place(&mut self, t: &TensorInfo, experts: u32) -> Result<(u32, u32), Error> {
        let (at, of) = self.next();
        if experts <= 1 {
            return Ok((at, of));
        }
        let number = block(&t.name).filter(|&number| number < of);
        let number =
            number.ok_or_else(|| Error::tensor(&t.name, format!("it belongs to none of the {of} blocks")))?;
        Ok((number, of))
    }
}

impl Facts {
    fn read(metadata: &Metadata, tensors: &[TensorInfo]) -> Result<Self, Error> {
        let architecture = metadata.need::<&str>("general.architecture")?.to_owned();
        let key = |rest: &str| format!("{architecture}.{rest}");
        let blocks = metadata.u32(&key("block_count"))?.unwrap_or(0);
        let heads = first(metadata, &key("attention.head_count"))?.unwrap_or(0);
        let shared = first(metadata, &key("attention.head_count_kv"))?.unwrap_or(heads);
        let seventy = match architecture.as_str() {
            "llama" => blocks == 80 && heads != shared,
            "qwen2" | "deci" | "olmo" => blocks == 80,
            "jais2" => blocks == 68,
            _ => false,
        };
        Ok(Self {
            blocks,
            experts: metadata.u32(&key("expert_count"))?.unwrap_or(0),
            group: heads.checked_div(shared).unwrap_or(0),
            seventy,
            tied: tensors.iter().all(|t| Role::of(&t.name) != Role::Output),
            architecture,
        })
    }
}

/// A number, or the first of one for each block.
fn first(metadata: &Metadata, key: &str) -> Result<Option<u32>, Error> {
    match metadata.get(key) {
        Some(cera_gguf::Value::Array(_)) => {
            Ok(metadata.i32s(key)?.and_then(|all| u32::try_from(*all.first()?).ok()))
        }
        _ => Ok(metadata.u32(key)?),
    }
}

/// Whether a tensor is one of those that get more bits: the first and the last eighth, and every third between.
fn is_marked(at: u32, of: u32) -> bool {
    let eighth = of / 8;
    at < eighth || u64::from(at) >= seven_eighths(of) || (at - eighth) % 3 == 2
}

fn seven_eighths(of: u32) -> u64 {
    7 * u64::from(of) / 8
}

/// The type where a tensor's rows are whole blocks of it, and one of about as many bits that fits where they are not.
fn fit(t: &TensorInfo, ty: Type) -> Result<Choice, Error> {
    use Type::*;
    let fits = |ty: Type| t.cols().is_multiple_of(ty.block_len() as u64);
    if fits(ty) {
        return Ok(Choice { ty, fallback: false });
    }
    let other = match ty {
        IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS | IQ3_S | IQ4_XS => IQ4_NL,
        Q2_0 | Q2_K | Q3_K | TQ1_0 | TQ2_0 => Q4_0,
        Q4_K => Q5_0,
        Q5_K => Q5_1,
        Q6_K => Q8_0,
        _ if ty.block_len() <= 32 => F16,
        _ => {
            let (cols, block) = (t.cols(), ty.block_len());
            return Err(Error::tensor(
                &t.name,
                format!("its rows of {cols} are not whole blocks of {block}, as {ty} has them"),
            ));
        }
    };
    Ok(Choice { ty: if fits(other) { other } else { F16 }, fallback: true })
}
