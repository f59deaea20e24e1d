//! What can be wrong with a folder, by file, key and tensor.

use std::io;
use std::path::PathBuf;

use cera_gguf::shown;
use cera_quant::Type;

/// Why a model cannot be read or translated. Names are shown as [`cera_gguf::shown`] does.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file is not what it claims to be, or cannot be read.
    #[error(transparent)]
    File(#[from] cera_gguf::Error),
    /// The tokenizer's files cannot be used.
    #[error(transparent)]
    Token(#[from] cera_token::Error),
    /// The system refused to open, read or list something.
    #[error("{path:?}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A folder without something that it needs.
    #[error("{path:?} has no {what}")]
    Lacks {
        /// The folder.
        path: PathBuf,
        /// What is not there.
        what: &'static str,
    },
    /// A text file that is longer than any of its kind.
    #[error("{path:?} has {bytes} bytes, more than the {most} that such a file may have")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        bytes: u64,
        /// The most that are read.
        most: u64,
    },
    /// A file that is not the JSON it should be.
    #[error("{file}: {what}")]
    Json {
        /// The file.
        file: String,
        /// What is wrong, with line and column.
        what: String,
    },
    /// A key of `config.json` that is needed and not there.
    #[error("config.json: key {} is missing", shown(.key))]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A key of `config.json` whose value cannot be used.
    #[error("config.json: key {} is {value}, {why}", shown(.key))]
    Key {
        /// The key.
        key: String,
        /// Its value, cut where it is long.
        value: String,
        /// What is in the way.
        why: String,
    },
    /// A kind of model that is not known here.
    #[error("config.json: models of class {} are not supported, only {supported}", shown(.found))]
    Class {
        /// The class that the file names.
        found: String,
        /// Those that are.
        supported: String,
    },
    /// A safetensors file whose header is not one.
    #[error("{path:?}: {what}")]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A tensor that does not fit its description, its file or its place in the model.
    #[error("tensor {}: {what}", shown(.tensor))]
    Tensor {
        /// The tensor, as the folder names it.
        tensor: String,
        /// What is wrong.
        what: String,
    },
    /// A tensor that a model of this kind does not have.
    #[error("tensor {} is not one that models of class {class} have", shown(.tensor))]
    Unknown {
        /// The tensor.
        tensor: String,
        /// The class.
        class: &'static str,
    },
    /// A mix of types that is not known here.
    #[error("{found:?} is no mix of types; known are {known}")]
    Mix {
        /// What was asked for.
        found: String,
        /// Those that are.
        known: String,
    },
    /// A tensor that is quantized already.
    #[error("tensor {} is of {from} already, and quantizing it again to {to} would lose more than quantizing the original", shown(.tensor))]
    Again {
        /// The tensor.
        tensor: String,
        /// Its type.
        from: Type,
        /// The type that it was to have.
        to: Type,
    },
    /// A tensor that was to have a type which is of no use without importances.
    #[error("tensor {} cannot become {ty} without importances: so few bits must go where they count", shown(.tensor))]
    Blind {
        /// The tensor.
        tensor: String,
        /// The type that it was to have.
        ty: Type,
    },
    /// A file that is no importance matrix, or none of this model.
    #[error("{file}: {what}")]
    Importances {
        /// The file.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// `tokenizer.model` is not one that can be used.
    #[error("tokenizer.model: {what}")]
    Pieces {
        /// What is in the way.
        what: &'static str,
    },
    /// A pre-tokenizer that no name is known of.
    #[error("the ids of the tokenizer lead to no pre-tokenizer that GGUF files name (their hash is {hash})")]
    Pre {
        /// SHA-256 of the ids of a text.
        hash: String,
    },
    /// A GGUF file's tokenizer would not be that of the folder.
    #[error(
        "a GGUF file with the pre-tokenizer {pre:?} would not give the ids that the folder's tokenizer gives"
    )]
    Differs {
        /// The pre-tokenizer's name.
        pre: String,
    },
    /// A folder that was to become a file, and has no tokenizer that a file could have.
    #[error("{path:?} has neither tokenizer.json nor tokenizer.model")]
    NoTokenizer {
        /// The folder.
        path: PathBuf,
    },
    /// Whoever watched the progress asked for an end.
    #[error("it was broken off")]
    Stopped,
}

impl Error {
    pub(crate) fn tensor(tensor: &str, what: impl Into<String>) -> Self {
        Self::Tensor { tensor: tensor.into(), what: what.into() }
    }
}
