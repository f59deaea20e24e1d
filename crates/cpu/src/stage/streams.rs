//! Stages that work on rows by themselves, or on several streams of them.

use cera_plan::{Columns, Op, Val, Wt};

/// One of them.
pub enum Streams {
    /// `x * w`, column by column, or by the one number of `w`.
    ScaleColumns { out: Val, x: Val, w: Wt },
    /// Each group of a row divided by the root of its mean square.
    UnitNorm { out: Val, x: Val, ones: Vec<f32>, eps: f32 },
    /// `x` as large as `to`.
    MatchSize { out: Val, x: Val, to: Val },
    /// `base` and each of `xs` by a number of the row.
    Blend { out: Val, base: Val, xs: Vec<Val>, weights: Columns },
    /// What of a row is so far above its mean.
    Sparsify { out: Val, x: Val, deviations: f32 },
}

/// The stage of an op, where it is one of these.
pub fn stage(op: &Op) -> Option<Streams> {
    Some(match op {
        Op::ScaleColumns { out, x, w } => Streams::ScaleColumns { out: *out, x: *x, w: *w },
        Op::UnitNorm { out, x, group, eps } => {
            Streams::UnitNorm { out: *out, x: *x, ones: vec![1.0; *group], eps: *eps }
        }
        Op::MatchSize { out, x, to } => Streams::MatchSize { out: *out, x: *x, to: *to },
        Op::Blend { out, base, xs, weights } => {
            Streams::Blend { out: *out, base: *base, xs: xs.clone(), weights: *weights }
        }
        Op::Sparsify { out, x, deviations } => {
            Streams::Sparsify { out: *out, x: *x, deviations: *deviations }
        }
        _ => return None,
    })
}
