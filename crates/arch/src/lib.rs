//! From a checkpoint to a plan: one file per family, and the table of their names.
//!
//! Whatever in a file changes what its model computes is either in the plan or an error that names it: keys that
//! are known to and are not implemented, and every tensor that the plan does not read.
#![forbid(unsafe_code)]

mod bert;
mod config;
mod deepseek2;
mod error;
mod falcon_h1;
mod feed_forward;
mod gemma;
mod gemma3n;
mod gemma4;
mod gpt;
mod gpt_oss;
mod granite_hybrid;
mod joined;
mod lfm2;
mod llama;
mod mamba;
mod modern_bert;
mod pooling;
mod qwen35;
mod ssm;
mod yarn;

pub use error::Error;
pub use pooling::Pooling;

use std::collections::HashSet;

use cera_gguf::Checkpoint;
use cera_plan::{Act, Asked, Plan, RopeStyle, Scoring, TensorShape, Tensors};
use config::{Config, LONG_FACTORS};
use feed_forward::{Choice, SOFTMAX, Unit};
use llama::{Family, LLAMA, Local, QueryNorms, Windows};

/// Records the plan of a file whose common keys have been read.
type Build = fn(&Config<'_>, &dyn Tensors) -> Result<Plan, Error>;

/// The names that files give in `general.architecture`, and what builds them.
const TABLE: &[(&str, Build)] = &[
    ("arcee", |c, t| llama::build(c, t, &Family { unit: Unit::Plain(Act::Relu2), experts: None, ..LLAMA })),
    ("bert", bert::build),
    ("chatglm", |c, t| llama::build(c, t, &Family { unit: Unit::Joined(Act::Silu), experts: None, ..LLAMA })),
    ("cohere2", |c, t| gpt::build(c, t, &gpt::COHERE2)),
    ("command-r", |c, t| gpt::build(c, t, &gpt::COMMAND_R)),
    (deepseek2::NAME, deepseek2::build),
    ("gemma-embedding", gemma::encoder),
    ("exaone", |c, t| llama::build(c, t, &HALVED)),
    ("exaone4", |c, t| {
        let windows = Windows::Local(4, Local::AlonePlaced);
        llama::build(c, t, &Family { query_norms: QueryNorms::Heads, windows, ..BEHIND })
    }),
    ("falcon", |c, t| gpt::build(c, t, &gpt::FALCON)),
    ("falcon-h1", falcon_h1::build),
    ("gemma", gemma::build1),
    ("gemma2", gemma::build2),
    ("gemma3", gemma::build3),
    ("gemma3n", gemma3n::build),
    (gemma4::NAME, gemma4::build),
    ("glm4", |c, t| {
        llama::build(
            c,
            t,
            &Family { unit: Unit::Joined(Act::Silu), norms_behind: true, experts: None, ..LLAMA },
        )
    }),
    ("glm4moe", |c, t| {
        llama::build(c, t, &Family { norms: SECOND_BEHIND_ATTENTION, experts: Some(JUDGED), ..HALVED })
    }),
    ("gpt2", |c, t| gpt::build(c, t, &gpt::GPT2)),
    ("gptneox", gpt::neox),
    ("gpt-oss", gpt_oss::build),
    ("ernie4_5", |c, t| llama::build(c, t, &Family { experts: None, ..LLAMA })),
    ("ernie4_5-moe", |c, t| llama::build(c, t, &Family { ..LLAMA })),
    ("granite", |c, t| llama::build(c, t, &Family { scales: true, experts: None, ..LLAMA })),
    ("granitemoe", |c, t| llama::build(c, t, &Family { scales: true, ..LLAMA })),
    ("granitehybrid", granite_hybrid::build),
    ("hunyuan-dense", |c, t| llama::build(c, t, &Family { query_norms: QueryNorms::Turned, ..HALVED })),
    ("internlm2", |c, t| llama::build(c, t, &Family { experts: None, ..LLAMA })),
    ("jais2", |c, t| gpt::build(c, t, &gpt::NEMOTRON)),
    ("lfm2", lfm2::build),
    ("lfm2moe", lfm2::build_moe),
    ("llama", |c, t| llama::build(c, t, &Family { windows: Windows::Every, ..LLAMA })),
    ("mamba", mamba::build),
    ("mamba2", mamba::build2),
    ("minicpm", llama::minicpm),
    ("modern-bert", modern_bert::build),
    ("jina-bert-v2", bert::build_jina),
    ("nomic-bert", bert::build_nomic),
    ("mistral3", |c, t| llama::build(c, t, &Family { windows: Windows::Every, ..LLAMA })),
    ("nemotron", |c, t| gpt::build(c, t, &gpt::NEMOTRON)),
    ("olmo2", |c, t| {
        let windows = Windows::Local(4, Local::Unscaled);
        llama::build(c, t, &Family { query_norms: QueryNorms::Row, windows, ..BEHIND })
    }),
    ("olmoe", |c, t| {
        let query_norms = QueryNorms::Row;
        llama::build(c, t, &Family { query_norms, experts: Some(UNEVEN), ..HALVED })
    }),
    ("phi2", |c, t| gpt::build(c, t, &gpt::PHI)),
    ("phi3", |c, t| {
        llama::build(c, t, &Family { unit: Unit::Joined(Act::Silu), windows: Windows::Every, ..HALVED })
    }),
    ("qwen", |c, t| llama::build(c, t, &HALVED)),
    ("qwen2", |c, t| llama::build(c, t, &HALVED)),
    ("qwen2moe", |c, t| llama::build(c, t, &Family { experts: Some(UNEVEN), ..HALVED })),
    ("qwen2vl", |c, t| of_text(c, t, &HALVED)),
    ("qwen3", |c, t| llama::build(c, t, &Family { query_norms: QueryNorms::Heads, ..HALVED })),
    ("qwen3moe", |c, t| {
        let query_norms = QueryNorms::Heads;
        llama::build(c, t, &Family { query_norms, experts: Some(SOFTMAX), ..HALVED })
    }),
    ("qwen35", qwen35::build),
    ("qwen35moe", qwen35::build_moe),
    ("qwen3next", qwen35::build_next),
    ("qwen3vl", |c, t| of_text(c, t, &Family { query_norms: QueryNorms::Heads, ..HALVED })),
    ("qwen3vlmoe", |c, t| {
        let query_norms = QueryNorms::Heads;
        of_text(c, t, &Family { query_norms, experts: Some(SOFTMAX), ..HALVED })
    }),
    ("seed_oss", |c, t| llama::build(c, t, &Family { norms: SECOND_BEHIND_ATTENTION, ..HALVED })),
    ("smollm3", |c, t| llama::build(c, t, &Family { no_rope_every: Some(4), experts: None, ..LLAMA })),
    ("stablelm", |c, t| gpt::build(c, t, &gpt::STABLELM)),
    ("starcoder", |c, t| gpt::build(c, t, &gpt::GPT2)),
    ("starcoder2", |c, t| gpt::build(c, t, &gpt::STARCODER2)),
];

/// The text model of one that sees: in text all sections of the rope have one position (Qwen 2 VL, arXiv:2409.12191), and no
/// picture's rows are added to the first blocks' (Qwen 3 VL, arXiv:2511.21631).
fn of_text(c: &Config<'_>, tensors: &dyn Tensors, family: &Family) -> Result<Plan, Error> {
    c.heed("rope.dimension_sections");
    llama::build(c, tensors, family)
}

/// Llama with rows that are not permuted, and dense.
const HALVED: Family = Family { style: RopeStyle::Halved, experts: None, ..LLAMA };

/// The norms before the halves of a block, where the second has the name that is elsewhere that of one behind attention.
const SECOND_BEHIND_ATTENTION: Option<[&str; 2]> = Some(["attn_norm", "post_attention_norm"]);

/// Norms behind the halves of a block and none before (OLMo 2, arXiv:2501.00656; EXAONE 4, arXiv:2507.11407).
const BEHIND: Family = Family { norms: None, norms_behind: true, ..HALVED };

/// Experts by softmax, whose weights are left as they are.
const UNEVEN: Choice = Choice { normalised: false, ..SOFTMAX };

/// Experts by sigmoids (GLM 4.5, arXiv:2508.06471).
const JUDGED: Choice = Choice { scoring: Scoring::Sigmoid, ..SOFTMAX };

/// A checkpoint's model.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// What it computes.
    pub plan: Plan,
    /// The architecture's name, as the file gives it.
    pub architecture: &'static str,
    /// Positions that it was trained for.
    pub context_length: usize,
    /// What it gives of a sequence's rows; `None` where it gives logits.
    pub pooling: Option<Pooling>,
}

/// The architectures whose rows see later ones. They give embeddings and nothing else.
const ENCODERS: &[&str] = &["bert", "gemma-embedding", "jina-bert-v2", "modern-bert", "nomic-bert"];

/// What embeddings and scores do without: the matrix that makes logits of rows.
const LOGITS: &str = "output.";

/// What makes scores of pairs of texts of rows.
const SCORES: &str = "cls.";

/// The architectures that can be built, by the names that files give them.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(name, _)| *name)
}

/// Records the plan of the model in a file: for logits, or for the embeddings that the file says it is for. Reads keys and tensor descriptions, and no tensor's data.
///
/// # Errors
/// [`Error`]: the file is of no known architecture, or its numbers and tensors do not make such a model.
pub fn build(file: &dyn Checkpoint) -> Result<Model, Error> {
    build_for(file, &Purpose::default())
}

/// What a model is built for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Purpose {
    /// Embeddings of this kind. `None`: what the file says it is for.
    pub pooling: Option<Pooling>,
    /// How many positions a text may have. `None`: as many as the model was trained for. Some models turn heads otherwise
    /// where texts may be longer than those that they learned from first (Phi 3 and 4 with LongRoPE).
    pub positions: Option<usize>,
}

/// The same, for a purpose.
///
/// # Errors
/// As [`build`].
pub fn build_for(file: &dyn Checkpoint, purpose: &Purpose) -> Result<Model, Error> {
    let found: &str = file.metadata().need("general.architecture")?;
    let Some(&(architecture, build)) = TABLE.iter().find(|(name, _)| *name == found) else {
        let supported = architectures().collect::<Vec<_>>().join(", ");
        return Err(Error::Architecture { found: found.to_owned(), supported });
    };
    let encoder = ENCODERS.contains(&architecture);
    let config = Config::read(file, architecture, encoder, purpose.positions)?;
    let of_file = config.pooling()?.or(encoder.then_some(Pooling::None));
    let pooling = purpose.pooling.or(of_file);
    let mean_scored = config.scores_mean()?;
    let asked = pooling.map_or(Asked::Logits, |pooling| pooling.asked(mean_scored));
    let plan = build(&config, &FileTensors { file, asked });
    config.refuse_unread()?;
    let plan = plan?;
    let used: HashSet<&str> = plan.weights.iter().map(|w| w.name.as_str()).collect();
    let divisors = LONG_FACTORS.map(|name| format!("{name}.weight"));
    let is_divisors = |name: &str| divisors.iter().any(|divisors| divisors == name);
    // The other set of the two is for texts of another length.
    let has_divisors = used.iter().any(|name| is_divisors(name));
    let unneeded = |name: &str| {
        config.may_be_unused(name)
            || has_divisors && is_divisors(name)
            || pooling.is_some() && name.starts_with(LOGITS)
            || pooling.is_some_and(|pooling| pooling != Pooling::Rank) && name.starts_with(SCORES)
    };
    let unused = file.tensors().iter().find(|t| !used.contains(t.name.as_str()) && !unneeded(&t.name));
    if let Some(unused) = unused {
        return Err(Error::Unused { architecture, tensor: unused.name.clone() });
    }
    Ok(Model { plan, architecture, context_length: config.context_length, pooling })
}

/// The tensors of a checkpoint, as a graph asks for them.
struct FileTensors<'a> {
    file: &'a dyn Checkpoint,
    asked: Asked,
}

impl Tensors for FileTensors<'_> {
    fn find(&self, name: &str) -> Option<TensorShape> {
        let tensor = self.file.tensor(name)?;
        // Each dimension fits: the reader compared their product with the file's size.
        let dims = tensor.dims.iter().map(|&d| usize::try_from(d).unwrap_or(usize::MAX)).collect();
        Some(TensorShape { ty: tensor.ty, dims })
    }

    fn asked(&self) -> Asked {
        self.asked
    }
}
