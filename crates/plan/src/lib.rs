//! The waist: a model as a list of typed ops.
