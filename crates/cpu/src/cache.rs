//! The memory of the key-value cache.

use std::sync::Arc;

use cera_backend::{BLOCK, Error, KvShape, KvType};
use cera_plan::Kv;
use half::f16;

use crate::format::{ActGroup, GROUP};
use crate::kernels::Kernels;
use crate::kernels::numbers::{Cache, Stored};
use crate::shared::{Shared, memory};

/// One layer's keys and values; the layout is [`Cache`]'s.
pub struct LayerCache {
    k: Arc<Store>,
    /// None where the values are the first elements of the keys.
    v: Option<Arc<Store>>,
    heads: usize,
    head_dim: usize,
    value_dim: usize,
}

impl LayerCache {
    /// Room for every block of the pool.
    pub fn new(layer: &Kv, kv: &KvShape) -> Result<LayerCache, Error> {
        let Kv { heads, head_dim, value_dim, latent, .. } = *layer;
        let store = |dim| Store::new(kv.ty, &[kv.blocks, heads, dim, BLOCK]).map(Arc::new);
        let v = (!latent).then(|| store(value_dim)).transpose()?;
        Ok(LayerCache { k: store(head_dim)?, v, heads, head_dim, value_dim })
    }

    /// A layer of the same shape in the same memory.
    pub fn shared(&self) -> LayerCache {
        LayerCache { k: Arc::clone(&self.k), v: self.v.clone(), ..*self }
    }

    /// All of it.
    ///
    /// # Safety
    /// No thread writes what the holder reads.
    pub unsafe fn read(&self) -> Cache<'_> {
        // SAFETY: the caller's promise.
        unsafe { Cache { k: self.k.read(), v: self.v.as_ref().map(|v| v.read()) } }
    }

    /// Stores a row's keys and values in a slot of a block; where values are part of the keys, `k` is what follows them in
    /// each head.
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
        narrow: &mut Narrow,
    ) {
        let (of_keys, dim) = (self.head_dim, self.value_dim);
        let k = k.chunks_exact(k.len() / self.heads);
        for (h, (k, v)) in k.zip(v.chunks_exact(dim)).enumerate() {
            let head = (block * self.heads + h) * of_keys * BLOCK;
            // A head's scales, one for each 32 numbers, lie like its numbers.
            let at = [head + slot, head / GROUP + slot];
            let Some(values) = &self.v else {
                let mut joined = std::mem::take(&mut narrow.joined);
                joined[..dim].copy_from_slice(v);
                joined[dim..of_keys].copy_from_slice(k);
                // SAFETY: the caller's promise.
                unsafe { self.k.write(kernels, &joined[..of_keys], at, BLOCK, narrow) };
                narrow.joined = joined;
                continue;
            };
            let head = (block * self.heads + h) * dim * BLOCK;
            // SAFETY: the caller's promise.
            unsafe {
                self.k.write(kernels, k, at, BLOCK, narrow);
                values.write(kernels, v, [head + slot * dim, head / GROUP + slot * (dim / GROUP)], 1, narrow);
            }
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.stores().map(|(store, len)| store.bytes(len)).sum()
    }

    /// Appends a block's bytes.
    ///
    /// # Safety
    /// No thread writes the cache.
    pub unsafe fn read_block(&self, block: usize, out: &mut Vec<u8>) {
        for (store, len) in self.stores() {
            // SAFETY: the caller's promise.
            unsafe { store.read_bytes(block * len, len, out) };
        }
    }

    /// Takes a block's bytes, as many as it has.
    ///
    /// # Safety
    /// No thread uses the cache.
    pub unsafe fn write_block(&self, block: usize, mut bytes: &[u8]) {
        for (store, len) in self.stores() {
            let (own, rest) = bytes.split_at(store.bytes(len));
            // SAFETY: the caller's promise.
            unsafe { store.write_bytes(block * len, len, own) };
            bytes = rest;
        }
    }

    /// The memory of keys and of values, and how many numbers of it are a block.
    fn stores(&self) -> impl Iterator<Item = (&Store, usize)> {
        let keys = (&*self.k, self.heads * self.head_dim * BLOCK);
        let values = self.v.as_deref().map(|v| (v, self.heads * self.value_dim * BLOCK));
        [keys].into_iter().chain(values)
    }

    /// Copies a block to another.
    ///
    /// # Safety
    /// The blocks are different, and no thread uses the cache.
    pub unsafe fn copy_block(&self, from: usize, to: usize) {
        for (store, len) in self.stores() {
            // SAFETY: the caller's promise.
            unsafe { store.copy(from * len, to * len, len) };
        }
    }
}

/// One head on its way into the cache.
pub struct Narrow {
    halves: Vec<u16>,
    groups: Vec<ActGroup>,
    /// A value and the rest of its key.
    joined: Vec<f32>,
}

impl Narrow {
    /// Room for a head.
    pub fn new(head_dim: usize) -> Narrow {
        let groups = vec![ActGroup::default(); head_dim / GROUP];
        Narrow { halves: vec![0; head_dim], groups, joined: vec![0.0; head_dim] }
    }
}

/// Memory of the cache.
enum Store {
    F32(Shared<f32>),
    F16(Shared<u16>),
    /// Bytes and scales.
    Q8_0(Shared<u8>, Shared<u16>),
}

impl Store {
    fn new(ty: KvType, shape: &[usize; 4]) -> Result<Store, Error> {
        let what = "the key-value cache";
        Ok(match ty {
            KvType::F32 => Store::F32(memory(what, shape)?),
            KvType::F16 => Store::F16(memory(what, shape)?),
            KvType::Q8_0 => {
                let [blocks, heads, dim, positions] = *shape;
                Store::Q8_0(memory(what, shape)?, memory(what, &[blocks, heads, dim / GROUP, positions])?)
            }
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
                Store::Q8_0(x, scales) => Stored::Q8_0(x.read(0..x.len()), scales.read(0..scales.len())),
            }
        }
    }

    /// Stores a head's numbers at `at[0]`, `at[0] + stride`, and so on; its scales, if any, likewise from `at[1]` on.
    ///
    /// # Safety
    /// Nobody else reads or writes them at the same time.
    unsafe fn write(&self, kernels: &Kernels, x: &[f32], at: [usize; 2], stride: usize, narrow: &mut Narrow) {
        let [at, scales_at] = at;
        match self {
            Store::F32(store) => {
                for (i, v) in x.iter().enumerate() {
                    // SAFETY: the caller's promise.
                    unsafe { store.put(at + i * stride, *v) };
                }
            }
            Store::F16(store) => {
                let halves = &mut narrow.halves[..x.len()];
                (kernels.to_f16)(x, halves);
                for (i, v) in halves.iter().enumerate() {
                    // SAFETY: the caller's promise.
                    unsafe { store.put(at + i * stride, *v) };
                }
            }
            Store::Q8_0(store, scales) => {
                let groups = &mut narrow.groups[..x.len() / GROUP];
                (kernels.quantize)(x, groups, 1);
                for (g, group) in groups.iter().enumerate() {
                    let bytes: &[u8] = bytemuck::cast_slice(&group.q);
                    for (i, v) in bytes.iter().enumerate() {
                        // SAFETY: the caller's promise.
                        unsafe { store.put(at + (g * GROUP + i) * stride, *v) };
                    }
                    // SAFETY: the caller's promise.
                    unsafe { scales.put(scales_at + g * stride, f16::from_f32(group.scale).to_bits()) };
                }
            }
        }
    }

    /// Bytes of so many numbers, whole blocks, with their scales.
    fn bytes(&self, len: usize) -> usize {
        match self {
            Store::F32(_) => 4 * len,
            Store::F16(_) => 2 * len,
            Store::Q8_0(..) => len + 2 * (len / GROUP),
        }
    }

    /// Appends the bytes of `len` numbers, whole blocks.
    ///
    /// # Safety
    /// No thread writes them.
    unsafe fn read_bytes(&self, from: usize, len: usize, out: &mut Vec<u8>) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Store::F32(x) => out.extend_from_slice(bytemuck::cast_slice(x.read(from..from + len))),
                Store::F16(x) => out.extend_from_slice(bytemuck::cast_slice(x.read(from..from + len))),
                Store::Q8_0(x, scales) => {
                    out.extend_from_slice(x.read(from..from + len));
                    let scales = scales.read(from / GROUP..(from + len) / GROUP);
                    out.extend_from_slice(bytemuck::cast_slice(scales));
                }
            }
        }
    }

    /// Takes the bytes of `len` numbers, whole blocks.
    ///
    /// # Safety
    /// No thread uses them.
    unsafe fn write_bytes(&self, to: usize, len: usize, bytes: &[u8]) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Store::F32(x) => {
                    bytemuck::cast_slice_mut::<f32, u8>(x.write(to..to + len)).copy_from_slice(bytes);
                }
                Store::F16(x) => {
                    bytemuck::cast_slice_mut::<u16, u8>(x.write(to..to + len)).copy_from_slice(bytes);
                }
                Store::Q8_0(x, scales) => {
                    let (numbers, rest) = bytes.split_at(len);
                    x.write(to..to + len).copy_from_slice(numbers);
                    let scales = scales.write(to / GROUP..(to + len) / GROUP);
                    bytemuck::cast_slice_mut::<u16, u8>(scales).copy_from_slice(rest);
                }
            }
        }
    }

    /// Copies `len` numbers, whole blocks.
    ///
    /// # Safety
    /// The ranges do not overlap, and no thread uses the cache.
    unsafe fn copy(&self, from: usize, to: usize, len: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Store::F32(x) => x.write(to..to + len).copy_from_slice(x.read(from..from + len)),
                Store::F16(x) => x.write(to..to + len).copy_from_slice(x.read(from..from + len)),
                Store::Q8_0(x, scales) => {
                    x.write(to..to + len).copy_from_slice(x.read(from..from + len));
                    let [from, to, len] = [from, to, len].map(|n| n / GROUP);
                    scales.write(to..to + len).copy_from_slice(scales.read(from..from + len));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cera_backend::BlockId;
    use cera_plan::Attention;

    use super::*;
    use crate::Tier;
    use crate::kernels::attend::{Queries, Scratch};

    /// How a block comes to another place: inside of the cache, or by way of the outside.
    #[derive(Clone, Copy)]
    enum Move {
        Copied,
        Carried,
    }

    /// What a query attends to in a cache of 70 positions, stored as `ty`.
    fn attended(ty: KvType, tier: Tier, moved: Option<Move>) -> Vec<f32> {
        let kernels = Kernels::new(tier).unwrap();
        let (heads, dim, positions) = (2, 64, 70);
        let shape = KvShape { ty, blocks: 8, max_rows: 1, slots: 0 };
        let cache = LayerCache::new(
            &Kv { heads, head_dim: dim, value_dim: dim, latent: false, window: None, kept: true },
            &shape,
        )
        .unwrap();
        let number = |p: usize, i: usize| ((p * 131 + i * 37) % 199) as f32 / 100.0 - 1.0;
        let mut blocks = vec![BlockId(5), BlockId(0), BlockId(2)];
        for p in 0..positions {
            let k: Vec<f32> = (0..heads * dim).map(|i| number(p, i)).collect();
            let v: Vec<f32> = (0..heads * dim).map(|i| number(p, i + 7)).collect();
            let block = blocks[p / BLOCK].0 as usize;
            // SAFETY: one thread.
            unsafe { cache.write(&kernels, &k, &v, block, p % BLOCK, &mut Narrow::new(dim)) };
        }
        match moved {
            // SAFETY: one thread, different blocks.
            Some(Move::Copied) => unsafe { cache.copy_block(0, 7) },
            Some(Move::Carried) => {
                let mut bytes = vec![1];
                // SAFETY: one thread.
                unsafe { cache.read_block(0, &mut bytes) };
                assert_eq!(bytes.len(), 1 + cache.block_bytes());
                // SAFETY: one thread.
                unsafe { cache.write_block(7, &bytes[1..]) };
            }
            None => {}
        }
        if moved.is_some() {
            blocks[1] = BlockId(7);
        }
        let attention = Attention {
            heads,
            kv_heads: heads,
            head_dim: dim,
            value_dim: dim,
            scale: 0.125,
            causal: true,
            window: None,
            softcap: None,
            sinks: None,
            alibi: None,
        };
        let q: Vec<f32> = (0..dim).map(|i| number(3, i * 5)).collect();
        let queries = Queries {
            q: &q,
            positions: &[positions - 1],
            blocks: &blocks,
            length: positions,
            kv_head: 1,
            sinks: &[],
            slopes: &[],
        };
        let mut out = vec![0.0; dim];
        // SAFETY: nobody writes.
        let cache = unsafe { cache.read() };
        kernels.attend(&attention, &cache, &queries, &mut Scratch::new(1, dim), &mut out);
        out
    }

    #[test]
    fn a_cache_of_bytes_is_close_agrees_on_every_tier_and_is_copied_with_its_scales() {
        let exact = attended(KvType::F32, Tier::Scalar, None);
        let bytes = attended(KvType::Q8_0, Tier::Scalar, None);
        assert_ne!(exact, bytes);
        for (e, b) in exact.iter().zip(&bytes) {
            // A step of quantization is 1 / 127 of at most 1: half of it in values, some more by the scores.
            assert!((e - b).abs() < 0.01, "{b} for {e}");
        }
        for tier in Tier::available() {
            for ty in [KvType::F32, KvType::F16, KvType::Q8_0] {
                let expected = attended(ty, Tier::Scalar, None);
                assert_eq!(attended(ty, tier, None), expected, "{ty:?} on {tier}");
                assert_eq!(attended(ty, tier, Some(Move::Copied)), expected, "{ty:?} on {tier}, copied");
                assert_eq!(attended(ty, tier, Some(Move::Carried)), expected, "{ty:?} on {tier}, carried");
            }
        }
    }

    /// What some queries attend to over keys of 96, whose first 64 elements are the values, stored twice or once.
    fn over_latents(ty: KvType, tier: Tier, latent: bool, positions: &[usize]) -> Vec<f32> {
        let kernels = Kernels::new(tier).unwrap();
        let (head_dim, value_dim, window) = (96, 64, None);
        let shape = KvShape { ty, blocks: 20, max_rows: 1, slots: 0 };
        let layer = Kv { heads: 1, head_dim, value_dim, latent, window, kept: true };
        let cache = LayerCache::new(&layer, &shape).unwrap();
        let number = |p: usize, i: usize| ((p * 131 + i * 37) % 199) as f32 / 100.0 - 1.0;
        let blocks: Vec<BlockId> = (0..20).rev().map(BlockId).collect();
        for p in 0..600 {
            let k: Vec<f32> = (0..head_dim).map(|i| number(p, i)).collect();
            let (v, rest) = k.split_at(value_dim);
            let block = blocks[p / BLOCK].0 as usize;
            let k = if latent { rest } else { &k };
            // SAFETY: one thread.
            unsafe { cache.write(&kernels, k, v, block, p % BLOCK, &mut Narrow::new(head_dim)) };
        }
        let attention = Attention {
            heads: positions.len(),
            kv_heads: 1,
            head_dim,
            value_dim,
            scale: 0.125,
            causal: true,
            window,
            softcap: None,
            sinks: None,
            alibi: None,
        };
        let q: Vec<f32> = (0..head_dim * positions.len()).map(|i| number(3, i * 5)).collect();
        let sinks: Vec<f32> = (0..positions.len()).map(|i| i as f32 * 0.1).collect();
        let queries = Queries {
            q: &q,
            positions,
            blocks: &blocks,
            length: 600,
            kv_head: 0,
            sinks: &sinks,
            slopes: &[],
        };
        let mut out = vec![0.0; value_dim * positions.len()];
        // SAFETY: nobody writes.
        let cache = unsafe { cache.read() };
        let mut scratch = Scratch::new(positions.len(), head_dim);
        kernels.attend(&attention, &cache, &queries, &mut scratch, &mut out);
        out
    }

    #[test]
    fn values_within_their_keys_are_read_as_if_they_lay_beside_them() {
        for ty in [KvType::F32, KvType::F16, KvType::Q8_0] {
            // Few queries, and more than any tier takes from the cache itself.
            for positions in [&[599, 40][..], &[599, 598, 512, 511, 300, 129, 128, 127, 64, 5, 1, 0]] {
                let expected = over_latents(ty, Tier::Scalar, false, positions);
                for tier in Tier::available() {
                    let got = over_latents(ty, tier, true, positions);
                    assert_eq!(got, expected, "{ty:?} on {tier}, {} queries", positions.len());
                }
            }
        }
    }
}
