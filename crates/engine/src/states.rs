//! A sequence's recurrent states: the slot that they are in, and checkpoints to go back to.
//!
//! Keys and values of a position stay where they are when the sequence gets longer, so a rewind just forgets those
//! behind it. A recurrent state is overwritten with each step. What can be gone back to is a copy, and what lies
//! between the copy and the rewind's end is computed again, which gives the same bits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cera_backend::{BLOCK, SlotId};

use crate::Error;

/// Checkpoints that a sequence keeps at most.
pub(crate) const CHECKPOINTS: usize = 3;

/// Copies that the tree of prefixes has room for, per sequence.
const KEPT: usize = 2;

/// The free slots of a model, shared by its sequences.
#[derive(Clone, Debug)]
pub(crate) struct SlotPool {
    /// Whether the model has recurrent states.
    used: bool,
    sequences: usize,
    free: Arc<Mutex<Free>>,
}

/// Slots that nobody holds. Checkpoints have their own, so that none stands in the way of a new sequence.
#[derive(Debug)]
struct Free {
    own: Vec<SlotId>,
    checkpoints: Vec<SlotId>,
}

/// The states of one sequence. Slots are given back when dropped.
#[derive(Debug)]
pub(crate) struct States {
    pool: SlotPool,
    /// Taken with the first step.
    slot: Option<SlotId>,
    /// Positions that the states in the slot have seen, where that is known.
    seen: Option<usize>,
    /// Positions seen, ascending, and the copy of the states behind them.
    checkpoints: Vec<(usize, SlotId)>,
}

/// A copy to be made: from a slot to another.
pub(crate) type Copy = (SlotId, SlotId);

impl SlotPool {
    /// Slots for so many sequences; for a model without states, none are needed.
    pub fn new(used: bool, sequences: usize) -> Self {
        let ids = |from: usize, count: usize| (from..from + count).rev().map(|i| SlotId(i as u32)).collect();
        let sequences = if used { sequences } else { 0 };
        let free = Free { own: ids(0, sequences), checkpoints: ids(sequences, CHECKPOINTS * sequences) };
        Self { used, sequences, free: Arc::new(Mutex::new(free)) }
    }

    /// Slots that so many sequences need, with their checkpoints.
    pub fn slots(sequences: usize) -> usize {
        sequences.saturating_mul(1 + CHECKPOINTS + KEPT)
    }

    /// The slots of the tree of prefixes; `None` where none are needed.
    pub fn kept(&self) -> Option<Vec<SlotId>> {
        let first = self.sequences * (1 + CHECKPOINTS);
        let ids = first..first + self.sequences * KEPT;
        self.used.then(|| ids.map(|i| SlotId(i as u32)).collect())
    }

    /// For how many sequences there are slots; `None` where none are needed.
    pub fn sequences(&self) -> Option<usize> {
        self.used.then_some(self.sequences)
    }

    /// The states of a new sequence.
    pub fn states(&self) -> States {
        States { pool: self.clone(), slot: None, seen: Some(0), checkpoints: Vec::new() }
    }

    /// The lists are consistent between any two calls, so a panic elsewhere leaves nothing half done.
    fn list(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl States {
    /// The slot, once a step took one.
    pub fn slot(&self) -> Option<SlotId> {
        self.slot
    }

    /// Goes back to `length` positions or fewer; gives how many. Never forward.
    pub fn rewind(&mut self, length: usize) -> usize {
        if !self.pool.used {
            return length;
        }
        let keep = self.checkpoints.partition_point(|(at, _)| *at <= length);
        let behind = self.checkpoints.drain(keep..).map(|(_, slot)| slot);
        self.pool.list().checkpoints.extend(behind);
        match self.seen {
            Some(seen) if seen == length => length,
            _ => self.checkpoints.last().map_or(0, |(at, _)| *at),
        }
    }

    /// Gives all slots back: the sequence begins anew.
    pub fn release(&mut self) {
        let mut free = self.pool.list();
        free.own.extend(self.slot.take());
        free.checkpoints.extend(self.checkpoints.drain(..).map(|(_, slot)| slot));
        self.seen = Some(0);
    }

    /// Whether the model has recurrent states.
    pub fn used(&self) -> bool {
        self.pool.used
    }

    /// The copies that there are: positions seen, ascending, and where.
    pub fn checkpoints(&self) -> &[(usize, SlotId)] {
        &self.checkpoints
    }

    /// Begins behind `at` positions, with the states in `from`. Gives the copy to make before anything else happens.
    ///
    /// # Errors
    /// [`Error::Slots`] where other sequences have all slots.
    pub fn start(&mut self, at: usize, from: SlotId) -> Result<Copy, Error> {
        self.release();
        let slot = self.pool.list().own.pop().ok_or(Error::Slots)?;
        (self.slot, self.seen) = (Some(slot), Some(at));
        Ok((from, slot))
    }

    /// The same states for another sequence behind `stored` positions, which these states have seen or have a copy of.
    /// Gives the copy to make before anything else happens.
    ///
    /// # Errors
    /// [`Error::Slots`] where other sequences have all slots.
    pub fn fork(&self, stored: usize) -> Result<(States, Option<Copy>), Error> {
        let mut states = self.pool.states();
        if !self.pool.used || stored == 0 {
            return Ok((states, None));
        }
        let seen = self.slot.filter(|_| self.seen == Some(stored));
        let copy = self.checkpoints.iter().find(|(at, _)| *at == stored).map(|(_, slot)| *slot);
        let from = seen.or(copy).ok_or(Error::Slots)?;
        let copy = states.start(stored, from)?;
        Ok((states, Some(copy)))
    }

    /// The step failed, and with it the states. Gives how many positions can be gone back to.
    pub fn lose(&mut self, stored: usize) -> usize {
        self.seen = None;
        self.rewind(stored)
    }

    /// Takes a slot where the sequence has none. Gives the copy to make before a step that goes on behind `stored`
    /// positions, which are what [`rewind`](Self::rewind), [`lose`](Self::lose) or [`advance`](Self::advance) gave.
    ///
    /// # Errors
    /// [`Error::Slots`] where other sequences have all.
    pub fn prepare(&mut self, stored: usize) -> Result<Option<Copy>, Error> {
        if !self.pool.used {
            return Ok(None);
        }
        let slot = match self.slot {
            Some(slot) => slot,
            None => self.pool.list().own.pop().ok_or(Error::Slots)?,
        };
        self.slot = Some(slot);
        if stored == 0 || self.seen == Some(stored) {
            return Ok(None);
        }
        let from = self.checkpoints.iter().find(|(at, _)| *at == stored);
        Ok(from.map(|(_, from)| (*from, slot)))
    }

    /// A step brought the states to `stored` positions. Gives the copy to make of them where they are worth one: at
    /// the end of a block. A sequence that has all its checkpoints gives up the one that is missed least.
    pub fn advance(&mut self, stored: usize) -> Option<Copy> {
        self.seen = Some(stored);
        let slot = self.slot?;
        if !stored.is_multiple_of(BLOCK) || self.checkpoints.last().is_some_and(|(at, _)| *at >= stored) {
            return None;
        }
        let new =
            if self.checkpoints.len() < CHECKPOINTS { self.pool.list().checkpoints.pop() } else { None };
        let copy = new.or_else(|| self.give_up(stored))?;
        self.checkpoints.push((stored, copy));
        Some((slot, copy))
    }

    /// The checkpoint that is missed least when there is one at `end`: that which leaves the smallest gap, in proportion
    /// to how far back the gap begins.
    fn give_up(&mut self, end: usize) -> Option<SlotId> {
        let before = [0].into_iter().chain(self.checkpoints.iter().map(|(at, _)| *at));
        let after = self.checkpoints.iter().skip(1).map(|(at, _)| *at).chain([end]);
        let cost = before.zip(after).map(|(before, after)| (after - before) as f64 / (end - before) as f64);
        let (least, _) = cost.enumerate().min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(self.checkpoints.remove(least).1)
    }
}

impl Drop for States {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps to `to` positions; the copies before and behind it.
    fn step(s: &mut States, from: usize, to: usize) -> [Option<(u32, u32)>; 2] {
        let ids = |c: Option<Copy>| c.map(|(a, b)| (a.0, b.0));
        [ids(s.prepare(from).unwrap()), ids(s.advance(to))]
    }

    #[test]
    fn goes_back_to_copies_at_block_ends() {
        let pool = SlotPool::new(true, 1);
        let mut s = pool.states();
        assert_eq!(step(&mut s, 0, 40), [None, None]);
        assert_eq!(step(&mut s, 40, 64), [None, Some((0, 1))]);
        assert_eq!(step(&mut s, 64, 96), [None, Some((0, 2))]);
        assert_eq!(step(&mut s, 96, 100), [None, None]);
        assert_eq!(s.rewind(100), 100);
        assert_eq!(s.rewind(99), 96);
        assert_eq!(s.rewind(70), 64);
        // The copy at 96 is gone: its slot is the next to go out.
        assert_eq!(step(&mut s, 64, 128), [Some((1, 0)), Some((0, 2))]);
        assert_eq!(s.rewind(63), 0);
        assert_eq!(step(&mut s, 0, 5), [None, None]);
    }

    #[test]
    fn a_lost_state_is_never_gone_on_from() {
        let pool = SlotPool::new(true, 1);
        let mut s = pool.states();
        step(&mut s, 0, 32);
        step(&mut s, 32, 50);
        assert_eq!(s.lose(50), 32);
        assert_eq!(step(&mut s, 32, 50), [Some((1, 0)), None]);
        assert_eq!(s.rewind(50), 50);
        s.rewind(10);
        assert_eq!(s.lose(0), 0);
    }

    #[test]
    fn few_copies_lie_close_to_the_end_and_far_apart_before() {
        let pool = SlotPool::new(true, 2);
        let mut s = pool.states();
        let blocks = 64;
        for n in 0..blocks {
            step(&mut s, n * BLOCK, (n + 1) * BLOCK);
        }
        let at: Vec<usize> = s.checkpoints.iter().map(|(at, _)| at / BLOCK).collect();
        assert_eq!((at.len(), at[CHECKPOINTS - 1]), (CHECKPOINTS, blocks));
        assert!(at[0] > blocks / 4 && at[0] < 3 * blocks / 4 && at[1] > 3 * blocks / 4, "{at:?}");
    }

    #[test]
    fn a_fork_has_states_of_its_own() {
        let pool = SlotPool::new(true, 3);
        let mut a = pool.states();
        step(&mut a, 0, 64);
        step(&mut a, 64, 70);
        let (mut b, copy) = a.fork(70).unwrap();
        assert_eq!(copy, Some((SlotId(0), SlotId(1))));
        assert_eq!(step(&mut b, 70, 71), [None, None]);
        // Where only a copy is left, from there.
        a.rewind(66);
        let (b2, copy) = a.fork(64).unwrap();
        assert_eq!(copy, Some((SlotId(3), SlotId(2))));
        assert!(matches!(a.fork(64), Err(Error::Slots)));
        drop(b2);
        assert_eq!(b.start(32, SlotId(9)).unwrap().0, SlotId(9));
        assert_eq!(a.fork(0).unwrap().1, None);
    }

    #[test]
    fn slots_go_back_to_the_pool() {
        let pool = SlotPool::new(true, 2);
        let (mut a, mut b, mut c) = (pool.states(), pool.states(), pool.states());
        step(&mut a, 0, BLOCK);
        step(&mut b, 0, BLOCK);
        assert!(matches!(c.prepare(0), Err(Error::Slots)));
        drop(a);
        assert_eq!(step(&mut c, 0, BLOCK).map(|c| c.map(|(from, _)| from)), [None, Some(0)]);
        drop((b, c));
        let free = pool.list();
        let kept = pool.kept().unwrap();
        let mut all: Vec<u32> = free.own.iter().chain(&free.checkpoints).chain(&kept).map(|s| s.0).collect();
        all.sort_unstable();
        assert_eq!(all, (0..SlotPool::slots(2) as u32).collect::<Vec<_>>());
    }

    #[test]
    fn a_model_without_states_has_no_slots() {
        let pool = SlotPool::new(false, 3);
        let mut s = pool.states();
        assert_eq!(step(&mut s, 0, BLOCK), [None, None]);
        assert_eq!((s.slot(), s.rewind(7)), (None, 7));
    }
}
