//! Tokens found by their bytes.
//!
//! Loading a vocabulary and encoding a text both are mostly this, and it is mostly waiting for memory. So a slot holds
//! the bytes of a short token itself: most look-ups touch one line of memory.

use std::hash::{BuildHasher, BuildHasherDefault};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxHasher;

/// Bytes that a slot holds.
const HEAD: usize = 11;
/// Stands for a length that a slot cannot hold the bytes of.
const LONG: u8 = u8::MAX;

#[derive(Debug, Clone, Copy)]
struct Slot {
    id: u32,
    length: u8,
    /// The bytes, or the first of them; zeros behind.
    head: [u8; HEAD],
}

impl Slot {
    fn new(id: u32, piece: &[u8]) -> Self {
        let mut head = [0; HEAD];
        for (slot, byte) in head.iter_mut().zip(piece) {
            *slot = *byte;
        }
        let length = if piece.len() <= HEAD { piece.len() as u8 } else { LONG };
        Self { id, length, head }
    }

    /// Whether the slot's token is the piece of `other`. `bytes` gives those of a token.
    fn is<'p>(&self, other: &Self, piece: &[u8], bytes: impl Fn(u32) -> &'p [u8]) -> bool {
        self.length == other.length
            && self.head == other.head
            && (self.length != LONG || bytes(self.id) == piece)
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    slots: HashTable<Slot>,
}

fn hash(bytes: &[u8]) -> u64 {
    BuildHasherDefault::<FxHasher>::default().hash_one(bytes)
}

impl Table {
    pub fn with_capacity(tokens: usize) -> Self {
        Self { slots: HashTable::with_capacity(tokens) }
    }

    /// Puts a token in. Gives the one of the same bytes, where there is one. `bytes` gives those of any token in it.
    pub fn insert<'p>(&mut self, id: u32, piece: &[u8], bytes: impl Fn(u32) -> &'p [u8]) -> Result<(), u32> {
        let slot = Slot::new(id, piece);
        let same = |other: &Slot| other.is(&slot, piece, &bytes);
        match self.slots.entry(hash(piece), same, |other| hash(bytes(other.id))) {
            Entry::Vacant(place) => {
                place.insert(slot);
                Ok(())
            }
            Entry::Occupied(place) => Err(place.get().id),
        }
    }

    /// The token of these bytes. `bytes` gives those of any token.
    pub fn find<'p>(&self, piece: &[u8], bytes: impl Fn(u32) -> &'p [u8]) -> Option<u32> {
        let slot = Slot::new(0, piece);
        self.slots.find(hash(piece), |other| other.is(&slot, piece, &bytes)).map(|slot| slot.id)
    }

    /// The tokens, in no order.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().map(|slot| slot.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_by_all_of_their_bytes() {
        let pieces: [&[u8]; 7] = [b"a", b"a\0", b"", b"eleven byte", b"eleven byteX", b"eleven byteY", b"\0"];
        let bytes = |id: u32| pieces[id as usize];
        let mut table = Table::with_capacity(0);
        for (id, piece) in (0u32..).zip(pieces) {
            assert_eq!(table.insert(id, piece, bytes), Ok(()));
        }
        for (id, piece) in (0u32..).zip(pieces) {
            assert_eq!(table.find(piece, bytes), Some(id));
            assert_eq!(table.insert(9, piece, bytes), Err(id));
        }
        for none in [&b"b"[..], b"a\0\0", b"eleven byteZ", b"eleven byt"] {
            assert_eq!(table.find(none, bytes), None);
        }
        assert_eq!(table.ids().count(), pieces.len());
    }
}
