//! A timeline of tokens over a service: append, generate, fork, go back, save.
//!
//! A session holds nothing of the cache while it rests; thousands of them cost their tokens alone. What the cache still has
//! of a timeline is found again through the tree of prefixes, or on disk, when the session goes on.

mod saved;

use cera_token::{Shown, Special};
use serde_json::Value;

use crate::{Answer, Conversation, Error, Event, Finish, Report, Request, Service};

/// A timeline of tokens, of one service's model.
#[derive(Clone)]
pub struct Session {
    service: Service,
    tokens: Vec<u32>,
    /// Where the tokens are a conversation's.
    conversation: Option<Conversation>,
    /// The lengths of the timeline at which so many messages had been said: where it can be gone back to and talked on from.
    marks: Vec<(usize, usize)>,
}

impl Session {
    /// An empty one.
    pub(crate) fn new(service: &Service) -> Self {
        Self { service: service.clone(), tokens: Vec::new(), conversation: None, marks: Vec::new() }
    }

    /// All tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The messages of a conversation, those of the model included.
    pub fn messages(&self) -> &[Value] {
        self.conversation.as_ref().map_or(&[], Conversation::messages)
    }

    /// All tokens as text, special ones spelled out.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`].
    pub fn text(&self) -> Result<String, Error> {
        Ok(self.service.model().tokenizer()?.decode(&self.tokens, Shown::All)?)
    }

    /// Adds tokens at the end.
    ///
    /// # Errors
    /// [`Error::Context`] where the timeline would outgrow the context, [`Error::Vocabulary`] for an id that the model
    /// lacks. Nothing is added then.
    pub fn append_tokens(&mut self, tokens: &[u32]) -> Result<(), Error> {
        self.check(self.tokens.len().saturating_add(tokens.len()), tokens)?;
        self.tokens.extend_from_slice(tokens);
        Ok(())
    }

    /// Adds text at the end, special tokens in it as the text that they are. An empty timeline begins with what the file
    /// asks for ahead of every text.
    ///
    /// # Errors
    /// Those of [`append_tokens`](Self::append_tokens), [`Error::NoTokenizer`], [`Error::Token`].
    pub fn append_text(&mut self, text: &str) -> Result<(), Error> {
        let tokenizer = self.service.model().tokenizer()?;
        let begin = if self.tokens.is_empty() { tokenizer.add_bos() } else { None };
        let tokens: Vec<u32> = begin.into_iter().chain(tokenizer.encode(text, Special::AsText)?).collect();
        self.append_tokens(&tokens)
    }

    /// Adds messages in OpenAI's form, and the header of the model's answer, by the model's chat template. The
    /// answer that is generated next becomes a message too.
    ///
    /// # Errors
    /// [`Error::Request`] where the timeline is no conversation, [`Error::Token`] where the model has no chat template or it
    /// refuses the messages, and those of [`append_tokens`](Self::append_tokens). Nothing is added then.
    pub fn append_messages(&mut self, messages: &[Value]) -> Result<(), Error> {
        let tokenizer = self.service.model().tokenizer()?;
        let mut conversation = match &self.conversation {
            Some(conversation) => conversation.clone(),
            None if self.tokens.is_empty() => Conversation::new(tokenizer.chat_template()?),
            None => return Err(Error::Request("messages behind text that is no conversation".into())),
        };
        if self.marks.last().map_or(0, |(_, said)| *said) != conversation.messages().len() {
            return Err(Error::Request("messages behind a part of a message".into()));
        }
        messages.iter().for_each(|message| conversation.push(message.clone()));
        let tokens = conversation.timeline(tokenizer)?;
        self.check(tokens.len(), &tokens)?;
        self.tokens = tokens;
        self.marks.push((self.tokens.len(), conversation.messages().len()));
        self.conversation = Some(conversation);
        Ok(())
    }

    /// Generates: a stream of events, whose tokens are added to the timeline as they are read. Dropping it breaks off.
    ///
    /// # Errors
    /// [`Error::Request`] where several answers are asked for, or nothing is there to go on from; those of
    /// [`Service::submit`].
    pub fn generate(&mut self, request: Request) -> Result<Generation<'_>, Error> {
        if request.choices > 1 {
            return Err(Error::Request("a session goes on in one way: fork it for more".into()));
        }
        let answer = self.service.submit(self.tokens.clone(), request)?;
        Ok(Generation { session: self, answer, text: String::new(), ended: false })
    }

    /// Generates, and gives the whole text, once it is there.
    ///
    /// # Errors
    /// Those of [`generate`](Self::generate), and what goes wrong on the way.
    pub fn answer(&mut self, request: Request) -> Result<(String, Report), Error> {
        let mut generation = self.generate(request)?;
        while let Some(event) = generation.recv_blocking() {
            if let Event::Done(report) = event? {
                return Ok((std::mem::take(&mut generation.text), report));
            }
        }
        Err(Error::Stopped)
    }

    /// Another one with the same timeline so far. What the cache has of it they share.
    pub fn fork(&self) -> Self {
        self.clone()
    }

    /// Keeps the first `length` tokens. In a conversation, messages that end behind them were never said; it can be
    /// talked on where one ends.
    pub fn rewind(&mut self, length: usize) {
        self.tokens.truncate(length);
        self.marks.retain(|(end, _)| *end <= length);
        if let Some(conversation) = &mut self.conversation {
            conversation.truncate(self.marks.last().map_or(0, |(_, said)| *said));
        }
        if self.tokens.is_empty() {
            self.conversation = None;
        }
    }

    fn check(&self, length: usize, new: &[u32]) -> Result<(), Error> {
        let (context, vocabulary) = (self.service.model().context, self.service.model().vocabulary);
        if length > context {
            return Err(Error::Context { tokens: length, context });
        }
        match new.iter().find(|&&t| t as usize >= vocabulary) {
            Some(&token) => Err(Error::Vocabulary { token, vocabulary }),
            None => Ok(()),
        }
    }

    /// The model's answer has ended, or was broken off.
    fn answered(&mut self, text: &str) {
        let (Some(conversation), Ok(tokenizer)) = (&mut self.conversation, self.service.model().tokenizer())
        else {
            return;
        };
        // Of a model's own tokens there is none that the vocabulary lacks.
        if conversation.answered(tokenizer, &self.tokens, text).is_ok() {
            self.marks.push((self.tokens.len(), conversation.messages().len()));
        }
    }
}

/// A session going on: an iterator for who waits; who is asynchronous awaits [`next`](Self::next).
pub struct Generation<'a> {
    session: &'a mut Session,
    answer: Answer,
    text: String,
    ended: bool,
}

impl Generation<'_> {
    /// The next event; `None` behind the last, [`Event::Done`], or behind an error.
    pub async fn next(&mut self) -> Option<Result<Event, Error>> {
        let event = self.answer.next().await;
        self.seen(event)
    }

    /// As [`next`](Self::next), waiting for it.
    pub fn recv_blocking(&mut self) -> Option<Result<Event, Error>> {
        let event = self.answer.recv_blocking();
        self.seen(event)
    }

    fn seen(&mut self, event: Option<Result<Event, Error>>) -> Option<Result<Event, Error>> {
        match &event {
            Some(Ok(Event::Token(token))) => {
                self.session.tokens.push(token.id);
                self.text.push_str(&token.text);
            }
            Some(Ok(Event::Done(report))) => {
                self.ended = true;
                if report.finish != Finish::Cancelled {
                    self.session.answered(&self.text);
                }
            }
            Some(Ok(Event::Prompt { .. })) => {}
            Some(Err(_)) | None => self.ended = true,
        }
        event
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.recv_blocking()
    }
}

impl Drop for Generation<'_> {
    /// What was said before it was broken off was said.
    fn drop(&mut self) {
        if !self.ended && !self.text.is_empty() {
            self.session.answered(&self.text);
        }
    }
}
