//! Stages of the ops with a recurrent state.

use cera_backend::Error;
use cera_plan::{Columns, DeltaShape, Op, Plan, ScanShape, StateLayer, Val, Wt};

use super::{Stages, unsupported};
use crate::format::PANEL;
use crate::kernels::recurrent::MAX_TAPS;

/// What such a stage does.
pub enum Recurrent {
    /// A convolution.
    Conv(ConvStage),
    /// A selective scan.
    Scan(ScanStage),
    /// The delta rule.
    Delta(DeltaStage),
}

/// A convolution with its factors in order of rows.
pub struct ConvStage {
    pub out: Val,
    pub x: Val,
    pub taps: usize,
    /// `[taps][width]`.
    pub weight: Vec<f32>,
    pub bias: Option<Wt>,
    pub silu: bool,
    pub state: StateLayer,
}

/// A selective scan.
pub struct ScanStage {
    pub out: Val,
    pub x: Columns,
    pub dt: Val,
    pub b: Columns,
    pub c: Columns,
    pub shape: ScanShape,
    /// One for each channel.
    pub skip: Vec<f32>,
    /// One for each head; empty where there are `rates`.
    pub head_rates: Vec<f32>,
    /// `[channels / 16][state_dim][16]`, where a channel has several.
    pub rates: Option<Vec<f32>>,
    pub state: StateLayer,
}

/// The delta rule.
pub struct DeltaStage {
    pub out: Val,
    pub qkv: Val,
    pub decay: Val,
    pub beta: Val,
    pub shape: DeltaShape,
    pub eps: f32,
    /// One for each value head.
    pub rates: Vec<f32>,
    pub state: StateLayer,
}

impl Stages {
    /// The stage of an op with a recurrent state.
    pub(super) fn recurrent(&self, plan: &Plan, op: &Op) -> Option<Recurrent> {
        let vector = |w: Wt| self.vectors[w.index()].clone();
        Some(match op {
            Op::ShortConv { out, x, conv } => {
                let spec = &plan.weights[conv.weight.index()];
                let (width, taps) = (spec.rows, spec.cols);
                let rows = &self.vectors[conv.weight.index()];
                let weight = (0..taps).flat_map(|j| rows.iter().skip(j).step_by(taps)).copied().collect();
                debug_assert_eq!(rows.len(), width * taps);
                let (bias, silu, state) = (conv.bias, conv.silu, conv.state);
                Recurrent::Conv(ConvStage { out: *out, x: *x, taps, weight, bias, silu, state })
            }
            Op::SelectiveScan { out, x, dt, b, c, scan } => {
                let shape = scan.shape;
                let a = vector(scan.a);
                // Mamba's channels are heads of their own: their rates lie as their states do, even if all are alike.
                let rates = (shape.head_dim == 1).then(|| {
                    let each = a.len() / shape.heads;
                    let block = |block: usize| {
                        let a = &a;
                        (0..shape.state_dim).flat_map(move |n| {
                            (0..PANEL).map(move |lane| a[(block * PANEL + lane) * each + n % each])
                        })
                    };
                    (0..shape.channels() / PANEL).flat_map(block).collect()
                });
                let head_rates = if rates.is_some() { Vec::new() } else { a.clone() };
                let skip = &self.vectors[scan.skip.index()];
                let skip = (0..shape.channels()).map(|i| skip[i / shape.head_dim]).collect();
                Recurrent::Scan(ScanStage {
                    out: *out,
                    x: *x,
                    dt: *dt,
                    b: *b,
                    c: *c,
                    shape,
                    skip,
                    head_rates,
                    rates,
                    state: scan.state,
                })
            }
            Op::DeltaNet { out, qkv, decay, beta, delta } => Recurrent::Delta(DeltaStage {
                out: *out,
                qkv: *qkv,
                decay: *decay,
                beta: *beta,
                shape: delta.shape,
                eps: delta.eps,
                rates: vector(delta.rate),
                state: delta.state,
            }),
            _ => return None,
        })
    }
}

/// What the kernels take for granted.
pub(super) fn check(plan: &Plan) -> Result<(), Error> {
    let blocks = |what: &str, n: usize| match n.is_multiple_of(PANEL) {
        true => Ok(()),
        false => Err(unsupported(format!("{what} of {n} elements; multiples of {PANEL} work"))),
    };
    for op in &plan.ops {
        match op {
            Op::ShortConv { conv, .. } => {
                let taps = plan.weights[conv.weight.index()].cols;
                if taps > MAX_TAPS {
                    return Err(unsupported(format!(
                        "a convolution over {taps} rows; up to {MAX_TAPS} work"
                    )));
                }
            }
            Op::SelectiveScan { scan, .. } if scan.shape.head_dim == 1 => {
                blocks("a selective scan's rows", scan.shape.channels())?;
                if scan.shape.groups != 1 {
                    return Err(unsupported("a selective scan of channels in groups".into()));
                }
            }
            Op::SelectiveScan { scan, .. } => {
                blocks("heads of a selective scan", scan.shape.head_dim)?;
                if plan.weights[scan.a.index()].cols != 1 {
                    return Err(unsupported("a selective scan of heads whose numbers decay apart".into()));
                }
            }
            Op::DeltaNet { delta, .. } => {
                blocks("heads of a delta rule's keys", delta.shape.key_dim)?;
                blocks("heads of a delta rule's values", delta.shape.value_dim)?;
            }
            _ => {}
        }
    }
    Ok(())
}
