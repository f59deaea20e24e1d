//! The memory of the key-value cache.

use cera_backend::{BLOCK, Error, KvShape, KvType};
use cera_plan::Kv;

use crate::kernels::Kernels;
use crate::kernels::attend::{Cache, Stored};
use crate::shared::{Shared, memory};

/// One layer's keys and values; the layout is [`Cache`]'s.
pub struct LayerCache {
    k: Store,
    v: Store,
    heads: usize,
    head_dim: usize,
}

impl LayerCache {
    /// Room for every block of the pool.
    pub fn new(layer: &Kv, kv: &KvShape) -> Result<LayerCache, Error> {
        let shape = [kv.blocks, layer.heads, layer.head_dim, BLOCK];
        let (k, v) = (Store::new(kv.ty, &shape)?, Store::new(kv.ty, &shape)?);
        Ok(LayerCache { k, v, heads: layer.heads, head_dim: layer.head_dim })
    }

    /// All of it.
    ///
    /// # Safety
    /// No thread writes what the holder reads.
    pub unsafe fn read(&self) -> Cache<'_> {
        // SAFETY: the caller's promise.
        unsafe { Cache { k: self.k.read(), v: self.v.read() } }
    }

    /// Stores a row's keys and values in a slot of a block; `narrow` holds one head.
    ///
    /// # Safety
    /// Nobody else reads or writes the slot at the same time.
    pub unsafe fn write(
        &self,
        kernels: &Kernels,
        k: &[f32],
        v: &[f32],
        block: usize,
        slot: usize,
        narrow: &mut [u16],
    ) {
        let dim = self.head_dim;
        for (h, (k, v)) in k.chunks_exact(dim).zip(v.chunks_exact(dim)).enumerate() {
            let head = (block * self.heads + h) * dim * BLOCK;
            // SAFETY: the caller's promise.
            unsafe {
                self.k.write(kernels, k, head + slot, BLOCK, narrow);
                self.v.write(kernels, v, head + slot * dim, 1, narrow);
            }
        }
    }

    /// Copies a block to another.
    ///
    /// # Safety
    /// The blocks are different, and no thread uses the cache.
    pub unsafe fn copy_block(&self, from: usize, to: usize) {
        let len = self.heads * self.head_dim * BLOCK;
        for store in [&self.k, &self.v] {
            // SAFETY: the caller's promise.
            unsafe { store.copy(from * len, to * len, len) };
        }
    }
}

/// Memory of the cache.
enum Store {
    F32(Shared<f32>),
    F16(Shared<u16>),
}

impl Store {
    fn new(ty: KvType, shape: &[usize]) -> Result<Store, Error> {
        Ok(match ty {
            KvType::F32 => Store::F32(memory("the key-value cache", shape)?),
            KvType::F16 => Store::F16(memory("the key-value cache", shape)?),
        })
    }

    /// All of it.
    ///
    /// # Safety
    /// No thread writes what the holder reads.
    unsafe fn read(&self) -> Stored<'_> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Store::F32(x) => Stored::F32(x.read(0..x.len())),
                Store::F16(x) => Stored::F16(x.read(0..x.len())),
            }
        }
    }

    /// Stores a head's numbers at `at`, `at + stride`, and so on.
    ///
    /// # Safety
    /// Nobody else reads or writes them at the same time.
    unsafe fn write(&self, kernels: &Kernels, x: &[f32], at: usize, stride: usize, narrow: &mut [u16]) {
        match self {
            Store::F32(store) => {
                for (i, v) in x.iter().enumerate() {
                    // SAFETY: the caller's promise.
                    unsafe { store.put(at + i * stride, *v) };
                }
            }
            Store::F16(store) => {
                let narrow = &mut narrow[..x.len()];
                (kernels.to_f16)(x, narrow);
                for (i, v) in narrow.iter().enumerate() {
                    // SAFETY: the caller's promise.
                    unsafe { store.put(at + i * stride, *v) };
                }
            }
        }
    }

    /// Copies `len` numbers.
    ///
    /// # Safety
    /// The ranges do not overlap, and no thread uses the cache.
    unsafe fn copy(&self, from: usize, to: usize, len: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Store::F32(x) => x.write(to..to + len).copy_from_slice(x.read(from..from + len)),
                Store::F16(x) => x.write(to..to + len).copy_from_slice(x.read(from..from + len)),
            }
        }
    }
}
