//! A model, whichever way it is stored.

use std::path::Path;

use cera_gguf::{Checkpoint, Gguf, Metadata};
use cera_token::Tokenizer;

use crate::vocabulary::Vocabulary;
use crate::{Error, Floats, Folder, Notes, Quantized, Recipe};

/// Keys, tensors and tokenizer of a model.
pub struct Source {
    checkpoint: Box<dyn Checkpoint>,
    /// Where the tokenizer is, where the keys do not have it.
    vocabulary: Option<Vocabulary>,
    /// The version of a GGUF file.
    version: Option<u32>,
    bytes: u64,
}

impl Source {
    /// Opens a GGUF file or a Hugging Face folder.
    ///
    /// # Errors
    /// What is wrong with it, by name.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        if path.is_dir() {
            return Ok(Folder::open(path, Floats::Stored)?.into());
        }
        Ok(Gguf::open(path)?.into())
    }

    /// The same with its matrices in other types, encoded when they are asked for; and what came otherwise than the recipe says.
    ///
    /// # Errors
    /// As [`Quantized::new`].
    pub fn quantized(self, recipe: Recipe) -> Result<(Self, Notes), Error> {
        let model = Quantized::new(self.checkpoint, recipe)?;
        let notes = model.notes().clone();
        Ok((Self { checkpoint: Box::new(model), ..self }, notes))
    }

    /// Its keys and tensors.
    pub fn checkpoint(&self) -> &dyn Checkpoint {
        &*self.checkpoint
    }

    /// The version of the format, of a GGUF file.
    pub fn version(&self) -> Option<u32> {
        self.version
    }

    /// Bytes of the file, of all parts of a split one, or of a folder's tensors.
    pub fn stored_bytes(&self) -> u64 {
        self.bytes
    }

    /// Its tokenizer, of a GGUF file with another pre-tokenizer where `pre` names one; `None` where it has none.
    ///
    /// # Errors
    /// [`Error::File`] and [`Error::Token`] for a tokenizer that cannot be used, [`Error::Lacks`] for a folder that has no
    /// pre-tokenizer's name to replace.
    pub fn tokenizer(&self, pre: Option<&str>) -> Result<Option<Tokenizer>, Error> {
        let metadata = self.checkpoint.metadata();
        let Some(vocabulary) = &self.vocabulary else {
            return tokenizer(metadata, pre);
        };
        if pre.is_some() {
            let what =
                "name of a pre-tokenizer that another could replace: its tokenizer.json says how text is cut";
            return Err(Error::Lacks { path: vocabulary.folder.clone(), what });
        }
        vocabulary.tokenizer()
    }
}

/// The tokenizer of a GGUF file's keys, with another pre-tokenizer where `pre` names one; `None` where they have none.
///
/// # Errors
/// [`Error::File`] and [`Error::Token`] for a tokenizer that cannot be used.
pub fn tokenizer(metadata: &Metadata, pre: Option<&str>) -> Result<Option<Tokenizer>, Error> {
    match metadata.str("tokenizer.ggml.model")? {
        None | Some("no_vocab" | "none") => Ok(None),
        Some(_) => Ok(Some(Tokenizer::from_gguf(metadata, pre)?)),
    }
}

impl From<Gguf> for Source {
    fn from(file: Gguf) -> Self {
        let (version, bytes) = (Some(file.version()), file.file_bytes());
        Self { checkpoint: Box::new(file), vocabulary: None, version, bytes }
    }
}

impl From<Folder> for Source {
    fn from(folder: Folder) -> Self {
        let (vocabulary, bytes) = (Some(folder.vocabulary()), folder.stored_bytes());
        Self { checkpoint: Box::new(folder), vocabulary, version: None, bytes }
    }
}
