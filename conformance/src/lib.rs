//! Op cases, golden logits and peers' vectors.
