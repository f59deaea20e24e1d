//! The meaning of the ops of mixtures of experts, in f64.

use cera_plan::{Act, ExpertMatrices, ExpertMatrix, GroupScore, Groups, LEAST_SUM, Routing, Scoring};

use super::ops;

/// The numbers of each row's experts, and their weights, both `[rows, used]`.
pub(super) fn route(scores: &[f64], width: usize, bias: Option<&[f32]>, r: &Routing) -> [Vec<f64>; 2] {
    let (mut experts, mut weights) = (Vec::new(), Vec::new());
    for row in scores.chunks_exact(width) {
        let counted = match r.scoring {
            Scoring::Softmax => softmax(row),
            Scoring::Sigmoid => row.iter().map(|s| sigmoid(*s)).collect(),
            Scoring::SoftmaxOfChosen => row.to_vec(),
        };
        let of = |e: usize| counted[e] + bias.map_or(0.0, |b| f64::from(b[e]));
        let chosen = best(in_groups(width, r.groups, of), r.used, of);
        let mut of_row: Vec<f64> = chosen.iter().map(|&e| counted[e]).collect();
        if r.scoring == Scoring::SoftmaxOfChosen {
            of_row = softmax(&of_row);
        }
        let sum = if r.normalised { of_row.iter().sum::<f64>().max(f64::from(LEAST_SUM)) } else { 1.0 };
        experts.extend(chosen.iter().map(|&e| e as f64));
        weights.extend(of_row.iter().map(|w| w / sum * f64::from(r.scale)));
    }
    [experts, weights]
}

/// The experts of the groups that are chosen first.
fn in_groups(experts: usize, groups: Option<Groups>, of: impl Fn(usize) -> f64) -> Vec<usize> {
    let Some(Groups { count, used, by }) = groups else { return (0..experts).collect() };
    let each = experts / count;
    let score = |g: usize| {
        let members: Vec<usize> = (g * each..(g + 1) * each).collect();
        let two = best(members, 2, &of);
        match by {
            GroupScore::Best => of(two[0]),
            GroupScore::BestTwo => two.iter().map(|&e| of(e)).sum(),
        }
    };
    let chosen = best((0..count).collect(), used, score);
    (0..experts).filter(|e| chosen.contains(&(e / each))).collect()
}

/// The `n` of the greatest score, the greatest first; of equals the lowest number.
fn best(mut of: Vec<usize>, n: usize, score: impl Fn(usize) -> f64) -> Vec<usize> {
    // The sort keeps equals in their order, which is that of their numbers.
    of.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
    of.truncate(n);
    of
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = x.iter().map(|v| (v - max).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|e| e / sum).collect()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `x * sigmoid(gate)`, one gate a row of `width`.
pub(super) fn gate_rows(x: &[f64], width: usize, gate: &[f64]) -> Vec<f64> {
    x.iter().enumerate().map(|(i, v)| v * sigmoid(gate[i / width])).collect()
}

/// A matrix of one expert, and its bias.
struct Own<'a> {
    w: &'a [f32],
    bias: Option<&'a [f32]>,
    rows: usize,
}

impl Own<'_> {
    fn of(&self, x: &[f64]) -> Vec<f64> {
        let product = ops::linear(x, self.w, self.rows, self.w.len() / self.rows);
        self.bias.map_or(product.clone(), |b| ops::bias(&product, b))
    }
}

/// The sum over each row's experts of `weight * down(act(gate(x)) * up(x))`. `decoded` is a weight's numbers.
pub(super) fn experts<'a>(
    x: &[f64],
    width: usize,
    [chosen, weights]: [&[f64]; 2],
    m: &ExpertMatrices,
    act: Act,
    decoded: impl Fn(cera_plan::Wt) -> &'a [f32],
) -> Vec<f64> {
    let n = x.len() / width;
    let used = chosen.len() / n.max(1);
    // Rows `part` of an expert's rows in a stack that has `rows` for each.
    let own = |stack: &ExpertMatrix, e: usize, rows: usize, part: std::ops::Range<usize>| {
        let w = decoded(stack.w);
        let cols = w.len() / (m.count * rows);
        let part = e * rows + part.start..e * rows + part.end;
        let bias = stack.bias.map(|b| &decoded(b)[part.clone()]);
        Own { w: &w[part.start * cols..part.end * cols], bias, rows: part.len() }
    };
    let mut out = vec![0.0; x.len()];
    for e in 0..m.count {
        let slots: Vec<usize> = (0..chosen.len()).filter(|&s| chosen[s] == e as f64).collect();
        if slots.is_empty() {
            continue;
        }
        let rows: Vec<f64> = slots.iter().flat_map(|s| &x[s / used * width..][..width]).copied().collect();
        let (gate, up) = match &m.up {
            Some(up) => (own(&m.gate, e, m.inner, 0..m.inner), own(up, e, m.inner, 0..m.inner)),
            None => {
                let half = |part| own(&m.gate, e, 2 * m.inner, part);
                (half(0..m.inner), half(m.inner..2 * m.inner))
            }
        };
        let down = own(&m.down, e, width, 0..width);
        let products = down.of(&ops::glu(&gate.of(&rows), &up.of(&rows), act));
        for (product, &s) in products.chunks_exact(width).zip(&slots) {
            let out = &mut out[s / used * width..][..width];
            out.iter_mut().zip(product).for_each(|(o, p)| *o += weights[s] * p);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use cera_plan::Wt;

    use super::*;

    fn close(a: &[f64], b: &[f64]) {
        assert_eq!(a.len(), b.len());
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9), "{a:?}\n{b:?}");
    }

    const PLAIN: Routing =
        Routing { used: 2, scoring: Scoring::Softmax, groups: None, normalised: false, scale: 1.0 };

    #[test]
    fn softmax_weighs_over_all_or_over_the_chosen() {
        let scores = [1.0, 3.0, 0.0, 2.0];
        let e: Vec<f64> = scores.iter().map(|s: &f64| s.exp()).collect();
        let all: f64 = e.iter().sum();
        let [experts, weights] = route(&scores, 4, None, &PLAIN);
        assert_eq!(experts, [1.0, 3.0]);
        close(&weights, &[e[1] / all, e[3] / all]);
        let two = [e[1] / (e[1] + e[3]), e[3] / (e[1] + e[3])];
        close(&route(&scores, 4, None, &Routing { normalised: true, ..PLAIN })[1], &two);
        let of_chosen = Routing { scoring: Scoring::SoftmaxOfChosen, scale: 3.0, ..PLAIN };
        close(&route(&scores, 4, None, &of_chosen)[1], &two.map(|w| 3.0 * w));
    }

    #[test]
    fn a_bias_chooses_and_does_not_weigh() {
        let r = Routing { scoring: Scoring::Sigmoid, normalised: true, scale: 2.5, ..PLAIN };
        let [experts, weights] = route(&[0.0, 0.0, 2.0, -2.0], 4, Some(&[0.0, 0.0, 0.0, 1.0]), &r);
        // sigmoid(-2) + 1 is the greatest; then sigmoid(2).
        assert_eq!(experts, [3.0, 2.0]);
        // sigmoid(-2) + sigmoid(2) = 1.
        let low = 1.0 / (1.0 + 2f64.exp());
        close(&weights, &[2.5 * low, 2.5 * (1.0 - low)]);
    }

    #[test]
    fn of_equals_the_lowest_number_is_chosen() {
        assert_eq!(route(&[1.0, 2.0, 2.0, 2.0], 4, None, &PLAIN)[0], [1.0, 2.0]);
        let groups = Some(Groups { count: 2, used: 1, by: GroupScore::Best });
        assert_eq!(route(&[0.0, 2.0, 1.0, 2.0], 4, None, &Routing { groups, ..PLAIN })[0], [1.0, 0.0]);
    }

    #[test]
    fn groups_are_judged_by_their_best_or_their_two_best() {
        let scores = [5.0, 0.0, 0.0, 4.0, 4.0, 0.0];
        let by = |by| {
            let groups = Some(Groups { count: 2, used: 1, by });
            let r = Routing { groups, scoring: Scoring::SoftmaxOfChosen, ..PLAIN };
            route(&scores, 6, None, &r)[0].clone()
        };
        assert_eq!(by(GroupScore::Best), [0.0, 1.0]);
        assert_eq!(by(GroupScore::BestTwo), [3.0, 4.0]);
    }

    #[test]
    fn vanishing_scores_weigh_nothing() {
        let r = Routing { scoring: Scoring::Sigmoid, normalised: true, ..PLAIN };
        close(&route(&[-1e4, -1e4], 2, None, &r)[1], &[0.0, 0.0]);
    }

    #[test]
    fn experts_are_summed_by_weight_with_their_biases() {
        // Two experts of one inner element over rows of two; act(g) * u = g / (1 + exp(-g)) * u.
        let [gate, up, down] = [[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0], [1.0, 2.0, 3.0, 4.0f32]];
        let (gate_bias, down_bias) = ([0.5, 0.0], [0.0, 0.0, 10.0, 20.0f32]);
        let joined = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0f32];
        let joined_bias = [0.5, 0.0, 0.0, 0.0f32];
        let all = [&gate[..], &up, &down, &gate_bias, &down_bias, &joined, &joined_bias];
        let m = |w, bias: Option<u32>| ExpertMatrix { w: Wt(w), bias: bias.map(Wt) };
        let apart = ExpertMatrices {
            count: 2,
            inner: 1,
            gate: m(0, Some(3)),
            up: Some(m(1, None)),
            down: m(2, Some(4)),
        };
        let together = ExpertMatrices { gate: m(5, Some(6)), up: None, ..apart };
        let x = [2.0, -1.0, 0.25, 3.0];
        let silu = |g: f64| g / (1.0 + (-g).exp());
        let inner = |e: usize, x: &[f64]| match e {
            0 => silu(x[0] + 0.5) * x[1],
            _ => silu(x[1]) * x[0],
        };
        let (a, b) = (inner(0, &x[..2]), inner(1, &x[..2]));
        let c = inner(1, &x[2..]);
        let one = |h: f64| [3.0 * h + 10.0, 4.0 * h + 20.0];
        let expected = [
            0.5 * a + 2.0 * one(b)[0],
            0.5 * 2.0 * a + 2.0 * one(b)[1],
            // The second row takes the second expert with 1, and the first with nothing.
            one(c)[0],
            one(c)[1],
        ];
        for matrices in [apart, together] {
            let chosen = [&[1.0, 0.0, 1.0, 0.0][..], &[2.0, 0.5, 1.0, 0.0]];
            close(&experts(&x, 2, chosen, &matrices, Act::Silu, |w| all[w.index()]), &expected);
        }
    }

    #[test]
    fn a_gate_is_one_number_a_row() {
        close(&gate_rows(&[1.0, 2.0, 3.0, 4.0], 2, &[0.0, 3f64.ln()]), &[0.5, 1.0, 2.25, 3.0]);
    }
}
