//! The codebook of IQ1: -1, 0 and 1 in eights, all shifted up or down by an eighth.

use crate::codebook::{Codebook, Group};
use crate::grid::{Found, halves};
use crate::grids::eights_2048::GRID;

/// What the levels stand for before the shift.
const LEVELS: [i8; 3] = [-1, 0, 1];
/// Eight values before the shift, by code.
pub static POINTS: [[i8; 8]; 2048] = GRID.points(LEVELS);
/// The shift.
pub const SHIFT: f32 = 0.125;

/// The codebook.
pub(crate) struct Shifted {
    /// Whether the eights of a group are all shifted the same way.
    pub together: bool,
}

/// Names eight values.
#[derive(Clone, Copy)]
pub(crate) struct ShiftedCode {
    /// The code in [`POINTS`].
    pub point: u16,
    /// Whether the shift is down.
    pub down: bool,
}

impl Codebook for Shifted {
    type Code = ShiftedCode;

    fn largest(&self) -> f32 {
        1.0 + SHIFT
    }

    fn nearest<const E: usize>(&self, group: Group<E>, scale: f32) -> [ShiftedCode; E] {
        let [up, down] = [false, true].map(|down| {
            let levels = LEVELS.map(|level| scale * shift(level, down));
            std::array::from_fn::<Found, E, _>(|e| point(&group.x[e], &group.w[e], levels))
        });
        let cost = |points: &[Found; E]| points.iter().map(|point| point.cost).sum::<f32>();
        let all_down = cost(&down) < cost(&up);
        std::array::from_fn(|e| {
            let is_down = if self.together { all_down } else { down[e].cost < up[e].cost };
            ShiftedCode { point: GRID.code(if is_down { down[e] } else { up[e] }), down: is_down }
        })
    }

    fn values(&self, code: ShiftedCode) -> [f32; 8] {
        shifted(code.point, code.down)
    }
}

/// A level's value.
#[inline]
fn shift(level: i8, down: bool) -> f32 {
    f32::from(level) + if down { -SHIFT } else { SHIFT }
}

/// The values of a code, below 2,048.
#[inline]
pub(crate) fn shifted(point: u16, down: bool) -> [f32; 8] {
    POINTS[usize::from(point & 2047)].map(|level| shift(level, down))
}

/// The nearest point to eight weights.
fn point(x: &[f32; 8], w: &[f32; 8], levels: [f32; 3]) -> Found {
    let cost = |j: usize, v: f32| w[j] * (x[j] - v) * (x[j] - v);
    let costs: [[f32; 3]; 8] = std::array::from_fn(|j| levels.map(|v| cost(j, v)));
    GRID.cheaper(&halves(&costs[4..]), &halves(&costs[..4]), Found::NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: [f32; 8] = [1.1, -0.9, 0.1, 0.2, -1.0, 1.2, 0.0, 0.9];
    const W: [f32; 8] = [1.0, 2.0, 0.5, 1.0, 1.0, 1.0, 3.0, 1.0];

    fn error(x: &[f32; 8], w: &[f32; 8], values: [f32; 8]) -> f32 {
        (0..8).map(|j| w[j] * (values[j] - x[j]).powi(2)).sum()
    }

    #[test]
    fn the_best_code_is_found() {
        for x in [X, X.map(|v| 0.2 - v), X.map(|v| v * v)] {
            let [code] = Shifted { together: false }.nearest(Group { x: &[x], w: &[W] }, 1.0);
            let all =
                (0..2048).flat_map(|point| [false, true].map(|down| error(&x, &W, shifted(point, down))));
            assert_eq!(error(&x, &W, shifted(code.point, code.down)), all.fold(f32::INFINITY, f32::min));
        }
    }

    #[test]
    fn a_group_is_shifted_together_where_it_must_be() {
        // The second eight matters more.
        let (x, w) = ([shifted(700, false), shifted(1500, true)], [[1.0; 8], [5.0; 8]]);
        let shifts =
            |together| Shifted { together }.nearest(Group { x: &x, w: &w }, 1.0).map(|code| code.down);
        assert_eq!(shifts(false), [false, true]);
        assert_eq!(shifts(true), [true, true]);
    }
}
