//! Runs the stages of a step on the pool's threads.
//!
//! All memory is set up at load; a step allocates nothing. Every buffer that threads share is written in
//! disjoint parts between two barriers: by row, by panel, or by attention head, as each stage says.

mod attend;
mod heads;
pub mod linear;
mod moe;
mod recurrent;
mod streams;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use cera_backend::{
    BLOCK, BlockId, Error, Image, KvShape, Loaded, Rows, SampleRow, SeqRows, SlotId, Slots, StepOutput,
    check_copy, check_image, check_step,
};
use cera_plan::arena::Arena;
use cera_plan::{Kv, KvLayer, Norm, Op, Plan, RowSet, Val};

use crate::cache::{LayerCache, Narrow};
use crate::format::{ActGroup, GROUP, PANEL};
use crate::kernels::Kernels;
use crate::kernels::attend::Scratch;
use crate::pool::{Pool, Team};
use crate::shared::{Shared, memory};
use crate::stage::streams::Streams;
use crate::stage::{NAME, Prep, Stage, Stages};
use attend::{AttendOp, Pieces};
use linear::ROW_BLOCK;

/// Query rows of one attention task.
pub const QUERIES: usize = 64;

/// A plan ready to run on the CPU.
pub struct Runner {
    pool: Pool,
    slots: Slots,
    core: Core,
}

/// Everything that the threads of a step share.
struct Core {
    kernels: Kernels,
    plan: Plan,
    arena: Arena,
    kv_shape: KvShape,
    stages: Stages,
    cache: Vec<LayerCache>,
    /// By state: `[slots, len]`.
    states: Vec<Shared<f32>>,
    all: Shared<f32>,
    wanted: Shared<f32>,
    prepared: Prepared,
    pieces: Pieces,
    inner: moe::Inner,
    locals: Shared<Local>,
    /// Cosines and sines of the step's positions, for each rotation: `[rows, pairs]` each.
    turns: Vec<(Shared<f32>, Shared<f32>)>,
    /// For each stage, the next task to claim.
    claims: Vec<AtomicUsize>,
    /// For each thread and wanted row: the best logit of its share.
    best: Shared<Best>,
    step: Step,
}

/// Rows normalised and quantized for a product.
struct Prepared {
    f: Shared<f32>,
    groups: Shared<ActGroup>,
}

/// A thread's own buffers.
struct Local {
    prepared: Prepared,
    tile: Vec<f32>,
    joined: Vec<f32>,
    block: Vec<u8>,
    scratch: Scratch,
    queries: Vec<f32>,
    attended: Vec<f32>,
    positions: Vec<usize>,
    /// The sink of each pair of a task.
    sinks: Vec<f32>,
    slopes: Vec<f32>,
    /// A row, and behind keys a head.
    heads: Vec<f32>,
    narrow: Narrow,
    moe: moe::Own,
    rows: recurrent::Rows,
}

/// The greatest of some logits.
#[derive(Clone, Copy)]
struct Best {
    logit: f32,
    token: u32,
    finite: bool,
}

/// What this step is about, kept from step to step so that nothing is allocated.
struct Step {
    tokens: Vec<u32>,
    /// Rows whose logits are wanted.
    wanted: Vec<usize>,
    /// Each row's position.
    positions: Vec<usize>,
    /// Each row's sequence.
    seq_of: Vec<usize>,
    /// Each sequence's rows and its range of `blocks`.
    seqs: Vec<(Range<usize>, Range<usize>)>,
    blocks: Vec<BlockId>,
    /// Each sequence's slot.
    slots: Vec<usize>,
}

impl Step {
    /// Room for the greatest step. Only sequences that share blocks can outgrow that of `blocks`.
    fn new(kv: &KvShape) -> Step {
        let rows = kv.max_rows;
        Step {
            tokens: Vec::with_capacity(rows),
            wanted: Vec::with_capacity(rows),
            positions: Vec::with_capacity(rows),
            seq_of: Vec::with_capacity(rows),
            seqs: Vec::with_capacity(rows),
            blocks: Vec::with_capacity(kv.blocks),
            slots: Vec::with_capacity(rows),
        }
    }

    fn set(&mut self, rows: &Rows<'_>, sample: &[SampleRow]) {
        self.tokens.clear();
        self.tokens.extend_from_slice(rows.tokens);
        self.wanted.clear();
        self.wanted.extend(sample.iter().map(|s| s.row));
        self.positions.clear();
        self.seq_of.clear();
        self.seqs.clear();
        self.blocks.clear();
        self.slots.clear();
        for (i, SeqRows { rows, first_pos, blocks, slot }) in rows.seqs.iter().enumerate() {
            let used = (first_pos + rows.len()).div_ceil(BLOCK);
            let from = self.blocks.len();
            self.blocks.extend_from_slice(&blocks[..used]);
            // `Slots::begin` saw to it that there is one where one is needed.
            self.slots.push(slot.map_or(0, |slot| slot.0 as usize));
            self.seqs.push((rows.clone(), from..self.blocks.len()));
            for r in 0..rows.len() {
                self.positions.push(first_pos + r);
                self.seq_of.push(i);
            }
        }
    }

    fn blocks_of(&self, seq: usize) -> &[BlockId] {
        &self.blocks[self.seqs[seq].1.clone()]
    }
}

impl Prepared {
    /// Room for rows of `cols`, and for two quantizations of rows of `precise`.
    fn new(rows: usize, cols: usize, precise: usize) -> Result<Prepared, Error> {
        Ok(Prepared {
            f: memory("activations", &[rows, cols])?,
            groups: memory("activations", &[rows, cols.max(2 * precise).div_ceil(GROUP)])?,
        })
    }
}

impl Runner {
    /// Sets up all memory that steps will need.
    pub fn new(
        kernels: Kernels,
        pool: Pool,
        plan: &Plan,
        stages: Stages,
        kv: &KvShape,
    ) -> Result<Runner, Error> {
        let arena = Arena::new(plan);
        let rows = kv.max_rows;
        let threads = pool.threads();
        let widest = plan.values.iter().map(|v| v.width).max().unwrap_or(0);
        let head = plan.kv.iter().map(|l| l.head_dim.max(l.value_dim)).max().unwrap_or(0);
        let heads = plan.ops.iter().map(|op| match op {
            Op::Attend { attention, .. } => attention.heads,
            _ => 0,
        });
        let heads = heads.max().unwrap_or(0);
        let widest_input = |precise: bool| {
            let inputs = stages.stages.iter().filter_map(|s| match s {
                Stage::Linear(l) if l.precise || !precise => Some(plan.values[l.x.index()].width),
                Stage::Experts(e) if !precise => Some(plan.values[e.x.index()].width),
                Stage::HeadLinear(h) if !precise => Some(h.heads * h.cols),
                _ => None,
            });
            inputs.max().unwrap_or(0)
        };
        let width = |v: Val| plan.values[v.index()].width;
        let (cols, precise) = (widest_input(false), widest_input(true));
        let mut cache = Vec::new();
        for layer in &plan.kv {
            let alike = |other: &&(Kv, LayerCache)| !layer.kept && other.0 == *layer;
            let made = match cache.iter().find(alike) {
                Some((_, other)) => other.shared(),
                None => LayerCache::new(layer, kv)?,
            };
            cache.push((*layer, made));
        }
        let states = plan.states.iter().map(|s| memory("recurrent states", &[kv.slots, s.len]));
        let keys = plan.ops.iter().map(|op| match op {
            Op::DeltaNet { delta, .. } => delta.shape.key_dim,
            _ => 0,
        });
        let key_dim = keys.max().unwrap_or(0);
        let block = plan.weights.iter().map(|w| w.ty.block_bytes()).max().unwrap_or(0);
        let mut locals = Vec::new();
        for _ in 0..threads {
            locals.push(Local {
                prepared: Prepared::new(1, cols, precise)?,
                tile: vec![0.0; ROW_BLOCK * PANEL],
                joined: vec![0.0; ROW_BLOCK * PANEL],
                block: Vec::with_capacity(block),
                scratch: Scratch::new(QUERIES, head),
                queries: vec![0.0; QUERIES * head],
                attended: vec![0.0; QUERIES * head],
                positions: Vec::with_capacity(QUERIES),
                sinks: Vec::with_capacity(QUERIES),
                slopes: Vec::with_capacity(QUERIES),
                heads: vec![0.0; widest + head],
                narrow: Narrow::new(head),
                moe: moe::Own::new(&stages, width, rows),
                rows: recurrent::Rows::new(key_dim),
            });
        }
        let mut turns = Vec::new();
        for r in &stages.ropes {
            let shape = [rows, r.frequencies.len()];
            turns.push((memory("rotations", &shape)?, memory("rotations", &shape)?));
        }
        let best = Best { logit: 0.0, token: 0, finite: true };
        let core = Core {
            all: memory("activations", &[rows, arena.all_columns])?,
            wanted: memory("logits", &[rows, arena.wanted_columns])?,
            prepared: Prepared::new(rows, cols, precise)?,
            pieces: Pieces::new(heads, head, kv.blocks * BLOCK)?,
            inner: moe::Inner::new(&stages, width, rows)?,
            locals: Shared::new(locals),
            turns,
            claims: stages.stages.iter().map(|_| AtomicUsize::new(0)).collect(),
            best: Shared::new(vec![best; threads * rows]),
            kernels,
            plan: plan.clone(),
            arena,
            kv_shape: *kv,
            stages,
            cache: cache.into_iter().map(|(_, made)| made).collect(),
            states: states.collect::<Result<_, _>>()?,
            step: Step::new(kv),
        };
        Ok(Runner { pool, slots: Slots::new(plan, kv), core })
    }

    /// Finds the op whose output was the first that is not finite, by running the step again and looking.
    fn blame(&mut self, row: usize) -> Error {
        for i in 0..self.core.stages.stages.len() {
            let core = &self.core;
            core.claims[i].store(0, Ordering::Relaxed);
            if let Err(why) = self.pool.run(&|team| core.run_stage(i, team)) {
                return Error::Failed { backend: NAME, why };
            }
            let op = &core.plan.ops[i];
            for v in op.writes() {
                let n = core.rows_of(v);
                // SAFETY: no thread runs now.
                let values = unsafe { core.read(v, 0..n) };
                if values.iter().any(|x| !x.is_finite()) {
                    return Error::NotFinite { row, op: i, name: op.name() };
                }
            }
        }
        let last = self.core.plan.ops.len().saturating_sub(1);
        Error::NotFinite { row, op: last, name: self.core.plan.ops.get(last).map_or("", Op::name) }
    }
}

impl Loaded for Runner {
    fn step(&mut self, rows: &Rows<'_>, sample: &[SampleRow], out: &mut StepOutput) -> Result<(), Error> {
        check_step(&self.core.plan, &self.core.kv_shape, rows, sample)?;
        self.slots.begin(rows)?;
        self.core.step.set(rows, sample);
        for claim in &self.core.claims {
            claim.store(0, Ordering::Relaxed);
        }
        let core = &self.core;
        let ran = self.pool.run(&|team| {
            core.turn_table(team);
            for i in 0..core.stages.stages.len() {
                core.run_stage(i, team);
                team.barrier();
            }
            core.find_best(team);
        });
        ran.map_err(|why| Error::Failed { backend: NAME, why })?;
        out.tokens.clear();
        out.logits.clear();
        let threads = self.pool.threads();
        for (i, s) in sample.iter().enumerate() {
            // SAFETY: no thread runs now.
            let shares = unsafe { core.best.read(i * threads..(i + 1) * threads) };
            let mut best = shares[0];
            for share in &shares[1..] {
                best.finite &= share.finite;
                if share.logit > best.logit {
                    (best.logit, best.token) = (share.logit, share.token);
                }
            }
            if !best.finite {
                return Err(self.blame(s.row));
            }
            out.tokens.push(best.token);
            if s.logits {
                // SAFETY: no thread runs now.
                let logits = unsafe { core.read(core.plan.logits, i..i + 1) };
                out.logits.extend_from_slice(logits);
            }
        }
        self.slots.end(rows);
        Ok(())
    }

    fn copy_blocks(&mut self, pairs: &[(BlockId, BlockId)]) -> Result<(), Error> {
        check_copy(&self.core.kv_shape, pairs)?;
        for &(from, to) in pairs {
            if from == to {
                continue;
            }
            for layer in &self.core.cache {
                // SAFETY: no thread runs now, and the two blocks are different.
                unsafe { layer.copy_block(from.0 as usize, to.0 as usize) };
            }
        }
        Ok(())
    }

    fn copy_slots(&mut self, pairs: &[(SlotId, SlotId)]) -> Result<(), Error> {
        self.slots.copy(pairs)?;
        for (from, to) in pairs.iter().filter(|(from, to)| from != to) {
            for (state, spec) in self.core.states.iter().zip(&self.core.plan.states) {
                let place = |slot: &SlotId| slot.0 as usize * spec.len..(slot.0 as usize + 1) * spec.len;
                // SAFETY: no thread runs now, and the two slots are different.
                unsafe { state.write(place(to)).copy_from_slice(state.read(place(from))) };
            }
        }
        Ok(())
    }

    fn image(&self) -> Option<Image> {
        let numbers: usize = self.core.plan.states.iter().map(|state| state.len).sum();
        Some(Image {
            block_bytes: self.core.cache.iter().map(LayerCache::block_bytes).sum(),
            slot_bytes: numbers * size_of::<f32>(),
        })
    }

    fn read_block(&mut self, block: BlockId, out: &mut Vec<u8>) -> Result<(), Error> {
        check_copy(&self.core.kv_shape, &[(block, block)])?;
        for layer in &self.core.cache {
            // SAFETY: no thread runs now.
            unsafe { layer.read_block(block.0 as usize, out) };
        }
        Ok(())
    }

    fn write_block(&mut self, block: BlockId, bytes: &[u8]) -> Result<(), Error> {
        let image = self.core.cache.iter().map(LayerCache::block_bytes).sum();
        check_image(&self.core.kv_shape, block, bytes.len(), image)?;
        let mut rest = bytes;
        for layer in &self.core.cache {
            let (own, others) = rest.split_at(layer.block_bytes());
            // SAFETY: no thread runs now.
            unsafe { layer.write_block(block.0 as usize, own) };
            rest = others;
        }
        Ok(())
    }

    fn read_slot(&mut self, slot: SlotId, out: &mut Vec<u8>) -> Result<(), Error> {
        self.slots.copy(&[(slot, slot)])?;
        for (state, spec) in self.core.states.iter().zip(&self.core.plan.states) {
            let place = slot.0 as usize * spec.len..(slot.0 as usize + 1) * spec.len;
            // SAFETY: no thread runs now.
            out.extend_from_slice(bytemuck::cast_slice(unsafe { state.read(place) }));
        }
        Ok(())
    }

    fn write_slot(&mut self, slot: SlotId, seen: usize, bytes: &[u8]) -> Result<(), Error> {
        let image = self.image().map_or(0, |image| image.slot_bytes);
        check_image(&self.core.kv_shape, BlockId(0), bytes.len(), image)?;
        self.slots.restore(slot, seen)?;
        let mut rest = bytes;
        for (state, spec) in self.core.states.iter().zip(&self.core.plan.states) {
            let (own, others) = rest.split_at(spec.len * size_of::<f32>());
            let place = slot.0 as usize * spec.len..(slot.0 as usize + 1) * spec.len;
            // SAFETY: no thread runs now.
            bytemuck::cast_slice_mut::<f32, u8>(unsafe { state.write(place) }).copy_from_slice(own);
            rest = others;
        }
        Ok(())
    }
}

// In the methods below, slices of shared buffers follow one rule: a stage reads values that earlier stages
// wrote, and writes its outputs by rows, panels or heads that no other thread has in this stage. The arena
// gives no two live values the same memory, but where an output takes the place of an input, element by element.
impl Core {
    fn width(&self, v: Val) -> usize {
        self.plan.values[v.index()].width
    }

    fn rows_of(&self, v: Val) -> usize {
        match self.plan.values[v.index()].rows {
            RowSet::All => self.step.tokens.len(),
            RowSet::Wanted => self.step.wanted.len(),
        }
    }

    fn place(&self, v: Val, rows: Range<usize>) -> (&Shared<f32>, Range<usize>) {
        let place = self.arena.places[v.index()];
        let (width, n) = (self.width(v), self.rows_of(v));
        let region = match place.rows {
            RowSet::All => &self.all,
            RowSet::Wanted => &self.wanted,
        };
        let start = place.offset * n;
        (region, start + rows.start * width..start + rows.end * width)
    }

    /// Rows of a value.
    ///
    /// # Safety
    /// No thread writes them while the slice lives.
    unsafe fn read(&self, v: Val, rows: Range<usize>) -> &[f32] {
        let (region, range) = self.place(v, rows);
        // SAFETY: the caller's promise.
        unsafe { region.read(range) }
    }

    /// Rows of a value, to write.
    ///
    /// # Safety
    /// No other thread reads or writes them while the slice lives.
    #[allow(clippy::mut_from_ref)] // see `Shared::write`
    unsafe fn write(&self, v: Val, rows: Range<usize>) -> &mut [f32] {
        let (region, range) = self.place(v, rows);
        // SAFETY: the caller's promise.
        unsafe { region.write(range) }
    }

    /// A row of `x` moved to a row of `out`, which may be the same memory, to be changed there.
    ///
    /// # Safety
    /// No other thread reads or writes row `r` of `out`, and none writes row `r` of `x`.
    #[allow(clippy::mut_from_ref)] // see `Shared::write`
    unsafe fn moved(&self, out: Val, x: Val, r: usize) -> &mut [f32] {
        let (from, to) = (self.arena.places[x.index()], self.arena.places[out.index()]);
        if from != to {
            // SAFETY: the caller's promise; different places do not overlap while both values live.
            unsafe { self.write(out, r..r + 1).copy_from_slice(self.read(x, r..r + 1)) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.write(out, r..r + 1) }
    }

    fn vector(&self, norm: &Norm) -> &[f32] {
        &self.stages.vectors[norm.weight.index()]
    }

    /// # Safety
    /// Called with the thread's own number, and no other reference to its buffers lives.
    #[allow(clippy::mut_from_ref)] // each thread has its own
    unsafe fn local(&self, thread: usize) -> &mut Local {
        // SAFETY: the caller's promise.
        let own = unsafe { self.locals.write(thread..thread + 1) };
        &mut own[0]
    }

    /// The cosines and sines of every rotation at every row's position.
    fn turn_table(&self, team: &Team<'_>) {
        for (rope, (cos, sin)) in self.stages.ropes.iter().zip(&self.turns) {
            let pairs = rope.frequencies.len();
            for r in team.share(self.step.positions.len()) {
                // SAFETY: rows are shared out.
                let (cos, sin) =
                    unsafe { (cos.write(r * pairs..(r + 1) * pairs), sin.write(r * pairs..(r + 1) * pairs)) };
                let position = self.step.positions[r] as f64;
                for ((f, c), s) in rope.frequencies.iter().zip(cos).zip(sin) {
                    // libm's bits, unlike the system's, are the same everywhere.
                    let (sine, cosine) = libm::sincos(position * f);
                    // Times 1 changes no bit.
                    (*c, *s) = ((cosine * rope.magnitude) as f32, (sine * rope.magnitude) as f32);
                }
            }
        }
    }

    fn run_stage(&self, i: usize, team: &Team<'_>) {
        // SAFETY: the thread's own number; the reference does not outlive the stage.
        let local = unsafe { self.local(team.thread) };
        match &self.stages.stages[i] {
            Stage::Linear(linear) => self.linear(linear, &self.claims[i], team, local),
            Stage::HeadLinear(heads) => self.head_linear(heads, &self.claims[i], local),
            Stage::Attend { out, q, layer, attention } => {
                let op = AttendOp { out: *out, q: *q, layer: *layer, attention };
                self.attend(&op, &self.claims[i], team, local);
            }
            Stage::Experts(experts) => self.experts(experts, &self.claims[i], team, local),
            Stage::Recurrent(stage) => self.recurrent(stage, team, local),
            by_row => {
                let n = match by_row {
                    Stage::Norm { out, .. }
                    | Stage::LayerNorm { out, .. }
                    | Stage::Act { out, .. }
                    | Stage::Bias { out, .. }
                    | Stage::Glu { out, .. }
                    | Stage::Add { out, .. }
                    | Stage::Scale { out, .. }
                    | Stage::Softcap { out, .. }
                    | Stage::Streams(
                        Streams::ScaleColumns { out, .. }
                        | Streams::UnitNorm { out, .. }
                        | Streams::MatchSize { out, .. }
                        | Streams::Blend { out, .. }
                        | Streams::Sparsify { out, .. },
                    )
                    | Stage::Mul { out, .. }
                    | Stage::Take { out, .. }
                    | Stage::GroupNorm { out, .. }
                    | Stage::AddNorm { out, .. }
                    | Stage::GateRows { out, .. }
                    | Stage::SelectRows { out, .. }
                    | Stage::Pool { out, .. } => self.rows_of(*out),
                    Stage::Route(route) => self.rows_of(route.scores),
                    _ => self.step.tokens.len(),
                };
                for r in team.share(n) {
                    self.row(by_row, r, local);
                }
            }
        }
    }

    /// A stage that works row by row, on one row.
    fn row(&self, stage: &Stage, r: usize, local: &mut Local) {
        let row = r..r + 1;
        // SAFETY (for the whole match): row `r` of every output is this thread's alone in this stage, and inputs
        // were written by earlier stages; an output in the place of an input is read before it is written.
        match stage {
            Stage::Embed { out, table } => {
                let token = self.step.tokens[r] as usize;
                // SAFETY: as above.
                let out = unsafe { self.write(*out, row) };
                self.stages.matrix(*table).decode_row(token, &mut local.block, out);
            }
            Stage::EmbedPosition { out, table } => {
                let position = self.step.positions[r];
                // SAFETY: as above.
                let out = unsafe { self.write(*out, row) };
                self.stages.matrix(*table).decode_row(position, &mut local.block, out);
            }
            Stage::LayerNorm { out, x, group, norm, bias } => {
                // SAFETY: as above; the copy keeps input and output apart.
                let x = unsafe { self.read(*x, row.clone()) };
                let copy = &mut local.heads[..x.len()];
                copy.copy_from_slice(x);
                // SAFETY: as above.
                let out = unsafe { self.write(*out, row) };
                let bias = bias.map_or(&[][..], |b| &self.stages.vectors[b.index()]);
                for (i, (x, out)) in copy.chunks_exact(*group).zip(out.chunks_exact_mut(*group)).enumerate() {
                    let of =
                        |v: &'_ [f32]| if v.len() > *group { i * group..(i + 1) * group } else { 0..v.len() };
                    let weight = self.vector(norm);
                    (self.kernels.layer_norm)(x, &weight[of(weight)], &bias[of(bias)], norm.eps, out);
                }
            }
            Stage::Norm { out, x, norm } => {
                // SAFETY: as above; the copy keeps input and output apart.
                let x = unsafe { self.read(*x, row.clone()) };
                let copy = &mut local.heads[..x.len()];
                copy.copy_from_slice(x);
                // SAFETY: as above.
                let out = unsafe { self.write(*out, row) };
                (self.kernels.rms_norm)(copy, self.vector(norm), norm.eps, out);
            }
            Stage::Bias { out, x, b } => {
                // SAFETY: as above.
                let out = unsafe { self.moved(*out, *x, r) };
                for (o, b) in out.iter_mut().zip(&self.stages.vectors[b.index()]) {
                    *o += b;
                }
            }
            Stage::Rope { out, x, head, rope } => {
                // SAFETY: as above.
                let out = unsafe { self.moved(*out, *x, r) };
                self.turn(*rope, *head, r, out);
            }
            Stage::KvWrite { k, v, layer } => {
                // SAFETY: as above.
                let (k, v) = unsafe { (self.read(*k, row.clone()), self.read(*v, row)) };
                self.to_cache(*layer, r, k, v, &mut local.narrow);
            }
            Stage::Glu { out, gate, up, act } => {
                // SAFETY: as above; the copies keep inputs and output apart.
                let (gate, up) = unsafe { (self.read(*gate, row.clone()), self.read(*up, row.clone())) };
                let copy = &mut local.heads[..gate.len()];
                (self.kernels.glu)(*act, gate, up, copy);
                // SAFETY: as above.
                unsafe { self.write(*out, row) }.copy_from_slice(copy);
            }
            Stage::Act { out, x, act } => {
                // SAFETY: as above; the copy keeps input and output apart.
                let x = unsafe { self.read(*x, row.clone()) };
                let copy = &mut local.heads[..x.len()];
                copy.copy_from_slice(x);
                // SAFETY: as above.
                let out = unsafe { self.write(*out, row) };
                (self.kernels.act)(*act, copy, out);
            }
            Stage::Add { out, a, b } => self.add(*out, *a, *b, r, &mut local.heads),
            Stage::Scale { out, x, by } => {
                // SAFETY: as above.
                for o in unsafe { self.moved(*out, *x, r) } {
                    *o *= by;
                }
            }
            Stage::Softcap { out, x, cap } => {
                // SAFETY: as above; the copy keeps input and output apart.
                let x = unsafe { self.read(*x, row.clone()) };
                let copy = &mut local.heads[..x.len()];
                copy.copy_from_slice(x);
                // SAFETY: as above.
                let out = unsafe { self.write(*out, row) };
                (self.kernels.softcap)(*cap, copy, out);
            }
            Stage::Streams(stage) => self.streams(stage, r, &mut local.heads),
            Stage::Route(route) => self.route(route, r, &mut local.moe),
            Stage::GateRows { out, x, gate } => {
                let mut by = [0.0];
                // SAFETY: as above; the gate is read before `out` is written.
                (self.kernels.sigmoid)(unsafe { self.read(*gate, row) }, &mut by);
                // SAFETY: as above.
                for o in unsafe { self.moved(*out, *x, r) } {
                    *o *= by[0];
                }
            }
            Stage::Pool { out, x } => {
                let (rows, _) = self.step.seqs[self.step.seq_of[self.step.wanted[r]]].clone();
                // SAFETY: as above; the values are in different regions.
                let (out, x) = unsafe { (self.write(*out, row), self.read(*x, rows.clone())) };
                out.fill(0.0);
                for x in x.chunks_exact(out.len()) {
                    out.iter_mut().zip(x).for_each(|(o, x)| *o += x);
                }
                let by = 1.0 / rows.len() as f32;
                out.iter_mut().for_each(|o| *o *= by);
            }
            Stage::Mul { out, a, b } => {
                // SAFETY: as above; the copy keeps inputs and output apart.
                let (a, b) = unsafe { (self.read(*a, row.clone()), self.read(*b, row.clone())) };
                let copy = &mut local.heads[..a.len()];
                for ((c, a), b) in copy.iter_mut().zip(a).zip(b) {
                    *c = a * b;
                }
                // SAFETY: as above.
                unsafe { self.write(*out, row) }.copy_from_slice(copy);
            }
            Stage::Take { out, x, first, len, every } => {
                // SAFETY: as above; the output has a place of its own.
                let (out, x) = unsafe { (self.write(*out, row.clone()), self.read(*x, row)) };
                for (out, x) in out.chunks_exact_mut(*len).zip(x.chunks_exact(*every)) {
                    out.copy_from_slice(&x[*first..first + len]);
                }
            }
            Stage::GroupNorm { out, x, norm, group } => {
                // SAFETY: as above; the copy keeps input and output apart.
                let x = unsafe { self.read(*x, row.clone()) };
                let copy = &mut local.heads[..x.len()];
                copy.copy_from_slice(x);
                // SAFETY: as above.
                let out = unsafe { self.write(*out, row) };
                let groups = copy.chunks_exact(*group).zip(self.vector(norm).chunks_exact(*group));
                for ((x, weight), out) in groups.zip(out.chunks_exact_mut(*group)) {
                    (self.kernels.rms_norm)(x, weight, norm.eps, out);
                }
            }
            Stage::SelectRows { out, x } => {
                let from = self.step.wanted[r];
                // SAFETY: as above; the values are in different regions.
                unsafe { self.write(*out, row).copy_from_slice(self.read(*x, from..from + 1)) };
            }
            Stage::AddNorm { sum, out, a, b, norm } => {
                self.add(*sum, *a, *b, r, &mut local.heads);
                // SAFETY: as above; the sum, now in the copy too, may be read while `out` is written.
                let out = unsafe { self.write(*out, row) };
                let sum = &local.heads[..out.len()];
                (self.kernels.rms_norm)(sum, self.vector(norm), norm.eps, out);
            }
            Stage::HeadsToCache { q_out, q, k, v, head_dim, q_prep, k_prep, layer } => {
                // SAFETY: as above.
                let q = unsafe { self.moved(*q_out, *q, r) };
                self.prepare_heads(q_prep, *head_dim, r, q, &mut local.heads);
                // SAFETY: as above.
                let (k, v) = unsafe { (self.read(*k, row.clone()), self.read(*v, row)) };
                let (heads, rest) = local.heads.split_at_mut(k.len());
                heads.copy_from_slice(k);
                self.prepare_heads(k_prep, *head_dim, r, heads, rest);
                self.to_cache(*layer, r, heads, v, &mut local.narrow);
            }
            Stage::Linear(_)
            | Stage::HeadLinear(_)
            | Stage::Attend { .. }
            | Stage::Experts(_)
            | Stage::Recurrent(_) => {
                unreachable!("not row by row")
            }
        }
    }

    /// Row `r` of `a + b`, to `out` and to `copy`.
    fn add(&self, out: Val, a: Val, b: Val, r: usize, copy: &mut [f32]) {
        // SAFETY: row `r` is this thread's in this stage; the copy keeps inputs and output apart.
        let (a, b) = unsafe { (self.read(a, r..r + 1), self.read(b, r..r + 1)) };
        let copy = &mut copy[..a.len()];
        for ((c, a), b) in copy.iter_mut().zip(a).zip(b) {
            *c = a + b;
        }
        // SAFETY: as above.
        unsafe { self.write(out, r..r + 1) }.copy_from_slice(copy);
    }

    /// Norm and rotation of each head of a row, in place.
    fn prepare_heads(&self, prep: &Prep, head_dim: usize, r: usize, x: &mut [f32], copy: &mut [f32]) {
        if let Some(norm) = &prep.norm {
            for head in x.chunks_exact_mut(head_dim) {
                let copy = &mut copy[..head_dim];
                copy.copy_from_slice(head);
                (self.kernels.rms_norm)(copy, self.vector(norm), norm.eps, head);
            }
        }
        if let Some(rope) = prep.rope {
            self.turn(rope, (head_dim, 0), r, x);
        }
    }

    /// Turns heads of so many elements, from that element on.
    fn turn(&self, rope: usize, head: (usize, usize), r: usize, x: &mut [f32]) {
        let table = &self.stages.ropes[rope];
        let pairs = table.frequencies.len();
        let (cos, sin) = &self.turns[rope];
        let range = r * pairs..(r + 1) * pairs;
        // SAFETY: written before the first stage.
        let (cos, sin) = unsafe { (cos.read(range.clone()), sin.read(range)) };
        (self.kernels.rope)(table.style, head, cos, sin, x);
    }

    /// Stores a row's keys and values at its position.
    fn to_cache(&self, layer: KvLayer, r: usize, k: &[f32], v: &[f32], narrow: &mut Narrow) {
        let cache = &self.cache[layer.index()];
        let position = self.step.positions[r];
        let block = self.step.blocks_of(self.step.seq_of[r])[position / BLOCK].0 as usize;
        // SAFETY: this slot of the block belongs to this row alone.
        unsafe { cache.write(&self.kernels, k, v, block, position % BLOCK, narrow) };
    }

    /// The greatest logit of this thread's share of the vocabulary, for each wanted row.
    fn find_best(&self, team: &Team<'_>) {
        for i in 0..self.step.wanted.len() {
            // SAFETY: the last stage wrote them.
            let logits = unsafe { self.read(self.plan.logits, i..i + 1) };
            let share = team.share(logits.len());
            let best = best_of(&logits[share.clone()], share.start);
            // SAFETY: the thread's own element.
            unsafe { self.best.put(i * team.threads + team.thread, best) };
        }
    }
}

fn best_of(logits: &[f32], first: usize) -> Best {
    let mut max = f32::NEG_INFINITY;
    let mut finite = true;
    for part in logits.chunks(64) {
        let mut top = f32::NEG_INFINITY;
        for v in part {
            top = if *v > top { *v } else { top };
            finite &= v.is_finite();
        }
        max = if top > max { top } else { max };
    }
    let at = logits.iter().position(|v| *v == max).unwrap_or(0);
    Best { logit: max, token: (first + at) as u32, finite }
}
