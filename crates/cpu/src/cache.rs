//! The memory of the key-value cache.

use std::sync::Arc;

use cera_backend::{BLOCK, Error, KvShape, KvType};
use cera_plan::Kv;
use half::f16;

use crate::format::{ActGroup, GROUP};
use crate::kernels::Kernels;
use crate::kernels::numbers::{Cache, Stored};
use crate::shared::{Shared, memory};
use crate::turn::{self, turn};

/// One layer's keys and values; the layout is [`Cache`]'s.
pub struct LayerCache {
    k: Arc<Store>,
    /// None where the values are the first elements of the keys.
    v: Option<Arc<Store>>,
    heads: usize,
    head_dim: usize,
    value_dim: usize,
    /// Elements of keys, and of values, that are turned together, if they are.
    turns: [Option<usize>; 2],
}

impl LayerCache {
    /// Room for every block of the pool.
    pub fn new(layer: &Kv, kv: &KvShape) -> Result<LayerCache, Error> {
        let Kv { heads, head_dim, value_dim, latent, .. } = *layer;
        let store = |ty, dim| Store::new(ty, &[kv.blocks, heads, dim, BLOCK]).map(Arc::new);
        let k = store(kv.ty.keys, head_dim)?;
        let v = (!latent).then(|| store(kv.ty.values, value_dim)).transpose()?;
        let turned = |ty, dim| (ty == KvType::Q4_0).then(|| turn::size(dim));
        let turns = match latent {
            // Of values within their keys no turn may reach beyond the value.
            true => [turned(kv.ty.keys, head_dim | value_dim); 2],
            false => [turned(kv.ty.keys, head_dim), turned(kv.ty.values, value_dim)],
        };
        Ok(LayerCache { k, v, heads, head_dim, value_dim, turns })
    }

    /// Makes queries `[head_dim, n]` such as the keys are stored.
    pub fn turn_queries(&self, q: &mut [f32], n: usize) {
        if let Some(size) = self.turns[0] {
            turn(q, n, size);
        }
    }

    /// Makes weighted values of a head, such as they are stored, what they mean.
    pub fn turn_back(&self, head: &mut [f32]) {
        if let Some(size) = self.turns[1] {
            turn(head, 1, size);
        }
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
            let at = Place { start: head, column: slot, stride: BLOCK };
            let Some(values) = &self.v else {
                let mut joined = std::mem::take(&mut narrow.joined);
                joined[..dim].copy_from_slice(v);
                joined[dim..of_keys].copy_from_slice(k);
                // SAFETY: the caller's promise.
                unsafe { self.k.write(kernels, &joined[..of_keys], at, self.turns[0], narrow) };
                narrow.joined = joined;
                continue;
            };
            let head = (block * self.heads + h) * dim * BLOCK;
            // SAFETY: the caller's promise.
            unsafe {
                self.k.write(kernels, k, at, self.turns[0], narrow);
                let at = Place { start: head + slot * dim, column: 0, stride: 1 };
                values.write(kernels, v, at, self.turns[1], narrow);
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
    turned: Vec<f32>,
}

impl Narrow {
    /// Room for a head.
    pub fn new(head_dim: usize) -> Narrow {
        let groups = vec![ActGroup::default(); head_dim / GROUP];
        Narrow { halves: vec![0; head_dim], groups, joined: vec![0.0; head_dim], turned: vec![0.0; head_dim] }
    }
}

/// Where a head's numbers lie: number `i` is `start + column + i * stride`. What is packed, or has one for several numbers,
/// such as bytes of nibbles and scales, lies likewise, with `start` divided.
#[derive(Clone, Copy)]
struct Place {
    start: usize,
    column: usize,
    stride: usize,
}

impl Place {
    /// Of the `i`-th of what there is one of for `numbers`.
    fn at(self, numbers: usize, i: usize) -> usize {
        self.start / numbers + self.column + i * self.stride
    }
}

/// Memory of the cache.
enum Store {
    F32(Shared<f32>),
    F16(Shared<u16>),
    /// Bytes and scales.
    Q8_0(Shared<u8>, Shared<u16>),
    /// Two numbers a byte, and scales.
    Q4_0(Shared<u8>, Shared<u16>),
}

impl Store {
    fn new(ty: KvType, shape: &[usize; 4]) -> Result<Store, Error> {
        let what = "the key-value cache";
        let [blocks, heads, dim, positions] = *shape;
        let scales = || memory(what, &[blocks, heads, dim / GROUP, positions]);
        Ok(match ty {
            KvType::F32 => Store::F32(memory(what, shape)?),
            KvType::F16 => Store::F16(memory(what, shape)?),
            KvType::Q8_0 => Store::Q8_0(memory(what, shape)?, scales()?),
            KvType::Q4_0 => Store::Q4_0(memory(what, &[blocks, heads, dim / 2, positions])?, scales()?),
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
                Store::Q4_0(x, scales) => Stored::Q4_0(x.read(0..x.len()), scales.read(0..scales.len())),
            }
        }
    }

    /// Stores a head's numbers at a place, with scales, if any; turned first, if they are.
    ///
    /// # Safety
    /// Nobody else reads or writes them at the same time.
    unsafe fn write(
        &self,
        kernels: &Kernels,
        x: &[f32],
        place: Place,
        turned: Option<usize>,
        narrow: &mut Narrow,
    ) {
        match self {
            Store::F32(store) => {
                for (i, v) in x.iter().enumerate() {
                    // SAFETY: the caller's promise.
                    unsafe { store.put(place.at(1, i), *v) };
                }
            }
            Store::F16(store) => {
                let halves = &mut narrow.halves[..x.len()];
                (kernels.to_f16)(x, halves);
                for (i, v) in halves.iter().enumerate() {
                    // SAFETY: the caller's promise.
                    unsafe { store.put(place.at(1, i), *v) };
                }
            }
            Store::Q8_0(store, scales) => {
                let groups = &mut narrow.groups[..x.len() / GROUP];
                (kernels.quantize)(x, groups, 1);
                for (g, group) in groups.iter().enumerate() {
                    let bytes: &[u8] = bytemuck::cast_slice(&group.q);
                    for (i, v) in bytes.iter().enumerate() {
                        // SAFETY: the caller's promise.
                        unsafe { store.put(place.at(1, g * GROUP + i), *v) };
                    }
                    // SAFETY: the caller's promise.
                    unsafe { scales.put(place.at(GROUP, g), f16::from_f32(group.scale).to_bits()) };
                }
            }
            Store::Q4_0(store, scales) => {
                let heads = &mut narrow.turned[..x.len()];
                heads.copy_from_slice(x);
                if let Some(size) = turned {
                    turn(heads, 1, size);
                }
                for (g, group) in heads.as_chunks::<GROUP>().0.iter().enumerate() {
                    let (bytes, scale) = to_nibbles(group);
                    for (i, v) in bytes.iter().enumerate() {
                        // SAFETY: the caller's promise; the bytes are this position's own.
                        unsafe { store.put(place.at(2, g * bytes.len() + i), *v) };
                    }
                    // SAFETY: the caller's promise.
                    unsafe { scales.put(place.at(GROUP, g), scale.to_bits()) };
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
            Store::Q4_0(..) => len / 2 + 2 * (len / GROUP),
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
                Store::Q4_0(x, scales) => {
                    out.extend_from_slice(x.read(from / 2..(from + len) / 2));
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
                Store::Q4_0(x, scales) => {
                    let (numbers, rest) = bytes.split_at(len / 2);
                    x.write(to / 2..(to + len) / 2).copy_from_slice(numbers);
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
                Store::Q4_0(x, scales) => {
                    let [at, for_x, n] = [from, to, len].map(|n| n / 2);
                    x.write(for_x..for_x + n).copy_from_slice(x.read(at..at + n));
                    let [from, to, len] = [from, to, len].map(|n| n / GROUP);
                    scales.write(to..to + len).copy_from_slice(scales.read(from..from + len));
                }
            }
        }
    }
}

/// A group in four bits, number `i` beside number `i + 16`, and its scale; see [`KvType::Q4_0`].
fn to_nibbles(x: &[f32; GROUP]) -> ([u8; GROUP / 2], f16) {
    let furthest = x.iter().fold(0.0f32, |far, v| if v.abs() > far.abs() { *v } else { far });
    let scale = f16::from_f32(furthest / -8.0);
    // A NaN is no further than anything; it must not become a number for that.
    let scale = if x.iter().any(|v| v.is_nan()) { f16::NAN } else { scale };
    let by = if scale == f16::ZERO { 0.0 } else { 1.0 / scale.to_f32() };
    let nibble = |v: f32| ((v * by).round_ties_even() as i32 + 8).clamp(0, 15) as u8;
    (std::array::from_fn(|i| nibble(x[i]) | nibble(x[i + GROUP / 2]) << 4), scale)
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
        let shape = KvShape { ty: ty.into(), blocks: 8, max_rows: 1, slots: 0 };
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
        let mut q: Vec<f32> = (0..dim).map(|i| number(3, i * 5)).collect();
        cache.turn_queries(&mut q, 1);
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
        let stored = unsafe { cache.read() };
        kernels.attend(&attention, &stored, &queries, &mut Scratch::new(1, dim), &mut out);
        cache.turn_back(&mut out);
        out
    }

    #[test]
    fn a_cache_of_bytes_or_nibbles_is_close_agrees_on_every_tier_and_is_copied_with_its_scales() {
        let exact = attended(KvType::F32, Tier::Scalar, None);
        // A step of quantization is 1 / 127, or 1 / 8, of at most about 1: half of it in values, some more by the scores.
        for (ty, step) in [(KvType::Q8_0, 0.01), (KvType::Q4_0, 0.1)] {
            let stored = attended(ty, Tier::Scalar, None);
            assert_ne!(exact, stored);
            for (e, b) in exact.iter().zip(&stored) {
                assert!((e - b).abs() < step, "{b} for {e} in {ty:?}");
            }
        }
        for tier in Tier::available() {
            for ty in [KvType::F32, KvType::F16, KvType::Q8_0, KvType::Q4_0] {
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
        let shape = KvShape { ty: ty.into(), blocks: 20, max_rows: 1, slots: 0 };
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
        let mut q: Vec<f32> = (0..head_dim * positions.len()).map(|i| number(3, i * 5)).collect();
        cache.turn_queries(&mut q, positions.len());
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
        let stored = unsafe { cache.read() };
        let mut scratch = Scratch::new(positions.len(), head_dim);
        kernels.attend(&attention, &stored, &queries, &mut scratch, &mut out);
        out.chunks_exact_mut(value_dim).for_each(|head| cache.turn_back(head));
        out
    }

    #[test]
    fn values_within_their_keys_are_read_as_if_they_lay_beside_them() {
        for ty in [KvType::F32, KvType::F16, KvType::Q8_0, KvType::Q4_0] {
            // Few queries, and more than any tier takes from the cache itself.
            for positions in [&[599, 40][..], &[599, 598, 512, 511, 300, 129, 128, 127, 64, 5, 1, 0]] {
                // Nibbles of values alone are turned in other pieces than those of keys that they are part of.
                let within = ty == KvType::Q4_0;
                let expected = over_latents(ty, Tier::Scalar, within, positions);
                if within {
                    let exact = over_latents(KvType::F32, Tier::Scalar, true, positions);
                    assert!(exact.iter().zip(&expected).all(|(e, v)| (e - v).abs() < 0.2), "{positions:?}");
                }
                for tier in Tier::available() {
                    let got = over_latents(ty, tier, true, positions);
                    assert_eq!(got, expected, "{ty:?} on {tier}, {} queries", positions.len());
                }
            }
        }
    }
}
