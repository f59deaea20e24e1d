//! Kernels one by one, with operands as a step gives them, for the programs in `benches/`. No part of the interface: it
//! changes with the kernels.
//!
//! It is hidden rather than behind a feature of cargo, so that every `--all-targets` compiles and lints the benches, and
//! a change of a kernel cannot leave them behind.

use std::hint::black_box;

use cera_backend::{BLOCK, BlockId, KvShape, KvType};
use cera_plan::{Attention, Kv};
use cera_quant::Type;
use memmap2::MmapMut;

use crate::Tier;
use crate::cache::{LayerCache, Narrow};
use crate::format::{ActGroup, GROUP, PANEL, QUAD};
use crate::kernels::Kernels;
use crate::kernels::attend::{Queries, Scratch};
use crate::kernels::linear::Input;
use crate::pack::{Layout, memory};
use crate::run::QUERIES;
use crate::run::linear::{PANEL_BYTES, ROW_BLOCK, row_block};

/// Columns of rows and matrices.
const COLS: usize = 4096;

/// What one run of a kernel moves and computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// Bytes of weights or of the cache, each counted once.
    pub bytes: u64,
    /// Multiplications and additions.
    pub operations: u64,
    /// Whether they are operations on bytes.
    pub is_int8: bool,
}

/// The types that have a panel kernel.
pub fn types() -> impl Iterator<Item = Type> {
    let panel = Kernels::new(Tier::Scalar).map(|k| k.panel);
    Type::ALL.iter().copied().filter(move |ty| panel.and_then(|panel| panel(*ty)).is_some())
}

/// Numbers between -1 and 1, none of which is near the one before.
fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 7919 % 2003) as f32 / 1001.0 - 1.0).collect()
}

/// Rows of [`COLS`] as panel kernels read them: fewer than four, or whole quads.
fn quantized(kernels: &Kernels, f: &[f32]) -> Vec<ActGroup> {
    let mut groups = vec![ActGroup::default(); f.len() / GROUP];
    let apart = if f.len() < QUAD * COLS { 1 } else { QUAD };
    for (r, x) in f.chunks_exact(COLS).enumerate() {
        let quad = r / apart * apart * (COLS / GROUP);
        (kernels.quantize)(x, &mut groups[quad + r % apart..], apart);
    }
    groups
}

/// A packed matrix, in chunks of panels as threads claim them. All panels are the same.
pub struct Weights {
    ty: Type,
    panel_bytes: usize,
    chunk_bytes: usize,
    memory: MmapMut,
}

/// Bytes of a panel, and panels of a chunk.
fn sizes(ty: Type) -> Option<(usize, usize)> {
    let panel = PANEL * ty.row_bytes(COLS)?;
    Some((panel, (PANEL_BYTES / panel).max(1)))
}

impl Weights {
    /// Whole chunks of about so many bytes in all. `None` where the type has no kernel, or there is no memory.
    pub fn new(ty: Type, bytes: usize) -> Option<Weights> {
        let layout = Layout::new(&Kernels::new(Tier::Scalar)?, ty, PANEL, COLS)?;
        let mut panel = vec![0; layout.bytes()];
        let (panel_bytes, panels) = sizes(ty)?;
        let packed = layout.pack(&cera_quant::encode(ty, &numbers(PANEL * COLS)).ok()?, &mut panel);
        let chunk_bytes = panels * panel_bytes;
        let mut memory = memory((bytes / chunk_bytes).max(1) * chunk_bytes).ok()?;
        for part in memory.chunks_exact_mut(panel_bytes) {
            part.copy_from_slice(&panel);
        }
        packed.then_some(Weights { ty, panel_bytes, chunk_bytes, memory })
    }

    /// What a run of [`Self::linear`] is.
    pub fn work(ty: Type, rows: usize) -> Option<Work> {
        let (panel_bytes, panels) = sizes(ty)?;
        Some(Work {
            bytes: (panels * panel_bytes) as u64,
            operations: (2 * rows * panels * PANEL * COLS) as u64,
            is_int8: ty.block_len() > 1,
        })
    }

    /// Multiplies rows, fewer than four or a multiple of four, with a chunk of panels: each time with the next one.
    pub fn linear(&self, tier: Tier, rows: usize) -> Option<impl FnMut()> {
        let kernels = Kernels::new(tier)?;
        let kernel = (kernels.panel)(self.ty)?;
        let f = numbers(rows * COLS);
        let groups = quantized(&kernels, &f);
        let block = row_block(COLS, self.ty.block_len() > 1);
        let mut tile = vec![0.0; ROW_BLOCK * PANEL];
        let mut chunks = self.memory.chunks_exact(self.chunk_bytes).cycle();
        Some(move || {
            let x = Input { cols: COLS, rows, f: &f, groups: &groups };
            let chunk = chunks.next().unwrap_or_default();
            for first in (0..rows).step_by(block) {
                let n = block.min(rows - first);
                for panel in chunk.chunks_exact(self.panel_bytes) {
                    kernel(panel, &x, first, n, &mut tile[..n * PANEL]);
                }
            }
            black_box(&tile);
        })
    }
}

/// Heads of 128, four of the queries to each of the cache.
const ATTENTION: Attention = Attention {
    heads: 32,
    kv_heads: 8,
    head_dim: 128,
    value_dim: 128,
    scale: 0.09,
    causal: true,
    window: None,
    softcap: None,
    sinks: None,
    alibi: None,
};
/// Pairs of a row and a query head that share a head of the cache.
const SHARE: usize = ATTENTION.heads / ATTENTION.kv_heads;

/// Bytes of one head's keys and values.
fn head_bytes(ty: KvType, positions: usize) -> usize {
    ty.bytes(2 * positions * ATTENTION.head_dim)
}

/// A layer of the cache with some sequences, all equally long.
pub struct Past {
    cache: LayerCache,
    sequences: usize,
    /// Positions of each, a multiple of 32.
    depth: usize,
}

impl Past {
    /// As many sequences of `depth` positions as are about so many bytes in all. `None` where there is no memory.
    pub fn new(ty: KvType, depth: usize, bytes: usize) -> Option<Past> {
        let Attention { kv_heads: heads, head_dim, .. } = ATTENTION;
        let kernels = Kernels::new(Tier::Scalar)?;
        let sequences = (bytes / (heads * head_bytes(ty, depth))).max(1);
        let blocks = sequences * depth / BLOCK;
        let shape = KvShape { ty: ty.into(), blocks, max_rows: 1, slots: 0 };
        let cache = LayerCache::new(
            &Kv { heads, head_dim, value_dim: head_dim, latent: false, window: None, kept: true },
            &shape,
        )
        .ok()?;
        let (x, mut narrow) = (numbers(heads * head_dim), Narrow::new(head_dim));
        for at in 0..blocks * BLOCK {
            // SAFETY: nobody else has the cache yet.
            unsafe { cache.write(&kernels, &x, &x, at / BLOCK, at % BLOCK, &mut narrow) };
        }
        Some(Past { cache, sequences, depth })
    }

    /// What a run of [`Self::attend`] is.
    pub fn work(ty: KvType, depth: usize, rows: usize) -> Work {
        let dim = ATTENTION.head_dim;
        let seen: usize = (depth - rows + 1..=depth).sum();
        Work {
            bytes: head_bytes(ty, depth) as u64,
            operations: (4 * seen * SHARE * dim) as u64,
            is_int8: false,
        }
    }

    /// Attends with the last rows of a sequence over one head of the cache: each time over the next one.
    pub fn attend(&self, tier: Tier, rows: usize) -> Option<impl FnMut()> {
        let kernels = Kernels::new(tier)?;
        let dim = ATTENTION.head_dim;
        let mut scratch = Scratch::new(QUERIES, dim);
        let (q, mut out) = (numbers(QUERIES * dim), vec![0.0; QUERIES * dim]);
        let positions: Vec<usize> = (0..rows * SHARE).map(|pair| self.depth - rows + pair / SHARE).collect();
        let of_each = self.depth / BLOCK;
        let blocks: Vec<BlockId> = (0..self.sequences * of_each).map(|id| BlockId(id as u32)).collect();
        let mut heads = (0..self.sequences * ATTENTION.kv_heads).cycle();
        Some(move || {
            let at = heads.next().unwrap_or_default();
            let (sequence, kv_head) = (at / ATTENTION.kv_heads, at % ATTENTION.kv_heads);
            // SAFETY: nobody writes any more.
            let cache = unsafe { self.cache.read() };
            for positions in positions.chunks(QUERIES) {
                let q = &q[..positions.len() * dim];
                let blocks = &blocks[sequence * of_each..(sequence + 1) * of_each];
                let queries =
                    Queries { q, positions, blocks, length: self.depth, kv_head, sinks: &[], slopes: &[] };
                kernels.attend(&ATTENTION, &cache, &queries, &mut scratch, &mut out[..q.len()]);
            }
            black_box(&out);
        })
    }
}

/// Quantizes a row of 4096 columns.
pub fn quantize(tier: Tier) -> Option<impl FnMut()> {
    let (kernels, x) = (Kernels::new(tier)?, numbers(COLS));
    let mut groups = vec![ActGroup::default(); COLS / GROUP];
    Some(move || {
        (kernels.quantize)(&x, &mut groups, 1);
        black_box(&groups);
    })
}

/// Normalises a row of 4096 columns.
pub fn rms_norm(tier: Tier) -> Option<impl FnMut()> {
    let (kernels, x) = (Kernels::new(tier)?, numbers(COLS));
    let mut out = vec![0.0; COLS];
    Some(move || {
        (kernels.rms_norm)(&x, &x, 1e-5, &mut out);
        black_box(&out);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_runs_on_every_tier_over_all_that_it_was_given() {
        for ty in types() {
            let weights = Weights::new(ty, 600 << 10).unwrap();
            for tier in Tier::available() {
                for rows in [1, 16] {
                    let mut run = weights.linear(tier, rows).unwrap();
                    (0..3).for_each(|_| run());
                }
            }
        }
        for ty in [KvType::F32, KvType::F16, KvType::Q8_0, KvType::Q4_0] {
            let past = Past::new(ty, 64, 1 << 20).unwrap();
            for tier in Tier::available() {
                let mut run = past.attend(tier, 40).unwrap();
                (0..past.sequences * ATTENTION.kv_heads).for_each(|_| run());
            }
        }
        for tier in Tier::available() {
            quantize(tier).unwrap()();
            rms_norm(tier).unwrap()();
        }
    }
}
