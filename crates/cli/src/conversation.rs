//! A conversation at the terminal: who speaks first, and the sequence that holds it.

use cera::{Engine, Sequence};
use cera_token::{ChatTemplate, Error, Tokenizer};
use serde_json::{Value, json};

use crate::args::TemplateArgs;
use crate::failure::Failure;
use crate::input;

/// A conversation that begins with what the system says, if anything.
pub struct Conversation {
    inner: cera::Conversation,
    /// Messages of the system: one or none.
    system: usize,
}

/// The template that the flags name, or else the model's own, if it has one.
pub fn template(engine: &Engine, args: &TemplateArgs) -> Result<Option<ChatTemplate>, Failure> {
    match &args.chat_template {
        Some(path) => {
            let source = input::read_file(path)?;
            let named = |e| Failure::new(format_args!("{}: {e}", path.display()));
            Ok(Some(ChatTemplate::new(&source).map_err(named)?))
        }
        None => match engine.tokenizer()?.chat_template() {
            Ok(template) => Ok(Some(template)),
            Err(Error::NoTemplate) => Ok(None),
            Err(e) => Err(Failure::with_next(e, "Give another template with --chat-template FILE.")),
        },
    }
}

impl Conversation {
    /// Nothing was said yet but `system`.
    pub fn new(template: ChatTemplate, system: Option<&str>) -> Self {
        let mut inner = cera::Conversation::new(template);
        system.into_iter().for_each(|text| inner.push(message("system", text)));
        Self { system: inner.messages().len(), inner }
    }

    /// Nothing was said yet.
    pub fn reset(&mut self) {
        self.inner.truncate(self.system);
    }

    /// The user says something.
    pub fn user(&mut self, text: &str) {
        self.inner.push(message("user", text));
    }

    /// The last message was not said; the sequence is for the next [`Conversation::put`] to mend.
    pub fn take_back(&mut self) {
        self.inner.truncate(self.inner.messages().len().saturating_sub(1));
    }

    /// The tokens of the conversation, and of the header of the model's answer.
    pub fn tokens(&self, tokenizer: &Tokenizer) -> Result<Vec<u32>, Failure> {
        Ok(self.inner.tokens(tokenizer)?)
    }

    /// Makes the sequence this conversation, keeping what the cache holds of it. Something is pending then.
    pub fn put(&mut self, tokenizer: &Tokenizer, sequence: &mut Sequence) -> Result<(), Failure> {
        let timeline = self.inner.timeline(tokenizer)?;
        sequence.become_tokens(&timeline)?;
        if sequence.pending().is_empty()
            && let Some((&last, rest)) = timeline.split_last()
        {
            sequence.rewind(rest.len());
            sequence.append(&[last])?;
        }
        Ok(())
    }

    /// The model has answered `text`, which the sequence now ends with.
    pub fn answered(
        &mut self,
        tokenizer: &Tokenizer,
        sequence: &Sequence,
        text: &str,
    ) -> Result<(), Failure> {
        Ok(self.inner.answered(tokenizer, sequence.tokens(), text)?)
    }
}

fn message(role: &str, text: &str) -> Value {
    json!({ "role": role, "content": text })
}
