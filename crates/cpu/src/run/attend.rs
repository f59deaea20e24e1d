//! Attention stages: tasks of a few rows over one head of the cache.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use cera_backend::Error;
use cera_plan::{Attention, KvLayer, Val};

use super::{Core, Local, QUERIES};
use crate::kernels::attend::{Queries, SPAN, State, spans};
use crate::kernels::numbers::Cache;
use crate::pool::Team;
use crate::shared::{Shared, memory};

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
    /// The first of the sequence's rows in the step.
    first: usize,
    kv_head: usize,
    /// Pairs of the sequence, counted row by row.
    pairs: Range<usize>,
    /// Query heads that share one of the cache.
    group: usize,
}

impl AttendTask {
    /// The row and the query head of a pair.
    fn place(&self, pair: usize) -> (usize, usize) {
        (self.first + pair / self.group, self.kv_head * self.group + pair % self.group)
    }
}

/// What each row and query head has of each span, where threads have single spans of it.
pub(super) struct Pieces {
    /// `[rows, heads, spans]`.
    states: Shared<State>,
    /// `[rows, heads, spans, value_dim]`.
    sums: Shared<f32>,
}

impl Pieces {
    /// Room for a row of `heads` that sees all of `positions`.
    pub(super) fn new(heads: usize, value_dim: usize, positions: usize) -> Result<Pieces, Error> {
        let (what, spans) = ("attention", positions.div_ceil(SPAN));
        Ok(Pieces { states: memory(what, &[heads, spans])?, sums: memory(what, &[heads, spans, value_dim])? })
    }
}

impl Core {
    pub(super) fn attend(&self, op: &AttendOp<'_>, claim: &AtomicUsize, team: &Team<'_>, local: &mut Local) {
        // SAFETY: the rows' keys and values were stored by an earlier stage.
        let cache = unsafe { self.cache[op.layer.index()].read() };
        let tasks = self.step.seqs.iter().map(|(rows, _)| tasks_of(op.attention, rows)).sum();
        let longest = self.step.seqs.iter().map(|(rows, _)| self.length(rows)).max().unwrap_or(0);
        let seen = spans(op.attention, &self.step.positions, longest);
        let pieces = self.step.tokens.len() * op.attention.heads * seen.len();
        let room = self.pieces.states.len().min(self.pieces.sums.len() / op.attention.value_dim);
        if tasks < 2 * team.threads && seen.len() > 1 && pieces <= room {
            self.attend_by_span(op, &cache, (tasks, seen), claim, team, local);
        } else {
            self.attend_whole(op, &cache, tasks, claim, local);
        }
    }

    /// Tasks are claimed whole, those with the longest way through the cache first.
    fn attend_whole(
        &self,
        op: &AttendOp<'_>,
        cache: &Cache<'_>,
        tasks: usize,
        claim: &AtomicUsize,
        local: &mut Local,
    ) {
        let dim = op.attention.value_dim;
        loop {
            let claimed = claim.fetch_add(1, Ordering::Relaxed);
            if claimed >= tasks {
                return;
            }
            let task = self.task(op.attention, tasks - 1 - claimed);
            self.gather(op, &task, local);
            let Local { scratch, queries, positions, sinks, slopes, attended, .. } = local;
            let attended = &mut attended[..positions.len() * dim];
            let queries = self.queries(op, &task, queries, positions, [sinks, slopes]);
            self.kernels.attend(op.attention, cache, &queries, scratch, attended);
            attended.chunks_exact_mut(dim).for_each(|head| self.cache[op.layer.index()].turn_back(head));
            for (attended, pair) in attended.chunks_exact(dim).zip(task.pairs.clone()) {
                let (row, head) = task.place(pair);
                // SAFETY: this head of the row belongs to this task.
                unsafe { self.write_head(op.out, row, head, dim) }.copy_from_slice(attended);
            }
        }
    }

    /// A span of a task is claimed at a time, and merged with the row's other spans when all are done.
    fn attend_by_span(
        &self,
        op: &AttendOp<'_>,
        cache: &Cache<'_>,
        (tasks, seen): (usize, Range<usize>),
        claim: &AtomicUsize,
        team: &Team<'_>,
        local: &mut Local,
    ) {
        let (dim, heads) = (op.attention.value_dim, op.attention.heads);
        let piece =
            |row: usize, head: usize, span: usize| (row * heads + head) * seen.len() + span - seen.start;
        loop {
            let claimed = claim.fetch_add(1, Ordering::Relaxed);
            if claimed >= tasks * seen.len() {
                break;
            }
            let task = self.task(op.attention, claimed / seen.len());
            let span = seen.start + claimed % seen.len();
            self.gather(op, &task, local);
            let Local { scratch, queries, positions, sinks, slopes, .. } = &mut *local;
            let length = self.length(&self.step.seqs[task.seq].0);
            if !spans(op.attention, positions, length).contains(&span) {
                continue;
            }
            let queries = self.queries(op, &task, queries, positions, [sinks, slopes]);
            (self.kernels.span)(op.attention, cache, &queries, span, scratch);
            let sums = scratch.sums.chunks_exact(dim);
            for ((sums, state), pair) in sums.zip(&scratch.states).zip(task.pairs.clone()) {
                let (row, head) = task.place(pair);
                let at = piece(row, head, span);
                // SAFETY: this span of the row and head belongs to this task.
                unsafe {
                    self.pieces.states.put(at, *state);
                    self.pieces.sums.write(at * dim..(at + 1) * dim).copy_from_slice(sums);
                }
            }
        }
        team.barrier();
        for i in team.share(self.step.tokens.len() * heads) {
            let (row, head) = (i / heads, i % heads);
            let length = self.length(&self.step.seqs[self.step.seq_of[row]].0);
            let spans = spans(op.attention, &self.step.positions[row..row + 1], length);
            let pieces = piece(row, head, spans.start)..piece(row, head, spans.end);
            // SAFETY: written before the barrier.
            let (states, sums) = unsafe {
                let sums = pieces.start * dim..pieces.end * dim;
                (self.pieces.states.read(pieces), self.pieces.sums.read(sums))
            };
            // SAFETY: heads of rows are shared out.
            let out = unsafe { self.write_head(op.out, row, head, dim) };
            let mut total = State::EMPTY;
            for (state, sums) in states.iter().zip(sums.chunks_exact(dim)) {
                (self.kernels.merge)(state, sums, &mut total, out);
            }
            let sink = self.sinks(op).map(|sinks| sinks[head]);
            self.kernels.finish(&mut total, sink, &local.scratch.nothing, out);
            self.cache[op.layer.index()].turn_back(out);
        }
    }

    /// The task of a number.
    fn task(&self, attention: &Attention, mut number: usize) -> AttendTask {
        let group = attention.heads / attention.kv_heads;
        let mut seq = 0;
        while number >= tasks_of(attention, &self.step.seqs[seq].0) {
            number -= tasks_of(attention, &self.step.seqs[seq].0);
            seq += 1;
        }
        let rows = &self.step.seqs[seq].0;
        let (first, kv_head) = (number / attention.kv_heads * QUERIES, number % attention.kv_heads);
        let pairs = first..(first + QUERIES).min(rows.len() * group);
        AttendTask { seq, first: rows.start, kv_head, pairs, group }
    }

    /// Copies a task's queries side by side, element by element, and their positions.
    fn gather(&self, op: &AttendOp<'_>, task: &AttendTask, local: &mut Local) {
        let (dim, n) = (op.attention.head_dim, task.pairs.len());
        local.positions.clear();
        local.sinks.clear();
        local.slopes.clear();
        let sinks = self.sinks(op);
        for (i, pair) in task.pairs.clone().enumerate() {
            let (row, head) = task.place(pair);
            // SAFETY: an earlier stage wrote the row.
            let q = unsafe { self.read(op.q, row..row + 1) };
            for (to, q) in local.queries[i..].iter_mut().step_by(n).zip(&q[head * dim..(head + 1) * dim]) {
                *to = *q;
            }
            local.positions.push(self.step.positions[row]);
            local.sinks.extend(sinks.map(|sinks| sinks[head]));
            local.slopes.extend(op.attention.alibi.map(|_| op.attention.slope(head)));
        }
        self.cache[op.layer.index()].turn_queries(&mut local.queries[..dim * n], n);
    }

    fn queries<'a>(
        &'a self,
        op: &AttendOp<'_>,
        task: &AttendTask,
        q: &'a [f32],
        positions: &'a [usize],
        [sinks, slopes]: [&'a [f32]; 2],
    ) -> Queries<'a> {
        let (len, blocks) = (positions.len() * op.attention.head_dim, self.step.blocks_of(task.seq));
        let length = self.length(&self.step.seqs[task.seq].0);
        Queries { q: &q[..len], positions, length, blocks, kv_head: task.kv_head, sinks, slopes }
    }

    /// Positions that a sequence has once the step is done, by its rows.
    fn length(&self, rows: &Range<usize>) -> usize {
        self.step.positions[rows.end - 1] + 1
    }

    /// The score without a value of each head.
    fn sinks(&self, op: &AttendOp<'_>) -> Option<&[f32]> {
        op.attention.sinks.map(|w| &self.stages.vectors[w.index()][..])
    }

    /// A head of a row, to write.
    ///
    /// # Safety
    /// No other thread reads or writes it while the slice lives.
    #[allow(clippy::mut_from_ref)] // see `Shared::write`
    unsafe fn write_head(&self, out: Val, row: usize, head: usize, dim: usize) -> &mut [f32] {
        let (region, lies) = self.place(out, row..row + 1);
        let at = lies.start + head * dim;
        // SAFETY: the caller's promise.
        unsafe { region.write(at..at + dim) }
    }
}

/// Tasks of a sequence's rows: up to [`QUERIES`] (row, query head) pairs that share a head of the cache each.
fn tasks_of(attention: &Attention, rows: &Range<usize>) -> usize {
    (rows.len() * attention.heads / attention.kv_heads).div_ceil(QUERIES) * attention.kv_heads
}
