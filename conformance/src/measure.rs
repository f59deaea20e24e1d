//! How far one set of logits is from another, and from a text.

/// The logarithm of the sum of the exponentials of a row of logits.
fn log_sum(row: &[f32]) -> f64 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    f64::from(max) + row.iter().map(|&v| f64::from(v - max).exp()).sum::<f64>().ln()
}

/// The Kullback-Leibler divergence of the softmax of `q` from that of `p`, in nats: one row of logits each.
pub fn kl_divergence(p: &[f32], q: &[f32]) -> f64 {
    let (p_sum, q_sum) = (log_sum(p), log_sum(q));
    let term = |(&p, &q): (&f32, &f32)| {
        let log_p = f64::from(p) - p_sum;
        log_p.exp() * (log_p - (f64::from(q) - q_sum))
    };
    p.iter().zip(q).map(term).sum()
}

/// The mean of [`kl_divergence`] over rows of `vocabulary` logits.
pub fn mean_kl_divergence(p: &[f32], q: &[f32], vocabulary: usize) -> f64 {
    let rows = p.chunks_exact(vocabulary).zip(q.chunks_exact(vocabulary));
    let divergences: Vec<f64> = rows.map(|(p, q)| kl_divergence(p, q)).collect();
    divergences.iter().sum::<f64>() / divergences.len() as f64
}

/// The perplexity of a text under logits `[tokens, vocabulary]`: the exponential of the mean surprise, in nats, at
/// each token but the first.
pub fn perplexity(logits: &[f32], tokens: &[u32]) -> f64 {
    let vocabulary = logits.len() / tokens.len();
    let rows = logits.chunks_exact(vocabulary).zip(&tokens[1..]);
    let surprises = rows.map(|(row, &next)| log_sum(row) - f64::from(row[next as usize]));
    (surprises.sum::<f64>() / (tokens.len() - 1) as f64).exp()
}

/// The place of the greatest of a row of logits, the first among equals.
pub fn best(row: &[f32]) -> usize {
    (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergence_of_known_distributions() {
        let ln = |p: [f32; 2]| p.map(f32::ln);
        // 0.5 ln(0.5 / 0.25) + 0.5 ln(0.5 / 0.75), whatever is added to a row of logits.
        let expected = 0.5 * 2f64.ln() + 0.5 * (2f64 / 3.0).ln();
        let q = ln([0.25, 0.75]).map(|l| l + 7.0);
        assert!((kl_divergence(&ln([0.5, 0.5]), &q) - expected).abs() < 1e-6);
        assert!(kl_divergence(&q, &q).abs() < 1e-12);
        let mean = mean_kl_divergence(&[0.0, 0.0, 1.0, 1.0], &[q, [5.0, 5.0]].concat(), 2);
        assert!((mean - expected / 2.0).abs() < 1e-6);
    }

    #[test]
    fn perplexity_is_the_inverse_of_the_mean_probability_of_what_came() {
        // Token 1 had a quarter, then token 0 a half; what follows the last token is not known.
        let logits = [[3f32, 1.0], [1.0, 1.0], [9.0, 0.0]].map(|row| row.map(f32::ln)).concat();
        assert!((perplexity(&logits, &[0, 1, 0]) - 8f64.sqrt()).abs() < 1e-6);
    }

    #[test]
    fn best_is_the_first_of_the_greatest() {
        assert_eq!(best(&[1.0, 3.0, 2.0, 3.0]), 1);
        assert_eq!(best(&[5.0]), 0);
    }
}
