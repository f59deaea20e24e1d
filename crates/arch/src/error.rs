//! What can be wrong with a checkpoint of a known format.

/// A checkpoint that no plan can be made of.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key is missing or has another type than it should.
    #[error(transparent)]
    Metadata(#[from] cera_gguf::Error),
    /// A tensor is missing or does not fit where it is used.
    #[error(transparent)]
    Tensors(#[from] cera_plan::Error),
    /// An architecture that no file of this crate builds.
    #[error("architecture {} is not supported; these are: {supported}", cera_gguf::shown(.found))]
    Architecture {
        /// `general.architecture` of the file.
        found: String,
        /// The names that would be.
        supported: String,
    },
    /// A number that makes no sense, by itself or beside another.
    #[error("key `{key}` is {value}: {why}")]
    Value {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// A key that changes what the model computes, in a way that is not implemented.
    #[error("key `{key}` is {value}, which is not supported")]
    Unsupported {
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// A tensor that the architecture does not read: it would change what the model computes if it did.
    #[error("architecture `{architecture}` has no use for tensor {}", cera_gguf::shown(.tensor))]
    Unused {
        /// The architecture.
        architecture: &'static str,
        /// The tensor.
        tensor: String,
    },
}
