//! Which of a stored tensor's numbers make the rows of another.

use crate::Error;

/// Rows of numbers by strides: enough for ranges of rows, orders of rows, and transposes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    /// The first element of the first row.
    first: u64,
    /// The rows as nested loops, outermost first: how many times, and elements from one to the next.
    loops: Vec<(u64, u64)>,
    /// Elements of a row.
    pub cols: u64,
    /// Elements from one column to the next.
    step: u64,
}

impl View {
    /// All of a tensor of these sizes, the fastest last.
    pub fn whole(dims: &[u64]) -> Self {
        let (cols, outer) = match dims.split_last() {
            Some((&cols, outer)) => (cols, outer),
            None => (1, dims),
        };
        let mut stride = cols;
        let mut loops: Vec<(u64, u64)> = Vec::new();
        for &count in outer.iter().rev() {
            loops.push((count, stride));
            stride = stride.saturating_mul(count);
        }
        loops.reverse();
        Self { first: 0, loops, cols, step: 1 }
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.loops.iter().fold(1, |rows, &(count, _)| rows.saturating_mul(count))
    }

    /// The innermost rows cut into groups: of `groups`, the one of this number.
    pub fn part(mut self, groups: u64, number: u64) -> Option<Self> {
        let last = self.loops.last_mut()?;
        if groups == 0 || number >= groups || !last.0.is_multiple_of(groups) {
            return None;
        }
        last.0 /= groups;
        self.first += number * last.0 * last.1;
        Some(self)
    }

    /// From the order in which the two halves of each head turn together to that in which neighbours do.
    pub fn neighbours(mut self, heads: u64) -> Option<Self> {
        let (rows, stride) = self.loops.pop()?;
        let pairs = heads.checked_mul(2)?;
        if pairs == 0 || !rows.is_multiple_of(pairs) {
            return None;
        }
        let half = rows / pairs;
        self.loops.extend([(heads, 2 * half * stride), (half, stride), (2, half * stride)]);
        Some(self)
    }

    /// Where the elements of a row start.
    pub fn start(&self, row: u64) -> u64 {
        let mut rest = row;
        let mut at = self.first;
        for &(count, stride) in self.loops.iter().rev() {
            at += rest % count * stride;
            rest /= count;
        }
        at
    }

    /// How far apart the elements of a row are.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Whether rows follow one another as they are stored.
    pub fn is_plain(&self) -> bool {
        let mut stride = self.cols;
        for &(count, own) in self.loops.iter().rev() {
            if count != 1 && own != stride {
                return false;
            }
            stride = stride.saturating_mul(count);
        }
        self.step == 1
    }

    /// Checks that all elements are among `elements`.
    pub fn check(&self, tensor: &str, elements: u64) -> Result<(), Error> {
        let last = self.loops.iter().try_fold(self.first, |at, &(count, stride)| {
            at.checked_add(count.checked_sub(1)?.checked_mul(stride)?)
        });
        let last = last.and_then(|at| at.checked_add(self.cols.checked_sub(1)?.checked_mul(self.step)?));
        match last {
            Some(last) if last < elements => Ok(()),
            _ => Err(Error::tensor(
                tensor,
                "it is empty, or its sizes are not those of its place in the model",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(view: &View) -> Vec<u64> {
        (0..view.rows()).map(|row| view.start(row)).collect()
    }

    #[test]
    fn rows_in_order_are_plain() {
        let whole = View::whole(&[2, 3, 4]);
        assert_eq!(starts(&whole), [0, 4, 8, 12, 16, 20]);
        assert!(whole.is_plain() && View::whole(&[7]).is_plain() && View::whole(&[]).is_plain());
        assert!(whole.check("t", 24).is_ok() && whole.check("t", 23).is_err());
        assert!(View::whole(&[0, 4]).check("t", 0).is_err());
    }

    #[test]
    fn a_part_is_its_rows_of_each_matrix() {
        let up = View::whole(&[2, 4, 3]).part(2, 1).unwrap();
        assert_eq!(starts(&up), [6, 9, 18, 21]);
        assert!(!up.is_plain());
        assert_eq!(View::whole(&[2, 3, 3]).part(2, 1), None);
    }

    #[test]
    fn neighbours_turn_together() {
        // Two heads of four rows: halves 0 1 | 2 3 become 0 2 1 3.
        let rows: Vec<u64> =
            starts(&View::whole(&[8, 10]).neighbours(2).unwrap()).iter().map(|at| at / 10).collect();
        assert_eq!(rows, [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(View::whole(&[6, 10]).neighbours(2), None);
    }

    #[test]
    fn rows_of_a_vector_turn_as_those_of_a_matrix() {
        // A bias is one row: its elements are the rows of a matrix of one column.
        let view = View::whole(&[8, 1]).neighbours(2).unwrap();
        assert_eq!(starts(&view), [0, 2, 1, 3, 4, 6, 5, 7]);
    }
}
