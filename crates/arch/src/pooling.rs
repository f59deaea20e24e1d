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
    /// Scores that a head makes of a row: how well two texts belong together. The row is the first where rows see later ones,
    /// or the mean of all where the model was trained so, and otherwise the last.
    Rank,
}

impl Pooling {
    /// The pooling of a number of the key `pooling_type` (llama.cpp's `llama_pooling_type`).
    pub(crate) fn of_number(number: u32) -> Option<Pooling> {
        Some(match number {
            0 => Pooling::None,
            1 => Pooling::Mean,
            2 => Pooling::Cls,
            3 => Pooling::Last,
            4 => Pooling::Rank,
            _ => return None,
        })
    }

    /// What a plan is to give for it; `mean_scored` says whether heads that score read the mean of all rows.
    pub(crate) fn asked(self, mean_scored: bool) -> Asked {
        match self {
            Pooling::Mean => Asked::Mean,
            Pooling::None | Pooling::Cls | Pooling::Last => Asked::Rows,
            Pooling::Rank => Asked::Score { mean: mean_scored },
        }
    }
}
