//! Runs steps: an op of the plan after another, as launches in the order of the plan.

use std::collections::HashMap;

use cera_backend::{
    BlockId, Error, Image, KvShape, Loaded, Rows, SampleRow, SlotId, StepOutput, check_copy, check_image,
    check_step,
};
use cera_plan::arena::Arena;
use cera_plan::{Attention, Fused, KvLayer, Norm, Op, Plan, Rope, RopeStyle, RowSet, Val, Wt};

use crate::load::width;
use crate::ops::{
    self, After, Attend, Binary, GroupNorm, KvWrite, MatrixPlace, NormShape, Paged, RopeShape, Unary,
};
use crate::step::{Part, Parts, Turning, Words};
use crate::{Buffer, Device, Dispatch, Place, Recording};

/// Bytes that partial results of attention may take; longer steps do theirs in turns.
const PARTIAL: usize = 64 << 20;

/// Steps of up to so many rows are kept as recordings. Others are too long for their launches to show.
const RECORDED_ROWS: usize = 32;

/// What the kernels' choice of a row says where a number of it is not finite.
const NOT_FINITE: u32 = u32::MAX;

/// The memory of a layer of the cache.
pub(crate) struct KvPlaces {
    /// Keys and values.
    pub buffers: [Buffer; 2],
    /// Bytes of a block of either.
    pub blocks: [usize; 2],
}

/// Memory that grows when a step needs more.
struct Growing {
    buffer: Buffer,
    bytes: usize,
}

/// A plan on a device.
pub(crate) struct Runner {
    device: Box<dyn Device>,
    plan: Plan,
    kv: KvShape,
    arena: Arena,
    matrices: HashMap<Wt, MatrixPlace>,
    /// Rows of numbers, and how many.
    rows: HashMap<Wt, (Place, u32)>,
    turnings: Vec<Turning>,
    /// By the op's index.
    slopes: HashMap<usize, Place>,
    caches: Vec<KvPlaces>,
    /// Values with a row for each token.
    all: Buffer,
    /// Values with a row for each row that is wanted, the step's words, what attention leaves, and the choices.
    wanted: Option<Growing>,
    words: Option<Growing>,
    partial: Option<Growing>,
    choices: Option<Growing>,
    /// By rows, wanted rows and spans.
    recordings: HashMap<[usize; 3], Recording>,
}

/// A step as launches are made for it.
struct Shape {
    rows: u32,
    wanted: u32,
    spans: u32,
    words: Place,
    wanted_region: Place,
    partial: Place,
    partial_bytes: usize,
    choices: Place,
}

impl Runner {
    pub(crate) fn new(
        device: Box<dyn Device>,
        plan: &Plan,
        kv: KvShape,
        arena: Arena,
        all: Buffer,
    ) -> Runner {
        Runner {
            device,
            plan: plan.clone(),
            kv,
            arena,
            matrices: HashMap::new(),
            rows: HashMap::new(),
            turnings: Vec::new(),
            slopes: HashMap::new(),
            caches: Vec::new(),
            all,
            wanted: None,
            words: None,
            partial: None,
            choices: None,
            recordings: HashMap::new(),
        }
    }

    pub(crate) fn with(
        self,
        matrices: HashMap<Wt, MatrixPlace>,
        rows: HashMap<Wt, (Place, u32)>,
        turnings: Vec<Turning>,
        slopes: HashMap<usize, Place>,
        caches: Vec<KvPlaces>,
    ) -> Runner {
        Runner { matrices, rows, turnings, slopes, caches, ..self }
    }

    /// Makes room, and forgets what was recorded with other memory.
    fn grow(
        &mut self,
        of: fn(&mut Self) -> &mut Option<Growing>,
        what: &'static str,
        bytes: usize,
    ) -> Result<Place, Error> {
        if let Some(g) = of(self).as_ref()
            && g.bytes >= bytes
        {
            return Ok(g.buffer.at(0));
        }
        for (_, recording) in self.recordings.drain() {
            self.device.forget(recording)?;
        }
        if let Some(old) = of(self).take() {
            self.device.release(old.buffer)?;
        }
        let bytes = bytes.next_power_of_two().max(1 << 12);
        let buffer = self.device.buffer(bytes, what)?;
        *of(self) = Some(Growing { buffer, bytes });
        Ok(buffer.at(0))
    }

    fn shape(&mut self, words: &Words) -> Result<Shape, Error> {
        let heads = self.plan.ops.iter().filter_map(|op| match op {
            Op::Attend { attention, .. } => Some(ops::attend_partial(attention, words.spans as u32)),
            _ => None,
        });
        let row = heads.max().unwrap_or(0);
        let partial_bytes = row.saturating_mul(words.rows).min(PARTIAL.max(row));
        let wanted_bytes = self.arena.wanted_columns * words.wanted * 4;
        let place = self.grow(|r| &mut r.words, "a step's numbers", words.words.len() * 4)?;
        self.device.write(place, bytemuck::cast_slice(&words.words))?;
        Ok(Shape {
            rows: words.rows as u32,
            wanted: words.wanted as u32,
            spans: words.spans as u32,
            words: place,
            wanted_region: self.grow(|r| &mut r.wanted, "values of wanted rows", wanted_bytes)?,
            partial: self.grow(|r| &mut r.partial, "partial results of attention", partial_bytes)?,
            partial_bytes,
            choices: self.grow(|r| &mut r.choices, "chosen tokens", words.wanted * 4)?,
        })
    }

    fn launch(&mut self, words: &Words) -> Result<Shape, Error> {
        let shape = self.shape(words)?;
        let key = [words.rows, words.wanted, words.spans];
        if let Some(&recording) = self.recordings.get(&key) {
            self.device.replay(recording)?;
            return Ok(shape);
        }
        let list = self.launches(&shape)?;
        if words.rows <= RECORDED_ROWS {
            let recording = self.device.record(list)?;
            self.recordings.insert(key, recording);
            self.device.replay(recording)?;
        } else {
            self.device.run(&list)?;
        }
        Ok(shape)
    }

    fn launches(&mut self, shape: &Shape) -> Result<Vec<Dispatch>, Error> {
        let Runner { device, plan, arena, matrices, rows, turnings, slopes, caches, all, kv, .. } = self;
        let mut list = Vec::new();
        let mut builder = Builder {
            device: &mut **device,
            plan,
            arena,
            matrices,
            rows,
            turnings,
            slopes,
            caches,
            kv,
            all: all.at(0),
            shape,
            list: &mut list,
        };
        for (i, op) in plan.ops.iter().enumerate() {
            builder.op(i, op)?;
        }
        if shape.wanted > 0 {
            let logits = builder.value(plan.logits);
            let size = [shape.wanted, width(plan, plan.logits)];
            let launch = ops::argmax(builder.device, size, logits, shape.choices)?;
            builder.list.push(launch);
        }
        Ok(list)
    }

    fn not_finite(&self, row: usize) -> Error {
        let op = self.plan.ops.iter().rposition(|op| op.writes().contains(&self.plan.logits)).unwrap_or(0);
        let name = self.plan.ops.get(op).map_or("", Op::name);
        Error::NotFinite { row, op, name }
    }
}

impl Loaded for Runner {
    fn step(&mut self, rows: &Rows<'_>, sample: &[SampleRow], out: &mut StepOutput) -> Result<(), Error> {
        check_step(&self.plan, &self.kv, rows, sample)?;
        let shape = self.launch(&Words::new(rows, sample, &self.turnings))?;
        out.tokens.clear();
        out.tokens.resize(sample.len(), 0);
        out.logits.clear();
        if sample.is_empty() {
            return Ok(());
        }
        self.device.read(shape.choices, bytemuck::cast_slice_mut(&mut out.tokens))?;
        if let Some(at) = out.tokens.iter().position(|&t| t == NOT_FINITE) {
            return Err(self.not_finite(sample[at].row));
        }
        let width = self.plan.values[self.plan.logits.index()].width;
        let place = self.arena.places[self.plan.logits.index()];
        let base = match place.rows {
            RowSet::Wanted => shape.wanted_region.offset + place.offset * sample.len() * 4,
            RowSet::All => place.offset * rows.tokens.len() * 4,
        };
        let buffer = if place.rows == RowSet::Wanted { shape.wanted_region.buffer } else { self.all };
        // Rows that stand side by side are read together.
        let mut at = 0;
        while at < sample.len() {
            let asked = sample[at..].iter().take_while(|s| s.logits).count();
            let from = out.logits.len();
            out.logits.resize(from + asked * width, 0.0);
            if asked > 0 {
                let bytes = bytemuck::cast_slice_mut(&mut out.logits[from..]);
                self.device.read(buffer.at(base + at * width * 4), bytes)?;
            }
            at += asked + 1;
        }
        Ok(())
    }

    fn copy_blocks(&mut self, pairs: &[(BlockId, BlockId)]) -> Result<(), Error> {
        check_copy(&self.kv, pairs)?;
        let mut list = Vec::new();
        for (from, to) in pairs {
            for cache in &self.caches {
                for (buffer, bytes) in cache.buffers.iter().zip(cache.blocks) {
                    let [from, to] = [from, to].map(|b| buffer.at(b.0 as usize * bytes));
                    list.push(ops::copy(&mut *self.device, bytes, from, to)?);
                }
            }
        }
        Ok(self.device.run(&list)?)
    }

    fn copy_slots(&mut self, _pairs: &[(SlotId, SlotId)]) -> Result<(), Error> {
        // No op with a state is taken.
        Ok(())
    }

    fn image(&self) -> Option<Image> {
        let block_bytes = self.caches.iter().flat_map(|c| c.blocks).sum();
        Some(Image { block_bytes, slot_bytes: 0 })
    }

    fn read_block(&mut self, block: BlockId, out: &mut Vec<u8>) -> Result<(), Error> {
        check_copy(&self.kv, &[(block, block)])?;
        for cache in &self.caches {
            for (buffer, bytes) in cache.buffers.iter().zip(cache.blocks) {
                let from = out.len();
                out.resize(from + bytes, 0);
                self.device.read(buffer.at(block.0 as usize * bytes), &mut out[from..])?;
            }
        }
        Ok(())
    }

    fn write_block(&mut self, block: BlockId, bytes: &[u8]) -> Result<(), Error> {
        let image = self.image().map_or(0, |i| i.block_bytes);
        check_image(&self.kv, block, bytes.len(), image)?;
        let mut rest = bytes;
        for cache in &self.caches {
            for (buffer, bytes) in cache.buffers.iter().zip(cache.blocks) {
                let (part, behind) = rest.split_at(bytes);
                self.device.write(buffer.at(block.0 as usize * bytes), part)?;
                rest = behind;
            }
        }
        Ok(())
    }
}

/// Makes the launches of a step.
struct Builder<'a> {
    device: &'a mut dyn Device,
    plan: &'a Plan,
    arena: &'a Arena,
    matrices: &'a HashMap<Wt, MatrixPlace>,
    rows: &'a HashMap<Wt, (Place, u32)>,
    turnings: &'a [Turning],
    slopes: &'a HashMap<usize, Place>,
    caches: &'a [KvPlaces],
    kv: &'a KvShape,
    all: Place,
    shape: &'a Shape,
    list: &'a mut Vec<Dispatch>,
}

impl Builder<'_> {
    fn height(&self, v: Val) -> u32 {
        match self.plan.values[v.index()].rows {
            RowSet::All => self.shape.rows,
            RowSet::Wanted => self.shape.wanted,
        }
    }

    fn value(&self, v: Val) -> Place {
        let place = self.arena.places[v.index()];
        let (region, rows) = match place.rows {
            RowSet::All => (self.all, self.shape.rows),
            RowSet::Wanted => (self.shape.wanted_region, self.shape.wanted),
        };
        region.buffer.at(region.offset + place.offset * rows as usize * 4)
    }

    fn part(&self, part: Part) -> Place {
        let parts =
            Parts { rows: [self.shape.rows as usize, self.shape.wanted as usize], turnings: self.turnings };
        self.shape.words.buffer.at(self.shape.words.offset + 4 * parts.first(part))
    }

    fn missing(&self, w: Wt) -> Error {
        Error::Weights(format!("tensor `{}` was not loaded", self.plan.weights[w.index()].name))
    }

    fn row(&self, w: Wt) -> Result<(Place, u32), Error> {
        self.rows.get(&w).copied().ok_or_else(|| self.missing(w))
    }

    fn matrix(&self, w: Wt) -> Result<MatrixPlace, Error> {
        self.matrices.get(&w).copied().ok_or_else(|| self.missing(w))
    }

    fn elements(&self, v: Val) -> u32 {
        self.height(v) * width(self.plan, v)
    }

    fn op(&mut self, index: usize, op: &Op) -> Result<(), Error> {
        if op.writes().first().is_some_and(|&out| self.height(out) == 0) {
            return Ok(());
        }
        let launch = match *op {
            Op::Embed { out, table } => self.embed(out, table, Part::Tokens)?,
            Op::EmbedPosition { out, table } => self.embed(out, table, Part::Positions)?,
            Op::RmsNorm { out, x, norm } => self.rms_norm(out, x, width(self.plan, x) as usize, &norm)?,
            Op::HeadNorm { out, x, head_dim, norm } => self.rms_norm(out, x, head_dim, &norm)?,
            Op::LayerNorm { out, x, group, norm, bias } => {
                let bias = bias.map(|b| self.row(b)).transpose()?;
                let weight = Some(self.row(norm.weight)?);
                self.group_norm((out, x), group, true, norm.eps, (weight, bias.map(|b| b.0)))?
            }
            Op::GroupNorm { out, x, norm } => {
                let group = self.plan.weights[norm.weight.index()].cols;
                let weight = Some(self.row(norm.weight)?);
                self.group_norm((out, x), group, false, norm.eps, (weight, None))?
            }
            Op::UnitNorm { out, x, group, eps } => {
                self.group_norm((out, x), group, false, eps, (None, None))?
            }
            Op::Linear { out, x, w } => self.linear(out, x, w, After::Nothing)?,
            Op::Fused(Fused::LinearAdd { out, x, w, add }) => {
                let add = After::Rows(self.value(add));
                self.linear(out, x, w, add)?
            }
            Op::Fused(Fused::AddRmsNorm { sum, out, a, b, norm }) => {
                let shape = NormShape::dense(self.height(a), width(self.plan, a), norm.eps);
                let weight = self.row(norm.weight)?.0;
                let inputs = [self.value(b), self.value(a)];
                let (sum, out) = (self.value(sum), self.value(out));
                ops::add_rms_norm(self.device, &shape, inputs, weight, sum, out)?
            }
            Op::Bias { out, x, b } => {
                let b = self.row(b)?;
                self.columns(out, x, Binary::Add, b)?
            }
            Op::ScaleColumns { out, x, w } => {
                let w = self.row(w)?;
                self.columns(out, x, Binary::Mul, w)?
            }
            Op::Rope { out, x, head_dim, first, rope } => self.rope(out, x, [head_dim, first], &rope)?,
            Op::KvWrite { k, v, layer } => {
                let paged = self.paged(layer)?;
                let kv = self.plan.kv[layer.index()];
                let write = KvWrite { kv, rows: self.shape.rows, k: self.value(k), v: self.value(v) };
                ops::kv_write(self.device, &paged, &write)?
            }
            Op::Attend { out, q, layer, attention } => return self.attend(index, out, q, layer, attention),
            Op::Glu { out, gate, up, act } => self.binary(out, [gate, up], Binary::Glu(act))?,
            Op::Add { out, a, b } => self.binary(out, [a, b], Binary::Add)?,
            Op::Mul { out, a, b } => self.binary(out, [a, b], Binary::Mul)?,
            Op::Act { out, x, act } => self.unary(out, x, Unary::Act(act))?,
            Op::Scale { out, x, by } => self.unary(out, x, Unary::Scale(by))?,
            Op::Softcap { out, x, cap } => self.unary(out, x, Unary::Softcap(cap))?,
            Op::Take { out, x, first, len, every } => {
                let part = [first, len, every].map(|n| n as u32);
                let (count, x, out) = (self.elements(x), self.value(x), self.value(out));
                ops::take(self.device, count, part, x, out)?
            }
            Op::SelectRows { out, x } => {
                let size = [self.shape.wanted, width(self.plan, x)];
                let (x, wanted, out) = (self.value(x), self.part(Part::Wanted), self.value(out));
                ops::select_rows(self.device, size, x, wanted, out)?
            }
            ref op => {
                return Err(Error::Unsupported {
                    backend: self.device.kind(),
                    why: format!("the op {} has no kernel for GPUs yet", op.name()),
                });
            }
        };
        self.list.push(launch);
        Ok(())
    }

    fn embed(&mut self, out: Val, table: Wt, rows: Part) -> Result<Dispatch, Error> {
        let table = self.matrix(table)?;
        let (rows, out) = (self.part(rows), self.value(out));
        Ok(ops::embed(self.device, &table, self.shape.rows, rows, out)?)
    }

    fn rms_norm(&mut self, out: Val, x: Val, group: usize, norm: &Norm) -> Result<Dispatch, Error> {
        let rows = self.elements(x) / group as u32;
        let shape = NormShape::dense(rows, group as u32, norm.eps);
        let weight = self.row(norm.weight)?.0;
        let (x, out) = (self.value(x), self.value(out));
        Ok(ops::rms_norm(self.device, &shape, x, weight, out)?)
    }

    fn group_norm(
        &mut self,
        (out, x): (Val, Val),
        group: usize,
        centred: bool,
        eps: f32,
        (weight, bias): (Option<(Place, u32)>, Option<Place>),
    ) -> Result<Dispatch, Error> {
        let group = group as u32;
        let (rows, per_row) = (self.height(x), width(self.plan, x) / group);
        let shape = GroupNorm { rows, group, per_row, centred, eps };
        let (x, out) = (self.value(x), self.value(out));
        Ok(ops::group_norm(self.device, &shape, x, weight, bias, out)?)
    }

    fn linear(&mut self, out: Val, x: Val, w: Wt, after: After) -> Result<Dispatch, Error> {
        let w = self.matrix(w)?;
        let (n, x, out) = (self.height(x), self.value(x), self.value(out));
        Ok(ops::linear(self.device, &w, n, x, after, out)?)
    }

    fn columns(&mut self, out: Val, x: Val, op: Binary, w: (Place, u32)) -> Result<Dispatch, Error> {
        let size = [self.height(x), width(self.plan, x)];
        let (x, out) = (self.value(x), self.value(out));
        Ok(ops::columns(self.device, op, size, x, w, out)?)
    }

    fn unary(&mut self, out: Val, x: Val, op: Unary) -> Result<Dispatch, Error> {
        let (count, x, out) = (self.elements(x), self.value(x), self.value(out));
        Ok(ops::unary(self.device, op, count, x, out)?)
    }

    fn binary(&mut self, out: Val, inputs: [Val; 2], op: Binary) -> Result<Dispatch, Error> {
        let count = self.elements(out);
        let inputs = inputs.map(|v| self.value(v));
        let out = self.value(out);
        Ok(ops::binary(self.device, op, count, inputs, out)?)
    }

    fn rope(
        &mut self,
        out: Val,
        x: Val,
        [head_dim, first]: [usize; 2],
        rope: &Rope,
    ) -> Result<Dispatch, Error> {
        let turning = self.turnings.iter().position(|t| t.rope == *rope);
        let turning = turning.ok_or_else(|| Error::Step("a rope that was not loaded".into()))?;
        let shape = RopeShape {
            rows: self.height(x),
            heads: width(self.plan, x) / head_dim as u32,
            head_dim: head_dim as u32,
            first: first as u32,
            half_dims: (rope.dims / 2) as u32,
            halved: rope.style == RopeStyle::Halved,
        };
        let (x, turns, out) = (self.value(x), self.part(Part::Turns(turning)), self.value(out));
        Ok(ops::rope(self.device, &shape, x, turns, out)?)
    }

    fn paged(&self, layer: KvLayer) -> Result<Paged, Error> {
        let cache = self.caches.get(layer.index());
        let cache = cache.ok_or_else(|| Error::Step(format!("the cache has no layer {}", layer.index())))?;
        Ok(Paged {
            ty: self.kv.ty.keys,
            keys: cache.buffers[0].at(0),
            values: cache.buffers[1].at(0),
            positions: self.part(Part::Positions),
            lengths: self.part(Part::Lengths),
            starts: self.part(Part::Starts),
            table: self.part(Part::Table),
        })
    }

    fn attend(
        &mut self,
        index: usize,
        out: Val,
        q: Val,
        layer: KvLayer,
        attention: Attention,
    ) -> Result<(), Error> {
        let paged = self.paged(layer)?;
        let sinks = attention.sinks.map(|w| self.row(w)).transpose()?.map(|s| s.0);
        let slopes = self.slopes.get(&index).copied();
        let (q, out) = (self.value(q), self.value(out));
        let row = ops::attend_partial(&attention, self.shape.spans).max(1);
        let at_once = (self.shape.partial_bytes / row).max(1) as u32;
        let mut first_row = 0;
        while first_row < self.shape.rows {
            let rows = at_once.min(self.shape.rows - first_row);
            let launch = Attend {
                attention,
                first_row,
                rows,
                spans: self.shape.spans,
                q,
                slopes,
                sinks,
                partial: self.shape.partial,
                out,
            };
            self.list.extend(ops::attend(self.device, &paged, &launch)?);
            first_row += rows;
        }
        Ok(())
    }
}
