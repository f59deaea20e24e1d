//! Tokenizers, streaming detokenizer, chat templates.
