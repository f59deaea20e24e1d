//! One model, many requests at once.
//!
//! A [`Service`] is a handle to a thread that owns an [`Engine`] and puts the requests' tokens through the model side by
//! side. What a request gets does not depend on the others.

mod answer;
mod worker;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cera_arch::Pooling;
use cera_sample::Compiled;
use cera_token::Tokenizer;

pub use answer::{Answer, Reply};

use crate::grammar::Compiler;
use crate::{DiskStats, Engine, Error, Event, Norm, Request, Session};
use worker::Worker;

/// How a service shares its model out.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// The most answers that may wait for their first step. One more is refused.
    pub queue: usize,
    /// The most answers that are generated side by side. A model with recurrent states has room for as many sequences as
    /// it was loaded for in any case.
    pub running: usize,
    /// The most rows of a step. `None`: as many as the engine takes. Fewer make steps shorter, and so the gaps in the answers
    /// that go on while a long prompt is read.
    pub rows: Option<usize>,
    /// How long a request that finds no room in the cache may be overtaken by smaller ones.
    pub patience: Duration,
    /// Whether prompts that begin like former ones go on from what the cache still holds of those.
    pub prefix_cache: bool,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self { queue: 256, running: 64, rows: None, patience: Duration::from_secs(2), prefix_cache: true }
    }
}

/// What is known of the model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Model {
    /// `general.name` of the file.
    pub name: Option<String>,
    /// `general.architecture` of the file.
    pub architecture: Option<String>,
    /// The most tokens of a prompt and its answer.
    pub context: usize,
    /// Number of token ids.
    pub vocabulary: usize,
    /// How rows are pooled, where the model is loaded for embeddings. Only then [`Service::embed`] works, and only
    /// otherwise [`Service::submit`].
    pub pooling: Option<Pooling>,
    /// Numbers of an embedding.
    pub embedding_width: usize,
    /// The backend's name.
    pub backend: &'static str,
    /// Bytes of the weights, as the file stores them.
    pub weight_bytes: u64,
    /// How long the load took.
    pub load_time: Duration,
    /// The tokenizer, with the file's chat template; a clone of it costs nothing.
    pub tokenizer: Option<Tokenizer>,
}

impl Model {
    /// The tokenizer.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`] where the file has none, or it was not loaded.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.tokenizer.as_ref().ok_or(Error::NoTokenizer)
    }
}

/// What a service did so far, and what it is at.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Answers that wait for their first step.
    pub queued: usize,
    /// Answers that have begun. One that was preempted counts too.
    pub running: usize,
    /// Blocks of the cache that answers hold.
    pub blocks_used: usize,
    /// Blocks of the cache that hold beginnings of former answers, and are free for others.
    pub blocks_kept: usize,
    /// Blocks of the cache in all, of [`BLOCK`](cera_backend::BLOCK) positions each.
    pub blocks_total: usize,
    /// Steps of the model.
    pub steps: u64,
    /// Tokens of prompts that went through the model, those computed again after a preemption included.
    pub prompt_tokens: u64,
    /// Tokens of prompts that the cache held already.
    pub reused_tokens: u64,
    /// Answers that found the beginning of their prompt in the cache.
    pub prefix_hits: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// How often an answer gave up its blocks for another.
    pub preemptions: u64,
    /// Answers that began.
    pub admitted: u64,
    /// Answers that ended by themselves.
    pub finished: u64,
    /// Answers that nobody waited for any more.
    pub cancelled: u64,
    /// Answers that ended with an error.
    pub failed: u64,
}

/// A handle to a model that answers requests. Clones are handles to the same one. The model goes when the last handle has
/// gone and the last answer has ended.
#[derive(Clone)]
pub struct Service {
    handle: Arc<Handle>,
}

/// What the handles share. When the last goes, the thread is told.
struct Handle {
    shared: Arc<Shared>,
    model: Model,
    compiler: Compiler,
    queue: usize,
}

/// What the handles and the thread share.
pub(crate) struct Shared {
    inbox: Mutex<Inbox>,
    /// Something came in.
    came: Condvar,
}

/// Requests on their way to the thread.
#[derive(Default)]
struct Inbox {
    submissions: Vec<Submission>,
    embeddings: Vec<EmbedJob>,
    /// Told when all is done.
    drains: Vec<async_channel::Sender<Result<(), Error>>>,
    /// Answers that wait for their first step, here and with the thread.
    queued: usize,
    /// Nothing new is taken.
    draining: bool,
    /// No handle is left.
    abandoned: bool,
    /// The thread has ended.
    stopped: bool,
    stats: Stats,
    disk: Option<DiskStats>,
}

/// A request that was accepted.
struct Submission {
    prompt: Vec<u32>,
    request: Request,
    /// The request's grammar.
    grammar: Option<Compiled>,
    arrived: Instant,
    events: async_channel::Sender<Result<Event, Error>>,
}

/// Sequences to embed.
struct EmbedJob {
    sequences: Vec<Vec<u32>>,
    norm: Norm,
    reply: async_channel::Sender<Result<Vec<Vec<f32>>, Error>>,
}

impl Shared {
    /// Each change of the inbox is complete in itself, so a panic elsewhere leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Option`] for options that make no sense, or where no thread could be started.
    pub fn start(engine: Engine, options: ServiceOptions) -> Result<Self, Error> {
        if options.queue == 0 || options.running == 0 || options.rows == Some(0) {
            return Err(Error::Option("a service for 0 requests, or steps of 0 rows, are no use".into()));
        }
        let (model, compiler) = (model(&engine)?, engine.compiler.clone());
        let shared = Arc::new(Shared { inbox: Mutex::default(), came: Condvar::new() });
        let worker = Worker::new(engine, &options, Arc::clone(&shared));
        thread::Builder::new()
            .name("cera-service".into())
            .spawn(move || worker.run())
            .map_err(|e| Error::Option(format!("no thread could be started: {e}")))?;
        Ok(Self { handle: Arc::new(Handle { shared, model, compiler, queue: options.queue }) })
    }

    /// An empty timeline. Any number of them may rest.
    pub fn session(&self) -> Session {
        Session::new(self)
    }

    /// Asks for an answer to a prompt. It is waited for and read from what comes back.
    ///
    /// A grammar is compiled here, within a second, and before that the vocabulary is made ready for the first one of all,
    /// which takes as long again: whoever must not block calls from a thread for such work.
    ///
    /// # Errors
    /// [`Error::Busy`] where too many wait already, [`Error::Context`] for a prompt longer than the context,
    /// [`Error::Vocabulary`] for an id that the model lacks, those of [`Request::check`], [`Error::Sample`] for a grammar that
    /// cannot be used, [`Error::Request`] for an empty prompt or a model that is loaded for embeddings, [`Error::Draining`] and [`Error::Stopped`].
    pub fn submit(&self, prompt: Vec<u32>, request: Request) -> Result<Answer, Error> {
        let model = &self.handle.model;
        if model.pooling.is_some() {
            return Err(Error::Request("the model is loaded for embeddings: it has no logits".into()));
        }
        request.check(model.tokenizer.as_ref())?;
        request.sampling.check_vocabulary(model.vocabulary)?;
        self.check(&prompt)?;
        let (choices, limit) = (request.choices, self.handle.queue);
        if choices > limit {
            return Err(Error::Request(format!(
                "{choices} answers are asked for, but only {limit} may wait"
            )));
        }
        let arrived = Instant::now();
        let grammar = match &request.grammar {
            Some(grammar) => {
                // No work for who is turned away.
                drop(self.room(choices)?);
                Some(self.handle.compiler.compile(grammar)?)
            }
            None => None,
        };
        let (events, receiver) = async_channel::unbounded();
        let mut inbox = self.room(choices)?;
        inbox.queued += choices;
        inbox.submissions.push(Submission { prompt, request, grammar, arrived, events });
        drop(inbox);
        self.handle.shared.came.notify_one();
        Ok(Answer::new(receiver, choices))
    }

    /// Asks for the embeddings of sequences of tokens, in order; [`Engine::embed`] says what they are.
    ///
    /// # Errors
    /// [`Error::Request`] for a model that is not loaded for embeddings and for a sequence of no tokens, and those of
    /// [`submit`](Self::submit).
    pub fn embed(&self, sequences: Vec<Vec<u32>>, norm: Norm) -> Result<Reply<Vec<Vec<f32>>>, Error> {
        if self.handle.model.pooling.is_none() {
            return Err(Error::Request("the model is loaded for logits: it has no embeddings".into()));
        }
        for tokens in &sequences {
            self.check(tokens)?;
        }
        let (reply, receiver) = async_channel::bounded(1);
        let mut inbox = self.open()?;
        if inbox.embeddings.len() >= self.handle.queue {
            return Err(Error::Busy { queued: inbox.embeddings.len(), limit: self.handle.queue });
        }
        inbox.embeddings.push(EmbedJob { sequences, norm, reply });
        drop(inbox);
        self.handle.shared.came.notify_one();
        Ok(Reply::new(receiver))
    }

    /// Takes nothing new from here on; the reply comes when all that was taken is done.
    pub fn drain(&self) -> Reply<()> {
        let (reply, receiver) = async_channel::bounded(1);
        let mut inbox = self.handle.shared.lock();
        inbox.draining = true;
        if !inbox.stopped {
            inbox.drains.push(reply);
        }
        drop(inbox);
        self.handle.shared.came.notify_one();
        Reply::new(receiver)
    }

    /// What the service did so far, as of the last step.
    pub fn stats(&self) -> Stats {
        let inbox = self.handle.shared.lock();
        Stats { queued: inbox.queued, ..inbox.stats }
    }

    /// What the disk tier did so far, where the engine has one.
    pub fn disk_stats(&self) -> Option<DiskStats> {
        self.handle.shared.lock().disk.clone()
    }

    /// What is known of the model.
    pub fn model(&self) -> &Model {
        &self.handle.model
    }

    /// The inbox, where it has room for so many answers.
    fn room(&self, choices: usize) -> Result<MutexGuard<'_, Inbox>, Error> {
        let inbox = self.open()?;
        let (queued, limit) = (inbox.queued, self.handle.queue);
        if queued + choices > limit { Err(Error::Busy { queued, limit }) } else { Ok(inbox) }
    }

    /// The inbox, where it takes something.
    fn open(&self) -> Result<MutexGuard<'_, Inbox>, Error> {
        let inbox = self.handle.shared.lock();
        match (inbox.stopped, inbox.draining) {
            (true, _) => Err(Error::Stopped),
            (_, true) => Err(Error::Draining),
            _ => Ok(inbox),
        }
    }

    fn check(&self, tokens: &[u32]) -> Result<(), Error> {
        let Model { context, vocabulary, .. } = self.handle.model;
        if tokens.is_empty() {
            return Err(Error::Request("nothing to go on from: the prompt has no tokens".into()));
        }
        if tokens.len() > context {
            return Err(Error::Context { tokens: tokens.len(), context });
        }
        match tokens.iter().find(|&&t| t as usize >= vocabulary) {
            Some(&token) => Err(Error::Vocabulary { token, vocabulary }),
            None => Ok(()),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.lock().abandoned = true;
        self.shared.came.notify_one();
    }
}

fn model(engine: &Engine) -> Result<Model, Error> {
    let text = |key| Ok::<_, Error>(engine.metadata().str(key)?.map(str::to_owned));
    Ok(Model {
        name: text("general.name")?,
        architecture: text("general.architecture")?,
        context: engine.context(),
        vocabulary: engine.vocabulary(),
        pooling: engine.pooling(),
        embedding_width: engine.embedding_width(),
        backend: engine.backend(),
        weight_bytes: engine.weight_bytes(),
        load_time: engine.load_time(),
        tokenizer: engine.tokenizer().ok().cloned(),
    })
}
