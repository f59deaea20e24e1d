//! The meaning of ops on rows by themselves and on several streams of them, in f64.

/// `x * w`, column by column; `w` is a row, or one number.
pub(super) fn scale_columns(x: &[f64], w: &[f32]) -> Vec<f64> {
    x.iter().zip(w.iter().cycle()).map(|(x, &w)| x * f64::from(w)).collect()
}

/// `x / sqrt(mean(x^2) + eps)` of each `group` elements.
pub(super) fn unit_norm(x: &[f64], group: usize, eps: f32) -> Vec<f64> {
    let of_group = |x: &[f64]| {
        let by = 1.0 / (mean_square(x) + f64::from(eps)).sqrt();
        x.iter().map(|v| v * by).collect::<Vec<_>>()
    };
    x.chunks_exact(group).flat_map(of_group).collect()
}

/// The least mean square that a row is divided by, so that a row of zeros stays one.
const LEAST: f64 = 1e-5;

/// `x * sqrt(mean(to^2) / max(mean(x^2), 1e-5))`, row by row.
pub(super) fn match_size(x: &[f64], to: &[f64], width: usize) -> Vec<f64> {
    let of_row = |(x, to): (&[f64], &[f64])| {
        let by = (mean_square(to) / mean_square(x).max(LEAST)).sqrt();
        x.iter().map(|v| v * by).collect::<Vec<_>>()
    };
    x.chunks_exact(width).zip(to.chunks_exact(width)).flat_map(of_row).collect()
}

/// `base + sum_i w_i * xs_i`; `weights` is one row of numbers for each of `base`, of which those from `first` on count.
pub(super) fn blend(
    base: &[f64],
    xs: &[&[f64]],
    width: usize,
    weights: &[f64],
    of_row: usize,
    first: usize,
) -> Vec<f64> {
    let element = |i: usize| {
        let weights = &weights[i / width * of_row + first..];
        base[i] + xs.iter().zip(weights).map(|(x, w)| w * x[i]).sum::<f64>()
    };
    (0..base.len()).map(element).collect()
}

/// `max(0, x - mean - deviations * sqrt(variance))`, row by row.
pub(super) fn sparsify(x: &[f64], width: usize, deviations: f32) -> Vec<f64> {
    let of_row = |x: &[f64]| {
        let mean = x.iter().sum::<f64>() / width as f64;
        let variance = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / width as f64;
        let least = mean + f64::from(deviations) * variance.sqrt();
        x.iter().map(|v| (v - least).max(0.0)).collect::<Vec<_>>()
    };
    x.chunks_exact(width).flat_map(of_row).collect()
}

fn mean_square(x: &[f64]) -> f64 {
    x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: &[f64], b: &[f64]) {
        assert_eq!(a.len(), b.len());
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12), "{a:?}\n{b:?}");
    }

    #[test]
    fn columns_or_all_of_them_are_scaled() {
        close(&scale_columns(&[1.0, 2.0, 3.0, 4.0], &[2.0, 0.5]), &[2.0, 1.0, 6.0, 2.0]);
        close(&scale_columns(&[1.0, 2.0, 3.0, 4.0], &[3.0]), &[3.0, 6.0, 9.0, 12.0]);
    }

    #[test]
    fn sizes_become_one_or_another_row_s() {
        close(
            &unit_norm(&[3.0, 4.0, 0.0, 2.0], 2, 0.5),
            &[3.0 / 13f64.sqrt(), 4.0 / 13f64.sqrt(), 0.0, 2.0 / 2.5f64.sqrt()],
        );
        // Mean squares of 12.5 and 50; a row of nothing stays so.
        close(&match_size(&[3.0, 4.0, 0.0, 0.0], &[10.0, 0.0, 1.0, 1.0], 2), &[6.0, 8.0, 0.0, 0.0]);
    }

    #[test]
    fn rows_blend_by_numbers_of_their_own() {
        let (base, a, b) = ([1.0, 1.0, 2.0, 2.0], [1.0, 2.0, 3.0, 4.0], [10.0, 0.0, 0.0, 10.0]);
        let weights = [9.0, 2.0, 0.5, 9.0, -1.0, 1.0];
        close(&blend(&base, &[&a, &b], 2, &weights, 3, 1), &[8.0, 5.0, -1.0, 8.0]);
    }

    #[test]
    fn what_is_far_above_the_mean_is_kept() {
        // Mean 2, variance 3.
        let kept = sparsify(&[1.0, 1.0, 1.0, 5.0], 4, 1.0);
        close(&kept, &[0.0, 0.0, 0.0, 3.0 - 3f64.sqrt()]);
        close(&sparsify(&[1.0, 1.0, 1.0, 5.0], 4, 0.0), &[0.0, 0.0, 0.0, 3.0]);
    }
}
