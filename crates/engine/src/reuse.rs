//! What sequences share: beginnings that the cache holds already, and forks.

use cera_backend::BLOCK;

use crate::disk::Wanted;
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
        self.recall(before)?;
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
        let Some(disk) = &self.disk else { return Ok(()) };
        let states = states.checkpoints().iter().map(|&(at, slot)| (at / BLOCK, slot)).collect();
        let read = |wanted| {
            let mut bytes = Vec::new();
            match wanted {
                Wanted::Block(i) => match table.blocks().get(i) {
                    Some(&block) => self.loaded.read_block(block, &mut bytes)?,
                    None => return Err(Error::Request(format!("block {i} of a sequence is not stored"))),
                },
                Wanted::States(slot) => self.loaded.read_slot(slot, &mut bytes)?,
            }
            Ok(bytes)
        };
        disk.keep(tokens, &states, read)
    }

    /// Takes into the cache what the disk has of a sequence's first tokens and the cache has not.
    fn recall(&mut self, tokens: &[u32]) -> Result<(), Error> {
        let Some(disk) = &self.disk else { return Ok(()) };
        let recurrent = !self.plan().states.is_empty();
        let known = self.prefixes.find(tokens);
        let found = disk.find(tokens, known.known / BLOCK, recurrent);
        if found.blocks * BLOCK <= known.tokens() {
            return Ok(());
        }
        // Held, so that making room for the rest takes none of them away.
        let mut table = self.pool.table();
        let path = self.prefixes.path_blocks(tokens.get(..known.known).unwrap_or_default());
        table.share(path.get(..found.blocks).unwrap_or(&path));
        for i in table.blocks().len()..found.blocks {
            let Some(bytes) = self.disk.as_ref().and_then(|disk| disk.block(&found, i)) else { break };
            if self.make_room(1).is_err() {
                break;
            }
            table.grow((i + 1) * BLOCK)?;
            if let Some(&block) = table.blocks().get(i) {
                self.loaded.write_block(block, &bytes)?;
            }
        }
        let tokens = tokens.get(..table.blocks().len() * BLOCK).unwrap_or_default();
        self.prefixes.keep(tokens, &mut table);
        if recurrent
            && table.blocks().len() == found.blocks
            && let Some(bytes) = self.disk.as_ref().and_then(|disk| disk.states(&found, found.blocks - 1))
            && let Some(slot) = self.prefixes.keep_states(tokens)
        {
            self.loaded.write_slot(slot, tokens.len(), &bytes)?;
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
