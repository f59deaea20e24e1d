//! One file a command.

pub mod bench;
pub mod chat;
pub mod convert;
pub mod doctor;
pub mod embed;
pub mod inspect;
pub mod list;
pub mod logits;
pub mod plan;
pub mod pull;
pub mod quantize;
pub mod rerank;
pub mod run;
pub mod tokenize;
