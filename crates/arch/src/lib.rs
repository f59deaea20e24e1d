//! From a checkpoint to a plan: one file per family.
