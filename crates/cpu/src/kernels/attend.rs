//! Attention of a few query rows over one head of the paged cache.
//!
//! The cache is walked in *strips* of 128 positions, four blocks. Keys are stored with positions side by side, so that
//! 32 scores come out of one pass over a block. Softmax is online: each strip's scores are weighed against the greatest
//! seen so far (Milakov and Gimelshein 2018). Every [`SPAN`] positions a fresh state starts and the finished one is
//! merged into the total, in order: so one row's attention is cut into spans that several threads may have, with no
//! change of a bit. What a row computes depends on its own position and the cache alone.

use std::ops::Range;

use cera_backend::{BLOCK, BlockId};
use cera_plan::Attention;

use super::numbers::{
    ByteKeys, ByteValues, Cache, Halves, NibbleKeys, NibbleValues, Numbers, Singles, Stored,
};
use crate::simd::{SUMS, Simd, exp, sum16, tanh, unroll};

/// Positions of one softmax state.
pub const SPAN: usize = 512;

/// Positions whose scores become weights together.
const STRIP: usize = 128;

/// Queries whose values are weighed together: a value is loaded once for them.
const TOGETHER: usize = 4;

/// The greatest head that the kernel's buffers hold.
pub const MAX_HEAD: usize = 1024;

/// Query rows that share a head of the cache.
#[derive(Clone, Copy)]
pub struct Queries<'a> {
    /// `[head_dim, queries]`.
    pub q: &'a [f32],
    /// The position of each.
    pub positions: &'a [usize],
    /// Positions that their sequence has.
    pub length: usize,
    /// The blocks of their sequence.
    pub blocks: &'a [BlockId],
    /// The head of the cache.
    pub kv_head: usize,
    /// A score without a value of each, or none.
    pub sinks: &'a [f32],
    /// What each loses for a position of distance; of none none loses any.
    pub slopes: &'a [f32],
}

/// A thread's buffers.
pub struct Scratch {
    keys: Vec<f32>,
    values: Vec<f32>,
    /// `[queries, 128]`: scores, then weights.
    scores: Vec<f32>,
    /// A span's softmax for each query.
    pub states: Vec<State>,
    /// A span's weighted values, `[queries, value_dim]`.
    pub sums: Vec<f32>,
    /// The softmax of each query over all spans so far.
    pub totals: Vec<State>,
    /// The value of a sink.
    pub nothing: Vec<f32>,
}

/// The softmax of a query over some positions; its weighted sum of values lies beside it.
#[derive(Clone, Copy, bytemuck::Zeroable)]
pub struct State {
    max: f32,
    /// The sum of weights; 0 where no position was seen.
    sum: f32,
}

impl State {
    /// Of no position.
    pub const EMPTY: State = State { max: f32::NEG_INFINITY, sum: 0.0 };

    /// Of one position.
    pub fn of(score: f32) -> State {
        State { max: score, sum: 1.0 }
    }
}

impl Scratch {
    /// Buffers for up to `queries` rows at a time, and heads of up to `head_dim` elements.
    pub fn new(queries: usize, head_dim: usize) -> Self {
        Scratch {
            keys: vec![0.0; head_dim * BLOCK],
            values: vec![0.0; (head_dim + SUMS) * BLOCK],
            scores: vec![0.0; queries * STRIP],
            states: vec![State::EMPTY; queries],
            sums: vec![0.0; queries * head_dim],
            totals: vec![State::EMPTY; queries],
            nothing: vec![0.0; head_dim],
        }
    }
}

/// From the first to the last position that any of the rows at `positions` sees, of a sequence of `length`.
#[inline(always)]
fn seen_by_any(attention: &Attention, positions: &[usize], length: usize) -> Range<usize> {
    let (mut from, mut to) = (usize::MAX, 0);
    for &p in positions {
        let seen = attention.sees(p, length);
        from = from.min(seen.start);
        to = to.max(seen.end);
    }
    from..to
}

/// The spans that any of the rows at `positions` sees, of a sequence of `length`.
pub fn spans(attention: &Attention, positions: &[usize], length: usize) -> Range<usize> {
    let seen = seen_by_any(attention, positions, length);
    seen.start / SPAN..seen.end.div_ceil(SPAN)
}

/// The softmax of each query over a span, and the sum of its values by that, into `scratch.states` and `scratch.sums`.
#[inline(always)]
pub fn span<S: Simd>(
    s: S,
    attention: &Attention,
    cache: &Cache<'_>,
    queries: &Queries<'_>,
    span: usize,
    scratch: &mut Scratch,
) {
    let n = queries.positions.len();
    scratch.states[..n].fill(State::EMPTY);
    scratch.sums[..n * attention.value_dim].fill(0.0);
    let Range { start: from, end: to } = seen_by_any(attention, queries.positions, queries.length);
    let end = ((span + 1) * SPAN).min(to);
    let mut strip = (span * SPAN).max(from / STRIP * STRIP);
    while strip < end {
        let blocks = strip.max(from / BLOCK * BLOCK)..(strip + STRIP).min(end);
        for block in blocks.clone().step_by(BLOCK) {
            score_block(s, attention, cache, queries, strip, block, scratch);
        }
        let dim = attention.value_dim;
        let rows = scratch.scores.chunks_exact_mut(STRIP).zip(scratch.sums.chunks_exact_mut(dim));
        let of_query = queries.positions.iter().zip(&mut scratch.states).zip(rows);
        for (i, ((&p, state), (scores, sums))) in of_query.enumerate() {
            let seen = seen(&attention.sees(p, queries.length), strip, STRIP);
            let slope = queries.slopes.get(i).map(|slope| (*slope, p as f32 - strip as f32));
            to_weights(s, attention, slope, &seen, scores, state, sums);
        }
        for block in blocks.step_by(BLOCK) {
            weigh_block(s, attention, cache, queries, strip, block, scratch);
        }
        strip += STRIP;
    }
}

/// Takes a finished span into the total, whose weighted values are `out`.
#[inline(always)]
pub fn merge<S: Simd>(s: S, span: &State, sums: &[f32], total: &mut State, out: &mut [f32]) {
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

/// Makes the sum of weighted values a mean.
pub fn finish(total: &State, out: &mut [f32]) {
    let by = 1.0 / total.sum;
    for o in out {
        *o *= by;
    }
}

/// Those of `len` positions from `at` on that a row sees, counted from `at`.
#[inline(always)]
fn seen(of_row: &Range<usize>, at: usize, len: usize) -> Range<usize> {
    let hi = of_row.end.saturating_sub(at).min(len);
    of_row.start.saturating_sub(at).min(hi)..hi
}

/// Where the numbers of a block and head lie, `dim` for each position.
#[inline(always)]
fn place(attention: &Attention, dim: usize, block: BlockId, kv_head: usize) -> usize {
    (block.0 as usize * attention.kv_heads + kv_head) * dim * BLOCK
}

/// As many queries read the cache itself; for more, a block is widened first.
#[inline(always)]
fn few<S: Simd>() -> usize {
    S::LANES / 2
}

/// The scores of a block. Its values are asked of memory meanwhile.
#[inline(always)]
fn score_block<S: Simd>(
    s: S,
    attention: &Attention,
    cache: &Cache<'_>,
    queries: &Queries<'_>,
    strip: usize,
    block: usize,
    scratch: &mut Scratch,
) {
    let place = |dim| place(attention, dim, queries.blocks[block / BLOCK], queries.kv_head);
    let at = place(attention.head_dim);
    // Keys that values are part of are asked for again, and are there.
    let next = cache.v.map_or_else(|| cache.k.address(at), |v| v.address(place(attention.value_dim)));
    let Scratch { keys: wide, scores, .. } = scratch;
    let out = &mut scores[block - strip..];
    let width = BLOCK;
    match cache.k.part(at, attention.head_dim * BLOCK) {
        Stored::F32(x) => all_scores(s, queries, Singles { x, width }, next, wide, out),
        Stored::F16(x) => all_scores(s, queries, Halves { x, width }, next, wide, out),
        Stored::Q8_0(x, scales) => all_scores(s, queries, ByteKeys { x, scales, width }, next, wide, out),
        Stored::Q4_0(x, scales) => all_scores(s, queries, NibbleKeys { x, scales, width }, next, wide, out),
    }
}

/// Adds the values of a block by the strip's weights. The keys of a later block are asked of memory meanwhile.
#[inline(always)]
fn weigh_block<S: Simd>(
    s: S,
    attention: &Attention,
    cache: &Cache<'_>,
    queries: &Queries<'_>,
    strip: usize,
    block: usize,
    scratch: &mut Scratch,
) {
    let place = |dim: usize, block: &BlockId| place(attention, dim, *block, queries.kv_head);
    let own = &queries.blocks[block / BLOCK];
    let (keys, width) = (attention.head_dim, attention.value_dim);
    let of_keys = place(keys, own);
    let next = queries.blocks.get((block + STRIP) / BLOCK).map_or(of_keys, |block| place(keys, block));
    let next = cache.k.address(next);
    let Scratch { values: wide, scores, sums, .. } = scratch;
    let weights = &scores[block - strip..];
    let mut out = Weighed { attention, queries, block, weights, sums };
    let Some(values) = &cache.v else {
        let (rows, from) = (width + SUMS, cache.k.part(of_keys, keys * BLOCK));
        match from {
            Stored::F32(x) => turn_values(s, Singles { x, width: BLOCK }, next, width, wide),
            Stored::F16(x) => turn_values(s, Halves { x, width: BLOCK }, next, width, wide),
            Stored::Q8_0(x, scales) => {
                turn_values(s, ByteKeys { x, scales, width: BLOCK }, next, width, wide)
            }
            Stored::Q4_0(x, scales) => {
                turn_values(s, NibbleKeys { x, scales, width: BLOCK }, next, width, wide)
            }
        }
        let wide = &wide[..rows * BLOCK];
        return runs(s, Singles { x: wide, width: rows }, wide.as_ptr().cast(), &mut out);
    };
    match values.part(place(width, own), width * BLOCK) {
        Stored::F32(x) => weigh_all(s, Singles { x, width }, next, wide, out),
        Stored::F16(x) => weigh_all(s, Halves { x, width }, next, wide, out),
        Stored::Q8_0(x, scales) => weigh_all(s, ByteValues { x, scales, width }, next, wide, out),
        Stored::Q4_0(x, scales) => weigh_all(s, NibbleValues { x, scales, width }, next, wide, out),
    }
}

/// Asks for the memory of numbers `at..at + n` behind `from`.
#[inline(always)]
fn ask<S: Simd, N: Numbers<S>>(s: S, from: *const u8, at: usize, n: usize) {
    for line in (0..n * N::BITS / 8).step_by(64) {
        s.prefetch(from.wrapping_add(at * N::BITS / 8 + line));
    }
}

/// Numbers as f32, `width` a row.
#[inline(always)]
fn widen<S: Simd, N: Numbers<S>>(s: S, from: N, next: *const u8, width: usize, to: &mut [f32]) {
    for (r, to) in to.chunks_exact_mut(width).enumerate() {
        ask::<S, N>(s, next, r * width, width);
        let row = from.row(r);
        for at in (0..width).step_by(S::LANES) {
            s.store(N::load(s, row, at), &mut to[at..]);
        }
    }
}

/// The first `dims` rows of a block's keys, which are its values, as rows of values. Those are 16 numbers further apart
/// than they are long: so that the same element of all 32 does not fall into the same few sets of the cache.
#[inline(always)]
fn turn_values<S: Simd, N: Numbers<S>>(s: S, keys: N, next: *const u8, dims: usize, to: &mut [f32]) {
    let mut row = [0.0; BLOCK];
    for d in 0..dims {
        ask::<S, N>(s, next, d * BLOCK, BLOCK);
        let from = keys.row(d);
        for at in (0..BLOCK).step_by(S::LANES) {
            s.store(N::load(s, from, at), &mut row[at..]);
        }
        for (to, v) in to[d..].iter_mut().step_by(dims + SUMS).zip(row) {
            *to = v;
        }
    }
}

/// The dot products of all queries with the 32 keys of a block: `out [queries, 128]`, of which the first 32 are written.
#[inline(always)]
fn all_scores<S: Simd, N: Numbers<S>>(
    s: S,
    queries: &Queries<'_>,
    keys: N,
    next: *const u8,
    wide: &mut [f32],
    out: &mut [f32],
) {
    let n = queries.positions.len();
    if n <= few::<S>() {
        tiles_of_scores(s, queries.q, n, keys, next, out);
    } else {
        let dim = queries.q.len() / n;
        let wide = &mut wide[..dim * BLOCK];
        widen(s, keys, next, BLOCK, wide);
        // What is asked for again is there already.
        tiles_of_scores(s, queries.q, n, Singles { x: wide, width: BLOCK }, wide.as_ptr().cast(), out);
    }
}

#[inline(always)]
fn tiles_of_scores<S: Simd, N: Numbers<S>>(
    s: S,
    q: &[f32],
    n: usize,
    keys: N,
    next: *const u8,
    out: &mut [f32],
) {
    let mut i = 0;
    if const { S::LANES == SUMS && S::REGISTERS == 32 } {
        while i + 8 <= n {
            scores::<S, N, 8>(s, &q[i..], n, keys, next, &mut out[i * STRIP..]);
            i += 8;
        }
        if i + 4 <= n {
            scores::<S, N, 4>(s, &q[i..], n, keys, next, &mut out[i * STRIP..]);
            i += 4;
        }
    }
    while const { S::REGISTERS > 0 } && i + 2 <= n {
        scores::<S, N, 2>(s, &q[i..], n, keys, next, &mut out[i * STRIP..]);
        i += 2;
    }
    while i < n {
        scores::<S, N, 1>(s, &q[i..], n, keys, next, &mut out[i * STRIP..]);
        i += 1;
    }
}

/// The dot products of `Q` queries, whose elements are `n` apart, with the 32 keys of a block: one chain of fma over
/// the head each.
#[inline(always)]
fn scores<S: Simd, N: Numbers<S>, const Q: usize>(
    s: S,
    q: &[f32],
    n: usize,
    keys: N,
    next: *const u8,
    out: &mut [f32],
) {
    let parts = BLOCK / S::LANES;
    let mut acc = [[s.splat(0.0); 8]; Q];
    for (d, q) in q.chunks(n).enumerate() {
        if q.len() < Q {
            break; // the end of the last element's queries
        }
        ask::<S, N>(s, next, d * BLOCK, BLOCK);
        let row = keys.row(d);
        let mut k = [s.splat(0.0); 8];
        unroll!(p < parts of 8 { k[p] = N::load(s, row, p * S::LANES); });
        unroll!(i < Q of 8 {
            let q = s.splat(q[i]);
            unroll!(p < parts of 8 { acc[i][p] = s.fma(q, k[p], acc[i][p]); });
        });
    }
    unroll!(i < Q of 8 {
        unroll!(p < parts of 8 { s.store(acc[i][p], &mut out[i * STRIP + p * S::LANES..]); });
    });
}

/// The positions of a vector's lanes.
const LANES: [f32; SUMS] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];

/// Turns a strip's scores into the weights of the positions that the row sees, by the greatest score so far; `state`
/// and `sums` are brought to it. `slope` is what a position of distance costs, and the row's position within the strip.
#[inline(always)]
fn to_weights<S: Simd>(
    s: S,
    attention: &Attention,
    slope: Option<(f32, f32)>,
    seen: &Range<usize>,
    scores: &mut [f32],
    state: &mut State,
    sums: &mut [f32],
) {
    if seen.is_empty() {
        return;
    }
    let parts = seen.start / S::LANES..seen.end.div_ceil(S::LANES);
    let scores = &mut scores[parts.start * S::LANES..parts.end * S::LANES];
    // Lanes of the part that begins at a position that are seen.
    let lanes = |first: usize| (seen.start.saturating_sub(first), seen.end.saturating_sub(first));
    let scale = s.splat(attention.scale);
    let nothing = s.splat(f32::NEG_INFINITY);
    let mut top = nothing;
    for (part, i) in scores.chunks_exact_mut(S::LANES).zip(parts.clone()) {
        let mut v = s.mul(s.load(part), scale);
        if let Some(cap) = attention.softcap {
            v = s.mul(s.splat(cap), tanh(s, s.mul(v, s.splat(1.0 / cap))));
        }
        if let Some((slope, position)) = slope {
            let away = s.sub(s.add(s.load(&LANES), s.splat((i * S::LANES) as f32)), s.splat(position));
            let away = s.max(away, s.sub(s.splat(0.0), away));
            v = s.fma(s.splat(-slope), away, v);
        }
        let (lo, hi) = lanes(i * S::LANES);
        if lo > 0 || hi < S::LANES {
            v = s.select(lo, hi, v, nothing);
        }
        s.store(v, part);
        top = s.max(v, top);
    }
    let mut max = [f32::NEG_INFINITY; SUMS];
    s.store(top, &mut max);
    let mut half = SUMS / 2;
    while half > 0 {
        for i in 0..half {
            max[i] = if max[i + half] > max[i] { max[i + half] } else { max[i] };
        }
        half /= 2;
    }
    if max[0] > state.max {
        let by = if state.max == f32::NEG_INFINITY { 0.0 } else { exp1(s, state.max - max[0]) };
        state.max = max[0];
        state.sum *= by;
        for v in sums.iter_mut() {
            *v *= by;
        }
    }
    let max = s.splat(state.max);
    let mut sum = [s.splat(0.0); 4];
    for (part, i) in scores.chunks_exact_mut(S::LANES).zip(parts) {
        let mut e = exp(s, s.sub(s.load(part), max));
        let (lo, hi) = lanes(i * S::LANES);
        if lo > 0 || hi < S::LANES {
            e = s.select(lo, hi, e, s.splat(0.0));
        }
        s.store(e, part);
        let lane = i % (SUMS / S::LANES);
        sum[lane] = s.add(sum[lane], e);
    }
    state.sum += sum16(s, &sum);
}

/// Where the values of a block go.
struct Weighed<'a> {
    attention: &'a Attention,
    queries: &'a Queries<'a>,
    block: usize,
    /// `[queries, 128]`, the block's being the first 32 of each.
    weights: &'a [f32],
    /// `[queries, value_dim]`.
    sums: &'a mut [f32],
}

/// Adds `weights . values` to the sums of all queries.
#[inline(always)]
fn weigh_all<S: Simd, N: Numbers<S>>(
    s: S,
    values: N,
    next: *const u8,
    wide: &mut [f32],
    mut out: Weighed<'_>,
) {
    let dim = out.attention.value_dim;
    if out.queries.positions.len() <= few::<S>() {
        runs(s, values, next, &mut out);
    } else {
        let wide = &mut wide[..dim * BLOCK];
        widen(s, values, next, dim, wide);
        runs(s, Singles { x: wide, width: dim }, wide.as_ptr().cast(), &mut out);
    }
}

/// Queries side by side that see the same positions of the block are taken together.
#[inline(always)]
fn runs<S: Simd, N: Numbers<S>>(s: S, values: N, next: *const u8, out: &mut Weighed<'_>) {
    let dim = out.attention.value_dim;
    let together = if const { S::REGISTERS == 0 } { 1 } else { TOGETHER };
    let sees = |p: usize| seen(&out.attention.sees(p, out.queries.length), out.block, BLOCK);
    let mut i = 0;
    while let Some(&p) = out.queries.positions.get(i) {
        let seen = sees(p);
        let more = out.queries.positions[i + 1..].iter().take(together - 1);
        let run = 1 + more.take_while(|p| sees(**p) == seen).count();
        let weights = &out.weights[i * STRIP..];
        let sums = &mut out.sums[i * dim..(i + run) * dim];
        if const { S::REGISTERS == 0 } {
            weigh_run::<S, N, 1>(s, &seen, weights, values, next, sums);
        } else {
            match run {
                4 => weigh_run::<S, N, 4>(s, &seen, weights, values, next, sums),
                3 => weigh_run::<S, N, 3>(s, &seen, weights, values, next, sums),
                2 => weigh_run::<S, N, 2>(s, &seen, weights, values, next, sums),
                _ => weigh_run::<S, N, 1>(s, &seen, weights, values, next, sums),
            }
        }
        i += run;
    }
}

/// Adds `weights . values` to the sums of `Q` queries.
#[inline(always)]
fn weigh_run<S: Simd, N: Numbers<S>, const Q: usize>(
    s: S,
    seen: &Range<usize>,
    weights: &[f32],
    values: N,
    next: *const u8,
    sums: &mut [f32],
) {
    let dim = sums.len() / Q;
    let mut d = 0;
    while const { S::REGISTERS == 32 } && d + 4 * S::LANES <= dim {
        weigh::<S, N, Q, 4>(s, seen, weights, values, next, d, sums);
        d += 4 * S::LANES;
    }
    while const { S::REGISTERS == 16 } && d + 2 * S::LANES <= dim {
        weigh::<S, N, Q, 2>(s, seen, weights, values, next, d, sums);
        d += 2 * S::LANES;
    }
    while d < dim {
        weigh::<S, N, Q, 1>(s, seen, weights, values, next, d, sums);
        d += S::LANES;
    }
}

/// Adds `weights . values[.., d..d + V * LANES]` to the sums: a chain of fma over the positions each.
#[inline(always)]
fn weigh<S: Simd, N: Numbers<S>, const Q: usize, const V: usize>(
    s: S,
    seen: &Range<usize>,
    weights: &[f32],
    values: N,
    next: *const u8,
    d: usize,
    sums: &mut [f32],
) {
    let dim = sums.len() / Q;
    let mut of = [&weights[..0]; Q];
    unroll!(i < Q of 4 { of[i] = &weights[i * STRIP..i * STRIP + seen.end]; });
    let mut acc = [[s.splat(0.0); V]; Q];
    unroll!(i < Q of 4 {
        unroll!(v < V of 4 { acc[i][v] = s.load(&sums[i * dim + d + v * S::LANES..]); });
    });
    for at in seen.clone() {
        ask::<S, N>(s, next, at * dim + d, V * S::LANES);
        let row = values.row(at);
        let mut x = [s.splat(0.0); V];
        unroll!(v < V of 4 { x[v] = N::load(s, row, d + v * S::LANES); });
        unroll!(i < Q of 4 {
            let w = s.splat(of[i][at]);
            unroll!(v < V of 4 { acc[i][v] = s.fma(w, x[v], acc[i][v]); });
        });
    }
    unroll!(i < Q of 4 {
        unroll!(v < V of 4 { s.store(acc[i][v], &mut sums[i * dim + d + v * S::LANES..]); });
    });
}

/// `e^x` of one number, with the bits that a vector's lane would have.
#[inline(always)]
fn exp1<S: Simd>(s: S, x: f32) -> f32 {
    let mut lanes = [0.0; SUMS];
    s.store(exp(s, s.splat(x)), &mut lanes);
    lanes[0]
}
