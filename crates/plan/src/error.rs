//! What can be wrong with a checkpoint's tensors.

/// A tensor that the plan cannot use.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The architecture needs a tensor that the checkpoint lacks.
    #[error("tensor `{0}` is missing")]
    Missing(String),
    /// A tensor's shape does not fit where it is used.
    #[error("tensor `{name}` has shape {found}, expected {expected}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape, columns first as GGUF writes it.
        found: String,
        /// What was expected there.
        expected: String,
    },
    /// A tensor's type is known by name, and cannot be run.
    #[error("tensor `{name}` has type {ty}, which cannot be run")]
    Type {
        /// The tensor.
        name: String,
        /// ggml's name of the type.
        ty: &'static str,
    },
    /// A number of the configuration does not fit the rest.
    #[error("{0}")]
    Config(String),
}
