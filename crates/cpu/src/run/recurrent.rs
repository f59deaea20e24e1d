//! Stages with a recurrent state, which goes from row to row of a sequence. A thread takes some channels of a sequence
//! through all of its rows, and nobody else touches their state.

use std::ops::Range;

use cera_plan::{Columns, Val};

use super::{Core, Local};
use crate::format::PANEL;
use crate::kernels::recurrent::{Delta, MAX_TAPS, SCAN_ROWS, Scan};
use crate::pool::Team;
use crate::stage::recurrent::{ConvStage, DeltaStage, Recurrent, ScanStage};

/// Channels that lie side by side in a state.
const BLOCK: usize = PANEL;

/// A thread's buffers for the rows that are on their way.
pub(super) struct Rows {
    /// `[rows][16]`: steps of time, what is kept, what comes out.
    step: Vec<f32>,
    keep: Vec<f32>,
    out: Vec<f32>,
    /// A number a row.
    first: Vec<f32>,
    second: Vec<f32>,
    /// `[rows][key_dim]`.
    q: Vec<f32>,
    k: Vec<f32>,
}

impl Rows {
    /// Room for keys of `key_dim` elements.
    pub(super) fn new(key_dim: usize) -> Rows {
        let wide = || vec![0.0; SCAN_ROWS * BLOCK];
        let one = || vec![0.0; SCAN_ROWS];
        let key = || vec![0.0; SCAN_ROWS * key_dim];
        Rows { step: wide(), keep: wide(), out: wide(), first: one(), second: one(), q: key(), k: key() }
    }
}

/// The rows of a sequence in the step, and where its state is.
struct Sequence {
    rows: Range<usize>,
    /// Its state is to be zeros.
    fresh: bool,
    slot: usize,
}

impl Core {
    pub(super) fn recurrent(&self, stage: &Recurrent, team: &Team<'_>, local: &mut Local) {
        for i in 0..self.step.seqs.len() {
            let rows = self.step.seqs[i].0.clone();
            let fresh = self.step.positions[rows.start] == 0;
            let s = Sequence { rows, fresh, slot: self.step.slots[i] };
            match stage {
                Recurrent::Conv(conv) => self.short_conv(conv, &s, team),
                Recurrent::Scan(scan) => self.scan(scan, &s, team, &mut local.rows),
                Recurrent::Delta(delta) => self.delta(delta, &s, team, &mut local.rows),
            }
        }
    }

    /// Part of a sequence's state, to write, zeros where the sequence begins.
    ///
    /// # Safety
    /// No other thread reads or writes it while the slice lives.
    #[allow(clippy::mut_from_ref)] // see `Shared::write`
    unsafe fn state(&self, state: usize, s: &Sequence, part: Range<usize>) -> &mut [f32] {
        let first = s.slot * self.plan.states[state].len;
        // SAFETY: the caller's promise.
        let state = unsafe { self.states[state].write(first + part.start..first + part.end) };
        if s.fresh {
            state.fill(0.0);
        }
        state
    }

    /// A row's columns, to write.
    ///
    /// # Safety
    /// No other thread reads or writes them while the slice lives.
    #[allow(clippy::mut_from_ref)] // see `Shared::write`
    unsafe fn write_columns(&self, out: Val, row: usize, columns: Range<usize>) -> &mut [f32] {
        let (region, lies) = self.place(out, row..row + 1);
        // SAFETY: the caller's promise.
        unsafe { region.write(lies.start + columns.start..lies.start + columns.end) }
    }

    /// Rows of a value from a column of the first on, and how far apart they are.
    ///
    /// # Safety
    /// No thread writes them while the slice lives.
    unsafe fn read_columns(&self, columns: &Columns, plus: usize, rows: Range<usize>) -> (&[f32], usize) {
        // SAFETY: the caller's promise.
        let values = unsafe { self.read(columns.of, rows) };
        (&values[columns.first + plus..], self.width(columns.of))
    }

    fn short_conv(&self, conv: &ConvStage, s: &Sequence, team: &Team<'_>) {
        let width = self.width(conv.x);
        let blocks = team.share(width.div_ceil(BLOCK));
        let columns = blocks.start * BLOCK..(blocks.end * BLOCK).min(width);
        if columns.is_empty() {
            return;
        }
        let (taps, before) = (conv.taps, conv.taps - 1);
        // SAFETY: these columns of the sequence's state and output are this thread's alone; an earlier stage wrote `x`.
        let x = unsafe { self.read(conv.x, s.rows.clone()) };
        let x = |r: usize| &x[r * width..][columns.clone()];
        let mut state: [&mut [f32]; MAX_TAPS] = Default::default();
        for (j, state) in state[..before].iter_mut().enumerate() {
            let part = j * width + columns.start..j * width + columns.end;
            // SAFETY: as above; the parts lie apart.
            *state = unsafe { self.state(conv.state.index(), s, part) };
        }
        let mut w: [&[f32]; MAX_TAPS] = [&[]; MAX_TAPS];
        for (j, w) in w[..taps].iter_mut().enumerate() {
            *w = &conv.weight[j * width..][columns.clone()];
        }
        let bias = conv.bias.map(|b| &self.stages.vectors[b.index()][columns.clone()]);
        let n = s.rows.len();
        for r in 0..n {
            let mut seen: [&[f32]; MAX_TAPS] = [&[]; MAX_TAPS];
            for (j, seen) in seen[..taps].iter_mut().enumerate() {
                // Row `r - before + j`, or what the state has of it.
                *seen = if r + j < before { &*state[r + j] } else { x(r + j - before) };
            }
            // SAFETY: as above.
            let out = unsafe { self.write_columns(conv.out, s.rows.start + r, columns.clone()) };
            (self.kernels.conv)(&seen[..taps], &w[..taps], bias, conv.silu, out);
        }
        for j in 0..before {
            if j + n < before {
                let (to, from) = state.split_at_mut(j + n);
                to[j].copy_from_slice(from[0]);
            } else {
                state[j].copy_from_slice(x(j + n - before));
            }
        }
    }

    fn scan(&self, stage: &ScanStage, s: &Sequence, team: &Team<'_>, local: &mut Rows) {
        let shape = &stage.shape;
        let len = shape.state_dim * BLOCK;
        for block in team.share(shape.channels() / BLOCK) {
            let channel = block * BLOCK;
            let head = channel / shape.head_dim;
            let group = head / (shape.heads / shape.groups) * shape.state_dim;
            // SAFETY: these channels' states and outputs are this thread's alone.
            let h = unsafe { self.state(stage.state.index(), s, block * len..(block + 1) * len) };
            for start in s.rows.clone().step_by(SCAN_ROWS) {
                let rows = start..(start + SCAN_ROWS).min(s.rows.end);
                let n = rows.len();
                // SAFETY: earlier stages wrote them.
                let ((x, x_apart), (b, b_apart), (c, c_apart), dt) = unsafe {
                    (
                        self.read_columns(&stage.x, channel, rows.clone()),
                        self.read_columns(&stage.b, group, rows.clone()),
                        self.read_columns(&stage.c, group, rows.clone()),
                        self.read(stage.dt, rows.clone()),
                    )
                };
                self.time(stage, channel, dt, n, local);
                let scan = Scan {
                    x,
                    x_apart,
                    b,
                    b_apart,
                    c,
                    c_apart,
                    step: &local.step,
                    keep: &local.keep,
                    rates: stage.rates.as_ref().map(|r| &r[block * len..(block + 1) * len]),
                    skip: &stage.skip[channel..channel + BLOCK],
                };
                let out = &mut local.out[..n * BLOCK];
                (self.kernels.scan)(&scan, h, out);
                for (out, row) in out.chunks_exact(BLOCK).zip(rows) {
                    // SAFETY: as above.
                    unsafe { self.write_columns(stage.out, row, channel..channel + BLOCK) }
                        .copy_from_slice(out);
                }
            }
        }
    }

    /// How far each channel's time goes on with each row, and what it keeps of its state.
    fn time(&self, stage: &ScanStage, channel: usize, dt: &[f32], n: usize, local: &mut Rows) {
        let heads = stage.shape.heads;
        let Rows { step, keep, first, second, .. } = local;
        if stage.shape.head_dim == 1 {
            for (step, dt) in step.chunks_exact_mut(BLOCK).zip(dt.chunks_exact(heads)) {
                step.copy_from_slice(&dt[channel..channel + BLOCK]);
            }
            (self.kernels.decay)(&mut step[..n * BLOCK], 0.0, &mut keep[..n * BLOCK]);
            return;
        }
        let head = channel / stage.shape.head_dim;
        first.fill(0.0);
        for (first, dt) in first.iter_mut().zip(dt.chunks_exact(heads)) {
            *first = dt[head];
        }
        (self.kernels.decay)(first, stage.head_rates[head], second);
        let steps = step.chunks_exact_mut(BLOCK).zip(first.iter()).zip(keep.chunks_exact_mut(BLOCK));
        for (((step, first), keep), second) in steps.zip(second.iter()).take(n) {
            step.fill(*first);
            keep.fill(*second);
        }
    }

    fn delta(&self, stage: &DeltaStage, s: &Sequence, team: &Team<'_>, local: &mut Rows) {
        let shape = &stage.shape;
        let (dim, width) = (shape.key_dim, shape.width());
        let (len, blocks) = (dim * BLOCK, shape.value_dim / BLOCK);
        // A head's keys are prepared once, but where there are too few heads for the threads.
        let parts = (2 * team.threads).div_ceil(shape.value_heads).clamp(1, blocks);
        let per_part = blocks.div_ceil(parts);
        for task in team.share(shape.value_heads * parts) {
            let (head, part) = (task / parts, task % parts);
            let own = part * per_part..((part + 1) * per_part).min(blocks);
            for start in s.rows.clone().step_by(SCAN_ROWS) {
                let rows = start..(start + SCAN_ROWS).min(s.rows.end);
                // SAFETY: earlier stages wrote them.
                let qkv = unsafe { self.read(stage.qkv, rows.clone()) };
                self.prepare_delta(stage, head, rows.clone(), qkv, local);
                for block in own.clone() {
                    let fresh = s.fresh && start == s.rows.start;
                    let s = Sequence { rows: s.rows.clone(), fresh, slot: s.slot };
                    let at = (head * blocks + block) * len;
                    // SAFETY: this block's state and output are this thread's alone.
                    let h = unsafe { self.state(stage.state.index(), &s, at..at + len) };
                    let element = head * shape.value_dim + block * BLOCK;
                    let Rows { keep, step, q, k, out, .. } = &mut *local;
                    let delta = Delta {
                        k,
                        q,
                        v: &qkv[2 * shape.key_width() + element..],
                        v_apart: width,
                        keep,
                        learn: step,
                    };
                    let out = &mut out[..rows.len() * BLOCK];
                    (self.kernels.delta)(&delta, h, out);
                    for (out, row) in out.chunks_exact(BLOCK).zip(rows.clone()) {
                        // SAFETY: as above.
                        let to = unsafe { self.write_columns(stage.out, row, element..element + BLOCK) };
                        to.copy_from_slice(out);
                    }
                }
            }
        }
    }

    /// A head's queries and keys, brought to their lengths, what it keeps (`keep`) and how much it learns (`step`).
    fn prepare_delta(
        &self,
        stage: &DeltaStage,
        head: usize,
        rows: Range<usize>,
        qkv: &[f32],
        local: &mut Rows,
    ) {
        let shape = &stage.shape;
        let dim = shape.key_dim;
        let Rows { keep, step, first, second, q, k, .. } = local;
        // SAFETY: earlier stages wrote them.
        let (decay, beta) = unsafe { (self.read(stage.decay, rows.clone()), self.read(stage.beta, rows)) };
        first.fill(0.0);
        second.fill(0.0);
        let heads = shape.value_heads;
        for (i, (decay, beta)) in decay.chunks_exact(heads).zip(beta.chunks_exact(heads)).enumerate() {
            first[i] = decay[head];
            second[i] = beta[head];
        }
        (self.kernels.decay)(first, stage.rates[head], &mut keep[..SCAN_ROWS]);
        (self.kernels.sigmoid)(second, &mut step[..SCAN_ROWS]);
        let at = shape.key_head(head) * dim;
        let scale = 1.0 / (dim as f32).sqrt();
        let rows = qkv.chunks_exact(shape.width()).zip(q.chunks_exact_mut(dim)).zip(k.chunks_exact_mut(dim));
        for ((row, q), k) in rows {
            (self.kernels.unit)(&row[at..at + dim], stage.eps, scale, q);
            (self.kernels.unit)(&row[shape.key_width() + at..][..dim], stage.eps, 1.0, k);
        }
    }
}
