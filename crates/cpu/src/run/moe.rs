//! Mixtures of experts: rows sorted by expert, so that a panel of an expert is walked once for all of its rows.
//!
//! A *slot* is a row with one of its experts: row `slot / used`, rank `slot % used`. Slots in order of their expert, and
//! of equal ones in order of the rows, have a *place* each. Two phases with a barrier between: gate, up and their
//! product, quantized anew, for all places; then the down matrices. In the second a thread has some columns of all
//! rows, and goes through the experts in order of their number: a row's sum is in that order whatever else is in the
//! step.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use cera_backend::Error;
use cera_plan::{GroupScore, Groups, LEAST_SUM, Scoring, Wt};

use super::linear::{CLAIM_FROM, PANEL_BYTES, ROW_BLOCK, row_block};
use super::{Core, Local, Prepared};
use crate::format::{ActGroup, GROUP, PANEL, QUAD};
use crate::kernels::linear::Input;
use crate::pool::Team;
use crate::stage::{Experts, Route, Stage, Stages};

/// Rows of an expert for which one task is enough, where there are experts for every thread.
const TASK_ROWS: usize = 64;
/// Tasks of the first phase for each thread, at least, if there are that many panels.
const TASKS: usize = 4;

/// The most that the mixtures of a plan need.
#[derive(Default)]
struct Most {
    /// Experts that there are.
    count: usize,
    /// Experts that a row takes.
    used: usize,
    /// Columns of the second phase.
    inner: usize,
    /// Columns of gathered rows, times the rows that are gathered at once.
    gathered: usize,
}

impl Most {
    fn of(stages: &Stages, width: impl Fn(cera_plan::Val) -> usize) -> Most {
        let mut most = Most::default();
        for stage in &stages.stages {
            match stage {
                Stage::Route(r) => {
                    most.count = most.count.max(width(r.scores));
                    most.used = most.used.max(r.routing.used);
                }
                Stage::Experts(e) => {
                    most.inner = most.inner.max(e.matrices.inner);
                    most.gathered = most.gathered.max(width(e.x) * gathered_rows(e, width(e.x)));
                }
                _ => {}
            }
        }
        most
    }
}

/// How many rows of an expert are gathered at once: what they take stays in the core's own cache.
fn gathered_rows(e: &Experts, cols: usize) -> usize {
    row_block(cols, e.quantized && !e.float)
}

/// Memory that threads share.
pub(super) struct Inner {
    /// Rows of the second phase, by place: of each expert whole quads first, as products read them.
    rows: Prepared,
}

impl Inner {
    pub(super) fn new(
        stages: &Stages,
        width: impl Fn(cera_plan::Val) -> usize,
        rows: usize,
    ) -> Result<Inner, Error> {
        let most = Most::of(stages, width);
        Ok(Inner { rows: Prepared::new(rows * most.used, most.inner, 0)? })
    }
}

/// A thread's own buffers.
pub(super) struct Own {
    /// What each score counts, and with the bias.
    counted: Vec<f32>,
    keys: Vec<f32>,
    /// Whether an expert's group is chosen.
    allowed: Vec<bool>,
    /// The slot at each place.
    slots: Vec<u32>,
    /// The first place of each expert, and one more for the sort.
    starts: Vec<u32>,
    /// Rows of one expert as a product reads them.
    groups: Vec<ActGroup>,
    floats: Vec<f32>,
    /// 16 columns, and 32 of them, of rows between the two phases.
    joined: Vec<f32>,
    wide: Vec<f32>,
}

impl Own {
    pub(super) fn new(stages: &Stages, width: impl Fn(cera_plan::Val) -> usize, rows: usize) -> Own {
        let most = Most::of(stages, width);
        let block = if most.used > 0 { ROW_BLOCK } else { 0 };
        Own {
            counted: vec![0.0; most.count],
            keys: vec![0.0; most.count],
            allowed: vec![true; most.count],
            slots: vec![0; rows * most.used],
            starts: vec![0; most.count + 2],
            groups: vec![ActGroup::default(); most.gathered.div_ceil(GROUP)],
            floats: vec![0.0; most.gathered],
            joined: vec![0.0; block * PANEL],
            wide: vec![0.0; block * GROUP],
        }
    }

    /// Sorts slots by the experts that they chose.
    fn sort(&mut self, chosen: &[f32], count: usize) {
        let starts = &mut self.starts[..count + 2];
        starts.fill(0);
        let expert = |c: &f32| (*c as usize).min(count - 1);
        for c in chosen {
            starts[expert(c) + 2] += 1;
        }
        for e in 2..starts.len() {
            starts[e] += starts[e - 1];
        }
        for (slot, c) in chosen.iter().enumerate() {
            let place = &mut starts[expert(c) + 1];
            self.slots[*place as usize] = slot as u32;
            *place += 1;
        }
    }

    /// The places of an expert.
    fn places(&self, expert: usize) -> Range<usize> {
        self.starts[expert] as usize..self.starts[expert + 1] as usize
    }
}

/// Where group `g` of row `i` of an expert's `rows` lies, of `per_row` groups in a row.
pub(super) fn group_at(i: usize, rows: usize, per_row: usize, g: usize) -> usize {
    match i < rows / QUAD * QUAD {
        true => (i / QUAD * per_row + g) * QUAD + i % QUAD,
        false => i * per_row + g,
    }
}

/// The greatest of `keys`, as many as there is room for, the greatest first; of equals the first.
fn best(keys: impl Iterator<Item = (usize, f32)>, numbers: &mut [f32], held: &mut [f32]) {
    let mut len = 0;
    for (number, key) in keys {
        if len < held.len() {
            len += 1;
        } else if held.last().is_none_or(|last| key <= *last) {
            continue;
        }
        let mut at = len - 1;
        while at > 0 && key > held[at - 1] {
            (held[at], numbers[at]) = (held[at - 1], numbers[at - 1]);
            at -= 1;
        }
        (held[at], numbers[at]) = (key, number as f32);
    }
}

impl Core {
    /// Row `r` of a choice of experts.
    pub(super) fn route(&self, route: &Route, r: usize, own: &mut Own) {
        let Route { out, scores, bias, factors, routing } = route;
        // SAFETY: an earlier stage wrote the scores, and row `r` of both outputs is this thread's alone.
        let (scores, numbers, weights) = unsafe {
            let row = r..r + 1;
            (
                self.read(*scores, row.clone()),
                self.write(out.experts, row.clone()),
                self.write(out.weights, row),
            )
        };
        let n = scores.len();
        let (counted, keys, allowed) = (&mut own.counted[..n], &mut own.keys[..n], &mut own.allowed[..n]);
        match routing.scoring {
            Scoring::Softmax => (self.kernels.softmax)(scores, counted),
            Scoring::Sigmoid => (self.kernels.sigmoid)(scores, counted),
            Scoring::SoftmaxOfChosen => counted.copy_from_slice(scores),
        }
        keys.copy_from_slice(counted);
        if let Some(bias) = bias {
            for (key, b) in keys.iter_mut().zip(&self.stages.vectors[bias.index()]) {
                *key += b;
            }
        }
        // What is no number is chosen, and shows.
        keys.iter_mut().filter(|key| key.is_nan()).for_each(|key| *key = f32::INFINITY);
        match routing.groups {
            Some(groups) => choose_groups(&groups, keys, allowed),
            None => allowed.fill(true),
        }
        let candidates = keys.iter().copied().enumerate().filter(|(e, _)| allowed[*e]);
        best(candidates, numbers, weights);
        for (weight, number) in weights.iter_mut().zip(&*numbers) {
            *weight = counted[*number as usize];
        }
        if routing.scoring == Scoring::SoftmaxOfChosen {
            let chosen = &mut keys[..weights.len()];
            chosen.copy_from_slice(weights);
            (self.kernels.softmax)(chosen, weights);
        }
        if routing.normalised {
            let sum = weights.iter().sum::<f32>().max(LEAST_SUM);
            weights.iter_mut().for_each(|w| *w /= sum);
        }
        weights.iter_mut().for_each(|w| *w *= routing.scale);
        if let Some(factors) = factors.map(|f| &self.stages.vectors[f.index()]) {
            let by = numbers.iter().map(|number| factors[*number as usize]);
            weights.iter_mut().zip(by).for_each(|(w, by)| *w *= by);
        }
    }

    pub(super) fn experts(&self, e: &Experts, claim: &AtomicUsize, team: &Team<'_>, local: &mut Local) {
        let n = self.rows_of(e.x);
        if n == 0 {
            return;
        }
        // SAFETY: an earlier stage wrote them.
        let (chosen, weights) =
            unsafe { (self.read(e.routed.experts, 0..n), self.read(e.routed.weights, 0..n)) };
        local.moe.sort(chosen, e.matrices.count);
        let first = self.inner_rows(e, n, claim, team, local);
        team.barrier();
        self.sums(e, weights, n, (claim, first), team, local);
    }

    /// Gate, up and their product, for every place. Returns what the claims of the second phase start from.
    fn inner_rows(
        &self,
        e: &Experts,
        n: usize,
        claim: &AtomicUsize,
        team: &Team<'_>,
        local: &mut Local,
    ) -> usize {
        let per_row = if e.quantized { self.width(e.x) / GROUP } else { 0 };
        // A single row is quantized by every thread for itself, as for other products.
        let source = if n == 1 { &local.prepared.groups } else { &self.prepared.groups };
        for r in if n == 1 { 0..1 } else { team.share(n) }.filter(|_| e.quantized) {
            // SAFETY: an earlier stage wrote the row, and its groups are this thread's alone.
            let (x, groups) =
                unsafe { (self.read(e.x, r..r + 1), source.write(r * per_row..(r + 1) * per_row)) };
            (self.kernels.quantize)(x, groups, 1);
        }
        if n > 1 {
            team.barrier();
        }
        // SAFETY: written by this thread, or by all before the barrier.
        let rows = unsafe { source.read(0..n * per_row) };
        let mut own = Buffers { own: &mut local.moe, tile: &mut local.tile, up: &mut local.joined };
        let count = e.matrices.count;
        let pairs = e.matrices.inner.div_ceil(GROUP);
        if n < CLAIM_FROM {
            let active = (0..count).filter(|&x| !own.own.places(x).is_empty()).count();
            let share = team.share(active * pairs);
            let mut before = 0;
            for expert in (0..count).filter(|_| !share.is_empty()) {
                if own.own.places(expert).is_empty() {
                    continue;
                }
                let of_expert = share.start.max(before)..share.end.min(before + pairs);
                if !of_expert.is_empty() {
                    self.expert(e, expert, of_expert.start - before..of_expert.end - before, rows, &mut own);
                }
                before += pairs;
            }
            return 0;
        }
        let parts = (TASKS * team.threads).div_ceil(count);
        let tasks_of = |places: Range<usize>| (places.len().div_ceil(TASK_ROWS) * parts).min(pairs);
        let (mut expert, mut before) = (0, 0);
        loop {
            let task = claim.fetch_add(1, Ordering::Relaxed);
            // Claims rise, so the search goes on from the expert of the last one.
            while expert < count && task >= before + tasks_of(own.own.places(expert)) {
                before += tasks_of(own.own.places(expert));
                expert += 1;
            }
            if expert == count {
                // Every thread comes here once, with one claim too many.
                return before + team.threads;
            }
            let (task, tasks) = (task - before, tasks_of(own.own.places(expert)));
            self.expert(e, expert, task * pairs / tasks..(task + 1) * pairs / tasks, rows, &mut own);
        }
    }

    /// Pairs of panels of one expert, for all of its rows. `rows [n, cols / 32]` are the step's.
    fn expert(
        &self,
        e: &Experts,
        expert: usize,
        pairs: Range<usize>,
        rows: &[ActGroup],
        b: &mut Buffers<'_>,
    ) {
        let places = b.own.places(expert);
        let cols = self.width(e.x);
        let used = self.width(e.routed.experts);
        let block = gathered_rows(e, cols);
        for first in (0..places.len()).step_by(block) {
            let n = block.min(places.len() - first);
            let slots = &b.own.slots[places.start + first..][..n];
            let of_row = slots.iter().map(|slot| *slot as usize / used).enumerate();
            if e.quantized {
                let per_row = cols / GROUP;
                for (i, r) in of_row.clone() {
                    for (g, group) in rows[r * per_row..(r + 1) * per_row].iter().enumerate() {
                        b.own.groups[group_at(i, n, per_row, g)] = *group;
                    }
                }
            }
            if e.float {
                for (i, r) in of_row {
                    // SAFETY: an earlier stage wrote the row.
                    b.own.floats[i * cols..(i + 1) * cols]
                        .copy_from_slice(unsafe { self.read(e.x, r..r + 1) });
                }
            }
            for pair in pairs.clone() {
                self.pair(e, expert, pair, places.clone(), first..first + n, b);
            }
        }
    }

    /// 32 columns of the rows between the phases: two panels of gate and of up, for gathered rows `rows` of an expert.
    fn pair(
        &self,
        e: &Experts,
        expert: usize,
        pair: usize,
        places: Range<usize>,
        rows: Range<usize>,
        b: &mut Buffers<'_>,
    ) {
        let (m, n) = (&e.matrices, rows.len());
        let Own { groups, floats, joined, wide, .. } = &mut *b.own;
        let input = Input { cols: self.width(e.x), rows: n, f: floats, groups };
        // The expert's matrices, by their numbers in their stacks.
        let (gate, up) = match m.up {
            Some(up) => ((m.gate, expert), (up, expert)),
            None => ((m.gate, 2 * expert), (m.gate, 2 * expert + 1)),
        };
        let from = pair * GROUP;
        let end = (from + GROUP).min(m.inner);
        for (half, column) in (from..end).step_by(PANEL).enumerate() {
            for ((stack, number), out) in [(gate, &mut *b.tile), (up, &mut *b.up)] {
                let matrix = self.stages.matrix(stack.w);
                (matrix.kernel)(matrix.panel_of(number, column / PANEL), &input, 0, n, out);
                self.add_bias(
                    stack.bias,
                    number * m.inner + column..number * m.inner + end,
                    &mut out[..n * PANEL],
                );
            }
            let joined = &mut joined[..n * PANEL];
            (self.kernels.glu)(e.act, &b.tile[..n * PANEL], &b.up[..n * PANEL], joined);
            for (joined, wide) in joined.chunks_exact(PANEL).zip(wide.chunks_exact_mut(GROUP)) {
                wide[half * PANEL..(half + 1) * PANEL].copy_from_slice(joined);
            }
        }
        let inner = &self.inner.rows;
        for (i, wide) in rows.zip(wide.chunks_exact(GROUP)) {
            if e.down_quantized {
                let per_row = m.inner / GROUP;
                let at = places.start * per_row + group_at(i, places.len(), per_row, pair);
                // SAFETY: this group belongs to this expert, row and pair, which one thread has.
                (self.kernels.quantize)(wide, unsafe { inner.groups.write(at..at + 1) }, 1);
            } else {
                let at = (places.start + i) * m.inner;
                // SAFETY: as above.
                unsafe { inner.f.write(at + from..at + end) }.copy_from_slice(&wide[..end - from]);
            }
        }
    }

    /// Adds columns of a bias to rows of 16.
    fn add_bias(&self, bias: Option<Wt>, columns: Range<usize>, rows: &mut [f32]) {
        let Some(bias) = bias else { return };
        let bias = &self.stages.vectors[bias.index()][columns];
        for row in rows.chunks_exact_mut(PANEL) {
            for (v, b) in row.iter_mut().zip(bias) {
                *v += b;
            }
        }
    }

    /// The down matrices, and the sum over each row's experts.
    fn sums(
        &self,
        e: &Experts,
        weights: &[f32],
        n: usize,
        (claim, first): (&AtomicUsize, usize),
        team: &Team<'_>,
        local: &mut Local,
    ) {
        let down = self.stages.matrix(e.matrices.down.w);
        let panels = down.panels();
        if n < CLAIM_FROM {
            let share = team.share(panels);
            self.columns(e, weights, n, share, &local.moe, &mut local.tile);
            return;
        }
        let chunk = (PANEL_BYTES / down.panel_bytes().max(1)).min(panels / (TASKS * team.threads)).max(1);
        loop {
            let task = claim.fetch_add(1, Ordering::Relaxed) - first;
            let from = task * chunk;
            if from >= panels {
                return;
            }
            self.columns(e, weights, n, from..(from + chunk).min(panels), &local.moe, &mut local.tile);
        }
    }

    /// Some panels' columns of the sums, for all rows.
    fn columns(
        &self,
        e: &Experts,
        weights: &[f32],
        n: usize,
        panels: Range<usize>,
        own: &Own,
        tile: &mut [f32],
    ) {
        let m = &e.matrices;
        let (width, used) = (self.width(e.out), self.width(e.routed.experts));
        let down = self.stages.matrix(m.down.w);
        let columns = |panels: Range<usize>| panels.start * PANEL..(panels.end * PANEL).min(width);
        let out = |r: usize, columns: Range<usize>| {
            let (region, row) = self.place(e.out, r..r + 1);
            // SAFETY: these columns of all rows are this thread's alone in this stage.
            unsafe { region.write(row.start + columns.start..row.start + columns.end) }
        };
        for r in 0..n {
            out(r, columns(panels.clone())).fill(0.0);
        }
        let block = row_block(m.inner, e.down_quantized);
        for expert in 0..m.count {
            let places = own.places(expert);
            let rows = places.len();
            let per_row = m.inner / GROUP;
            // SAFETY: written before the barrier.
            let (f, groups): (&[f32], &[ActGroup]) = unsafe {
                match e.down_quantized {
                    true => (&[], self.inner.rows.groups.read(places.start * per_row..places.end * per_row)),
                    false => (self.inner.rows.f.read(places.start * m.inner..places.end * m.inner), &[]),
                }
            };
            let input = Input { cols: m.inner, rows, f, groups };
            for from in (0..rows).step_by(block) {
                let slots = &own.slots[places.clone()][from..(from + block).min(rows)];
                for panel in panels.clone() {
                    let tile = &mut tile[..slots.len() * PANEL];
                    (down.kernel)(down.panel_of(expert, panel), &input, from, slots.len(), tile);
                    let columns = columns(panel..panel + 1);
                    let of_bias = expert * width + columns.start..expert * width + columns.end;
                    self.add_bias(m.down.bias, of_bias, tile);
                    for (slot, product) in slots.iter().zip(tile.chunks_exact(PANEL)) {
                        let weight = weights[*slot as usize];
                        for (o, p) in out(*slot as usize / used, columns.clone()).iter_mut().zip(product) {
                            *o += weight * p;
                        }
                    }
                }
            }
        }
    }
}

/// A thread's buffers for a pair of panels.
struct Buffers<'a> {
    own: &'a mut Own,
    tile: &'a mut [f32],
    up: &'a mut [f32],
}

/// Which experts belong to a chosen group.
fn choose_groups(groups: &Groups, keys: &[f32], allowed: &mut [bool]) {
    let each = keys.len() / groups.count;
    let score = |group: usize| {
        let (mut top, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
        for &key in &keys[group * each..(group + 1) * each] {
            if key > top {
                (top, second) = (key, top);
            } else if key > second {
                second = key;
            }
        }
        match groups.by {
            GroupScore::Best => top,
            GroupScore::BestTwo => top + second,
        }
    };
    allowed.fill(false);
    for _ in 0..groups.used {
        let mut chosen = None;
        for group in (0..groups.count).filter(|g| !allowed[g * each]) {
            let score = score(group);
            if chosen.is_none_or(|(_, top)| score > top) {
                chosen = Some((group, score));
            }
        }
        if let Some((group, _)) = chosen {
            allowed[group * each..(group + 1) * each].fill(true);
        }
    }
}
