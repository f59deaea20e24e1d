//! A timeline of tokens and the part of it that the cache holds.

use cera_backend::{BLOCK, BlockId};

use crate::Error;
use crate::blocks::BlockTable;
use crate::states::States;

/// A timeline: token ids in order, of which the first [`stored`](Self::stored) have been through the model and
/// are in the cache; the rest are pending. Belongs to the engine that made it. Its blocks of the cache go back
/// when it is dropped.
#[derive(Debug)]
pub struct Sequence {
    tokens: Vec<u32>,
    stored: usize,
    /// Others have begun with so many of the same tokens: those of a model with recurrent states are worth a copy there.
    known: usize,
    pub(crate) table: BlockTable,
    pub(crate) states: States,
    context: usize,
    vocabulary: usize,
}

impl Sequence {
    pub(crate) fn new(table: BlockTable, states: States, context: usize, vocabulary: usize) -> Self {
        Self { tokens: Vec::new(), stored: 0, known: 0, table, states, context, vocabulary }
    }

    /// Adds tokens at the end. They go through the model with the next steps.
    ///
    /// # Errors
    /// [`Error::Context`] where the sequence would outgrow the context, [`Error::Vocabulary`] for an id that the
    /// model lacks. Nothing is added then.
    pub fn append(&mut self, tokens: &[u32]) -> Result<(), Error> {
        let length = self.tokens.len().saturating_add(tokens.len());
        if length > self.context {
            return Err(Error::Context { tokens: length, context: self.context });
        }
        if let Some(&token) = tokens.iter().find(|&&t| t as usize >= self.vocabulary) {
            return Err(Error::Vocabulary { token, vocabulary: self.vocabulary });
        }
        self.tokens.extend_from_slice(tokens);
        Ok(())
    }

    /// Keeps the first `length` tokens and forgets the others, in the timeline and in the cache. Does nothing
    /// where there are no more than that. A model with recurrent states can go back only to where it has a copy of
    /// them: some of the tokens that are kept are pending again then, and [`stored`](Self::stored) says how many are not.
    pub fn rewind(&mut self, length: usize) {
        self.tokens.truncate(length);
        self.stored = self.states.rewind(self.stored.min(length));
        self.table.shrink(self.stored);
    }

    /// Makes the timeline `tokens`, keeping what the cache holds of them: rewinds to the longest common
    /// beginning, then appends the rest. Gives back the length of that beginning.
    ///
    /// # Errors
    /// As [`append`](Self::append); the sequence is unchanged then.
    pub fn become_tokens(&mut self, tokens: &[u32]) -> Result<usize, Error> {
        if tokens.len() > self.context {
            return Err(Error::Context { tokens: tokens.len(), context: self.context });
        }
        let common = self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let (_, rest) = tokens.split_at(common);
        if let Some(&token) = rest.iter().find(|&&t| t as usize >= self.vocabulary) {
            return Err(Error::Vocabulary { token, vocabulary: self.vocabulary });
        }
        self.rewind(common);
        self.append(rest)?;
        Ok(common)
    }

    /// Gives up all that the cache holds of the sequence: every token is pending again.
    pub fn release(&mut self) {
        self.states.release();
        (self.stored, self.known) = (0, 0);
        self.table.shrink(0);
    }

    /// Begins with what the tree of prefixes has: blocks that hold its first tokens, of which `known` are known. States
    /// are the caller's matter.
    pub(crate) fn begin(&mut self, blocks: &[BlockId], known: usize) {
        self.table.share(blocks);
        self.stored = blocks.len() * BLOCK;
        self.known = known;
    }

    /// The first `count` tokens, where they are stored, and the states.
    pub(crate) fn kept_parts(&mut self, count: usize) -> (&[u32], &mut BlockTable, &States) {
        (self.tokens.get(..count).unwrap_or_default(), &mut self.table, &self.states)
    }

    /// A sequence of the same tokens over the same blocks, with states of its own.
    pub(crate) fn fork(&self, states: States) -> Self {
        let mut table = self.table.pool().table();
        table.share(self.table.blocks());
        let &Self { stored, known, context, vocabulary, .. } = self;
        Self { tokens: self.tokens.clone(), stored, known, table, states, context, vocabulary }
    }

    /// How many of the next `rows` tokens to take into a step. Fewer where a model with recurrent states is to have a copy
    /// of them on the way, which can only be made at the end of a step: at the last end of a block, and where other
    /// sequences went on differently.
    pub(crate) fn cut(&self, rows: usize) -> usize {
        if !self.states.used() {
            return rows;
        }
        let last = self.tokens.len().saturating_sub(1) / BLOCK * BLOCK;
        let ends = [self.known, last].into_iter().filter(|&end| end > self.stored);
        ends.map(|end| end - self.stored).fold(rows, usize::min)
    }

    /// Blocks of the cache that the sequence holds.
    pub fn blocks(&self) -> usize {
        self.table.blocks().len()
    }

    /// All tokens, stored and pending.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// How many of the first tokens the cache holds.
    pub fn stored(&self) -> usize {
        self.stored
    }

    /// The tokens that have not been through the model.
    pub fn pending(&self) -> &[u32] {
        self.tokens.get(self.stored..).unwrap_or_default()
    }

    /// The most tokens that the sequence may have.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Counts the next `rows` pending tokens as stored.
    pub(crate) fn advance(&mut self, rows: usize) {
        self.stored = self.stored.saturating_add(rows).min(self.tokens.len());
    }

    /// A step of this sequence failed: its tokens stay pending, and what its recurrent states have lost as well.
    pub(crate) fn failed(&mut self) {
        self.stored = self.states.lose(self.stored);
        self.table.shrink(self.stored);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::BlockPool;
    use crate::states::SlotPool;

    fn sequence(pool: &BlockPool) -> Sequence {
        Sequence::new(pool.table(), SlotPool::new(false, 1).states(), 4 * BLOCK, 100)
    }

    #[test]
    fn append_refuses_what_does_not_fit_and_adds_nothing() {
        let pool = BlockPool::new(4);
        let mut s = sequence(&pool);
        s.append(&[1, 2, 3]).unwrap();
        let error = s.append(&[7; 4 * BLOCK]).unwrap_err();
        assert!(matches!(error, Error::Context { tokens: 131, context: 128 }), "{error}");
        let error = s.append(&[5, 100]).unwrap_err();
        assert!(matches!(error, Error::Vocabulary { token: 100, vocabulary: 100 }), "{error}");
        assert_eq!(s.tokens(), [1, 2, 3]);
    }

    #[test]
    fn rewind_forgets_tokens_and_frees_blocks() {
        let pool = BlockPool::new(4);
        let mut s = sequence(&pool);
        s.append(&[9; 3 * BLOCK]).unwrap();
        s.table.grow(3 * BLOCK).unwrap();
        s.advance(2 * BLOCK + 1);
        assert_eq!(s.pending().len(), BLOCK - 1);
        s.rewind(2 * BLOCK + 5);
        assert_eq!((s.stored(), s.pending().len(), pool.free()), (2 * BLOCK + 1, 4, 1));
        s.rewind(BLOCK);
        assert_eq!((s.stored(), s.pending().len(), pool.free()), (BLOCK, 0, 3));
        s.rewind(1000);
        assert_eq!(s.tokens().len(), BLOCK);
    }

    #[test]
    fn becoming_other_tokens_keeps_the_common_beginning() {
        let pool = BlockPool::new(4);
        let mut s = sequence(&pool);
        s.append(&[1, 2, 3, 4]).unwrap();
        s.table.grow(4).unwrap();
        s.advance(4);
        assert_eq!(s.become_tokens(&[1, 2, 8]).unwrap(), 2);
        assert_eq!((s.tokens(), s.stored(), s.pending()), (&[1, 2, 8][..], 2, &[8][..]));
        assert!(s.become_tokens(&[1, 100]).is_err());
        assert_eq!(s.tokens(), [1, 2, 8]);
    }
}
