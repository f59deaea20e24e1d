//! Sampler chain.
