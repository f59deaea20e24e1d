//! The meaning of the ops with a recurrent state: plain loops over the rows of one sequence, in order.
//!
//! Each function takes the sequence's state along, in place; a state that nothing was stored in is zeros.

use cera_plan::{Columns, DeltaNet, Op, SelectiveScan, ShortConv, Val};

use super::{LoadedReference, Step};
use crate::SeqRows;

impl LoadedReference {
    /// What an op with a recurrent state writes.
    pub(super) fn recurrent(&mut self, step: &Step<'_>, op: &Op) -> Vec<f64> {
        let mut out = Vec::new();
        let Some(layer) = op.state() else { return out };
        for s in step.rows.seqs {
            // `Slots::begin` refused a step without slots.
            let slot = s.slot.map_or(0, |slot| slot.0 as usize);
            let mut state = std::mem::take(&mut self.states[slot][layer.index()]);
            if s.first_pos == 0 || state.is_empty() {
                state = vec![0.0; self.plan.states[layer.index()].len];
            }
            out.extend(match op {
                Op::ShortConv { x, conv, .. } => {
                    let x = self.columns(step, s, &Columns { of: *x, first: 0 }, self.width(*x));
                    self.short_conv(&x, conv, &mut state)
                }
                Op::SelectiveScan { x, dt, b, c, scan, .. } => {
                    let (channels, group) = (scan.shape.channels(), scan.shape.group_width());
                    let x = self.columns(step, s, x, channels);
                    let dt = self.columns(step, s, &whole(*dt), scan.shape.heads);
                    let b = self.columns(step, s, b, group);
                    let c = self.columns(step, s, c, group);
                    self.selective_scan(scan, [&x, &dt, &b, &c], &mut state)
                }
                Op::DeltaNet { qkv, decay, beta, delta, .. } => {
                    let qkv = self.columns(step, s, &whole(*qkv), delta.shape.width());
                    let decay = self.columns(step, s, &whole(*decay), delta.shape.value_heads);
                    let beta = self.columns(step, s, &whole(*beta), delta.shape.value_heads);
                    self.delta_net(delta, [&qkv, &decay, &beta], &mut state)
                }
                _ => Vec::new(),
            });
            self.states[slot][layer.index()] = state;
        }
        out
    }

    /// So many columns of a sequence's rows of a value, row by row.
    fn columns(&self, step: &Step<'_>, s: &SeqRows<'_>, columns: &Columns, len: usize) -> Vec<f64> {
        let (value, width) = (&step.values[columns.of.index()], self.width(columns.of));
        let row = |r: usize| &value[r * width + columns.first..][..len];
        s.rows.clone().flat_map(row).copied().collect()
    }

    fn short_conv(&self, x: &[f64], conv: &ShortConv, state: &mut Vec<f64>) -> Vec<f64> {
        let weight = &self.plan.weights[conv.weight.index()];
        let bias = conv.bias.map(|b| self.weight(b));
        short_conv(x, weight.rows, self.weight(conv.weight), bias, conv.silu, state)
    }

    fn selective_scan(&self, scan: &SelectiveScan, operands: [&[f64]; 4], state: &mut [f64]) -> Vec<f64> {
        selective_scan(scan, operands, self.weight(scan.a), self.weight(scan.skip), state)
    }

    fn delta_net(&self, delta: &DeltaNet, operands: [&[f64]; 3], state: &mut [f64]) -> Vec<f64> {
        delta_net(delta, operands, self.weight(delta.rate), state)
    }
}

fn whole(of: Val) -> Columns {
    Columns { of, first: 0 }
}

/// `w` is `[width, taps]`; `state` is `[taps - 1, width]`, the oldest row first.
fn short_conv(
    x: &[f64],
    width: usize,
    w: &[f32],
    bias: Option<&[f32]>,
    silu: bool,
    state: &mut Vec<f64>,
) -> Vec<f64> {
    let taps = w.len() / width;
    // The rows before the step's, then those.
    let all: Vec<f64> = state.iter().chain(x).copied().collect();
    let mut out = Vec::with_capacity(x.len());
    for r in 0..x.len() / width {
        for c in 0..width {
            let mut sum = bias.map_or(0.0, |b| f64::from(b[c]));
            for j in 0..taps {
                sum += f64::from(w[c * taps + j]) * all[(r + j) * width + c];
            }
            out.push(if silu { sum / (1.0 + (-sum).exp()) } else { sum });
        }
    }
    *state = all[all.len() - (taps - 1) * width..].to_vec();
    out
}

/// `ln(1 + e^x)`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// `a` is `[heads, state_dim]` or `[heads]`; `state` is `[heads, head_dim, state_dim]`.
fn selective_scan(
    scan: &SelectiveScan,
    [x, dt, b, c]: [&[f64]; 4],
    a: &[f32],
    skip: &[f32],
    state: &mut [f64],
) -> Vec<f64> {
    let s = &scan.shape;
    let (channels, group, rates) = (s.channels(), s.group_width(), a.len() / s.heads);
    let mut out = Vec::with_capacity(x.len());
    for r in 0..x.len() / channels {
        for h in 0..s.heads {
            let d = softplus(dt[r * s.heads + h]);
            let at = r * group + h / (s.heads / s.groups) * s.state_dim;
            let (b, c) = (&b[at..][..s.state_dim], &c[at..][..s.state_dim]);
            for channel in h * s.head_dim..(h + 1) * s.head_dim {
                let x = x[r * channels + channel];
                let own = &mut state[channel * s.state_dim..][..s.state_dim];
                let mut sum = f64::from(skip[h]) * x;
                for (n, own) in own.iter_mut().enumerate() {
                    let rate = f64::from(a[h * rates + n % rates]);
                    *own = (d * rate).exp() * *own + d * x * b[n];
                    sum += c[n] * *own;
                }
                out.push(sum);
            }
        }
    }
    out
}

/// `state` is `[value_heads, key_dim, value_dim]`.
fn delta_net(delta: &DeltaNet, [qkv, decay, beta]: [&[f64]; 3], rate: &[f32], state: &mut [f64]) -> Vec<f64> {
    let s = &delta.shape;
    let mut out = Vec::new();
    for (r, row) in qkv.chunks_exact(s.width()).enumerate() {
        let (q, rest) = row.split_at(s.key_width());
        let (k, v) = rest.split_at(s.key_width());
        for h in 0..s.value_heads {
            let unit = |x: &[f64]| -> Vec<f64> {
                let x = &x[s.key_head(h) * s.key_dim..][..s.key_dim];
                let length = (x.iter().map(|x| x * x).sum::<f64>() + f64::from(delta.eps)).sqrt();
                x.iter().map(|x| x / length).collect()
            };
            let (q, k) = (unit(q), unit(k));
            let gate = (f64::from(rate[h]) * softplus(decay[r * s.value_heads + h])).exp();
            let learn = 1.0 / (1.0 + (-beta[r * s.value_heads + h]).exp());
            let state = &mut state[h * s.key_dim * s.value_dim..][..s.key_dim * s.value_dim];
            state.iter_mut().for_each(|s| *s *= gate);
            for j in 0..s.value_dim {
                let held: f64 = (0..s.key_dim).map(|i| k[i] * state[i * s.value_dim + j]).sum();
                let change = learn * (v[h * s.value_dim + j] - held);
                let mut sum = 0.0;
                for i in 0..s.key_dim {
                    state[i * s.value_dim + j] += k[i] * change;
                    sum += q[i] * state[i * s.value_dim + j];
                }
                out.push(sum / (s.key_dim as f64).sqrt());
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use cera_plan::{DeltaShape, ScanShape, StateLayer, Wt};

    use super::*;

    fn close(a: &[f64], b: &[f64]) {
        assert_eq!(a.len(), b.len());
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12), "{a:?}\n{b:?}");
    }

    #[test]
    fn a_convolution_sees_its_own_column_and_the_rows_before() {
        // Two columns, three taps: powers of ten say which row came with which factor.
        let w = [1.0, 10.0, 100.0, 2.0, 20.0, 200.0];
        let mut state = vec![0.0; 4];
        let x = [1.0, 5.0, 2.0, 6.0, 3.0, 7.0];
        let out = short_conv(&x, 2, &w, Some(&[0.5, 0.25]), false, &mut state);
        close(&out, &[100.5, 1000.25, 210.5, 1300.25, 321.5, 1530.25]);
        assert_eq!(state, [2.0, 6.0, 3.0, 7.0]);
        // One row more: the state stands for those before it.
        let out = short_conv(&[4.0, 8.0], 2, &w, None, true, &mut state);
        let silu = |x: f64| x / (1.0 + (-x).exp());
        close(&out, &[silu(432.0), silu(1752.0)]);
        assert_eq!(state, [3.0, 7.0, 4.0, 8.0]);
    }

    #[test]
    fn a_scan_is_the_sum_of_what_decayed_since() {
        // The recurrence solved: out[t] = skip x[t] + sum over s <= t of c[t] b[s] d[s] x[s] exp(a sum of d behind s).
        let shape = ScanShape { heads: 2, head_dim: 1, groups: 1, state_dim: 2 };
        let scan = SelectiveScan { shape, a: Wt(0), skip: Wt(1), state: StateLayer(0) };
        let x = [1.0, -2.0, 0.5, 3.0, 2.0, 1.0];
        let dt: [f64; 6] = [0.3, -1.0, 2.0, 0.1, -0.4, 25.0];
        let (b, c) = ([0.7, 1.1, -0.2, 0.9, 1.3, 0.4], [1.0, -0.5, 0.6, 0.8, -0.9, 1.2]);
        let (a, skip) = ([-0.5f32, -1.5, -0.25, -2.0], [0.3f32, -0.7]);
        let mut state = vec![0.0; 4];
        let out = selective_scan(&scan, [&x, &dt, &b, &c], &a, &skip, &mut state);
        let d = |t: usize, h: usize| dt[t * 2 + h].exp().ln_1p();
        for t in 0..3 {
            for h in 0..2 {
                let mut expected = f64::from(skip[h]) * x[t * 2 + h];
                for n in 0..2 {
                    let rate = f64::from(a[h * 2 + n]);
                    for s in 0..=t {
                        let behind: f64 = (s + 1..=t).map(|u| d(u, h)).sum();
                        expected +=
                            c[t * 2 + n] * b[s * 2 + n] * d(s, h) * x[s * 2 + h] * (rate * behind).exp();
                    }
                }
                close(&[out[t * 2 + h]], &[expected]);
            }
        }
        // The same cut after the first row.
        let mut cut = vec![0.0; 4];
        let mut parts = selective_scan(&scan, [&x[..2], &dt[..2], &b[..2], &c[..2]], &a, &skip, &mut cut);
        parts.extend(selective_scan(&scan, [&x[2..], &dt[2..], &b[2..], &c[2..]], &a, &skip, &mut cut));
        assert_eq!((parts, cut), (out, state));
    }

    #[test]
    fn the_delta_rule_stores_a_value_under_its_key() {
        // With beta near 1, no decay and unit keys at right angles, a query reads back what its key stored last.
        let shape = DeltaShape { key_heads: 1, value_heads: 2, key_dim: 2, value_dim: 1, tiled: true };
        let delta = DeltaNet { shape, eps: 0.0, rate: Wt(0), state: StateLayer(0) };
        let row = |q: [f64; 2], k: [f64; 2], v: [f64; 2]| [q, k, v].concat();
        let qkv = [
            row([1.0, 0.0], [3.0, 0.0], [5.0, 50.0]),
            row([2.0, 0.0], [0.0, 0.1], [7.0, 70.0]),
            row([0.0, 9.0], [4.0, 0.0], [6.0, 60.0]),
            row([8.0, 0.0], [0.0, 1.0], [0.0, 0.0]),
        ]
        .concat();
        let mut state = vec![0.0; 4];
        let out = delta_net(&delta, [&qkv, &[-1e3; 8], &[1e3; 8]], &[-1.0, -1.0], &mut state);
        let by = 2f64.sqrt();
        close(&out, &[5.0, 50.0, 5.0, 50.0, 7.0, 70.0, 6.0, 60.0].map(|x| x / by));
        // Half learnt, half forgotten: ln 2 = softplus(0).
        let mut state = vec![2.0, 0.0, 0.0, 0.0];
        let out = delta_net(
            &delta,
            [&row([1.0, 0.0], [1.0, 0.0], [5.0, 0.0]), &[0.0; 2], &[0.0; 2]],
            &[-1.0, 0.0],
            &mut state,
        );
        close(&out, &[(1.0 + 0.5 * (5.0 - 1.0)) / by, 0.0]);
    }
}
