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
mod gpt;
mod gpt_oss;
mod granite_hybrid;
mod joined;
mod lfm2;
mod llama;
mod mamba;
mod pooling;
mod qwen35;
mod ssm;
mod yarn;

pub use error::Error;
pub use pooling::Pooling;

use std::collections::HashSet;

use cera_gguf::Checkpoint;
use cera_plan::{Asked, Plan, RopeStyle, Scoring, TensorShape, Tensors};
use config::Config;
use feed_forward::{Choice, SOFTMAX};
use llama::{Family, LLAMA, QueryNorms};

/// Records the plan of a file whose common keys have been read.
type Build = fn(&Config<'_>, &dyn Tensors) -> Result<Plan, Error>;

/// The names that files give in `general.architecture`, and what builds them.
const TABLE: &[(&str, Build)] = &[
    ("bert", bert::build),
    ("cohere2", |c, t| gpt::build(c, t, &gpt::COHERE2)),
    ("command-r", |c, t| gpt::build(c, t, &gpt::COMMAND_R)),
    (deepseek2::NAME, deepseek2::build),
    ("gemma-embedding", gemma::encoder),
    ("falcon", |c, t| gpt::build(c, t, &gpt::FALCON)),
    ("falcon-h1", falcon_h1::build),
    ("gemma", gemma::build1),
    ("gemma2", gemma::build2),
    ("gemma3", gemma::build3),
    ("glm4moe", |c, t| {
        llama::build(c, t, &Family { second_norm: "post_attention_norm", experts: Some(JUDGED), ..HALVED })
    }),
    ("gpt2", |c, t| gpt::build(c, t, &gpt::GPT2)),
    ("gptneox", gpt::neox),
    ("gpt-oss", gpt_oss::build),
    ("ernie4_5-moe", |c, t| llama::build(c, t, &Family { window: false, ..LLAMA })),
    ("granite", |c, t| llama::build(c, t, &Family { window: false, scales: true, experts: None, ..LLAMA })),
    ("granitemoe", |c, t| llama::build(c, t, &Family { window: false, scales: true, ..LLAMA })),
    ("granitehybrid", granite_hybrid::build),
    ("lfm2", lfm2::build),
    ("lfm2moe", lfm2::build_moe),
    ("llama", |c, t| llama::build(c, t, &LLAMA)),
    ("mamba", mamba::build),
    ("mamba2", mamba::build2),
    ("mistral3", |c, t| llama::build(c, t, &LLAMA)),
    ("olmoe", |c, t| {
        let query_norms = QueryNorms::Row;
        llama::build(c, t, &Family { query_norms, experts: Some(UNEVEN), ..HALVED })
    }),
    ("phi2", |c, t| gpt::build(c, t, &gpt::PHI)),
    ("qwen2", |c, t| llama::build(c, t, &HALVED)),
    ("qwen2moe", |c, t| llama::build(c, t, &Family { experts: Some(UNEVEN), ..HALVED })),
    ("qwen3", |c, t| llama::build(c, t, &Family { query_norms: QueryNorms::Heads, ..HALVED })),
    ("qwen3moe", |c, t| {
        let query_norms = QueryNorms::Heads;
        llama::build(c, t, &Family { query_norms, experts: Some(SOFTMAX), ..HALVED })
    }),
    ("qwen35", qwen35::build),
    ("qwen35moe", qwen35::build_moe),
    ("qwen3next", qwen35::build_next),
    ("smollm3", |c, t| {
        llama::build(c, t, &Family { no_rope_every: Some(4), window: false, experts: None, ..LLAMA })
    }),
    ("stablelm", |c, t| gpt::build(c, t, &gpt::STABLELM)),
    ("starcoder", |c, t| gpt::build(c, t, &gpt::GPT2)),
    ("starcoder2", |c, t| gpt::build(c, t, &gpt::STARCODER2)),
];

/// Llama with rows that are not permuted, dense, and without a window.
const HALVED: Family = Family { style: RopeStyle::Halved, window: false, experts: None, ..LLAMA };

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
const ENCODERS: &[&str] = &["bert", "gemma-embedding"];

/// What embeddings do without: the matrices that make logits of rows, or scores of pairs of texts.
const HEADS: &[&str] = &["output.", "cls."];

/// The architectures that can be built, by the names that files give them.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(name, _)| *name)
}

/// Records the plan of the model in a file: for logits, or for the embeddings that the file says it is for. Reads keys and tensor descriptions, and no tensor's data.
///
/// # Errors
/// [`Error`]: the file is of no known architecture, or its numbers and tensors do not make such a model.
pub fn build(file: &dyn Checkpoint) -> Result<Model, Error> {
    build_pooled(file, None)
}

/// The same, for embeddings of this kind, where one is given.
///
/// # Errors
/// As [`build`].
pub fn build_pooled(file: &dyn Checkpoint, pooling: Option<Pooling>) -> Result<Model, Error> {
    let found: &str = file.metadata().need("general.architecture")?;
    let Some(&(architecture, build)) = TABLE.iter().find(|(name, _)| *name == found) else {
        let supported = architectures().collect::<Vec<_>>().join(", ");
        return Err(Error::Architecture { found: found.to_owned(), supported });
    };
    let encoder = ENCODERS.contains(&architecture);
    let config = Config::read(file, architecture, encoder)?;
    let of_file = config.pooling()?.or(encoder.then_some(Pooling::None));
    let pooling = pooling.or(of_file);
    let asked = pooling.map_or(Asked::Logits, Pooling::asked);
    let plan = build(&config, &FileTensors { file, asked });
    config.refuse_unread()?;
    let plan = plan?;
    let used: HashSet<&str> = plan.weights.iter().map(|w| w.name.as_str()).collect();
    let unneeded = |name: &str| {
        config.predicts(name) || pooling.is_some() && HEADS.iter().any(|head| name.starts_with(head))
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
