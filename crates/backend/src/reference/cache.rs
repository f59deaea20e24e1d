//! The reference's key-value cache: blocks of f64 that exist once something was stored in them.

use cera_plan::Kv;

use crate::{BLOCK, BlockId, Error};

/// The keys or the values of one layer.
struct Store {
    /// Elements of a position.
    width: usize,
    blocks: Vec<Option<Box<[f64]>>>,
}

impl Store {
    fn new(width: usize, blocks: usize) -> Self {
        Store { width, blocks: vec![None; blocks] }
    }

    fn row(&self, blocks: &[BlockId], position: usize) -> Option<&[f64]> {
        let block = self.blocks[blocks[position / BLOCK].0 as usize].as_ref()?;
        Some(&block[position % BLOCK * self.width..][..self.width])
    }

    /// Appends a block's bytes; one that nothing was stored in is zeros.
    fn read(&self, block: BlockId, out: &mut Vec<u8>) {
        match &self.blocks[block.0 as usize] {
            Some(numbers) => out.extend(numbers.iter().flat_map(|x| x.to_le_bytes())),
            None => out.resize(out.len() + self.bytes(), 0),
        }
    }

    fn write(&mut self, block: BlockId, bytes: &[u8]) {
        let number = |b: &[u8]| b.try_into().map_or(0.0, f64::from_le_bytes);
        self.blocks[block.0 as usize] = Some(bytes.chunks_exact(size_of::<f64>()).map(number).collect());
    }

    fn bytes(&self) -> usize {
        BLOCK * self.width * size_of::<f64>()
    }

    fn set(&mut self, blocks: &[BlockId], position: usize, row: &[f64]) {
        let width = self.width;
        let block = self.blocks[blocks[position / BLOCK].0 as usize]
            .get_or_insert_with(|| vec![0.0; BLOCK * width].into_boxed_slice());
        block[position % BLOCK * width..][..width].copy_from_slice(row);
    }
}

/// The cache of one layer.
pub(super) struct Cache {
    keys: Store,
    values: Store,
}

impl Cache {
    /// An empty cache of `blocks` blocks.
    pub(super) fn new(kv: &Kv, blocks: usize) -> Self {
        // Values that are part of the keys are kept all the same: what they mean is no different.
        let [keys, values] = [kv.head_dim, kv.value_dim].map(|dim| Store::new(kv.heads * dim, blocks));
        Cache { keys, values }
    }

    /// Stores the keys and values of one position of a sequence that has these blocks.
    pub(super) fn set(&mut self, blocks: &[BlockId], position: usize, key: &[f64], value: &[f64]) {
        self.keys.set(blocks, position, key);
        self.values.set(blocks, position, value);
    }

    /// The rows of keys and of values at positions `0..end` of a sequence.
    pub(super) fn rows(&self, blocks: &[BlockId], end: usize) -> Result<[Vec<&[f64]>; 2], Error> {
        let keys: Option<Vec<_>> = (0..end).map(|p| self.keys.row(blocks, p)).collect();
        let values: Option<Vec<_>> = (0..end).map(|p| self.values.row(blocks, p)).collect();
        match (keys, values) {
            (Some(keys), Some(values)) => Ok([keys, values]),
            _ => {
                Err(Error::Step(format!("{end} positions are attended to, of which some were never stored")))
            }
        }
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(&self) -> usize {
        self.keys.bytes() + self.values.bytes()
    }

    /// Appends a block's bytes. The id is in the pool.
    pub(super) fn read(&self, block: BlockId, out: &mut Vec<u8>) {
        self.keys.read(block, out);
        self.values.read(block, out);
    }

    /// Takes a block's bytes in, as many as it has.
    pub(super) fn write(&mut self, block: BlockId, bytes: &[u8]) {
        let (keys, values) = bytes.split_at(self.keys.bytes());
        self.keys.write(block, keys);
        self.values.write(block, values);
    }

    /// Copies a block. Both ids are in the pool.
    pub(super) fn copy(&mut self, from: BlockId, to: BlockId) {
        for store in [&mut self.keys, &mut self.values] {
            store.blocks[to.0 as usize] = store.blocks[from.0 as usize].clone();
        }
    }
}
