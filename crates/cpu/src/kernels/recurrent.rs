//! Kernels of the ops with a recurrent state: convolutions, selective scans, the delta rule.
//!
//! States lie in blocks of 16 channels (of value elements, in the delta rule), `[state_dim][16]` each, so that a lane is a
//! channel and no sum crosses lanes. A block goes through the rows of its sequence in order, whatever else the step
//! holds; how many rows a call takes and how many numbers of the state stay in registers changes no bit.

use crate::simd::{Lanes16, SUMS, Simd, exp, sum16, unroll};

/// Rows that a convolution may see, its own included.
pub const MAX_TAPS: usize = 16;

/// Rows that a scan takes at a time.
pub const SCAN_ROWS: usize = 32;

/// `out = act(bias + sum_j w[j] * x[j])` over columns: a chain of fma, the oldest row first, from the bias or 0 on.
/// All slices are of `out`'s length.
#[inline(always)]
pub fn conv<S: Simd>(s: S, x: &[&[f32]], w: &[&[f32]], bias: Option<&[f32]>, silu: bool, out: &mut [f32]) {
    let mut at = 0;
    while at < out.len() {
        let n = S::LANES.min(out.len() - at);
        let load = |x: &[f32]| {
            if n == S::LANES {
                return s.load(&x[at..]);
            }
            let mut rest = [0.0; SUMS];
            rest[..n].copy_from_slice(&x[at..at + n]);
            s.load(&rest)
        };
        let mut sum = bias.map_or(s.splat(0.0), load);
        for (x, w) in x.iter().zip(w) {
            sum = s.fma(load(w), load(x), sum);
        }
        if silu {
            let e = exp(s, s.sub(s.splat(0.0), sum));
            sum = s.div(sum, s.add(s.splat(1.0), e));
        }
        if n == S::LANES {
            s.store(sum, &mut out[at..]);
        } else {
            let mut rest = [0.0; SUMS];
            s.store(sum, &mut rest);
            out[at..].copy_from_slice(&rest[..n]);
        }
        at += n;
    }
}

/// `ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|)`. With `e` between 0 and 1, `ln(1 + e) = 2 atanh(z)` of `z = e / (2 + e)`, which
/// is at most 1/3: the first term of the series that is left out, `z^17 / 17`, is below `2^-30` of the result.
#[inline(always)]
fn softplus<S: Simd>(s: S, x: S::F) -> S::F {
    let zero = s.splat(0.0);
    let away = s.max(x, s.sub(zero, x));
    let e = exp(s, s.sub(zero, away));
    let z = s.div(e, s.add(s.splat(2.0), e));
    let square = s.mul(z, z);
    let mut p = s.splat(1.0 / 15.0);
    for c in [1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0] {
        p = s.fma(p, square, s.splat(c));
    }
    let small = s.mul(s.add(z, z), p);
    // A NaN in x is not its own maximum with 0; it comes in by the exponential.
    s.add(s.max(x, zero), small)
}

/// `x = softplus(x)`, and `decay = exp(rate * x)` of that. Lengths are multiples of 16.
#[inline(always)]
pub fn decay<S: Simd>(s: S, x: &mut [f32], rate: f32, decay: &mut [f32]) {
    let rate = s.splat(rate);
    for (x, decay) in x.chunks_exact_mut(S::LANES).zip(decay.chunks_exact_mut(S::LANES)) {
        let d = softplus(s, s.load(x));
        s.store(d, x);
        s.store(exp(s, s.mul(d, rate)), decay);
    }
}

/// Some rows of a block of 16 channels on their way through a selective scan.
pub struct Scan<'a> {
    /// The channels of row `t` from `x[t * x_apart]` on.
    pub x: &'a [f32],
    pub x_apart: usize,
    /// `b[t * b_apart + n]`, and `c` likewise.
    pub b: &'a [f32],
    pub b_apart: usize,
    pub c: &'a [f32],
    pub c_apart: usize,
    /// `[rows][16]`: how far each channel's time goes on.
    pub step: &'a [f32],
    /// `[rows][16]`: what each channel keeps of its state; unread where there are `rates`.
    pub keep: &'a [f32],
    /// `[state_dim][16]`, where each number of a state has its own rate of decay.
    pub rates: Option<&'a [f32]>,
    /// `[16]`.
    pub skip: &'a [f32],
}

/// Takes the state `h [state_dim][16]` through the rows of `out [rows][16]`. For each channel and row, in order of `n`:
/// `h[n] = fma(x * step, b[n], keep * h[n])`, `out = fma(c[n], h[n], out)`, `out` beginning with `skip * x`.
#[inline(always)]
pub fn scan<S: Simd>(s: S, scan: &Scan<'_>, h: &mut [f32], out: &mut [f32]) {
    let mut fed = [0.0; SUMS * SCAN_ROWS];
    for (t, (out, fed)) in out.chunks_exact_mut(SUMS).zip(fed.chunks_exact_mut(SUMS)).enumerate() {
        for p in (0..SUMS).step_by(S::LANES) {
            let x = s.load(&scan.x[t * scan.x_apart + p..]);
            s.store(s.mul(x, s.load(&scan.skip[p..])), &mut out[p..]);
            s.store(s.mul(x, s.load(&scan.step[t * SUMS + p..])), &mut fed[p..]);
        }
    }
    match (scan.rates, S::LANES == SUMS) {
        (None, true) => scan_tiles::<S, 8, false>(s, scan, &fed, h, out),
        (None, false) => scan_tiles::<S, 4, false>(s, scan, &fed, h, out),
        (Some(_), true) => scan_tiles::<S, 8, true>(s, scan, &fed, h, out),
        (Some(_), false) => scan_tiles::<S, 4, true>(s, scan, &fed, h, out),
    }
}

#[inline(always)]
fn scan_tiles<S: Simd, const J: usize, const RATES: bool>(
    s: S,
    scan: &Scan<'_>,
    fed: &[f32],
    h: &mut [f32],
    out: &mut [f32],
) {
    let state_dim = h.len() / SUMS;
    let whole = state_dim / J * J;
    for n in (0..whole).step_by(J) {
        scan_tile::<S, J, RATES>(s, scan, fed, n, &mut h[n * SUMS..(n + J) * SUMS], out);
    }
    for n in whole..state_dim {
        scan_tile::<S, 1, RATES>(s, scan, fed, n, &mut h[n * SUMS..(n + 1) * SUMS], out);
    }
}

/// Numbers `first..first + J` of the states, which stay in registers from row to row.
#[inline(always)]
fn scan_tile<S: Simd, const J: usize, const RATES: bool>(
    s: S,
    scan: &Scan<'_>,
    fed: &[f32],
    first: usize,
    h: &mut [f32],
    out: &mut [f32],
) {
    let mut state: [Lanes16<S>; J] = [[s.splat(0.0); 4]; J];
    let mut rates = state;
    unroll!(j < J of 8 {
        for p in 0..SUMS / S::LANES {
            state[j][p] = s.load(&h[j * SUMS + p * S::LANES..]);
            if RATES {
                rates[j][p] = scan.rates.map_or(s.splat(0.0), |r| s.load(&r[(first + j) * SUMS + p * S::LANES..]));
            }
        }
    });
    for (t, (out, fed)) in out.chunks_exact_mut(SUMS).zip(fed.chunks_exact(SUMS)).enumerate() {
        let b = &scan.b[t * scan.b_apart + first..][..J];
        let c = &scan.c[t * scan.c_apart + first..][..J];
        let times = if RATES { scan.step } else { scan.keep };
        let times = &times[t * SUMS..][..SUMS];
        for p in 0..SUMS / S::LANES {
            let at = p * S::LANES;
            let (fed, time) = (s.load(&fed[at..]), s.load(&times[at..]));
            let mut sum = s.load(&out[at..]);
            unroll!(j < J of 8 {
                let keep = if RATES { exp(s, s.mul(time, rates[j][p])) } else { time };
                state[j][p] = s.fma(fed, s.splat(b[j]), s.mul(keep, state[j][p]));
                sum = s.fma(s.splat(c[j]), state[j][p], sum);
            });
            s.store(sum, &mut out[at..]);
        }
    }
    unroll!(j < J of 8 {
        for p in 0..SUMS / S::LANES {
            s.store(state[j][p], &mut h[j * SUMS + p * S::LANES..]);
        }
    });
}

/// `out = x / sqrt(sum of squares + eps) * scale`; the sum as in norms.
#[inline(always)]
pub fn unit<S: Simd>(s: S, x: &[f32], eps: f32, scale: f32, out: &mut [f32]) {
    let mut acc: Lanes16<S> = [s.splat(0.0); 4];
    for x in x.chunks_exact(SUMS) {
        for p in 0..SUMS / S::LANES {
            let v = s.load(&x[p * S::LANES..]);
            acc[p] = s.fma(v, v, acc[p]);
        }
    }
    let by = 1.0 / (sum16(s, &acc) + eps).sqrt();
    for (out, x) in out.iter_mut().zip(x) {
        *out = x * by * scale;
    }
}

/// Some rows of a block of 16 value elements of a head on their way through the delta rule.
pub struct Delta<'a> {
    /// `[rows][key_dim]`, of length 1.
    pub k: &'a [f32],
    /// The same, scaled.
    pub q: &'a [f32],
    /// The elements of row `t` from `v[t * v_apart]` on.
    pub v: &'a [f32],
    pub v_apart: usize,
    /// One a row: what is kept of the state.
    pub keep: &'a [f32],
    /// One a row: how much of the difference is learnt.
    pub learn: &'a [f32],
}

/// Takes the state `h [key_dim][16]` through the rows of `out [rows][16]`. Sums over the key's elements are 4 chains of fma,
/// by `i mod 4`, joined as `(s0 + s2) + (s1 + s3)`. For each element of the value:
/// `held = sum k[i] h[i]`, `change = (v - keep * held) * learn`, `h[i] = fma(k[i], change, keep * h[i])`,
/// `out = sum q[i] h[i]`.
#[inline(always)]
pub fn delta<S: Simd>(s: S, d: &Delta<'_>, h: &mut [f32], out: &mut [f32]) {
    let key_dim = h.len() / SUMS;
    let rows = out.len() / SUMS;
    let zero: [Lanes16<S>; 4] = [[s.splat(0.0); 4]; 4];
    let mut held = zero;
    for (h, k) in h.chunks_exact(4 * SUMS).zip(d.k[..key_dim].chunks_exact(4)) {
        unroll!(i < 4 of 4 {
            for p in 0..SUMS / S::LANES {
                held[i][p] = s.fma(s.splat(k[i]), s.load(&h[i * SUMS + p * S::LANES..]), held[i][p]);
            }
        });
    }
    for t in 0..rows {
        let (keep, learn) = (s.splat(d.keep[t]), s.splat(d.learn[t]));
        let mut change: Lanes16<S> = [s.splat(0.0); 4];
        for p in 0..SUMS / S::LANES {
            let v = s.load(&d.v[t * d.v_apart + p * S::LANES..]);
            let held = s.add(s.add(held[0][p], held[2][p]), s.add(held[1][p], held[3][p]));
            change[p] = s.mul(s.sub(v, s.mul(keep, held)), learn);
        }
        let (k, q) = (&d.k[t * key_dim..][..key_dim], &d.q[t * key_dim..][..key_dim]);
        // What the next row finds is summed up while this one's state is at hand.
        let next = &d.k[(t + 1).min(rows - 1) * key_dim..][..key_dim];
        let mut sum = zero;
        held = zero;
        let tiles = h
            .chunks_exact_mut(4 * SUMS)
            .zip(k.chunks_exact(4))
            .zip(q.chunks_exact(4))
            .zip(next.chunks_exact(4));
        for (((h, k), q), next) in tiles {
            unroll!(i < 4 of 4 {
                for p in 0..SUMS / S::LANES {
                    let h = &mut h[i * SUMS + p * S::LANES..];
                    let own = s.fma(s.splat(k[i]), change[p], s.mul(keep, s.load(h)));
                    s.store(own, h);
                    sum[i][p] = s.fma(s.splat(q[i]), own, sum[i][p]);
                    held[i][p] = s.fma(s.splat(next[i]), own, held[i][p]);
                }
            });
        }
        for p in 0..SUMS / S::LANES {
            let sum = s.add(s.add(sum[0][p], sum[2][p]), s.add(sum[1][p], sum[3][p]));
            s.store(sum, &mut out[t * SUMS + p * S::LANES..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tier;
    use crate::kernels::Kernels;

    /// Numbers in -1..1 without a pattern.
    fn numbers(n: usize, seed: u32) -> Vec<f32> {
        let mut state = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        let next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        std::iter::repeat_with(next).take(n).collect()
    }

    /// What every tier gives is what scalar code gives, to the bit; the result is that.
    fn on_all(run: impl Fn(&Kernels) -> Vec<f32>) -> Vec<f32> {
        let expected = run(&Kernels::new(Tier::Scalar).unwrap());
        for tier in Tier::available() {
            let got = run(&Kernels::new(tier).unwrap());
            assert!(got.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()), "{tier}");
        }
        expected
    }

    fn close(got: &[f32], expected: &[f64], bound: f64) {
        assert_eq!(got.len(), expected.len());
        for (i, (g, e)) in got.iter().zip(expected).enumerate() {
            assert!((f64::from(*g) - e).abs() <= bound * (1.0 + e.abs()), "{i}: {g} for {e}");
        }
    }

    #[test]
    fn softplus_and_decay_are_close_at_every_size() {
        let x: Vec<f32> =
            [-200.0, -86.0, -20.0, -3.0, -0.5, -1e-6, 0.0, 1e-6, 0.3, 1.0, 2.5, 9.0, 20.0, 80.0, 1e4, 1e30]
                .to_vec();
        let got = on_all(|k| {
            let (mut d, mut keep) = (x.clone(), vec![0.0; 16]);
            (k.decay)(&mut d, -0.3, &mut keep);
            [d, keep].concat()
        });
        let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
        let exact: Vec<f64> = x.iter().map(|&x| softplus(f64::from(x))).collect();
        for (g, e) in got[1..16].iter().zip(&exact[1..]) {
            assert!((f64::from(*g) / e - 1.0).abs() < 1e-6, "{g} for {e}");
        }
        assert!(got[0] >= 0.0 && got[0] < 1e-36);
        // The exponential ends at -86.
        let keep: Vec<f64> = exact.iter().map(|d| (-0.3 * d).max(-86.0).exp()).collect();
        close(&got[16..], &keep, 4e-6);
        let broken = on_all(|k| {
            let (mut d, mut keep) = (vec![f32::NAN; 16], vec![0.0; 16]);
            (k.decay)(&mut d, -0.3, &mut keep);
            d.iter().chain(&keep).map(|x| f32::from(u8::from(x.is_nan()))).collect()
        });
        assert_eq!(broken, [1.0; 32]);
    }

    #[test]
    fn a_convolution_is_the_sum_of_products_at_every_width() {
        for (width, taps) in [(1, 1), (5, 3), (16, 4), (37, 4), (64, 2)] {
            let (x, w, bias) = (numbers(width * taps, 1), numbers(width * taps, 2), numbers(width, 3));
            for (silu, biased) in [(false, false), (true, true)] {
                let got = on_all(|k| {
                    let (x, w): (Vec<_>, Vec<_>) = (x.chunks(width).collect(), w.chunks(width).collect());
                    let mut out = vec![0.0; width];
                    (k.conv)(&x, &w, biased.then_some(&bias[..]), silu, &mut out);
                    out
                });
                let exact = |c: usize| {
                    let sum = |j: usize| f64::from(x[j * width + c]) * f64::from(w[j * width + c]);
                    let bias = if biased { f64::from(bias[c]) } else { 0.0 };
                    let sum = bias + (0..taps).map(sum).sum::<f64>();
                    if silu { sum / (1.0 + (-sum).exp()) } else { sum }
                };
                close(&got, &(0..width).map(exact).collect::<Vec<_>>(), 1e-6);
            }
        }
    }

    /// A block of 16 channels over `rows` rows: its outputs and its state, cut into calls of `call` rows.
    fn scanned(k: &Kernels, state_dim: usize, rates: bool, rows: usize, call: usize) -> Vec<f32> {
        let (x, b, c) =
            (numbers(rows * 20, 1), numbers(rows * (state_dim + 3), 2), numbers(rows * (state_dim + 3), 3));
        let step: Vec<f32> = numbers(rows * SUMS, 4).iter().map(|x| x + 1.1).collect();
        let keep: Vec<f32> = numbers(rows * SUMS, 5).iter().map(|x| x * 0.5 + 0.5).collect();
        let a: Vec<f32> = numbers(state_dim * SUMS, 6).iter().map(|x| x - 1.0).collect();
        let skip = numbers(SUMS, 7);
        let (mut h, mut out) = (numbers(state_dim * SUMS, 8), vec![0.0; rows * SUMS]);
        for from in (0..rows).step_by(call) {
            let to = (from + call).min(rows);
            let scan = Scan {
                x: &x[from * 20..],
                x_apart: 20,
                b: &b[from * (state_dim + 3)..],
                b_apart: state_dim + 3,
                c: &c[from * (state_dim + 3)..],
                c_apart: state_dim + 3,
                step: &step[from * SUMS..],
                keep: &keep[from * SUMS..],
                rates: rates.then_some(&a[..]),
                skip: &skip,
            };
            (k.scan)(&scan, &mut h, &mut out[from * SUMS..to * SUMS]);
        }
        if call == rows {
            // The same, in f64 and in the order of the definition.
            let mut exact: Vec<f64> = numbers(state_dim * SUMS, 8).iter().map(|&x| f64::from(x)).collect();
            for t in 0..rows {
                for lane in 0..SUMS {
                    let (x, d) = (f64::from(x[t * 20 + lane]), f64::from(step[t * SUMS + lane]));
                    let mut sum = f64::from(skip[lane]) * x;
                    for n in 0..state_dim {
                        let own = n * SUMS + lane;
                        let keep = if rates {
                            (d * f64::from(a[own])).exp()
                        } else {
                            f64::from(keep[t * SUMS + lane])
                        };
                        exact[own] = keep * exact[own] + d * x * f64::from(b[t * (state_dim + 3) + n]);
                        sum += f64::from(c[t * (state_dim + 3) + n]) * exact[own];
                    }
                    close(&out[t * SUMS + lane..][..1], &[sum], 2e-5);
                }
            }
            close(&h, &exact, 2e-5);
        }
        [out, h].concat()
    }

    #[test]
    fn a_scan_is_its_recurrence_and_calls_do_not_show() {
        for state_dim in [1, 4, 13, 16, 40] {
            for rates in [false, true] {
                let whole = on_all(|k| scanned(k, state_dim, rates, 21, 21));
                for call in [1, 8] {
                    assert_eq!(on_all(|k| scanned(k, state_dim, rates, 21, call)), whole);
                }
            }
        }
    }

    /// A block of 16 value elements, as [`scanned`].
    fn learnt(k: &Kernels, key_dim: usize, rows: usize, call: usize) -> Vec<f32> {
        let unit = |seed| {
            let x = numbers(rows * key_dim, seed);
            let mut out = vec![0.0; x.len()];
            for (x, out) in x.chunks(key_dim).zip(out.chunks_mut(key_dim)) {
                (k.unit)(x, 1e-6, 0.5, out);
                let length = (x.iter().map(|x| f64::from(x * x)).sum::<f64>() + 1e-6).sqrt();
                close(out, &x.iter().map(|x| 0.5 * f64::from(*x) / length).collect::<Vec<_>>(), 1e-6);
            }
            out
        };
        let (keys, queries, v) = (unit(1), unit(2), numbers(rows * 19, 3));
        let keep: Vec<f32> = numbers(rows, 4).iter().map(|x| x * 0.5 + 0.5).collect();
        let learn: Vec<f32> = numbers(rows, 5).iter().map(|x| x * 0.5 + 0.5).collect();
        let (mut h, mut out) = (numbers(key_dim * SUMS, 6), vec![0.0; rows * SUMS]);
        for from in (0..rows).step_by(call) {
            let to = (from + call).min(rows);
            let delta = Delta {
                k: &keys[from * key_dim..to * key_dim],
                q: &queries[from * key_dim..to * key_dim],
                v: &v[from * 19..],
                v_apart: 19,
                keep: &keep[from..],
                learn: &learn[from..],
            };
            (k.delta)(&delta, &mut h, &mut out[from * SUMS..to * SUMS]);
        }
        let mut exact: Vec<f64> = numbers(key_dim * SUMS, 6).iter().map(|&x| f64::from(x)).collect();
        for t in 0..rows {
            for lane in 0..SUMS {
                let at = |i: usize| i * SUMS + lane;
                (0..key_dim).for_each(|i| exact[at(i)] *= f64::from(keep[t]));
                let held: f64 = (0..key_dim).map(|i| f64::from(keys[t * key_dim + i]) * exact[at(i)]).sum();
                let change = f64::from(learn[t]) * (f64::from(v[t * 19 + lane]) - held);
                let mut sum = 0.0;
                for i in 0..key_dim {
                    exact[at(i)] += f64::from(keys[t * key_dim + i]) * change;
                    sum += f64::from(queries[t * key_dim + i]) * exact[at(i)];
                }
                close(&out[t * SUMS + lane..][..1], &[sum], 2e-5);
            }
        }
        [out, h].concat()
    }

    #[test]
    fn the_delta_rule_is_its_recurrence_and_calls_do_not_show() {
        for key_dim in [16, 32, 128] {
            let whole = on_all(|k| learnt(k, key_dim, 13, 13));
            for call in [1, 5] {
                assert_eq!(on_all(|k| learnt(k, key_dim, 13, call)), whole);
            }
        }
    }
}
