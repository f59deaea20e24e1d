//! What sequences share: beginnings that the cache holds already, and forks.

use cera_backend::BLOCK;

use crate::{Engine, Error, Sequence};

/// What the cache has of a sequence that has not begun.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Reusable {
    /// Tokens that need not go through the model.
    pub tokens: usize,
    /// How many of their blocks other sequences hold at the moment.
    pub in_use: usize,
}

impl Engine {
    /// Begins a sequence with what the cache holds of its tokens from others: see [`keep`](Self::keep). At least one token
    /// stays pending. Gives how many tokens need not go through the model, on top of those that the sequence had stored.
    ///
    /// # Errors
    /// [`Error::Slots`] where more sequences have begun than a model with recurrent states was loaded for,
    /// [`Error::Request`] for a sequence of another engine, [`Error::Backend`].
    pub fn reuse(&mut self, sequence: &mut Sequence) -> Result<usize, Error> {
        self.is_ours(sequence)?;
        let (_, before) = sequence.tokens().split_last().unwrap_or((&0, &[]));
        let found = self.prefixes.find(before);
        let stored = sequence.stored();
        if found.tokens() <= stored {
            return Ok(0);
        }
        self.prefixes.touch(before.get(..found.tokens()).unwrap_or_default());
        sequence.release();
        if let Some(from) = found.states {
            let copy = sequence.states.start(found.tokens(), from)?;
            self.loaded.copy_slots(&[copy])?;
        }
        sequence.begin(&found.blocks, found.known);
        Ok(found.tokens() - stored)
    }

    /// Keeps what the cache holds of a sequence, in whole blocks of [`BLOCK`] tokens, for others that begin with the same
    /// tokens, also when the sequence itself has gone. It stays until the room is needed; what was not used for longest
    /// goes first. Of a model with recurrent states others can go on from those places where the sequence has a copy of
    /// them.
    ///
    /// # Errors
    /// [`Error::Request`] for a sequence of another engine, [`Error::Backend`].
    pub fn keep(&mut self, sequence: &mut Sequence) -> Result<(), Error> {
        self.is_ours(sequence)?;
        let whole = sequence.stored() / BLOCK * BLOCK;
        let (tokens, table, states) = sequence.kept_parts(whole);
        self.prefixes.keep(tokens, table);
        for &(at, from) in states.checkpoints() {
            let kept = tokens.get(..at).and_then(|tokens| self.prefixes.keep_states(tokens));
            if let Some(to) = kept {
                self.loaded.copy_slots(&[(from, to)])?;
            }
        }
        Ok(())
    }

    /// A sequence of the same tokens that goes its own way from here. What is stored is shared, not copied.
    ///
    /// # Errors
    /// [`Error::Slots`] where more sequences have begun than a model with recurrent states was loaded for,
    /// [`Error::Request`] for a sequence of another engine, [`Error::Backend`].
    pub fn fork(&mut self, sequence: &Sequence) -> Result<Sequence, Error> {
        self.is_ours(sequence)?;
        let (states, copy) = sequence.states.fork(sequence.stored())?;
        if let Some(copy) = copy {
            self.loaded.copy_slots(&[copy])?;
        }
        Ok(sequence.fork(states))
    }

    /// What [`reuse`](Self::reuse) would find for a sequence that has not begun.
    pub(crate) fn reusable(&self, sequence: &Sequence) -> Reusable {
        let (_, before) = sequence.tokens().split_last().unwrap_or((&0, &[]));
        let found = self.prefixes.find(before);
        let in_use = found.blocks.iter().filter(|block| self.pool.in_use(**block)).count();
        Reusable { tokens: found.tokens(), in_use }
    }

    pub(crate) fn is_ours(&self, sequence: &Sequence) -> Result<(), Error> {
        if sequence.table.pool().is(&self.pool) {
            return Ok(());
        }
        Err(Error::Request("a sequence belongs to another engine".into()))
    }
}
