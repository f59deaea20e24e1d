//! What a service gives back: streams and single replies, to be waited for or awaited.

use async_channel::Receiver;

use crate::{Error, Event};

/// An answer on its way, or several, as a stream of events. It is an iterator for who waits; who is asynchronous awaits
/// [`next`](Self::next), on any runtime. Dropping it breaks the answer off: the next step is without it, and its blocks of
/// the cache are free.
///
/// Events that nobody reads are kept: at most as many as the answer has tokens. So a slow reader holds nobody up.
#[derive(Debug)]
pub struct Answer {
    events: Receiver<Result<Event, Error>>,
    /// Answers that have not ended.
    left: usize,
}

impl Answer {
    pub(super) fn new(events: Receiver<Result<Event, Error>>, choices: usize) -> Self {
        Self { events, left: choices }
    }

    /// The next event; `None` behind the last [`Event::Done`], or behind an error.
    pub async fn next(&mut self) -> Option<Result<Event, Error>> {
        if self.left == 0 {
            return None;
        }
        let event = self.events.recv().await;
        Some(self.seen(event.unwrap_or(Err(Error::Stopped))))
    }

    /// As [`next`](Self::next), waiting for it.
    pub fn recv_blocking(&mut self) -> Option<Result<Event, Error>> {
        if self.left == 0 {
            return None;
        }
        let event = self.events.recv_blocking();
        Some(self.seen(event.unwrap_or(Err(Error::Stopped))))
    }

    fn seen(&mut self, event: Result<Event, Error>) -> Result<Event, Error> {
        match &event {
            Ok(Event::Done(_)) => self.left -= 1,
            Ok(Event::Prompt { .. } | Event::Token(_)) => {}
            Err(_) => self.left = 0,
        }
        if self.left == 0 {
            self.events.close();
        }
        event
    }
}

impl Iterator for Answer {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.recv_blocking()
    }
}

/// Something that a service will give once.
#[derive(Debug)]
pub struct Reply<T> {
    value: Receiver<Result<T, Error>>,
}

impl<T> Reply<T> {
    pub(super) fn new(value: Receiver<Result<T, Error>>) -> Self {
        Self { value }
    }

    /// Awaits it.
    ///
    /// # Errors
    /// What went wrong in its making, [`Error::Stopped`] where the service ended before.
    pub async fn recv(self) -> Result<T, Error> {
        self.value.recv().await.unwrap_or(Err(Error::Stopped))
    }

    /// Waits for it.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_blocking(self) -> Result<T, Error> {
        self.value.recv_blocking().unwrap_or(Err(Error::Stopped))
    }
}
