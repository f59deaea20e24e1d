//! The waist: a model as a list of typed ops.
//!
//! An architecture records a [`Plan`] once, at load ([`graph`]); [`fuse`] rewrites it for a backend;
//! [`arena`] decides where each value lives; a backend runs it. Nothing here knows a model, a file format or
//! a device.
#![forbid(unsafe_code)]

pub mod arena;
mod check;
mod error;
mod experts;
mod fuse;
pub mod graph;
mod op;
mod recurrent;
pub mod show;
#[cfg(test)]
mod testing;

pub use error::Error;
pub use experts::{ExpertMatrices, ExpertMatrix, GroupScore, Groups, LEAST_SUM, Routed, Routing, Scoring};
pub use fuse::fuse;
pub use graph::{Asked, ExpertNames, Graph, Layer, TensorShape, Tensors};
pub use op::{
    Act, Attention, Fused, HeadPrep, KvLayer, LinearPart, Norm, Op, Rope, RopeStyle, StateLayer, Val, Wt,
    Yarn,
};
pub use recurrent::{Columns, DeltaNet, DeltaShape, ScanShape, SelectiveScan, ShortConv};

use cera_quant::Type;

/// Which rows a value has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RowSet {
    /// One row for each token of the step.
    All,
    /// One row for each row whose logits are wanted.
    Wanted,
}

/// What a plan says of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value {
    /// Which rows it has.
    pub rows: RowSet,
    /// Elements in a row.
    pub width: usize,
}

/// What a plan says of a weight: a range of rows of a tensor of the checkpoint.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Weight {
    /// The tensor's name in the checkpoint.
    pub name: String,
    /// How its numbers are stored.
    pub ty: Type,
    /// The first row of the tensor that belongs to this weight; not 0 where a file stores matrices joined.
    pub first_row: usize,
    /// Rows (outputs) of this weight; 1 for a vector.
    pub rows: usize,
    /// Columns (inputs), the dimension that varies fastest.
    pub cols: usize,
}

impl Weight {
    /// Bytes of the weight as stored. The graph checked that a row is whole blocks and that nothing overflows.
    pub fn bytes(&self) -> usize {
        self.ty.row_bytes(self.cols).map_or(0, |b| b * self.rows)
    }
}

/// What a plan says of a layer of the key-value cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kv {
    /// Heads stored a position.
    pub heads: usize,
    /// Elements of one head of keys.
    pub head_dim: usize,
    /// Elements of one head of values.
    pub value_dim: usize,
    /// The values are the first elements of the keys, and are not stored beside them (DeepSeek's latent attention).
    pub latent: bool,
    /// Positions that the layer's attention looks back, its own included.
    pub window: Option<usize>,
    /// Whether positions stay for later steps. Else the layer holds those of the step alone, and layers of that kind may
    /// share their memory: each is read before the next is written.
    pub kept: bool,
}

/// What a plan says of a recurrent state: numbers in f32 that a sequence takes along from step to step, of fixed size
/// however long it gets. A sequence begins with zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecurrentState {
    /// Numbers of one sequence.
    pub len: usize,
}

impl Kv {
    /// Numbers that are stored a position.
    pub fn numbers(&self) -> usize {
        self.heads * (self.head_dim + if self.latent { 0 } else { self.value_dim })
    }
}

/// A model as data: ops in order over numbered values.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The ops, in an order that may be run as it stands.
    pub ops: Vec<Op>,
    /// Every value, by [`Val`].
    pub values: Vec<Value>,
    /// Every weight, by [`Wt`].
    pub weights: Vec<Weight>,
    /// Every layer of the cache, by [`KvLayer`].
    pub kv: Vec<Kv>,
    /// Every recurrent state, by [`StateLayer`].
    pub states: Vec<RecurrentState>,
    /// The logits: `[wanted, vocabulary]`; in the plan of an embedding the rows of that.
    pub logits: Val,
}

impl Plan {
    /// Rows of the embedding table, of the smallest where there are several: what a token id may index.
    pub fn vocabulary(&self) -> usize {
        let tables = self.ops.iter().filter_map(|op| match op {
            Op::Embed { table, .. } => Some(self.weights[table.index()].rows),
            _ => None,
        });
        tables.min().unwrap_or(0)
    }

    /// The most positions that a sequence can have, where tables of positions end.
    pub fn positions(&self) -> Option<usize> {
        let tables = self.ops.iter().filter_map(|op| match op {
            Op::EmbedPosition { table, .. } => Some(self.weights[table.index()].rows),
            _ => None,
        });
        tables.min()
    }

    /// Whether a step must hold the whole of each of its sequences: their rows see later ones, or are pooled.
    pub fn whole(&self) -> bool {
        self.kv.iter().any(|kv| !kv.kept) || self.ops.iter().any(|op| matches!(op, Op::Pool { .. }))
    }
}
