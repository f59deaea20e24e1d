//! Who is where in the slots of recurrent state.
//!
//! A state says nothing of the position that it stands behind, and one that is read at another gives a wrong answer
//! without a sign. So every backend keeps that position for each slot, and refuses a step that goes on from another.

use cera_plan::Plan;

use crate::{Error, KvShape, Rows};

/// A slot of recurrent state: room for all states of one sequence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SlotId(pub u32);

/// How many positions each slot's states have seen.
pub struct Slots {
    /// Whether the plan has states.
    used: bool,
    /// By slot; `None` where a step failed, and left the states anywhere.
    seen: Vec<Option<usize>>,
}

impl Slots {
    /// Slots that have seen nothing.
    pub fn new(plan: &Plan, kv: &KvShape) -> Slots {
        let used = !plan.states.is_empty();
        Slots { used, seen: vec![Some(0); if used { kv.slots } else { 0 }] }
    }

    /// Checks that each sequence has a slot of its own whose states have seen all that is before its rows. From here
    /// on the states count as lost, until [`end`](Self::end) says that the step went well.
    ///
    /// # Errors
    /// [`Error::Step`], and nothing is lost.
    pub fn begin(&mut self, rows: &Rows<'_>) -> Result<(), Error> {
        if !self.used {
            return Ok(());
        }
        for (i, s) in rows.seqs.iter().enumerate() {
            let Some(slot) = s.slot else {
                return Err(Error::Step(format!("sequence {i} has no slot for its recurrent state")));
            };
            let seen = *self.find(slot)?;
            if rows.seqs[..i].iter().any(|o| o.slot == Some(slot)) {
                return Err(Error::Step(format!("slot {} belongs to two sequences of the step", slot.0)));
            }
            let first = s.first_pos;
            if first != 0 && seen != Some(first) {
                let seen = seen.map_or("an unknown number of".to_owned(), |n| n.to_string());
                return Err(Error::Step(format!(
                    "sequence {i} goes on at position {first}, but slot {} has seen {seen} positions",
                    slot.0
                )));
            }
        }
        self.set(rows, |_| None);
        Ok(())
    }

    /// The step that [`begin`](Self::begin) checked is done.
    pub fn end(&mut self, rows: &Rows<'_>) {
        self.set(rows, Some);
    }

    /// Notes that slots are copied, in order: `(from, to)`.
    ///
    /// # Errors
    /// [`Error::Step`] where a slot is not there; nothing is noted then.
    pub fn copy(&mut self, pairs: &[(SlotId, SlotId)]) -> Result<(), Error> {
        for (from, to) in pairs {
            self.find(*from)?;
            self.find(*to)?;
        }
        for (from, to) in pairs {
            self.seen[to.0 as usize] = self.seen[from.0 as usize];
        }
        Ok(())
    }

    /// Notes that a slot's states, from outside, have seen so many positions.
    ///
    /// # Errors
    /// [`Error::Step`] where the slot is not there.
    pub fn restore(&mut self, slot: SlotId, seen: usize) -> Result<(), Error> {
        *self.find(slot)? = Some(seen);
        Ok(())
    }

    fn set(&mut self, rows: &Rows<'_>, seen: impl Fn(usize) -> Option<usize>) {
        for s in rows.seqs {
            if let Some(at) = s.slot.and_then(|slot| self.seen.get_mut(slot.0 as usize)) {
                *at = seen(s.first_pos + s.rows.len());
            }
        }
    }

    fn find(&mut self, slot: SlotId) -> Result<&mut Option<usize>, Error> {
        let slots = self.seen.len();
        let absent = || Error::Step(format!("slot {}, but there are {slots}", slot.0));
        self.seen.get_mut(slot.0 as usize).ok_or_else(absent)
    }
}

#[cfg(test)]
mod tests {
    use cera_plan::{Op, RecurrentState, RowSet, Val, Value, Wt};

    use super::*;
    use crate::{KvType, SeqRows};

    fn slots(states: usize) -> Slots {
        let plan = Plan {
            ops: vec![Op::Embed { out: Val(0), table: Wt(0) }],
            values: vec![Value { rows: RowSet::All, width: 1 }],
            weights: vec![],
            kv: vec![],
            states: vec![RecurrentState { len: 4 }; states],
            logits: Val(0),
        };
        Slots::new(&plan, &KvShape { ty: KvType::F32.into(), blocks: 1, max_rows: 9, slots: 2 })
    }

    fn begin(slots: &mut Slots, seqs: &[(usize, Option<u32>)]) -> Result<(), String> {
        let seqs: Vec<SeqRows<'_>> = seqs
            .iter()
            .map(|&(first_pos, slot)| SeqRows { rows: 0..3, first_pos, blocks: &[], slot: slot.map(SlotId) })
            .collect();
        let rows = Rows { tokens: &[], seqs: &seqs };
        slots.begin(&rows).map_err(|e| e.to_string())?;
        // A first position of 100 stands for a step that fails.
        if seqs.iter().all(|s| s.first_pos < 100) {
            slots.end(&rows);
        }
        Ok(())
    }

    #[test]
    fn a_sequence_goes_on_where_its_slot_stands() {
        let mut s = slots(1);
        begin(&mut s, &[(0, Some(1)), (0, Some(0))]).unwrap();
        begin(&mut s, &[(3, Some(1))]).unwrap();
        let refused = |s: &mut Slots, seqs: &[_], words: &str| {
            let why = begin(s, seqs).unwrap_err();
            assert!(why.contains(words), "{why}");
        };
        refused(&mut s, &[(3, Some(1))], "position 3, but slot 1 has seen 6");
        refused(&mut s, &[(3, None)], "sequence 0 has no slot");
        refused(&mut s, &[(3, Some(0)), (3, Some(0))], "slot 0 belongs to two");
        refused(&mut s, &[(0, Some(2))], "slot 2, but there are 2");
        // What was refused changed nothing; a copy stands where the original did.
        s.copy(&[(SlotId(1), SlotId(0))]).unwrap();
        begin(&mut s, &[(6, Some(0)), (6, Some(1))]).unwrap();
        assert!(s.copy(&[(SlotId(0), SlotId(2))]).is_err());
    }

    #[test]
    fn a_failed_step_leaves_no_state_to_go_on_from() {
        let mut s = slots(1);
        s.seen[0] = Some(100);
        begin(&mut s, &[(100, Some(0))]).unwrap();
        let why = begin(&mut s, &[(100, Some(0))]).unwrap_err();
        assert!(why.contains("seen an unknown number of positions"), "{why}");
        begin(&mut s, &[(0, Some(0))]).unwrap();
        begin(&mut s, &[(3, Some(0))]).unwrap();
    }

    #[test]
    fn a_plan_without_states_looks_at_no_slot() {
        begin(&mut slots(0), &[(7, None), (8, Some(9))]).unwrap();
    }
}
