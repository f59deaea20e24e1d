//! What was said so far, and its tokens.

use cera_token::{Chat, ChatTemplate, Shown, Special, Tokenizer};
use serde_json::{Value, json};

use crate::Error;

/// A conversation under a chat template, and the timeline of tokens that the cache holds of it.
///
/// The model need not choose the tokens that the tokenizer makes of its words: the cache holds the model's, the rendered
/// conversation gives the tokenizer's. A conversation knows both spellings of what was said up to the last answer, so
/// the next turn can go on from the cache.
#[derive(Clone, Debug)]
pub struct Conversation {
    template: ChatTemplate,
    messages: Vec<Value>,
    /// Of what was said up to the last answer.
    spelled: Option<Spelled>,
    /// Of the same and what was said since, until that is answered or taken back.
    asked: Option<Spelled>,
}

/// Two spellings of one text.
#[derive(Clone, Debug)]
struct Spelled {
    /// The tokenizer's tokens of the conversation up to the last answer's last word.
    tokenizer: Vec<u32>,
    /// The tokens that went through the model.
    model: Vec<u32>,
}

impl Conversation {
    /// Nothing was said yet.
    pub fn new(template: ChatTemplate) -> Self {
        Self { template, messages: Vec::new(), spelled: None, asked: None }
    }

    /// What was said: messages in OpenAI's form.
    pub fn messages(&self) -> &[Value] {
        &self.messages
    }

    /// Something is said.
    pub fn push(&mut self, message: Value) {
        self.messages.push(message);
    }

    /// Only the first `count` messages were said.
    pub fn truncate(&mut self, count: usize) {
        // The spellings end with the last answer.
        if count < self.messages.len() {
            self.asked = None;
            let answered = self.messages.iter().rposition(|m| m.get("role") == Some(&json!("assistant")));
            if answered.is_none_or(|last| last >= count) {
                self.spelled = None;
            }
        }
        self.messages.truncate(count);
    }

    /// The tokenizer's tokens of the conversation, and of the header of the model's answer.
    ///
    /// # Errors
    /// [`Error::Token`] for messages that the template refuses.
    pub fn tokens(&self, tokenizer: &Tokenizer) -> Result<Vec<u32>, Error> {
        let chat = Chat { messages: &self.messages, add_generation_prompt: true, ..Chat::default() };
        let prompt = self.template.render(tokenizer, &chat)?;
        Ok(tokenizer.encode_prompt(&prompt)?)
    }

    /// The same, with the model's own tokens where it spoke: what a sequence that is to answer must hold.
    ///
    /// # Errors
    /// As [`tokens`](Self::tokens).
    pub fn timeline(&mut self, tokenizer: &Tokenizer) -> Result<Vec<u32>, Error> {
        let tokens = self.tokens(tokenizer)?;
        let spelled = self.spelled.as_ref();
        let new = spelled.and_then(|s| Some((&s.model, tokens.strip_prefix(s.tokenizer.as_slice())?)));
        let timeline = match new {
            Some((model, new)) => [model, new].concat(),
            None => tokens.clone(),
        };
        self.asked = Some(Spelled { tokenizer: tokens, model: timeline.clone() });
        Ok(timeline)
    }

    /// The model has answered `text`, which the timeline `tokens` now ends with.
    ///
    /// # Errors
    /// [`Error::Token`] for tokens that the vocabulary lacks.
    pub fn answered(&mut self, tokenizer: &Tokenizer, tokens: &[u32], text: &str) -> Result<(), Error> {
        self.messages.push(json!({ "role": "assistant", "content": text }));
        self.spelled = None;
        let Some(mut spelled) = self.asked.take() else { return Ok(()) };
        let answer = tokens.strip_prefix(spelled.model.as_slice()).unwrap_or_default();
        // The end of the answer is for the template to write.
        let answer = match answer.split_last() {
            Some((last, rest)) if tokenizer.is_eog(*last) => rest,
            _ => answer,
        };
        // A stop string takes words away, and a broken-off answer may end within a character.
        if tokenizer.decode(answer, Shown::All)? == text {
            spelled.model.extend(answer);
            spelled.tokenizer.extend(tokenizer.encode(text, Special::AsText)?);
            self.spelled = Some(spelled);
        }
        Ok(())
    }
}
