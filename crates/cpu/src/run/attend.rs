//! Attention stages: tasks of a few rows over one head of the cache.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use cera_plan::{Attention, KvLayer, Val};

use super::{Core, Local, QUERIES};
use crate::kernels::attend::{Cache, Queries};

/// The operands of an attention op.
pub(super) struct AttendOp<'a> {
    pub out: Val,
    pub q: Val,
    pub layer: KvLayer,
    pub attention: &'a Attention,
}

/// Some of a sequence's (row, query head) pairs that share a head of the cache.
struct AttendTask {
    seq: usize,
    /// The sequence's rows in the step.
    rows: Range<usize>,
    kv_head: usize,
    /// Pairs of the sequence, counted row by row.
    pairs: Range<usize>,
}

impl Core {
    pub(super) fn attend(&self, op: &AttendOp<'_>, claim: &AtomicUsize, local: &mut Local) {
        let attention = op.attention;
        let cache = &self.cache[op.layer.index()];
        // SAFETY: the rows' keys and values were stored by an earlier stage.
        let cache = unsafe { cache.read() };
        let group = attention.heads / attention.kv_heads;
        // A task is up to 32 of a sequence's (row, query head) pairs that share a head of the cache. Tasks with the
        // longest way through the cache are claimed first.
        let tasks_of = |rows: &Range<usize>| (rows.len() * group).div_ceil(QUERIES) * attention.kv_heads;
        let tasks: usize = self.step.seqs.iter().map(|(rows, _)| tasks_of(rows)).sum();
        loop {
            let claimed = claim.fetch_add(1, Ordering::Relaxed);
            if claimed >= tasks {
                return;
            }
            let mut task = tasks - 1 - claimed;
            let mut seq = 0;
            while task >= tasks_of(&self.step.seqs[seq].0) {
                task -= tasks_of(&self.step.seqs[seq].0);
                seq += 1;
            }
            let rows = self.step.seqs[seq].0.clone();
            let (first, kv_head) = (task / attention.kv_heads * QUERIES, task % attention.kv_heads);
            let pairs = first..(first + QUERIES).min(rows.len() * group);
            let task = AttendTask { seq, rows, kv_head, pairs };
            self.attend_task(op, &task, &cache, local);
        }
    }

    fn attend_task(&self, op: &AttendOp<'_>, task: &AttendTask, cache: &Cache<'_>, local: &mut Local) {
        let dim = op.attention.head_dim;
        let group = op.attention.heads / op.attention.kv_heads;
        let n = task.pairs.len();
        // Where each pair's head lies: (row, first element).
        let place = |pair: usize| {
            let (row, head) = (task.rows.start + pair / group, task.kv_head * group + pair % group);
            (row, head * dim)
        };
        local.positions.clear();
        for (i, pair) in task.pairs.clone().enumerate() {
            let (row, at) = place(pair);
            // SAFETY: an earlier stage wrote the row.
            let q = unsafe { self.read(op.q, row..row + 1) };
            local.queries[i * dim..(i + 1) * dim].copy_from_slice(&q[at..at + dim]);
            local.positions.push(self.step.positions[row]);
        }
        let queries = Queries {
            q: &local.queries[..n * dim],
            positions: &local.positions,
            blocks: self.step.blocks_of(task.seq),
            kv_head: task.kv_head,
        };
        let attended = &mut local.attended[..n * dim];
        (self.kernels.attend)(op.attention, cache, &queries, &mut local.scratch, attended);
        for (attended, pair) in attended.chunks_exact(dim).zip(task.pairs.clone()) {
            let (row, at) = place(pair);
            let (region, lies) = self.place(op.out, row..row + 1);
            // SAFETY: this head of the row belongs to this task.
            let out = unsafe { region.write(lies.start + at..lies.start + at + dim) };
            out.copy_from_slice(attended);
        }
    }
}
