//! Who holds which block of the key-value cache.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cera_backend::{BLOCK, BlockId};

use crate::Error;

/// The free blocks of one cache, shared by its sequences.
#[derive(Clone, Debug)]
pub(crate) struct BlockPool {
    /// Taken from the end, so that a block just freed, still warm, is the next to go out.
    free: Arc<Mutex<Vec<BlockId>>>,
    size: usize,
}

/// The blocks of one sequence, in order of position. Given back when dropped.
#[derive(Debug)]
pub(crate) struct BlockTable {
    pool: BlockPool,
    blocks: Vec<BlockId>,
}

impl BlockPool {
    /// A pool of blocks `0..blocks`, all free.
    pub fn new(blocks: u32) -> Self {
        Self { free: Arc::new(Mutex::new((0..blocks).rev().map(BlockId).collect())), size: blocks as usize }
    }

    /// A table without blocks.
    pub fn table(&self) -> BlockTable {
        BlockTable { pool: self.clone(), blocks: Vec::new() }
    }

    /// Blocks in all.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Blocks that nobody holds.
    pub fn free(&self) -> usize {
        self.list().len()
    }

    /// Whether both are the same pool.
    pub fn is(&self, other: &BlockPool) -> bool {
        Arc::ptr_eq(&self.free, &other.free)
    }

    /// The list is consistent between any two of its calls, so a panic elsewhere leaves nothing half done.
    fn list(&self) -> MutexGuard<'_, Vec<BlockId>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockTable {
    /// The pool that the blocks come from.
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// The blocks, by position divided by [`BLOCK`].
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Blocks that the table lacks to hold `positions`.
    pub fn missing(&self, positions: usize) -> usize {
        positions.div_ceil(BLOCK).saturating_sub(self.blocks.len())
    }

    /// Takes blocks until `positions` have room: all that are needed, or none.
    pub fn grow(&mut self, positions: usize) -> Result<(), Error> {
        let needed = self.missing(positions);
        let mut free = self.pool.list();
        let Some(left) = free.len().checked_sub(needed) else {
            return Err(Error::Blocks { needed, free: free.len() });
        };
        self.blocks.extend(free.drain(left..).rev());
        Ok(())
    }

    /// Gives back the blocks behind the first `positions`.
    pub fn shrink(&mut self, positions: usize) {
        let keep = positions.div_ceil(BLOCK).min(self.blocks.len());
        self.pool.list().extend(self.blocks.drain(keep..).rev());
    }
}

impl Drop for BlockTable {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(table: &BlockTable) -> Vec<u32> {
        table.blocks().iter().map(|b| b.0).collect()
    }

    #[test]
    fn grows_by_whole_blocks_and_gives_them_back() {
        let pool = BlockPool::new(4);
        let mut a = pool.table();
        a.grow(1).unwrap();
        assert_eq!(ids(&a), [0]);
        a.grow(BLOCK).unwrap();
        assert_eq!(ids(&a), [0]);
        a.grow(BLOCK + 1).unwrap();
        let mut b = pool.table();
        b.grow(2 * BLOCK).unwrap();
        assert_eq!((ids(&a), ids(&b), pool.free()), (vec![0, 1], vec![2, 3], 0));
        a.shrink(BLOCK);
        assert_eq!((ids(&a), pool.free()), (vec![0], 1));
        drop(b);
        assert_eq!(pool.free(), 3);
        drop(a);
        assert_eq!(pool.free(), 4);
    }

    #[test]
    fn a_full_pool_gives_nothing_and_says_so() {
        let pool = BlockPool::new(2);
        let mut a = pool.table();
        let error = a.grow(3 * BLOCK).unwrap_err();
        assert!(matches!(error, Error::Blocks { needed: 3, free: 2 }), "{error}");
        assert_eq!((a.blocks().len(), pool.free()), (0, 2));
    }

    #[test]
    fn no_block_is_held_twice() {
        let pool = BlockPool::new(64);
        let mut tables: Vec<_> = (0..5).map(|_| pool.table()).collect();
        // Lengths that grow and shrink out of step with one another.
        for round in 0..200usize {
            let table = &mut tables[round % 5];
            let positions = (round * 37) % (12 * BLOCK);
            table.shrink(positions);
            table.grow(positions).unwrap();
        }
        let mut held: Vec<u32> = tables.iter().flat_map(ids).collect();
        let count = held.len();
        held.sort_unstable();
        held.dedup();
        assert_eq!(held.len(), count);
        assert_eq!(count + pool.free(), 64);
    }
}
