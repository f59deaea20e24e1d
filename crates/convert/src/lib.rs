//! Models that are not GGUF files, as what a GGUF file would say of them.
//!
//! A [`Folder`] is a Hugging Face folder: `config.json`, safetensors, the tokenizer's files. It is a
//! [`Checkpoint`](cera_gguf::Checkpoint), whose keys and tensors have the names and the order that llama.cpp's converter
//! gives them; numbers are translated when they are asked for. [`Source`] is a model whichever way it is stored.
//!
//! Any bytes are safe to open. Lengths are compared with the files' own before anything is allocated for them, and every
//! fault is an [`Error`] that names the file, the key or the tensor.
#![forbid(unsafe_code)]

mod config;
mod error;
mod family;
mod folder;
mod numbers;
mod safetensors;
mod source;
mod texts;
mod view;

pub use error::Error;
pub use family::classes;
pub use folder::{Floats, Folder};
pub use source::{Source, tokenizer};
