//! Models that are not GGUF files, as what a GGUF file would say of them.
//!
//! A [`Folder`] is a Hugging Face folder: `config.json`, safetensors, the tokenizer's files. It is a
//! [`Checkpoint`](cera_gguf::Checkpoint), whose keys and tensors have the names and the order that llama.cpp's converter
//! gives them; numbers are translated when they are asked for. [`Source`] is a model whichever way it is stored.
//! A [`Quantized`] model has its matrices in other types than the one behind it, and [`save`] writes any of them to a file.
//!
//! Any bytes are safe to open. Lengths are compared with the files' own before anything is allocated for them, and every
//! fault is an [`Error`] that names the file, the key or the tensor.
#![forbid(unsafe_code)]

mod config;
mod error;
mod family;
mod folder;
mod header;
mod numbers;
mod quantize;
mod safetensors;
mod save;
mod source;
mod texts;
mod view;
mod vocabulary;

pub use error::Error;
pub use family::classes;
pub use folder::{Floats, Folder};
pub use quantize::{Importances, Mix, Notes, Quantized, Recipe};
pub use save::{Progress, save};
pub use source::{Source, tokenizer};
