//! From a plan and its weights to what a device runs.

use std::collections::HashMap;

use cera_backend::{Backend, Error, KvShape, KvType, Loaded, Weights};
use cera_plan::arena::Arena;
use cera_plan::{Fused, Op, Plan, Val, Wt};

use crate::ops::MatrixPlace;
use crate::pack::{Layout, pack};
use crate::run::{KvPlaces, Runner};
use crate::{Buffer, Device, Place, step};

/// What makes a device.
type Open = dyn FnMut() -> Result<Box<dyn Device>, crate::Error> + Send;

/// Any GPU as a backend. Each model that is loaded has a device of its own, which ends with it.
pub struct Gpu {
    name: &'static str,
    open: Box<Open>,
}

impl Gpu {
    /// A backend of this name whose devices `open` makes.
    pub fn new(
        name: &'static str,
        open: impl FnMut() -> Result<Box<dyn Device>, crate::Error> + Send + 'static,
    ) -> Gpu {
        Gpu { name, open: Box::new(open) }
    }
}

impl Backend for Gpu {
    fn name(&self) -> &'static str {
        self.name
    }

    fn takes(&self, op: &Fused) -> bool {
        match op {
            Fused::AddRmsNorm { .. } | Fused::LinearAdd { .. } => true,
            Fused::NormLinear { .. } | Fused::NormGlu { .. } | Fused::HeadNormRopeKvWrite { .. } => false,
        }
    }

    fn load(&mut self, weights: &dyn Weights, plan: &Plan, kv: &KvShape) -> Result<Box<dyn Loaded>, Error> {
        plan.check().map_err(|e| Error::Unsupported { backend: self.name, why: e.to_string() })?;
        let device = (self.open)()?;
        let loader = Loader { name: self.name, device, weights, plan, kv };
        Ok(Box::new(loader.load()?))
    }
}

struct Loader<'a> {
    name: &'static str,
    device: Box<dyn Device>,
    weights: &'a dyn Weights,
    plan: &'a Plan,
    kv: &'a KvShape,
}

/// What ops read of a weight.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Matrix,
    Row,
}

impl Loader<'_> {
    fn unsupported(&self, why: String) -> Error {
        Error::Unsupported { backend: self.name, why }
    }

    fn load(mut self) -> Result<Runner, Error> {
        self.check()?;
        let mut matrices = HashMap::new();
        let mut rows = HashMap::new();
        for op in &self.plan.ops {
            for (w, used) in uses(op) {
                match used {
                    Use::Matrix if !matrices.contains_key(&w) => {
                        matrices.insert(w, self.matrix(w)?);
                    }
                    Use::Row if !rows.contains_key(&w) => {
                        let numbers = self.numbers(w)?;
                        rows.insert(w, self.upload(&numbers, "a row of weights")?);
                    }
                    _ => {}
                }
            }
        }
        let turnings = step::ropes(self.plan, |rope| rope.factors.map(|w| self.numbers(w)).transpose())?;
        let slopes = self.slopes()?;
        (0..self.plan.weights.len()).for_each(|w| self.weights.release(Wt(w as u32)));
        let caches = self.caches()?;
        let arena = Arena::new(self.plan);
        let all = self.room(arena.all_columns, self.kv.max_rows, "values of a step")?;
        Ok(Runner::new(self.device, self.plan, *self.kv, arena, all)
            .with(matrices, rows, turnings, slopes, caches))
    }

    /// Refuses what has no kernel, by name.
    fn check(&self) -> Result<(), Error> {
        for op in &self.plan.ops {
            if !runs(op) {
                return Err(self.unsupported(format!("the op {} has no kernel for GPUs yet", op.name())));
            }
            if let Op::Attend { attention: a, .. } = op
                && a.head_dim > 512
            {
                return Err(self.unsupported(format!("heads of {}: at most 512 work", a.head_dim)));
            }
        }
        if let Some(kv) = self.plan.kv.iter().find(|kv| kv.latent) {
            return Err(self.unsupported(format!(
                "values that are part of their keys (heads of {}) have no kernel for GPUs yet",
                kv.head_dim
            )));
        }
        for (ty, what) in [(self.kv.ty.keys, "keys"), (self.kv.ty.values, "values")] {
            if !matches!(ty, KvType::F16 | KvType::F32) {
                return Err(
                    self.unsupported(format!("{what} stored as {ty:?} have no kernel for GPUs yet; F16 has"))
                );
            }
        }
        if self.kv.ty.keys != self.kv.ty.values {
            return Err(self.unsupported("keys and values are stored alike on GPUs so far".into()));
        }
        Ok(())
    }

    fn bytes(&self, w: Wt) -> Result<std::borrow::Cow<'_, [u8]>, Error> {
        let weight = &self.plan.weights[w.index()];
        let bytes = self.weights.bytes(w)?;
        if bytes.len() != weight.bytes() {
            let (got, expected) = (bytes.len(), weight.bytes());
            return Err(Error::Weights(format!("tensor `{}`: {got} bytes, not {expected}", weight.name)));
        }
        Ok(bytes)
    }

    fn numbers(&self, w: Wt) -> Result<Vec<f32>, Error> {
        let weight = &self.plan.weights[w.index()];
        let mut numbers = vec![0.0; weight.rows * weight.cols];
        cera_quant::decode(weight.ty, &self.bytes(w)?, &mut numbers)
            .map_err(|e| Error::Weights(format!("tensor `{}`: {e}", weight.name)))?;
        Ok(numbers)
    }

    fn matrix(&mut self, w: Wt) -> Result<MatrixPlace, Error> {
        let weight = &self.plan.weights[w.index()];
        let Some(layout) = Layout::of(weight.ty) else {
            let ty = weight.ty.name();
            return Err(
                self.unsupported(format!("tensor `{}`: {ty} has no kernel for GPUs yet", weight.name))
            );
        };
        let number = |n: usize| {
            u32::try_from(n).map_err(|_| self.unsupported(format!("tensor `{}` is too large", weight.name)))
        };
        let (rows, columns) = (number(weight.rows)?, number(weight.cols)?);
        let planes = pack(layout, weight.cols, &self.bytes(w)?).planes;
        // A plane that the format lacks is never read, but kernels take a place.
        let mut places = Vec::with_capacity(3);
        for plane in &planes {
            let buffer = self.device.buffer(plane.len().max(16), "weights")?;
            self.device.write(buffer.at(0), plane)?;
            places.push(buffer.at(0));
        }
        self.weights.release(w);
        Ok(MatrixPlace { layout, rows, columns, planes: [places[0], places[1], places[2]] })
    }

    fn upload(&mut self, numbers: &[f32], what: &'static str) -> Result<(Place, u32), Error> {
        let buffer = self.device.buffer((4 * numbers.len()).max(16), what)?;
        self.device.write(buffer.at(0), bytemuck::cast_slice(numbers))?;
        Ok((buffer.at(0), numbers.len() as u32))
    }

    /// The slopes of each op that has some, by its index.
    fn slopes(&mut self) -> Result<HashMap<usize, Place>, Error> {
        let mut all = HashMap::new();
        for (i, op) in self.plan.ops.iter().enumerate() {
            if let Op::Attend { attention, .. } = op
                && attention.alibi.is_some()
            {
                let slopes: Vec<f32> = (0..attention.heads).map(|h| attention.slope(h)).collect();
                all.insert(i, self.upload(&slopes, "slopes")?.0);
            }
        }
        Ok(all)
    }

    fn room(&mut self, columns: usize, rows: usize, what: &'static str) -> Result<Buffer, Error> {
        let bytes = columns.checked_mul(rows).and_then(|n| n.checked_mul(4));
        let bytes = bytes.ok_or(Error::Memory { what, bytes: usize::MAX })?;
        Ok(self.device.buffer(bytes.max(16), what)?)
    }

    fn caches(&mut self) -> Result<Vec<KvPlaces>, Error> {
        let size = if self.kv.ty.keys == KvType::F32 { 4 } else { 2 };
        let what = "the cache of keys and values";
        let mut caches = Vec::new();
        for kv in &self.plan.kv {
            let block = |dim: usize| kv.heads * dim.next_multiple_of(8) * cera_backend::BLOCK * size;
            let blocks = [block(kv.head_dim), block(kv.value_dim)];
            let mut buffers = Vec::with_capacity(2);
            for block in blocks {
                let bytes = block.checked_mul(self.kv.blocks);
                let bytes = bytes.ok_or(Error::Memory { what, bytes: usize::MAX })?;
                buffers.push(self.device.buffer(bytes.max(16), what)?);
            }
            caches.push(KvPlaces { buffers: [buffers[0], buffers[1]], blocks });
        }
        Ok(caches)
    }
}

/// Whether an op has kernels.
fn runs(op: &Op) -> bool {
    match op {
        Op::Embed { .. }
        | Op::EmbedPosition { .. }
        | Op::RmsNorm { .. }
        | Op::HeadNorm { .. }
        | Op::LayerNorm { .. }
        | Op::Linear { .. }
        | Op::Bias { .. }
        | Op::Rope { .. }
        | Op::KvWrite { .. }
        | Op::Attend { .. }
        | Op::Glu { .. }
        | Op::Act { .. }
        | Op::Add { .. }
        | Op::Scale { .. }
        | Op::ScaleColumns { .. }
        | Op::UnitNorm { .. }
        | Op::Softcap { .. }
        | Op::Mul { .. }
        | Op::Take { .. }
        | Op::GroupNorm { .. }
        | Op::SelectRows { .. }
        | Op::Fused(Fused::AddRmsNorm { .. } | Fused::LinearAdd { .. }) => true,
        Op::HeadLinear { .. }
        | Op::MatchSize { .. }
        | Op::Blend { .. }
        | Op::Sparsify { .. }
        | Op::Route { .. }
        | Op::Experts { .. }
        | Op::GateRows { .. }
        | Op::ShortConv { .. }
        | Op::SelectiveScan { .. }
        | Op::DeltaNet { .. }
        | Op::Pool { .. }
        | Op::Fused(Fused::NormLinear { .. } | Fused::NormGlu { .. } | Fused::HeadNormRopeKvWrite { .. }) => {
            false
        }
    }
}

/// The weights of an op, and how it reads them. Divisors of ropes stay with the host.
fn uses(op: &Op) -> Vec<(Wt, Use)> {
    match op {
        Op::Embed { table: w, .. }
        | Op::EmbedPosition { table: w, .. }
        | Op::Linear { w, .. }
        | Op::Fused(Fused::LinearAdd { w, .. }) => vec![(*w, Use::Matrix)],
        Op::Rope { .. } => vec![],
        op => op.weights().into_iter().map(|w| (w, Use::Row)).collect(),
    }
}

/// The width of a value as kernels take it.
pub(crate) fn width(plan: &Plan, v: Val) -> u32 {
    plan.values[v.index()].width as u32
}
