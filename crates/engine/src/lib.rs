//! `cera`, the engine: load a model, hold sequences, generate.
//!
//! An [`Engine`] is a model loaded into a backend, with the pool of cache blocks that its sequences share. A
//! [`Sequence`] is a timeline of tokens: append to it, rewind it, drop it. [`Engine::step`] puts pending tokens of
//! any number of sequences through the model side by side; [`Engine::generate`] makes an answer of such steps. A
//! [`Service`] answers many requests at once, and a [`Session`] is a conversation or another timeline over one.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use cera::{Engine, Event, Options, Request};
//!
//! let backend = Box::new(cera_backend::Reference);
//! let mut engine = Engine::load("model.gguf".as_ref(), backend, &Options::default())?;
//! let mut sequence = engine.sequence();
//! sequence.append(&[1, 2, 3])?;
//! let request = Request { max_tokens: Some(16), ..Request::default() };
//! let report = engine.generate(&mut sequence, &request, &mut |event| {
//!     if let Event::Token(token) = event {
//!         print!("{}", token.text);
//!     }
//!     ControlFlow::Continue(())
//! })?;
//! println!("{:.1} tokens/s", report.generation_rate());
//! # Ok::<(), cera::Error>(())
//! ```
#![forbid(unsafe_code)]

mod blocks;
mod conversation;
mod decoding;
mod disk;
mod embed;
mod engine;
mod error;
mod generate;
mod grammar;
mod prefix;
mod rank;
mod request;
mod reuse;
mod schedule;
mod sequence;
mod service;
mod session;
mod states;
mod stop;
mod weights;

pub use cera_arch::Pooling;
pub use cera_convert::{Importances, Mix, Notes, Recipe, Source, save, tokenizer};
pub use cera_sample::Grammar;
pub use conversation::Conversation;
pub use disk::{DiskOptions, DiskStats};
pub use embed::Norm;
pub use engine::{DEFAULT_CONTEXT, DEFAULT_MAX_ROWS, Engine, Options, Part, Want};
pub use error::Error;
pub use request::{Event, Finish, Logprobs, Report, Request, Token};
pub use sequence::Sequence;
pub use service::{Answer, Model, Reply, Service, ServiceOptions, Stats};
pub use session::{Generation, Session};
pub use weights::Progress;
