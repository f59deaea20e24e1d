//! A grid: the points that the codes of an I format can name, out of all that its levels could make up.
//!
//! A point has eight coordinates of three levels or four of eight. Its coordinates' levels, counted from the lowest,
//! are the digits of a number, the first coordinate's the least significant. Codes count the points in order of these
//! numbers.
//!
//! Cut in the middle, a number has an upper and a lower half, 81 or 64 of each. A grid is kept as one word for each
//! upper half, its *row*: bit `l` says that the point with the lower half `l` is there. So 2,048 points take 81 words,
//! a code is found by counting bits, and the search for a point goes by halves too.

/// Points as rows of lower halves, `H` of them.
pub(crate) struct Grid<const H: usize> {
    rows: [u128; H],
    /// Points in the rows before.
    starts: [u16; H],
}

/// A point of a grid by its halves, and what it costs.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    /// The upper half.
    pub upper: usize,
    /// The lower half.
    pub lower: usize,
    /// The sum of its halves' costs.
    pub cost: f32,
}

impl Found {
    /// No point yet.
    pub const NONE: Found = Found { upper: 0, lower: 0, cost: f32::INFINITY };
}

impl<const H: usize> Grid<H> {
    /// The grid with these rows.
    pub const fn new(rows: [u128; H]) -> Self {
        let mut starts = [0; H];
        let mut row = 1;
        while row < H {
            starts[row] = starts[row - 1] + rows[row - 1].count_ones() as u16;
            row += 1;
        }
        Grid { rows, starts }
    }

    /// The number of points.
    pub const fn len(&self) -> usize {
        self.starts[H - 1] as usize + self.rows[H - 1].count_ones() as usize
    }

    /// The points in order of codes, `N` of `D` coordinates, whose levels stand for `levels`.
    pub const fn points<const N: usize, const D: usize, const K: usize>(
        &self,
        levels: [i8; K],
    ) -> [[i8; D]; N] {
        assert!(N == self.len() && H == K.pow(D as u32 / 2));
        let mut points = [[0; D]; N];
        let (mut code, mut upper) = (0, 0);
        while upper < H {
            let mut row = self.rows[upper];
            while row != 0 {
                let mut number = upper * H + row.trailing_zeros() as usize;
                let mut i = 0;
                while i < D {
                    points[code][i] = levels[number % K];
                    number /= K;
                    i += 1;
                }
                row &= row - 1;
                code += 1;
            }
            upper += 1;
        }
        points
    }

    /// The code of a point of the grid.
    pub fn code(&self, point: Found) -> u16 {
        let below = self.rows[point.upper] & ((1 << point.lower) - 1);
        self.starts[point.upper] + below.count_ones() as u16
    }

    /// The point of least cost, of points that cost as much the first that is met; `than` if none costs less. Costs
    /// are of halves.
    ///
    /// Exact: the row of the cheapest upper half gives a bound that most others cannot get under, even with the
    /// cheapest lower half of all, and only those that can are gone through.
    pub fn cheaper(&self, upper: &[f32; H], lower: &[f32; H], than: Found) -> Found {
        let first = (1..H).fold(0, |least, u| if upper[u] < upper[least] { u } else { least });
        let least = lower.iter().fold(f32::INFINITY, |least, &cost| if cost < least { cost } else { least });
        let mut best = than;
        self.go_through(first, upper, lower, &mut best);
        for u in 0..H {
            if upper[u] + least < best.cost && u != first {
                self.go_through(u, upper, lower, &mut best);
            }
        }
        best
    }

    #[inline(always)]
    fn go_through(&self, u: usize, upper: &[f32; H], lower: &[f32; H], best: &mut Found) {
        let mut row = self.rows[u];
        while row != 0 {
            let l = row.trailing_zeros() as usize;
            let cost = upper[u] + lower[l];
            if cost < best.cost {
                *best = Found { upper: u, lower: l, cost };
            }
            row &= row - 1;
        }
    }
}

/// What each half of a point costs, by its number, given what its coordinates cost at each of their `K` levels.
#[inline(always)]
pub(crate) fn halves<const K: usize, const H: usize>(costs: &[[f32; K]]) -> [f32; H] {
    let mut halves = [0.0; H];
    let mut numbers = 1;
    for costs in costs {
        // The numbers so far are those whose next digit is 0, so that digit comes last.
        for k in (0..K).rev() {
            for low in 0..numbers {
                halves[k * numbers + low] = halves[low] + costs[k];
            }
        }
        numbers *= K;
    }
    halves
}

/// The same where one coordinate, the one for which it comes to least, costs what `wrong` says.
#[inline(always)]
pub(crate) fn halves_with_one<const K: usize, const H: usize>(
    wrong: &[[f32; K]],
    costs: &[[f32; K]],
) -> [f32; H] {
    let (mut without, mut halves) = ([0.0; H], [f32::INFINITY; H]);
    let mut numbers = 1;
    for (wrong, costs) in wrong.iter().zip(costs) {
        for k in (0..K).rev() {
            for low in 0..numbers {
                let (this, earlier) = (without[low] + wrong[k], halves[low] + costs[k]);
                halves[k * numbers + low] = if this < earlier { this } else { earlier };
                without[k * numbers + low] = without[low] + costs[k];
            }
        }
        numbers *= K;
    }
    halves
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grids::{eights_256, eights_1024, eights_2048, fours_256, fours_512};

    /// Numbers that look random, from 0 to 1.
    fn costs<const H: usize>(seed: usize) -> [f32; H] {
        std::array::from_fn(|h| ((h + 1) * (seed * 7919 + 104_729) % 65_537) as f32 / 65_537.0)
    }

    fn cheapest_is_cheapest<const H: usize, const K: usize, const D: usize, const N: usize>(grid: &Grid<H>) {
        let points: [[i8; D]; N] = grid.points(std::array::from_fn::<i8, K, _>(|k| k as i8));
        let number = |digits: &[i8]| digits.iter().rev().fold(0, |number, &k| number * K + k as usize);
        for seed in 0..50 {
            let (upper, lower) = (costs::<H>(seed), costs::<H>(seed + 1000));
            let of = |point: &[i8; D]| upper[number(&point[D / 2..])] + lower[number(&point[..D / 2])];
            let found = grid.cheaper(&upper, &lower, Found::NONE);
            let least = points.iter().map(of).fold(f32::INFINITY, f32::min);
            assert_eq!((found.cost, of(&points[usize::from(grid.code(found))])), (least, least));
            assert_eq!(grid.cheaper(&upper, &lower, found).cost, least);
        }
    }

    #[test]
    fn the_cheapest_point_is_found() {
        cheapest_is_cheapest::<81, 3, 8, 256>(&eights_256::GRID);
        cheapest_is_cheapest::<81, 3, 8, 1024>(&eights_1024::GRID);
        cheapest_is_cheapest::<81, 3, 8, 2048>(&eights_2048::GRID);
        cheapest_is_cheapest::<64, 8, 4, 256>(&fours_256::GRID);
        cheapest_is_cheapest::<64, 8, 4, 512>(&fours_512::GRID);
    }

    #[test]
    fn points_are_counted_row_by_row() {
        let mut rows = [0; 9];
        (rows[0], rows[5]) = (1 << 1 | 1 << 8, 1 << 3);
        let grid = Grid::new(rows);
        assert_eq!(grid.len(), 3);
        // In base 3, least significant digit first, 1 is 1 0, 8 is 2 2, 5 is 2 1 and 3 is 0 1.
        assert_eq!(grid.points([8, 25, 43]), [[25, 8, 8, 8], [43, 43, 8, 8], [8, 25, 43, 25]]);
        let code = |upper, lower| grid.code(Found { upper, lower, cost: 0.0 });
        assert_eq!([code(0, 1), code(0, 8), code(5, 3)], [0, 1, 2]);
    }

    #[test]
    fn halves_cost_the_sum_of_their_coordinates() {
        let costs = [[1.0, 2.0, 3.0], [0.5, 2.0, 3.0]];
        let wrong = [[9.0, 5.0, 30.0], [8.5, 5.0, 30.0]];
        let (without, with): ([f32; 9], [f32; 9]) = (halves(&costs), halves_with_one(&wrong, &costs));
        // The numbers 1 (levels 1 and 0) and 7 (levels 1 and 2).
        assert_eq!((without[1], without[7]), (2.5, 5.0));
        assert_eq!((with[1], with[7]), (5.5, 8.0));
    }
}
