//! What was said so far, and its tokens.

use cera::{Engine, Sequence};
use cera_token::{Chat, ChatTemplate, Error, Shown, Special, Tokenizer};
use serde_json::{Value, json};

use crate::args::TemplateArgs;
use crate::failure::Failure;
use crate::input;

/// A conversation under a chat template.
pub struct Conversation {
    template: ChatTemplate,
    system: Option<Value>,
    messages: Vec<Value>,
    /// Of what was said up to the last answer.
    spelled: Option<Spelled>,
    /// Of the same and what [`Conversation::put`] added, until that is answered or taken back.
    asked: Option<Spelled>,
}

/// Two spellings of one text. The model need not choose the tokens that the tokenizer makes of its words; the cache
/// holds the model's, the rendered conversation gives the tokenizer's. Knowing that they are the same text, a turn
/// can go on from the cache.
struct Spelled {
    /// The tokenizer's tokens of the conversation up to the last answer's last word.
    tokenizer: Vec<u32>,
    /// The tokens that went through the model.
    model: Vec<u32>,
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
        let system = system.map(|text| json!({ "role": "system", "content": text }));
        Self { template, messages: system.iter().cloned().collect(), system, spelled: None, asked: None }
    }

    /// Nothing was said yet.
    pub fn reset(&mut self) {
        self.messages = self.system.iter().cloned().collect();
        self.spelled = None;
        self.asked = None;
    }

    /// The user says something.
    pub fn user(&mut self, text: &str) {
        self.messages.push(json!({ "role": "user", "content": text }));
    }

    /// The last message was not said; the sequence is for the next [`Conversation::put`] to mend.
    pub fn take_back(&mut self) {
        self.messages.pop();
        self.asked = None;
    }

    /// The tokens of the conversation, and of the header of the model's answer.
    pub fn tokens(&self, tokenizer: &Tokenizer) -> Result<Vec<u32>, Failure> {
        let chat = Chat { messages: &self.messages, add_generation_prompt: true, ..Chat::default() };
        let prompt = self.template.render(tokenizer, &chat).map_err(cera::Error::from)?;
        Ok(tokenizer.encode_prompt(&prompt).map_err(cera::Error::from)?)
    }

    /// Makes the sequence this conversation, keeping what the cache holds of it. Something is pending then.
    pub fn put(&mut self, tokenizer: &Tokenizer, sequence: &mut Sequence) -> Result<(), Failure> {
        let tokens = self.tokens(tokenizer)?;
        let spelled = self.spelled.as_ref();
        let new = spelled.and_then(|s| Some((&s.model, tokens.strip_prefix(s.tokenizer.as_slice())?)));
        let timeline = match new {
            Some((model, new)) => [model, new].concat(),
            None => tokens.clone(),
        };
        sequence.become_tokens(&timeline)?;
        if sequence.pending().is_empty()
            && let Some((&last, rest)) = timeline.split_last()
        {
            sequence.rewind(rest.len());
            sequence.append(&[last])?;
        }
        self.asked = Some(Spelled { tokenizer: tokens, model: timeline });
        Ok(())
    }

    /// The model has answered `text`, which the sequence now ends with.
    pub fn answered(
        &mut self,
        tokenizer: &Tokenizer,
        sequence: &Sequence,
        text: &str,
    ) -> Result<(), Failure> {
        self.messages.push(json!({ "role": "assistant", "content": text }));
        self.spelled = None;
        let Some(mut spelled) = self.asked.take() else { return Ok(()) };
        let answer = sequence.tokens().strip_prefix(spelled.model.as_slice()).unwrap_or_default();
        // The end of the answer is for the template to write.
        let answer = match answer.split_last() {
            Some((last, rest)) if tokenizer.is_eog(*last) => rest,
            _ => answer,
        };
        // A stop string takes words away, and a broken-off answer may end within a character.
        if tokenizer.decode(answer, Shown::All).map_err(cera::Error::from)? == text {
            spelled.model.extend(answer);
            spelled.tokenizer.extend(tokenizer.encode(text, Special::AsText).map_err(cera::Error::from)?);
            self.spelled = Some(spelled);
        }
        Ok(())
    }
}
