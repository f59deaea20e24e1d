//! What a backend can fail with.

/// A load or a step that could not be done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The weights could not be read; the text names the tensor.
    #[error("{0}")]
    Weights(String),
    /// The backend cannot run this plan; the text names the op, the tensor or the number.
    #[error("the {backend} backend cannot run this model: {why}")]
    Unsupported {
        /// The backend's name.
        backend: &'static str,
        /// What it cannot do.
        why: String,
    },
    /// Memory for the weights or the cache could not be had.
    #[error("out of memory: {bytes} bytes for {what}")]
    Memory {
        /// What the memory was for.
        what: &'static str,
        /// Its size.
        bytes: usize,
    },
    /// The step contradicts the plan or the cache.
    #[error("bad step: {0}")]
    Step(String),
    /// A sequence of a model whose rows see later ones, or are pooled, comes in parts.
    #[error("rows of a sequence from position {position} on: the model takes all of a sequence in one step")]
    Parted {
        /// The position of the first row.
        position: usize,
    },
    /// A row's logits are not finite; names the first op whose output was not.
    #[error("row {row}: the output of op {op} ({name}) is not finite")]
    NotFinite {
        /// The row of the step.
        row: usize,
        /// The op's index in the plan.
        op: usize,
        /// The op's name.
        name: &'static str,
    },
    /// The backend broke while it ran a step; the model must be loaded again.
    #[error("the {backend} backend failed: {why}; load the model again")]
    Failed {
        /// The backend's name.
        backend: &'static str,
        /// What it knows of the cause.
        why: String,
    },
}
