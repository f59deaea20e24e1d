//! Embeddings: what a model makes of whole sequences.

use cera_arch::Pooling;
use cera_backend::{Rows, SampleRow, SeqRows};

use crate::{Engine, Error};

/// What an embedding's length is made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Norm {
    /// It stays as it is.
    None,
    /// 1: the root of the sum of squares (zeros stay zeros).
    #[default]
    L2,
}

impl Norm {
    fn apply(self, x: &mut [f32]) {
        let Norm::L2 = self else { return };
        let length = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        if length > 0.0 {
            x.iter_mut().for_each(|v| *v = (f64::from(*v) / length) as f32);
        }
    }
}

impl Engine {
    /// The embeddings of sequences of tokens, in order: one of [`embedding_width`](Self::embedding_width) numbers each,
    /// or one for each token, one behind another, where rows are not pooled. Sequences share steps as they fit; what
    /// one gets does not depend on the others.
    ///
    /// # Errors
    /// [`Error::Request`] for a model that is not loaded for embeddings and for a sequence of no tokens,
    /// [`Error::Context`] for one that is longer than the context, [`Error::Vocabulary`] for an id that the model
    /// lacks, [`Error::Backend`].
    pub fn embed(&mut self, sequences: &[Vec<u32>], norm: Norm) -> Result<Vec<Vec<f32>>, Error> {
        let Some(pooling) = self.pooling() else {
            return Err(Error::Request("the model is loaded for logits: it has no embeddings".into()));
        };
        for tokens in sequences {
            if tokens.is_empty() {
                return Err(Error::Request("a sequence of no tokens has no embedding".into()));
            }
            if tokens.len() > self.context() {
                return Err(Error::Context { tokens: tokens.len(), context: self.context() });
            }
            if let Some(&token) = tokens.iter().find(|&&t| t as usize >= self.vocabulary()) {
                return Err(Error::Vocabulary { token, vocabulary: self.vocabulary() });
            }
        }
        let mut embeddings = Vec::with_capacity(sequences.len());
        while let Some(rest) = sequences.get(embeddings.len()..).filter(|rest| !rest.is_empty()) {
            let together = self.fitting(rest);
            self.embed_step(&rest[..together], pooling, &mut embeddings)?;
        }
        embeddings
            .iter_mut()
            .flat_map(|e| e.chunks_exact_mut(self.embedding_width()))
            .for_each(|e| norm.apply(e));
        Ok(embeddings)
    }

    /// Numbers of an embedding.
    pub fn embedding_width(&self) -> usize {
        self.plan().values.get(self.plan().logits.index()).map_or(1, |v| v.width)
    }

    /// How many of the next sequences make a step: at least one, since any fits by itself.
    fn fitting(&self, sequences: &[Vec<u32>]) -> usize {
        let (mut rows, mut blocks, mut count) = (0, 0, 0);
        for tokens in sequences {
            rows += tokens.len();
            blocks += self.pool.table().missing(tokens.len());
            let slots = !self.plan().states.is_empty();
            if rows > self.max_rows() || blocks > self.pool.free() || slots && count > 0 {
                break;
            }
            count += 1;
        }
        count.max(1)
    }

    fn embed_step(
        &mut self,
        sequences: &[Vec<u32>],
        pooling: Pooling,
        embeddings: &mut Vec<Vec<f32>>,
    ) -> Result<(), Error> {
        let mut held = Vec::with_capacity(sequences.len());
        for tokens in sequences {
            let mut s = self.sequence();
            s.append(tokens)?;
            s.table.grow(tokens.len())?;
            if let Some(copy) = s.states.prepare(0)? {
                self.loaded.copy_slots(&[copy])?;
            }
            held.push(s);
        }
        let (mut tokens, mut seqs, mut sample) = (Vec::new(), Vec::new(), Vec::new());
        for s in &held {
            let first = tokens.len();
            tokens.extend(s.tokens());
            let rows = first..tokens.len();
            let wanted = match pooling {
                Pooling::None => rows.clone(),
                Pooling::Mean | Pooling::Cls => first..first + 1,
                Pooling::Rank if self.sees_later_rows() => first..first + 1,
                Pooling::Last | Pooling::Rank => tokens.len() - 1..tokens.len(),
            };
            sample.extend(wanted.map(|row| SampleRow { row, logits: true }));
            seqs.push(SeqRows { rows, first_pos: 0, blocks: s.table.blocks(), slot: s.states.slot() });
        }
        self.loaded.step(&Rows { tokens: &tokens, seqs: &seqs }, &sample, &mut self.out)?;
        let mut numbers = self.out.logits.as_slice();
        for s in &held {
            let rows = if pooling == Pooling::None { s.tokens().len() } else { 1 };
            let (own, rest) = numbers.split_at(rows * self.embedding_width());
            embeddings.push(own.to_vec());
            numbers = rest;
        }
        Ok(())
    }
}
