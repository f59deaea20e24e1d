//! Scores: how well a document answers a query, by a model that reads both together.

use cera_arch::Pooling;
use cera_plan::Op;

use crate::{Engine, Error, Norm};

impl Engine {
    /// The score of each document for the query, in order: more is better. What a model with one output gives as it is (a
    /// logit, of either sign); of one that tells labels apart, such as yes and no, the probability of the first.
    ///
    /// # Errors
    /// [`Error::Request`] for a model that is not loaded with [`Pooling::Rank`], or that tells labels apart of which none
    /// is known to mean that the two belong together; [`Error::Token`] where the file does not say how the two become one
    /// text; else those of [`Engine::embed`]: a pair that is longer than the context is refused.
    pub fn rank(&mut self, query: &str, documents: &[impl AsRef<str>]) -> Result<Vec<f32>, Error> {
        if self.pooling() != Some(Pooling::Rank) {
            return Err(Error::Request("the model is not loaded for scores of pairs of texts".into()));
        }
        let labels = self.embedding_width();
        if labels > 1 && self.sees_later_rows() {
            let why = format!("the model tells {labels} labels apart; scores of pairs have one");
            return Err(Error::Request(why));
        }
        let tokenizer = self.tokenizer()?.clone();
        let pair = |document: &_| tokenizer.encode_pair(query, AsRef::<str>::as_ref(document));
        let pairs = documents.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
        let outputs = self.embed(&pairs, Norm::None)?;
        Ok(outputs.iter().map(|output| score(output)).collect())
    }

    /// Whether rows see those behind them: the model is an encoder.
    pub(crate) fn sees_later_rows(&self) -> bool {
        self.plan().ops.iter().any(|op| matches!(op, Op::Attend { attention, .. } if !attention.causal))
    }
}

/// The one output, or the probability of the first.
fn score(outputs: &[f32]) -> f32 {
    let &[first, _, ..] = outputs else { return outputs.first().copied().unwrap_or_default() };
    let rest: f64 = outputs.iter().map(|output| f64::from(output - first).exp()).sum();
    (1.0 / rest) as f32
}

#[cfg(test)]
mod tests {
    use super::score;

    #[test]
    fn one_output_is_the_score_and_of_several_the_first_ones_probability_is() {
        assert_eq!(score(&[-3.5]), -3.5);
        assert!((score(&[1.0, 0.0]) - 0.731_058_6).abs() < 1e-6);
        assert_eq!(score(&[0.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(score(&[-1000.0, 1000.0]), 0.0);
    }
}
