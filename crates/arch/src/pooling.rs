//! What a model for embeddings gives of a sequence's rows.

use cera_plan::Asked;

/// How the rows of a sequence become an embedding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pooling {
    /// Each row is one.
    None,
    /// The mean of all rows.
    Mean,
    /// The first row.
    Cls,
    /// The last row.
    Last,
}

impl Pooling {
    /// The pooling of a number of the key `pooling_type` (llama.cpp's `llama_pooling_type`).
    pub(crate) fn of_number(number: u32) -> Option<Pooling> {
        Some(match number {
            0 => Pooling::None,
            1 => Pooling::Mean,
            2 => Pooling::Cls,
            3 => Pooling::Last,
            _ => return None,
        })
    }

    /// What a plan is to give for it.
    pub(crate) fn asked(self) -> Asked {
        match self {
            Pooling::Mean => Asked::Mean,
            Pooling::None | Pooling::Cls | Pooling::Last => Asked::Rows,
        }
    }
}
