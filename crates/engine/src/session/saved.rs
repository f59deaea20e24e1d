//! A session as a file: its tokens and messages in JSON, and which vocabulary they are of. What the cache holds of it is
//! the disk tier's matter; without that the tokens go through the model again.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use cera_token::Shown;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Session;
use crate::{Conversation, Error, Model, Service};

const FORMAT: &str = "cera session 1";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    format: String,
    /// [`vocabulary`].
    vocabulary: String,
    tokens: Vec<u32>,
    /// `None` where the timeline is no conversation.
    messages: Option<Vec<Value>>,
    /// [`Session::marks`].
    marks: Vec<(usize, usize)>,
}

/// Says which tokens a model has: one with the same takes up another's session.
fn vocabulary(model: &Model) -> String {
    let mut hash = Sha256::new();
    hash.update(model.vocabulary.to_le_bytes());
    if let Some(tokenizer) = &model.tokenizer {
        for id in 0..tokenizer.len() as u32 {
            let piece = tokenizer.piece(id, Shown::All).unwrap_or_default();
            hash.update((piece.len() as u64).to_le_bytes());
            hash.update(piece);
        }
    }
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

impl Session {
    /// Writes the session to a file, in place of what is there only once all is written.
    ///
    /// # Errors
    /// [`Error::Session`], which names the file.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let saved = Saved {
            format: FORMAT.into(),
            vocabulary: vocabulary(self.service.model()),
            tokens: self.tokens.clone(),
            messages: self.conversation.as_ref().map(|c| c.messages().to_vec()),
            marks: self.marks.clone(),
        };
        let text = serde_json::to_vec(&saved).map_err(|e| fault(path, e))?;
        replace(path, &text).map_err(|e| fault(path, e))
    }

    /// Reads a session that [`save`](Self::save) wrote, of this service's model or of one with the same vocabulary.
    ///
    /// # Errors
    /// [`Error::Session`] for a file that cannot be read, is no session, or is one of another vocabulary; [`Error::Context`]
    /// and [`Error::Vocabulary`] for tokens that the model cannot take.
    pub fn restore(service: &Service, path: &Path) -> Result<Self, Error> {
        let text = fs::read(path).map_err(|e| fault(path, e))?;
        let saved: Saved = serde_json::from_slice(&text).map_err(|e| fault(path, e))?;
        if saved.format != FORMAT {
            return Err(fault(path, format_args!("its format is `{}`, not `{FORMAT}`", saved.format)));
        }
        let model = service.model();
        if saved.vocabulary != vocabulary(model) {
            return Err(fault(path, "it is of a model with another vocabulary"));
        }
        let mut session = Session::new(service);
        session.append_tokens(&saved.tokens)?;
        if let Some(messages) = saved.messages {
            let mut conversation = Conversation::new(model.tokenizer()?.chat_template()?);
            messages.into_iter().for_each(|message| conversation.push(message));
            session.conversation = Some(conversation);
        }
        let said = session.messages().len();
        let rising = saved.marks.is_sorted()
            && saved.marks.iter().all(|(at, n)| *at <= saved.tokens.len() && *n <= said);
        if !rising {
            return Err(fault(path, "its marks lie outside of its tokens and messages"));
        }
        session.marks = saved.marks;
        Ok(session)
    }
}

fn fault(path: &Path, why: impl ToString) -> Error {
    Error::Session { path: path.to_owned(), why: why.to_string() }
}

/// Writes a file beside its place, and puts it there.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let beside = path.with_file_name(name);
    let written = fs::File::create(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let written = written.and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // Whatever there is of it is of no use.
        let _ = fs::remove_file(&beside);
    }
    written
}
