//! Attention over the paged cache.

use bytemuck::{Pod, Zeroable};
use cera_backend::KvType;
use cera_plan::{Attention, Kv};

use super::{for_each, launch};
use crate::{Device, Dispatch, Error, Place};

/// Positions of a span.
pub const SPAN: usize = 256;
/// Query heads that a threadgroup takes.
const HEADS: u32 = 4;

/// A layer of the cache, and where a step's rows have their positions in it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Paged {
    /// How its numbers are stored: F16 or F32.
    pub ty: KvType,
    /// Its keys.
    pub keys: Place,
    /// Its values.
    pub values: Place,
    /// The position of each row.
    pub positions: Place,
    /// How many positions each row's sequence has.
    pub lengths: Place,
    /// Where the blocks of each row's sequence begin in `table`.
    pub starts: Place,
    /// Blocks.
    pub table: Place,
}

impl Paged {
    fn kernel(&self, name: &str) -> String {
        format!("{name}_{}", if self.ty == KvType::F32 { "f32" } else { "f16" })
    }
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct KvParams {
    heads: u32,
    key_dim: u32,
    value_dim: u32,
    rows: u32,
}

/// What is stored.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KvWrite {
    /// The layer's shape.
    pub kv: Kv,
    /// Rows.
    pub rows: u32,
    /// Keys of the rows.
    pub k: Place,
    /// Values of the rows.
    pub v: Place,
}

/// Stores keys and values of rows at their positions.
///
/// # Errors
/// What the device says of the kernel.
pub fn kv_write(device: &mut dyn Device, paged: &Paged, w: &KvWrite) -> Result<Dispatch, Error> {
    let (key_dim, value_dim) = (w.kv.head_dim as u32, w.kv.value_dim as u32);
    let params = KvParams { heads: w.kv.heads as u32, key_dim, value_dim, rows: w.rows };
    let threads = w.rows * params.heads * (key_dim.div_ceil(8) + value_dim.div_ceil(8));
    let buffers = [w.k, w.v, paged.keys, paged.values, paged.positions, paged.starts, paged.table];
    for_each(device, &paged.kernel("kv_write"), &buffers, &params, threads)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Seen {
    causal: u32,
    window: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct AttendParams {
    seen: Seen,
    heads: u32,
    kv_heads: u32,
    key_dim: u32,
    value_dim: u32,
    first_row: u32,
    spans: u32,
    scale: f32,
    softcap: f32,
    alibi: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct MergeParams {
    seen: Seen,
    heads: u32,
    value_dim: u32,
    first_row: u32,
    spans: u32,
    sinks: u32,
}

/// Attention of some rows of a step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Attend {
    /// Heads, masks and the like.
    pub attention: Attention,
    /// The first row.
    pub first_row: u32,
    /// Rows.
    pub rows: u32,
    /// Spans that every row's positions fit in.
    pub spans: u32,
    /// Queries of the step.
    pub q: Place,
    /// A slope of each head, where there are some.
    pub slopes: Option<Place>,
    /// A sink of each head, where there are some.
    pub sinks: Option<Place>,
    /// Memory of [`attend_partial`] bytes for each row.
    pub partial: Place,
    /// The result of the step's rows.
    pub out: Place,
}

/// Bytes that a row's partial results take.
pub fn attend_partial(attention: &Attention, spans: u32) -> usize {
    4 * attention.heads * spans as usize * (attention.value_dim.next_multiple_of(8) + 2)
}

/// Attention in spans, and the spans put together.
///
/// # Errors
/// What the device says of the kernels.
pub fn attend(device: &mut dyn Device, paged: &Paged, a: &Attend) -> Result<[Dispatch; 2], Error> {
    let at = &a.attention;
    let seen = Seen {
        causal: at.causal.into(),
        window: at.window.map_or(0, |w| u32::try_from(w).unwrap_or(u32::MAX)),
    };
    let (heads, kv_heads, value_dim) = (at.heads as u32, at.kv_heads as u32, at.value_dim as u32);
    let params = AttendParams {
        seen,
        heads,
        kv_heads,
        key_dim: at.head_dim as u32,
        value_dim,
        first_row: a.first_row,
        spans: a.spans,
        scale: at.scale,
        softcap: at.softcap.unwrap_or(0.0),
        alibi: a.slopes.is_some().into(),
    };
    let batches = (heads / kv_heads).div_ceil(HEADS);
    let Paged { keys, values, positions, lengths, starts, table, .. } = *paged;
    let buffers = [a.q, keys, values, positions, lengths, starts, table, a.slopes.unwrap_or(a.q), a.partial];
    let groups = [a.spans, kv_heads * batches, a.rows];
    let spans = launch(device, &paged.kernel("attend"), &buffers, &params, groups)?;
    let params = MergeParams {
        seen,
        heads,
        value_dim,
        first_row: a.first_row,
        spans: a.spans,
        sinks: a.sinks.is_some().into(),
    };
    let buffers = [a.partial, positions, lengths, a.sinks.unwrap_or(a.q), a.out];
    let merge = launch(device, "attend_merge", &buffers, &params, [heads, a.rows, 1])?;
    Ok([spans, Dispatch { threads: 128, ..merge }])
}
