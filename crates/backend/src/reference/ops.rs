//! The meaning of every op, one function each: plain loops over f64.
//!
//! A matrix of activations is a slice of `rows * width`, row by row. Weights are the f32 that the file's numbers
//! decode to. Nothing here is clever but [`linear`], which sums in several lanes so that a model of half a
//! billion weights can be checked in minutes.

use std::num::NonZero;
use std::ops::Range;

use cera_plan::{Act, Attention, Rope, RopeStyle};

use crate::SeqRows;

/// `out[r] = table[tokens[r]]`.
pub(super) fn embed(table: &[f32], width: usize, tokens: &[u32]) -> Vec<f64> {
    let row = |&t: &u32| &table[t as usize * width..][..width];
    tokens.iter().flat_map(row).map(|&v| f64::from(v)).collect()
}

/// `out[r] = table[positions[r]]`.
pub(super) fn embed_position(table: &[f32], width: usize, positions: &[usize]) -> Vec<f64> {
    let row = |&p: &usize| &table[p * width..][..width];
    positions.iter().flat_map(row).map(|&v| f64::from(v)).collect()
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` for each `group` of elements; weights of a group's length serve
/// all groups.
pub(super) fn layer_norm(
    x: &[f64],
    group: usize,
    weight: &[f32],
    bias: Option<&[f32]>,
    eps: f32,
) -> Vec<f64> {
    let mut out = Vec::with_capacity(x.len());
    for (i, row) in x.chunks_exact(group).enumerate() {
        let mean = row.iter().sum::<f64>() / group as f64;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / group as f64;
        let factor = 1.0 / (variance + f64::from(eps)).sqrt();
        let at = |w: &[f32], k: usize| f64::from(w[(i * group + k) % w.len()]);
        let element = |(k, v): (usize, &f64)| {
            (v - mean) * factor * at(weight, k) + bias.map_or(0.0, |bias| at(bias, k))
        };
        out.extend(row.iter().enumerate().map(element));
    }
    out
}

/// `x / sqrt(mean(x^2) + eps) * weight` for each row of `weight.len()`; also the norm of heads, which are rows
/// of `head_dim`.
pub(super) fn rms_norm(x: &[f64], weight: &[f32], eps: f32) -> Vec<f64> {
    let mut out = Vec::with_capacity(x.len());
    for row in x.chunks_exact(weight.len()) {
        let mean = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
        let factor = 1.0 / (mean + f64::from(eps)).sqrt();
        out.extend(row.iter().zip(weight).map(|(v, &w)| v * factor * f64::from(w)));
    }
    out
}

/// Weight rows that are multiplied with each activation row at once.
const TILE: usize = 4;
/// Partial sums of a dot product: element `k` goes to lane `k mod 8`.
const LANES: usize = 8;

/// `out = x * w^T`, where `w` is `[rows, cols]` and `x` is `[n, cols]`. Each output element is one sequence of
/// operations, whatever `n` and the number of threads.
pub(super) fn linear(x: &[f64], w: &[f32], rows: usize, cols: usize) -> Vec<f64> {
    let n = x.len() / cols;
    // Threads fill rows of the transpose, `[rows, n]`.
    let mut transposed = vec![0.0; rows * n];
    if n == 0 {
        return transposed;
    }
    let work = rows * cols * n;
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(work / 1_000_000 + 1);
    let share = rows.div_ceil(threads).next_multiple_of(TILE);
    std::thread::scope(|scope| {
        for (out, w) in transposed.chunks_mut(share * n).zip(w.chunks(share * cols)) {
            let mut part = move || {
                for (out, w) in out.chunks_mut(TILE * n).zip(w.chunks(TILE * cols)) {
                    linear_tile(x, w, cols, out);
                }
            };
            match threads {
                1 => part(),
                _ => {
                    scope.spawn(part);
                }
            }
        }
    });
    (0..n * rows).map(|i| transposed[i % rows * n + i / rows]).collect()
}

/// Up to [`TILE`] rows of `w` with every row of `x`; `out` is `[weight rows, n]`.
fn linear_tile(x: &[f64], w: &[f32], cols: usize, out: &mut [f64]) {
    let n = x.len() / cols;
    // Rows that are missing at the end are zeros, and are not stored.
    let padded = cols.next_multiple_of(LANES);
    let mut tile = vec![0.0; TILE * padded];
    for (to, from) in tile.chunks_exact_mut(padded).zip(w.chunks_exact(cols)) {
        to.iter_mut().zip(from).for_each(|(to, &from)| *to = f64::from(from));
    }
    let [(w0, w1), (w2, w3)] = [&tile[..2 * padded], &tile[2 * padded..]].map(|half| half.split_at(padded));
    let tail = cols - cols % LANES;
    for (r, row) in x.chunks_exact(cols).enumerate() {
        let mut sums = [[0.0; LANES]; TILE];
        let mut last = [0.0; LANES];
        last[..cols - tail].copy_from_slice(&row[tail..]);
        let whole = row[..tail].as_chunks::<LANES>().0.iter();
        let x_chunks = whole.chain((tail < cols).then_some(&last));
        let w_chunks = [w0, w1, w2, w3].map(|w| w.as_chunks::<LANES>().0);
        for (k, x) in x_chunks.enumerate() {
            for (sum, w) in sums.iter_mut().zip(w_chunks) {
                let w = &w[k];
                for lane in 0..LANES {
                    sum[lane] += x[lane] * w[lane];
                }
            }
        }
        for (out, sum) in out.chunks_exact_mut(n).zip(sums) {
            out[r] = sum.iter().sum();
        }
    }
}

/// `x + b`, `b` being one row.
pub(super) fn bias(x: &[f64], b: &[f32]) -> Vec<f64> {
    x.iter().zip(b.iter().cycle()).map(|(v, &b)| v + f64::from(b)).collect()
}

/// Turns pair `i` of each head by `position * stretch(i) * base^(-2 i / dims) / factors[i]` radians, and multiplies it.
pub(super) fn rope(
    x: &[f64],
    width: usize,
    head_dim: usize,
    first: usize,
    positions: &[usize],
    rope: &Rope,
    factors: Option<&[f32]>,
) -> Vec<f64> {
    let half = rope.dims / 2;
    let mut out = x.to_vec();
    for (row, &position) in out.chunks_exact_mut(width).zip(positions) {
        for i in 0..half {
            let frequency = f64::from(rope.base).powf(-2.0 * i as f64 / rope.dims as f64)
                / factors.map_or(1.0, |f| f64::from(f[i]));
            let (sin, cos) = (position as f64 * rope.stretch(i) * frequency).sin_cos();
            let (sin, cos) = (sin * f64::from(rope.magnitude), cos * f64::from(rope.magnitude));
            let (a, b) = match rope.style {
                RopeStyle::Interleaved => (2 * i, 2 * i + 1),
                RopeStyle::Halved => (i, i + half),
            };
            for head in row.chunks_exact_mut(head_dim) {
                let head = &mut head[first..];
                let (x, y) = (head[a], head[b]);
                head[a] = x * cos - y * sin;
                head[b] = x * sin + y * cos;
            }
        }
    }
    out
}

/// Attention of one row of queries over the positions that it sees. `key(j, h)` and `value(j, h)` are what the cache has of
/// head `h` at position `j`, with `head_dim` and `value_dim` elements; `sinks` is a score of each query head that has no
/// value.
pub(super) fn attend<'a>(
    q: &[f64],
    (position, seen): (usize, Range<usize>),
    a: &Attention,
    sinks: Option<&[f32]>,
    key: impl Fn(usize, usize) -> &'a [f64],
    value: impl Fn(usize, usize) -> &'a [f64],
) -> Vec<f64> {
    let group = a.heads / a.kv_heads;
    let mut out = vec![0.0; a.heads * a.value_dim];
    for (h, (q, out)) in q.chunks_exact(a.head_dim).zip(out.chunks_exact_mut(a.value_dim)).enumerate() {
        let sink = sinks.map_or(f64::NEG_INFINITY, |s| f64::from(s[h]));
        let score = |j: usize| {
            let dot: f64 = q.iter().zip(key(j, h / group)).map(|(q, k)| q * k).sum();
            let score = dot * f64::from(a.scale);
            let score = a.softcap.map_or(score, |cap| capped(score, cap));
            score - f64::from(a.slope(h)) * position.abs_diff(j) as f64
        };
        let mut scores: Vec<f64> = seen.clone().map(score).collect();
        let max = scores.iter().copied().fold(sink, f64::max);
        scores.iter_mut().for_each(|s| *s = (*s - max).exp());
        let sum: f64 = scores.iter().sum::<f64>() + (sink - max).exp();
        for (p, j) in scores.iter().zip(seen.clone()) {
            let weight = p / sum;
            out.iter_mut().zip(value(j, h / group)).for_each(|(o, v)| *o += weight * v);
        }
    }
    out
}

/// Each of `heads` heads times its own matrix, of which `w` has one after another; what a head has beyond `cols`
/// follows its product.
pub(super) fn head_linear(x: &[f64], width: usize, w: &[f32], heads: usize, cols: usize) -> Vec<f64> {
    let rows = w.len() / cols / heads;
    let mut out = Vec::new();
    for row in x.chunks_exact(width) {
        for (head, w) in row.chunks_exact(width / heads).zip(w.chunks_exact(rows * cols)) {
            out.extend(linear(&head[..cols], w, rows, cols));
            out.extend(&head[cols..]);
        }
    }
    out
}

/// `act(gate) * up`.
pub(super) fn glu(gate: &[f64], ups: &[f64], act: Act) -> Vec<f64> {
    // The one that is no function of the gate alone.
    let up = |u: f64| if act == Act::ClampedSilu { u.clamp(-7.0, 7.0) + 1.0 } else { u };
    gate.iter().zip(ups).map(|(&g, &u)| activate(g, act) * up(u)).collect()
}

/// `act(x)`.
pub(super) fn activate(x: f64, act: Act) -> f64 {
    match act {
        Act::Silu => x / (1.0 + (-x).exp()),
        Act::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            x / 2.0 * (1.0 + inner.tanh())
        }
        Act::GeluErf => x / 2.0 * (1.0 + libm::erf(x / std::f64::consts::SQRT_2)),
        Act::GeluQuick => x / (1.0 + (-1.702 * x).exp()),
        Act::Relu => x.max(0.0),
        Act::Relu2 => x.max(0.0).powi(2),
        Act::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Act::Tanh => x.tanh(),
        Act::ClampedSilu => {
            let x = x.min(7.0);
            x / (1.0 + (-1.702 * x).exp())
        }
    }
}

/// `a + b`.
pub(super) fn add(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// `a * b`.
pub(super) fn mul(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a * b).collect()
}

/// Of each `every` columns the `len` from `first` on.
pub(super) fn take(x: &[f64], first: usize, len: usize, every: usize) -> Vec<f64> {
    x.chunks_exact(every).flat_map(|part| &part[first..first + len]).copied().collect()
}

/// The norm of each `group` columns by itself; `weight` is one row.
pub(super) fn group_norm(x: &[f64], weight: &[f32], group: usize, eps: f32) -> Vec<f64> {
    let weights = weight.chunks_exact(group).cycle();
    x.chunks_exact(group).zip(weights).flat_map(|(x, weight)| rms_norm(x, weight, eps)).collect()
}

/// `x * by`.
pub(super) fn scale(x: &[f64], by: f32) -> Vec<f64> {
    x.iter().map(|v| v * f64::from(by)).collect()
}

/// `cap * tanh(x / cap)`.
pub(super) fn softcap(x: &[f64], cap: f32) -> Vec<f64> {
    x.iter().map(|&v| capped(v, cap)).collect()
}

fn capped(x: f64, cap: f32) -> f64 {
    f64::from(cap) * (x / f64::from(cap)).tanh()
}

/// The rows of `x` that `wanted` names, in its order.
pub(super) fn select_rows(x: &[f64], width: usize, wanted: &[usize]) -> Vec<f64> {
    wanted.iter().flat_map(|&r| &x[r * width..][..width]).copied().collect()
}

/// For each wanted row the mean of the rows of its sequence.
pub(super) fn pool(x: &[f64], width: usize, seqs: &[SeqRows<'_>], wanted: &[usize]) -> Vec<f64> {
    let mut out = Vec::with_capacity(wanted.len() * width);
    for row in wanted {
        let rows =
            seqs.iter().map(|s| s.rows.clone()).find(|rows| rows.contains(row)).unwrap_or(*row..row + 1);
        let of_column = |c| rows.clone().map(|r| x[r * width + c]).sum::<f64>() / rows.len() as f64;
        out.extend((0..width).map(of_column));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: &[f64], b: &[f64]) {
        assert_eq!(a.len(), b.len());
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12), "{a:?}\n{b:?}");
    }

    /// Numbers without a pattern.
    fn numbers(n: usize, seed: u64) -> Vec<f64> {
        let mut state = seed.wrapping_mul(2).wrapping_add(0x9E37_79B9_7F4A_7C15);
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / f64::from(1u32 << 30) - 1.0
        };
        std::iter::repeat_with(next).take(n).collect()
    }

    #[test]
    fn norms_divide_by_the_root_of_the_mean_square() {
        // mean(3^2, 4^2) + 0.5 = 13; then by the weight.
        let by = 1.0 / 13f64.sqrt();
        close(&rms_norm(&[3.0, 4.0, 0.0, 0.0], &[1.0, 2.0], 0.5), &[3.0 * by, 8.0 * by, 0.0, 0.0]);
    }

    #[test]
    fn groups_have_norms_and_factors_of_their_own() {
        let out = group_norm(&[3.0, 4.0, 1.0, 1.0, 0.0, 5.0, 2.0, 0.0], &[1.0, 2.0, 3.0, 4.0], 2, 0.0);
        let (a, b) = (12.5f64.sqrt(), 2f64.sqrt());
        close(&out, &[3.0 / a, 8.0 / a, 3.0, 4.0, 0.0, 2.0 * b, 3.0 * b, 0.0]);
    }

    #[test]
    fn columns_are_taken_from_each_part_of_a_row() {
        let x: Vec<f64> = (0..12).map(f64::from).collect();
        assert_eq!(take(&x, 1, 2, 4), [1.0, 2.0, 5.0, 6.0, 9.0, 10.0]);
    }

    #[test]
    fn linear_is_the_sum_of_products_at_every_shape() {
        for (n, rows, cols) in [(1, 1, 1), (3, 5, 7), (2, 4, 8), (5, 9, 33), (0, 3, 4), (40, 300, 100)] {
            let x = numbers(n * cols, 1);
            let w: Vec<f32> = numbers(rows * cols, 2).iter().map(|&v| v as f32).collect();
            let mut expected = vec![0.0; n * rows];
            for r in 0..n {
                for o in 0..rows {
                    let products = (0..cols).map(|k| x[r * cols + k] * f64::from(w[o * cols + k]));
                    expected[r * rows + o] = products.sum();
                }
            }
            let all = linear(&x, &w, rows, cols);
            close(&all, &expected);
            // One row by itself has the same bits, though it takes fewer threads.
            for r in 0..n {
                assert_eq!(linear(&x[r * cols..][..cols], &w, rows, cols), all[r * rows..][..rows]);
            }
        }
    }

    #[test]
    fn both_styles_of_rope_turn_the_same_pairs() {
        let x = numbers(2 * 8, 3);
        let by = |style, x: &[f64]| {
            let r =
                Rope { style, dims: 6, base: 100.0, scale: 0.5, yarn: None, magnitude: 1.0, factors: None };
            rope(x, 8, 8, 0, &[3, 70], &r, Some(&[1.0, 2.0, 4.0]))
        };
        let halved = by(RopeStyle::Halved, &x);
        // Interleaved on elements moved from (i, i + 3) to (2i, 2i + 1) is the same, moved.
        let order = [0, 3, 1, 4, 2, 5, 6, 7];
        let moved = |x: &[f64]| -> Vec<f64> { (0..16).map(|i| x[i / 8 * 8 + order[i % 8]]).collect() };
        close(&by(RopeStyle::Interleaved, &moved(&x)), &moved(&halved));
        // The second pair of the second row, by hand; the last two elements pass through.
        let angle: f64 = 70.0 * 0.5 * 100f64.powf(-2.0 / 6.0) / 2.0;
        close(&halved[9..10], &[x[9] * angle.cos() - x[12] * angle.sin()]);
        assert_eq!(halved[6..8], x[6..8]);
    }

    #[test]
    fn attention_weighs_the_window_by_softmax() {
        let keys = [[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]];
        let values = [[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]];
        let run_with = |window, softcap, sinks: Option<&[f32]>| {
            let a = Attention {
                heads: 2,
                kv_heads: 1,
                head_dim: 2,
                value_dim: 2,
                scale: 0.5,
                causal: true,
                window,
                softcap,
                sinks: None,
                alibi: None,
            };
            attend(&[2.0, 0.0, 0.0, 0.0], (2, a.sees(2, 3)), &a, sinks, |j, _| &keys[j], |j, _| &values[j])
        };
        let run = |window, softcap| run_with(window, softcap, None);
        let e = std::f64::consts::E;
        // Scores of the first head: 1, 0, 2. The second head's are all 0.
        let sum = e + 1.0 + e * e;
        let first = (e + 2.0 + 4.0 * e * e) / sum;
        close(&run(None, None), &[first, 10.0 * first, 7.0 / 3.0, 70.0 / 3.0]);
        // A sink of score 1 adds to the sum alone, whatever the window.
        let first = (e + 2.0 + 4.0 * e * e) / (sum + e);
        close(&run_with(None, None, Some(&[1.0, 0.0])), &[first, 10.0 * first, 7.0 / 4.0, 70.0 / 4.0]);
        close(&run_with(Some(1), None, Some(&[2.0, 0.0])), &[2.0, 20.0, 2.0, 20.0]);
        let first = (2.0 + 4.0 * e * e) / (1.0 + e * e);
        close(&run(Some(2), None), &[first, 10.0 * first, 3.0, 30.0]);
        close(&run(Some(1), None), &[4.0, 40.0, 4.0, 40.0]);
        let scores = [1.0f64, 0.0, 2.0].map(|s| (3.0 * (s / 3.0).tanh()).exp());
        let first = (scores[0] + 2.0 * scores[1] + 4.0 * scores[2]) / scores.iter().sum::<f64>();
        close(&run(None, Some(3.0))[..1], &[first]);
    }

    #[test]
    fn attention_that_is_not_causal_sees_later_positions_too() {
        let values = [[1.0], [2.0], [4.0], [8.0], [16.0]];
        let run = |position, window| {
            let a = Attention {
                heads: 1,
                kv_heads: 1,
                head_dim: 1,
                value_dim: 1,
                scale: 1.0,
                causal: false,
                window,
                softcap: None,
                sinks: None,
                alibi: None,
            };
            // All scores are 0: the mean of what is seen.
            attend(&[0.0], (position, a.sees(position, 5)), &a, None, |j, _| &values[j], |j, _| &values[j])[0]
        };
        close(&[run(0, None), run(4, None)], &[31.0 / 5.0, 31.0 / 5.0]);
        // A window of 2 or 3 reaches one to either side, one of 1 to none.
        close(&[run(2, Some(2)), run(2, Some(3)), run(2, Some(1))], &[14.0 / 3.0, 14.0 / 3.0, 4.0]);
        close(&[run(0, Some(2)), run(4, Some(4))], &[1.5, 28.0 / 3.0]);
    }

    #[test]
    fn distance_costs_each_head_its_own() {
        let a = Attention {
            heads: 6,
            kv_heads: 1,
            head_dim: 1,
            value_dim: 1,
            scale: 1.0,
            causal: false,
            window: None,
            softcap: None,
            sinks: None,
            alibi: Some(8.0),
        };
        // The paper's: a half, a quarter, ... for powers of two; for others those of twice as many in between.
        let slopes: Vec<f64> = (0..6).map(|h| f64::from(a.slope(h)).log2()).collect();
        close(&slopes, &[-2.0, -4.0, -6.0, -8.0, -1.0, -3.0]);
        let values = [[1.0], [2.0], [4.0]];
        let got = attend(&[0.0; 6], (1, a.sees(1, 3)), &a, None, |j, _| &values[j], |j, _| &values[j]);
        // A position before and one behind, each a step away.
        let by = |slope: f64| {
            let e = (-slope).exp();
            (2.0 + 5.0 * e) / (1.0 + 2.0 * e)
        };
        close(&got, &[0.25, 0.0625, 1.0 / 64.0, 1.0 / 256.0, 0.5, 0.125].map(by));
    }

    #[test]
    fn rows_are_pooled_by_sequence() {
        let seq = |rows| SeqRows { rows, first_pos: 0, blocks: &[], slot: None };
        let x = [1.0, 10.0, 3.0, 30.0, 5.0, 50.0];
        assert_eq!(pool(&x, 2, &[seq(0..2), seq(2..3)], &[2, 0, 1]), [5.0, 50.0, 2.0, 20.0, 2.0, 20.0]);
    }

    #[test]
    fn activations_have_their_known_values() {
        close(&glu(&[0.0, 1.0], &[5.0, 2.0], Act::Silu), &[0.0, 2.0 / (1.0 + (-1f64).exp())]);
        // Torch: gelu(1, approximate="tanh") = 0.8411919906082768.
        close(&glu(&[1.0], &[1.0], Act::GeluTanh), &[0.8411919906082768]);
        close(&[activate(1.0, Act::GeluErf)], &[0.841344746068543]);
        close(&[activate(1.0, Act::GeluQuick)], &[0.8457957659328212]);
        let both = |act| [-2.0, 3.0].map(|x| activate(x, act));
        close(&both(Act::Relu), &[0.0, 3.0]);
        close(&both(Act::Relu2), &[0.0, 9.0]);
        close(&[activate(0.0, Act::Sigmoid)], &[0.5]);
    }

    #[test]
    fn heads_have_matrices_of_their_own_and_keep_what_these_leave() {
        let w = [1.0, 2.0, 3.0, 4.0f32];
        // Two heads of three elements, two of which become one; then a second row.
        let x = [1.0, 1.0, 7.0, 1.0, 10.0, 8.0, 0.0, 1.0, 5.0, 2.0, 0.0, 6.0];
        close(&head_linear(&x, 6, &w, 2, 2), &[3.0, 7.0, 43.0, 8.0, 2.0, 5.0, 6.0, 6.0]);
    }

    #[test]
    fn a_clamped_gate_is_at_most_7_and_its_other_half_within_7() {
        let at = |y: f64| y / (1.0 + (-1.702 * y).exp());
        let (gate, up) = ([9.0, 1.0, -9.0, 2.0], [0.5, 20.0, 0.0, -20.0]);
        close(&glu(&gate, &up, Act::ClampedSilu), &[at(7.0) * 1.5, at(1.0) * 8.0, at(-9.0), at(2.0) * -6.0]);
    }

    #[test]
    fn rows_are_chosen_in_the_order_asked_for() {
        assert_eq!(
            select_rows(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 2, &[2, 0, 2]),
            [4.0, 5.0, 0.0, 1.0, 4.0, 5.0]
        );
    }
}
