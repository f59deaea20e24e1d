//! The text files of a folder.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use cera_token::{HfFiles, Tokenizer};

use crate::Error;

/// Longest configuration, template or index: the index of the largest models has about 10 MB.
const MAX_TEXT: u64 = 64 << 20;
/// Longest `tokenizer.json`: the largest vocabularies have about 40 MB.
const MAX_TOKENIZER: u64 = 256 << 20;

/// Reads a text file; `None` where there is none.
///
/// # Errors
/// [`Error::Io`], [`Error::TooLarge`], [`Error::Json`].
pub(crate) fn read(folder: &Path, name: &str) -> Result<Option<String>, Error> {
    let Some(bytes) = read_bytes(folder, name)? else { return Ok(None) };
    let fault = |_| Error::Json { file: name.into(), what: "it is not UTF-8".into() };
    Ok(Some(String::from_utf8(bytes).map_err(fault)?))
}

/// The same of a file of bytes.
///
/// # Errors
/// [`Error::Io`], [`Error::TooLarge`].
pub(crate) fn read_bytes(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, Error> {
    let path = folder.join(name);
    let io = |source| Error::Io { path: path.clone(), source };
    match fs::metadata(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(io(e)),
        // Before opening: to open a pipe waits for its writer.
        Ok(found) if !found.is_file() => {
            return Err(cera_gguf::Error::NotAFile { path, kind: "something else" }.into());
        }
        Ok(_) => {}
    }
    let most = if name == "tokenizer.json" { MAX_TOKENIZER } else { MAX_TEXT };
    let file = File::open(&path).map_err(io)?;
    let mut content = Vec::new();
    file.take(most + 1).read_to_end(&mut content).map_err(io)?;
    let bytes = content.len() as u64;
    if bytes > most {
        return Err(Error::TooLarge { path, bytes, most });
    }
    Ok(Some(content))
}

/// The tokenizer of a folder; `None` where it has no `tokenizer.json`. `vocabulary`: ids that the model knows.
///
/// # Errors
/// What is wrong with one of the files.
pub(crate) fn tokenizer(folder: &Path, vocabulary: Option<usize>) -> Result<Option<Tokenizer>, Error> {
    let Some(tokenizer) = read(folder, "tokenizer.json")? else { return Ok(None) };
    let config = read(folder, "tokenizer_config.json")?;
    let generation = read(folder, "generation_config.json")?;
    let template = read(folder, "chat_template.jinja")?;
    let files = HfFiles {
        tokenizer: &tokenizer,
        config: config.as_deref(),
        generation: generation.as_deref(),
        template: template.as_deref(),
        vocabulary,
    };
    Ok(Some(Tokenizer::from_hf(&files)?))
}
