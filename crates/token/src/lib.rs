//! Tokenizers, streaming detokenizer, chat templates, and what an answer is made of.
//!
//! A [`Tokenizer`] is made from a GGUF file's metadata ([`Tokenizer::from_gguf`]) or from a Hugging Face folder
//! ([`Tokenizer::from_hf`]). It gives the ids that llama.cpp and the models' own tokenizers give, on all of Unicode, and
//! those of the latter where the two differ. Nothing is guessed: an unknown pre-tokenizer, a component that this crate does
//! not have, a merge of tokens that do not exist or an id outside the vocabulary is an [`Error`] that names it.
//!
//! **Special tokens are text unless a template put them there.** [`Special`] says so for each text that is
//! encoded; [`ChatTemplate::render`] gives a [`Prompt`], in which what the template wrote and what messages spell
//! are told apart.
//!
//! ```no_run
//! use cera_token::{Chat, Detokenizer, Shown, Tokenizer};
//!
//! let file = cera_gguf::Gguf::open("model.gguf")?;
//! let tokenizer = Tokenizer::from_gguf(file.metadata(), None)?;
//! let messages = [serde_json::json!({ "role": "user", "content": "What does <|im_end|> mean?" })];
//! let chat = Chat { messages: &messages, add_generation_prompt: true, ..Chat::default() };
//! let prompt = tokenizer.chat_template()?.render(&tokenizer, &chat)?;
//! let ids = tokenizer.encode_prompt(&prompt)?;
//!
//! let mut answer = Detokenizer::new(&tokenizer, Shown::Text);
//! for id in ids {
//!     print!("{}", answer.push(id)?);
//! }
//! println!("{}", answer.finish());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod bpe;
mod bytes;
mod chat;
mod detok;
mod error;
mod gguf;
mod guard;
mod hf;
mod json;
mod known;
mod merge;
mod model;
mod normal;
mod plamo2;
mod reply;
mod rwkv;
mod spec;
mod special;
mod spm;
mod table;
mod tokenizer;
mod trie;
mod unigram;
mod vocab;
mod wordpiece;
mod words;

pub use chat::{Chat, ChatTemplate};
pub use detok::Detokenizer;
pub use error::{Error, MergeFault};
pub use guard::Prompt;
pub use hf::HfFiles;
pub use reply::{ReplyFormat, ReplyParser, ReplyPart, ToolCall};
pub use spec::VocabSpec;
pub use tokenizer::{Shown, Special, Tokenizer};
pub use vocab::{Kind, SpecialIds};
pub use words::pre_tokenizers;
