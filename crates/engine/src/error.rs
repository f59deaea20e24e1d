//! What the engine can fail with.

/// A model that could not be loaded, or a request that could not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read, or is not what it claims to be.
    #[error(transparent)]
    File(#[from] cera_gguf::Error),
    /// The folder cannot be read, or holds no model that can be translated.
    #[error(transparent)]
    Folder(cera_convert::Error),
    /// The file's architecture or its tensors cannot be run.
    #[error(transparent)]
    Arch(#[from] cera_arch::Error),
    /// The backend refused the model or failed in a step.
    #[error(transparent)]
    Backend(#[from] cera_backend::Error),
    /// The file's tokenizer or template cannot be used.
    #[error(transparent)]
    Token(#[from] cera_token::Error),
    /// A sampling parameter is out of range, or the logits cannot be sampled.
    #[error(transparent)]
    Sample(#[from] cera_sample::Error),
    /// An option of the load, or a part of the file, contradicts the model.
    #[error("{0}")]
    Option(String),
    /// The file has no tokenizer, and text was given or wanted.
    #[error("the file has no tokenizer: it takes and gives token ids, not text")]
    NoTokenizer,
    /// A sequence would be longer than the context.
    #[error("{tokens} tokens do not fit the context of {context}")]
    Context {
        /// Length that the sequence would have had.
        tokens: usize,
        /// The most that the engine was loaded for.
        context: usize,
    },
    /// A token id that the model does not have.
    #[error("token id {token} is not in the vocabulary of {vocabulary}")]
    Vocabulary {
        /// The id given.
        token: u32,
        /// Number of ids.
        vocabulary: usize,
    },
    /// The cache is full: other sequences hold its blocks.
    #[error("the cache has {free} free blocks, but the step needs {needed}")]
    Blocks {
        /// Blocks that the step needs more.
        needed: usize,
        /// Blocks that nobody holds.
        free: usize,
    },
    /// A sequence more than the model has slots of recurrent state for.
    #[error("other sequences hold all slots of recurrent state; load the model for more sequences")]
    Slots,
    /// The disk tier cannot be opened.
    #[error("the folder `{}` cannot keep what the cache gives up: {why}", folder.display())]
    Disk {
        /// The folder.
        folder: std::path::PathBuf,
        /// What the system says.
        why: String,
    },
    /// A session cannot be written, or a file is none that can be taken up.
    #[error("the session `{}`: {why}", path.display())]
    Session {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Too many requests wait already.
    #[error("{queued} answers wait already, of at most {limit}; try again later")]
    Busy {
        /// Answers that wait.
        queued: usize,
        /// The most that may.
        limit: usize,
    },
    /// The service finishes what it has, and takes nothing new.
    #[error("the service is about to end: it takes no new requests")]
    Draining,
    /// The service's thread has ended.
    #[error("the service has ended")]
    Stopped,
    /// The request contradicts itself.
    #[error("{0}")]
    Request(String),
}

impl From<cera_convert::Error> for Error {
    fn from(error: cera_convert::Error) -> Self {
        match error {
            cera_convert::Error::File(error) => Self::File(error),
            cera_convert::Error::Token(error) => Self::Token(error),
            error => Self::Folder(error),
        }
    }
}
