use crate::{Error, Kind, Shown, Tokenizer};

/// Turns a stream of tokens into text, never half a character.
///
/// What it gives, joined, is the tokens' bytes with U+FFFD for what is no UTF-8 (as
/// [`String::from_utf8_lossy`] has it).
#[derive(Debug, Clone)]
pub struct Detokenizer {
    tokenizer: Tokenizer,
    shown: Shown,
    /// Bytes of a character that is not complete, at most 3.
    pending: Vec<u8>,
    /// What the last call gave.
    text: String,
    /// The space that encoding put before the text has yet to be taken away.
    strip: bool,
}

impl Detokenizer {
    /// For tokens that continue a text, such as a model's answer.
    pub fn new(tokenizer: &Tokenizer, shown: Shown) -> Self {
        Self { tokenizer: tokenizer.clone(), shown, pending: Vec::new(), text: String::new(), strip: false }
    }

    /// For tokens of a whole text: the space that SentencePiece puts before it is taken away.
    pub fn from_start(tokenizer: &Tokenizer, shown: Shown) -> Self {
        Self { strip: tokenizer.has_prefix(), ..Self::new(tokenizer, shown) }
    }

    /// Takes the next token. Gives the text that became complete by it, which may be empty.
    ///
    /// # Errors
    /// [`Error::TokenId`] where there is no such token; the stream is as it was.
    pub fn push(&mut self, id: u32) -> Result<&str, Error> {
        let mut piece = self.tokenizer.piece(id, self.shown)?;
        if self.strip && (!piece.is_empty() || self.tokenizer.kind(id) != Some(Kind::Control)) {
            piece = piece.strip_prefix(b" ").unwrap_or(piece);
            self.strip = false;
        }
        self.pending.extend_from_slice(piece);
        self.text.clear();
        let mut rest = self.pending.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    self.text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at_checked(error.valid_up_to()).unwrap_or((rest, &[]));
                    self.text.push_str(&String::from_utf8_lossy(valid));
                    rest = after;
                    // No length: more bytes may complete it. A length: nothing can.
                    let Some(wrong) = error.error_len() else { break };
                    self.text.push(char::REPLACEMENT_CHARACTER);
                    rest = rest.get(wrong..).unwrap_or_default();
                }
            }
        }
        let kept = rest.len();
        self.pending.drain(..self.pending.len() - kept);
        Ok(&self.text)
    }

    /// Ends the stream. Gives U+FFFD where a character was left incomplete, else nothing.
    pub fn finish(&mut self) -> &str {
        self.text.clear();
        if !self.pending.is_empty() {
            self.text.push_str(&String::from_utf8_lossy(&self.pending));
            self.pending.clear();
        }
        &self.text
    }
}
