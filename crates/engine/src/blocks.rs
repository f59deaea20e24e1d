//! Who holds which block of the key-value cache.
//!
//! A block may have several holders: sequences that begin alike, and the tree of prefixes, which holds blocks that nobody
//! uses at the moment but that may be wanted again. Whoever writes to a block must be its only holder.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cera_backend::{BLOCK, BlockId};

use crate::Error;

/// The blocks of one cache, shared by its sequences.
#[derive(Clone, Debug)]
pub(crate) struct BlockPool {
    inner: Arc<Mutex<Inner>>,
    size: usize,
}

#[derive(Debug)]
struct Inner {
    /// Blocks without a holder. Taken from the end, so that a block just freed, still warm, is the next to go out.
    free: Vec<BlockId>,
    blocks: Vec<Block>,
    /// Blocks that the tree alone holds.
    idle: usize,
}

#[derive(Clone, Copy, Default, Debug)]
struct Block {
    holders: u32,
    /// The tree is one of them.
    kept: bool,
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
        let inner = Inner {
            free: (0..blocks).rev().map(BlockId).collect(),
            blocks: vec![Block::default(); blocks as usize],
            idle: 0,
        };
        Self { inner: Arc::new(Mutex::new(inner)), size: blocks as usize }
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
        self.lock().free.len()
    }

    /// Blocks that the tree alone holds, and would give up.
    pub fn idle(&self) -> usize {
        self.lock().idle
    }

    /// Whether a sequence holds the block.
    pub fn in_use(&self, block: BlockId) -> bool {
        self.lock().get(block).is_some_and(|b| b.holders > u32::from(b.kept))
    }

    /// How many of the blocks have this one holder and, perhaps, the tree: they would be free without it.
    pub fn own(&self, table: &BlockTable) -> usize {
        let inner = self.lock();
        let own = |b: &&BlockId| inner.get(**b).is_some_and(|b| b.holders == 1 + u32::from(b.kept));
        table.blocks.iter().filter(own).count()
    }

    /// The tree begins to hold a block, which a sequence holds.
    pub fn keep(&self, block: BlockId) {
        self.lock().change(block, |b| *b = Block { holders: b.holders + 1, kept: true });
    }

    /// The tree holds a block no longer.
    pub fn let_go(&self, block: BlockId) {
        self.lock().change(block, |b| *b = Block { holders: b.holders.saturating_sub(1), kept: false });
    }

    /// Whether both are the same pool.
    pub fn is(&self, other: &BlockPool) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The lists are consistent between any two calls, so a panic elsewhere leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn get(&self, block: BlockId) -> Option<&Block> {
        self.blocks.get(block.0 as usize)
    }

    fn change(&mut self, id: BlockId, change: impl FnOnce(&mut Block)) {
        let Some(block) = self.blocks.get_mut(id.0 as usize) else { return };
        let idle = |b: &Block| usize::from(b.kept && b.holders == 1);
        let before = idle(block);
        change(block);
        self.idle = self.idle + idle(block) - before;
        if block.holders == 0 {
            self.free.push(id);
        }
    }

    fn take(&mut self, count: usize) -> Result<Vec<BlockId>, Error> {
        let Some(left) = self.free.len().checked_sub(count) else {
            return Err(Error::Blocks { needed: count, free: self.free.len() });
        };
        let taken: Vec<BlockId> = self.free.drain(left..).rev().collect();
        taken.iter().for_each(|&id| self.change(id, |b| b.holders = 1));
        Ok(taken)
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
        self.blocks.extend(self.pool.lock().take(needed)?);
        Ok(())
    }

    /// Holds these blocks, which have holders, behind its own.
    pub fn share(&mut self, blocks: &[BlockId]) {
        let mut inner = self.pool.lock();
        blocks.iter().for_each(|&id| inner.change(id, |b| b.holders += 1));
        self.blocks.extend_from_slice(blocks);
    }

    /// Whether the block of the next position, behind `stored`, has others who hold it, and what the sequence has
    /// stored there must be copied before it writes.
    pub fn shares_next(&self, stored: usize) -> bool {
        let next = self.blocks.get(stored / BLOCK).filter(|_| !stored.is_multiple_of(BLOCK));
        next.is_some_and(|&id| self.pool.lock().get(id).is_some_and(|b| b.holders > 1))
    }

    /// Takes a block of its own in place of the one behind `stored`. Gives the copy to make.
    pub fn own_next(&mut self, stored: usize) -> Result<Option<(BlockId, BlockId)>, Error> {
        let Some(place) = self.blocks.get_mut(stored / BLOCK) else { return Ok(None) };
        let mut inner = self.pool.lock();
        let Some(&new) = inner.take(1)?.first() else { return Ok(None) };
        let old = std::mem::replace(place, new);
        inner.change(old, |b| b.holders = b.holders.saturating_sub(1));
        Ok(Some((old, new)))
    }

    /// Holds `block`, which has a holder, in place of the one at `index`: they hold the same.
    pub fn replace(&mut self, index: usize, block: BlockId) {
        let Some(place) = self.blocks.get_mut(index).filter(|place| **place != block) else { return };
        let mut inner = self.pool.lock();
        inner.change(block, |b| b.holders += 1);
        let old = std::mem::replace(place, block);
        inner.change(old, |b| b.holders = b.holders.saturating_sub(1));
    }

    /// Gives back the blocks behind the first `positions`.
    pub fn shrink(&mut self, positions: usize) {
        let keep = positions.div_ceil(BLOCK).min(self.blocks.len());
        let mut inner = self.pool.lock();
        for id in self.blocks.drain(keep..).rev() {
            inner.change(id, |b| b.holders = b.holders.saturating_sub(1));
        }
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
    fn a_block_is_free_when_its_last_holder_has_gone() {
        let pool = BlockPool::new(4);
        let mut a = pool.table();
        a.grow(BLOCK + 1).unwrap();
        let mut b = pool.table();
        b.share(a.blocks());
        assert_eq!((pool.free(), pool.own(&a)), (2, 0));
        // Block 1 is half full: whoever writes first takes a copy, the other one then has it alone.
        assert!(a.shares_next(BLOCK + 1) && !a.shares_next(BLOCK));
        assert_eq!(b.own_next(BLOCK + 1).unwrap(), Some((BlockId(1), BlockId(2))));
        assert!(!a.shares_next(BLOCK + 1) && !b.shares_next(BLOCK + 1));
        assert_eq!((ids(&a), ids(&b), pool.own(&a)), (vec![0, 1], vec![0, 2], 1));
        drop(a);
        assert_eq!((pool.free(), pool.own(&b)), (2, 2));
        b.shrink(0);
        assert_eq!(pool.free(), 4);
    }

    #[test]
    fn what_only_the_tree_holds_is_idle() {
        let pool = BlockPool::new(3);
        let mut a = pool.table();
        a.grow(2 * BLOCK).unwrap();
        pool.keep(BlockId(0));
        assert_eq!((pool.idle(), pool.own(&a), pool.in_use(BlockId(0))), (0, 2, true));
        let mut b = pool.table();
        b.grow(BLOCK).unwrap();
        b.replace(0, BlockId(0));
        assert_eq!((pool.own(&a), pool.free(), ids(&b)), (1, 1, vec![0]));
        drop((a, b));
        assert_eq!((pool.idle(), pool.free(), pool.in_use(BlockId(0))), (1, 2, false));
        pool.let_go(BlockId(0));
        assert_eq!((pool.idle(), pool.free()), (0, 3));
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
