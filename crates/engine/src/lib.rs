//! The cera engine: load a model, hold sequences, generate.
