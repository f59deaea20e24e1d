//! Turns of heads by a Hadamard matrix, for a cache of few bits.
//!
//! A turn is its own inverse and keeps dot products, so keys and queries that are both turned give the scores that they
//! would have given; and turned values, weighed and added, only have to be turned back. What it wins: an element far
//! from 0 that would alone set the scale of its group is spread over all of them (QuaRot, arXiv 2404.00456).

/// Elements that are turned together in heads of `dim`: the greatest power of two that divides it.
pub fn size(dim: usize) -> usize {
    dim & dim.wrapping_neg()
}

/// Turns `x [dim, columns]`, `size` elements of each column together. The order of additions depends on `size` alone.
pub fn turn(x: &mut [f32], columns: usize, size: usize) {
    let by = 1.0 / (size as f32).sqrt();
    for block in x.chunks_exact_mut(size * columns) {
        let mut half = columns;
        while half < block.len() {
            for pair in block.chunks_exact_mut(2 * half) {
                let (low, high) = pair.split_at_mut(half);
                for (a, b) in low.iter_mut().zip(high) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            half *= 2;
        }
        for v in block {
            *v *= by;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_the_hadamard_matrix() {
        // Sylvester's matrix: an element's sign is the parity of the bits that row and column share.
        let (dim, columns, size) = (96, 3, size(96));
        assert_eq!(size, 32);
        let x: Vec<f32> = (0..dim * columns).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
        let mut turned = x.clone();
        turn(&mut turned, columns, size);
        for row in 0..dim {
            for column in 0..columns {
                let block = row / size * size;
                let sum: f64 = (0..size)
                    .map(|i| {
                        let sign = 1.0 - 2.0 * f64::from((i & (row % size)).count_ones() % 2);
                        sign * f64::from(x[(block + i) * columns + column])
                    })
                    .sum();
                let expected = sum / (size as f64).sqrt();
                assert!((f64::from(turned[row * columns + column]) - expected).abs() < 1e-5);
            }
        }
        turn(&mut turned, columns, size);
        for (a, b) in x.iter().zip(&turned) {
            assert!((a - b).abs() < 1e-5, "{b} for {a}");
        }
    }
}
