//! Attention of a few query rows over one head of the paged cache.
//!
//! The cache is walked in blocks of 32 positions, keys stored with positions side by side so that 32 scores
//! come out of one pass. Softmax is online: each block's scores are weighed against the greatest seen so far
//! (Milakov and Gimelshein 2018). Every [`SPAN`] positions a fresh state starts and the finished one is merged
//! into the total, in order: so one row's attention can be cut into spans and given to several threads with
//! no change of a bit (nothing does so yet). What a row computes depends on its own position and the cache alone.

use std::ops::Range;

use cera_backend::{BLOCK, BlockId};
use cera_plan::Attention;
use half::f16;

use crate::format::GROUP;
use crate::simd::{SUMS, Simd, exp, sum16, tanh, unroll};

/// Positions of one softmax state.
pub const SPAN: usize = 512;

/// Queries whose values are weighed together: a value is loaded once for them.
const TOGETHER: usize = 4;

/// The greatest head that the kernel's buffers hold.
pub const MAX_HEAD: usize = 512;

/// One layer's cache. Keys of a block and head are `[head_dim][32]`, values `[32][head_dim]`.
#[derive(Clone, Copy)]
pub struct Cache<'a> {
    /// `[blocks, heads, head_dim, 32]`.
    pub k: Stored<'a>,
    /// `[blocks, heads, 32, head_dim]`.
    pub v: Stored<'a>,
}

/// Numbers of the cache.
#[derive(Clone, Copy)]
pub enum Stored<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Half precision.
    F16(&'a [u16]),
    /// Bytes, and a scale in half precision for each 32 numbers of a head. Scales lie as the numbers do: of keys
    /// `[head_dim / 32][32 positions]`, of values `[32 positions][head_dim / 32]`.
    Q8_0(&'a [u8], &'a [u16]),
}

/// Query rows that share a head of the cache.
#[derive(Clone, Copy)]
pub struct Queries<'a> {
    /// `[queries, head_dim]`.
    pub q: &'a [f32],
    /// The position of each.
    pub positions: &'a [usize],
    /// The blocks of their sequence.
    pub blocks: &'a [BlockId],
    /// The head of the cache.
    pub kv_head: usize,
}

/// A thread's buffers.
pub struct Scratch {
    keys: Vec<f32>,
    values: Vec<f32>,
    /// `[queries, 32]`: scores, then weights.
    scores: Vec<f32>,
    states: Vec<State>,
    sums: Vec<f32>,
}

/// The softmax of a query over some positions; its weighted sum of values lies beside it.
#[derive(Clone, Copy)]
struct State {
    max: f32,
    sum: f32,
}

const EMPTY: State = State { max: f32::NEG_INFINITY, sum: 0.0 };

impl Scratch {
    /// Buffers for up to `queries` rows at a time.
    pub fn new(queries: usize, head_dim: usize) -> Self {
        Scratch {
            keys: vec![0.0; head_dim * BLOCK],
            values: vec![0.0; head_dim * BLOCK],
            scores: vec![0.0; queries * BLOCK],
            states: vec![EMPTY; 2 * queries],
            sums: vec![0.0; queries * head_dim],
        }
    }
}

/// `out [queries, head_dim]` = softmax(q . k * scale) v.
#[inline(always)]
pub fn attend<S: Simd>(
    s: S,
    attention: &Attention,
    cache: &Cache<'_>,
    queries: &Queries<'_>,
    scratch: &mut Scratch,
    out: &mut [f32],
) {
    let dim = attention.head_dim;
    let n = queries.positions.len();
    let (span_states, totals) = scratch.states.split_at_mut(n);
    let totals = &mut totals[..n];
    totals.fill(EMPTY);
    let (mut from, mut to) = (usize::MAX, 0);
    for &p in queries.positions {
        from = from.min(start(attention, p));
        to = to.max(p + 1);
    }
    let mut at = from / SPAN * SPAN;
    while at < to {
        span_states.fill(EMPTY);
        let sums = &mut scratch.sums[..n * dim];
        sums.fill(0.0);
        let end = (at + SPAN).min(to);
        let mut block = at.max(from / BLOCK * BLOCK);
        while block < end {
            let id = queries.blocks[block / BLOCK].0 as usize;
            let lies = (id * attention.kv_heads + queries.kv_head) * dim * BLOCK;
            widen(s, &cache.k, true, lies, &mut scratch.keys[..dim * BLOCK]);
            widen(s, &cache.v, false, lies, &mut scratch.values[..dim * BLOCK]);
            let Scratch { keys, values, scores, .. } = scratch;
            all_scores(s, queries.q, dim, &keys[..dim * BLOCK], &mut scores[..n * BLOCK]);
            let rows = scores.chunks_exact_mut(BLOCK).zip(sums.chunks_exact_mut(dim));
            for ((&p, state), (scores, sums)) in queries.positions.iter().zip(&mut *span_states).zip(rows) {
                to_weights(s, attention, &seen(attention, p, block), scores, state, sums);
            }
            let values = &values[..dim * BLOCK];
            let mut i = 0;
            while i < n {
                let together = (n - i).min(TOGETHER);
                let whole = |p: &usize| seen(attention, *p, block).len() == BLOCK;
                if together == TOGETHER && queries.positions[i..i + TOGETHER].iter().all(whole) {
                    let sums = &mut sums[i * dim..(i + TOGETHER) * dim];
                    weigh_all::<S, TOGETHER>(s, &scores[i * BLOCK..], values, sums);
                    i += TOGETHER;
                } else {
                    let seen = seen(attention, queries.positions[i], block);
                    let weights = &scores[i * BLOCK..][seen.clone()];
                    let values = &values[seen.start * dim..seen.end * dim];
                    weigh_all::<S, 1>(s, weights, values, &mut sums[i * dim..(i + 1) * dim]);
                    i += 1;
                }
            }
            block += BLOCK;
        }
        for i in 0..n {
            merge(
                s,
                &span_states[i],
                &sums[i * dim..(i + 1) * dim],
                &mut totals[i],
                &mut out[i * dim..(i + 1) * dim],
            );
        }
        at += SPAN;
    }
    for (total, out) in totals.iter().zip(out.chunks_exact_mut(dim)) {
        let by = 1.0 / total.sum;
        for o in out {
            *o *= by;
        }
    }
}

/// The first position that a row at position `p` sees.
#[inline(always)]
fn start(attention: &Attention, p: usize) -> usize {
    match attention.window {
        Some(w) => (p + 1).saturating_sub(w),
        None => 0,
    }
}

/// Numbers of the cache from `at` on, as f32: keys or values.
#[inline(always)]
fn widen<S: Simd>(s: S, stored: &Stored<'_>, keys: bool, at: usize, out: &mut [f32]) {
    match stored {
        Stored::F32(x) => out.copy_from_slice(&x[at..at + out.len()]),
        Stored::F16(x) => {
            let x = &x[at..at + out.len()];
            for (x, out) in x.chunks_exact(S::LANES).zip(out.chunks_exact_mut(S::LANES)) {
                s.store(s.load_f16(x), out);
            }
        }
        Stored::Q8_0(x, scales) => {
            let (x, scales) = (&x[at..at + out.len()], &scales[at / GROUP..(at + out.len()) / GROUP]);
            if keys {
                // 32 rows of keys share a row of scales.
                for ((x, out), scales) in x
                    .chunks_exact(GROUP * BLOCK)
                    .zip(out.chunks_exact_mut(GROUP * BLOCK))
                    .zip(scales.chunks_exact(BLOCK))
                {
                    for i in (0..BLOCK).step_by(S::LANES) {
                        let scale = s.load_f16(&scales[i..]);
                        for d in (i..GROUP * BLOCK).step_by(BLOCK) {
                            s.store(s.mul(s.to_f(s.load_i8(&x[d..])), scale), &mut out[d..]);
                        }
                    }
                }
            } else {
                let groups = x.chunks_exact(GROUP).zip(out.chunks_exact_mut(GROUP));
                for ((x, out), scale) in groups.zip(scales) {
                    let scale = s.splat(f16::from_bits(*scale).to_f32());
                    for i in (0..GROUP).step_by(S::LANES) {
                        s.store(s.mul(s.to_f(s.load_i8(&x[i..])), scale), &mut out[i..]);
                    }
                }
            }
        }
    }
}

/// The positions of a block that a row at position `p` sees.
#[inline(always)]
fn seen(attention: &Attention, p: usize, block: usize) -> Range<usize> {
    let hi = (p + 1).saturating_sub(block).min(BLOCK);
    start(attention, p).saturating_sub(block).min(hi)..hi
}

/// The dot products of all queries with the 32 keys of a block: `out [queries, 32]`.
#[inline(always)]
fn all_scores<S: Simd>(s: S, q: &[f32], dim: usize, keys: &[f32], out: &mut [f32]) {
    let n = out.len() / BLOCK;
    let mut i = 0;
    if S::LANES == SUMS {
        while i + 8 <= n {
            scores::<S, 8>(s, &q[i * dim..], dim, keys, &mut out[i * BLOCK..]);
            i += 8;
        }
        if i + 4 <= n {
            scores::<S, 4>(s, &q[i * dim..], dim, keys, &mut out[i * BLOCK..]);
            i += 4;
        }
    }
    while i + 2 <= n {
        scores::<S, 2>(s, &q[i * dim..], dim, keys, &mut out[i * BLOCK..]);
        i += 2;
    }
    if i < n {
        scores::<S, 1>(s, &q[i * dim..], dim, keys, &mut out[i * BLOCK..]);
    }
}

/// The dot products of `Q` queries with the 32 keys of a block: one chain of fma over the head each.
#[inline(always)]
fn scores<S: Simd, const Q: usize>(s: S, q: &[f32], dim: usize, keys: &[f32], out: &mut [f32]) {
    let parts = BLOCK / S::LANES;
    let mut rows = [&q[..0]; Q];
    for i in 0..Q {
        rows[i] = &q[i * dim..(i + 1) * dim];
    }
    let mut acc = [[s.splat(0.0); 8]; Q];
    for (d, keys) in keys.chunks_exact(BLOCK).take(dim).enumerate() {
        unroll!(i < Q of 8 {
            let q = s.splat(rows[i][d]);
            unroll!(p < parts of 8 { acc[i][p] = s.fma(q, s.load(&keys[p * S::LANES..]), acc[i][p]); });
        });
    }
    unroll!(i < Q of 8 {
        unroll!(p < parts of 8 { s.store(acc[i][p], &mut out[i * BLOCK + p * S::LANES..]); });
    });
}

/// Turns a block's scores into the weights of the positions that the row sees, by the greatest score so far; `state`
/// and `sums` are brought to it.
#[inline(always)]
fn to_weights<S: Simd>(
    s: S,
    attention: &Attention,
    seen: &Range<usize>,
    scores: &mut [f32],
    state: &mut State,
    sums: &mut [f32],
) {
    if seen.is_empty() {
        return;
    }
    let scale = s.splat(attention.scale);
    let nothing = s.splat(f32::NEG_INFINITY);
    let mut top = nothing;
    for (i, part) in scores.chunks_exact_mut(S::LANES).enumerate() {
        let mut v = s.mul(s.load(part), scale);
        if let Some(cap) = attention.softcap {
            v = s.mul(s.splat(cap), tanh(s, s.mul(v, s.splat(1.0 / cap))));
        }
        let first = i * S::LANES;
        v = s.select(seen.start.saturating_sub(first), seen.end.saturating_sub(first), v, nothing);
        s.store(v, part);
        top = s.max(v, top);
    }
    let mut max = state.max;
    let mut lanes = [0.0; SUMS];
    s.store(top, &mut lanes);
    for v in &lanes[..S::LANES] {
        max = if *v > max { *v } else { max };
    }
    if max > state.max {
        let by = if state.max == f32::NEG_INFINITY { 0.0 } else { exp1(s, state.max - max) };
        state.max = max;
        state.sum *= by;
        for v in sums.iter_mut() {
            *v *= by;
        }
    }
    let mut lanes = [s.splat(0.0); 4];
    for (i, part) in scores.chunks_exact_mut(S::LANES).enumerate() {
        let first = i * S::LANES;
        let e = exp(s, s.sub(s.load(part), s.splat(max)));
        let e = s.select(seen.start.saturating_sub(first), seen.end.saturating_sub(first), e, s.splat(0.0));
        s.store(e, part);
        let lane = i % (SUMS / S::LANES);
        lanes[lane] = s.add(lanes[lane], e);
    }
    state.sum += sum16(s, &lanes);
}

/// Adds `weights . values` to the sums of `Q` queries, whose weights are 32 apart where there are several.
#[inline(always)]
fn weigh_all<S: Simd, const Q: usize>(s: S, weights: &[f32], values: &[f32], sums: &mut [f32]) {
    let dim = sums.len() / Q;
    let mut d = 0;
    // Where there are only 16 registers, 4 queries of 2 vectors.
    let wide = if S::LANES == 8 { 2 } else { 4 };
    while d + wide * S::LANES <= dim {
        if S::LANES == 8 {
            weigh::<S, Q, 2>(s, weights, values, dim, d, sums);
        } else {
            weigh::<S, Q, 4>(s, weights, values, dim, d, sums);
        }
        d += wide * S::LANES;
    }
    while d < dim {
        weigh::<S, Q, 1>(s, weights, values, dim, d, sums);
        d += S::LANES;
    }
}

/// Adds `weights . values[.., d..d + V * LANES]` to the sums: a chain of fma over the positions each.
#[inline(always)]
fn weigh<S: Simd, const Q: usize, const V: usize>(
    s: S,
    weights: &[f32],
    values: &[f32],
    dim: usize,
    d: usize,
    sums: &mut [f32],
) {
    let mut acc = [[s.splat(0.0); V]; Q];
    unroll!(i < Q of 4 {
        unroll!(v < V of 4 { acc[i][v] = s.load(&sums[i * dim + d + v * S::LANES..]); });
    });
    for (at, row) in values.chunks_exact(dim).enumerate() {
        let row = &row[d..d + V * S::LANES];
        unroll!(i < Q of 4 {
            let w = s.splat(weights[i * BLOCK + at]);
            unroll!(v < V of 4 { acc[i][v] = s.fma(w, s.load(&row[v * S::LANES..]), acc[i][v]); });
        });
    }
    unroll!(i < Q of 4 {
        unroll!(v < V of 4 { s.store(acc[i][v], &mut sums[i * dim + d + v * S::LANES..]); });
    });
}

/// Takes a finished span into the total.
#[inline(always)]
fn merge<S: Simd>(s: S, span: &State, sums: &[f32], total: &mut State, out: &mut [f32]) {
    if span.sum == 0.0 {
        return; // the row sees no position of this span
    }
    if total.sum == 0.0 {
        *total = *span;
        out.copy_from_slice(sums);
        return;
    }
    let max = if span.max > total.max { span.max } else { total.max };
    let (old, new) = (exp1(s, total.max - max), exp1(s, span.max - max));
    total.max = max;
    total.sum = span.sum.mul_add(new, total.sum * old);
    for (o, v) in out.iter_mut().zip(sums) {
        *o = v.mul_add(new, *o * old);
    }
}

/// `e^x` of one number, with the bits that a vector's lane would have.
#[inline(always)]
fn exp1<S: Simd>(s: S, x: f32) -> f32 {
    let mut lanes = [0.0; SUMS];
    s.store(exp(s, s.splat(x)), &mut lanes);
    lanes[0]
}
