//! The backend trait, the step's types, and the reference backend that defines every op.
//!
//! A backend loads a plan with its weights once, then runs steps. It names no architecture, and nothing in a
//! step depends on anything but the step's rows and the cache.
#![forbid(unsafe_code)]

mod error;
mod reference;
mod slots;

pub use error::Error;
pub use reference::{LoadedReference, Reference, Trace};
pub use slots::{SlotId, Slots};

use std::borrow::Cow;
use std::ops::Range;

use cera_plan::{Fused, Kv, Plan, Wt};

/// Positions in one block of the key-value cache.
pub const BLOCK: usize = 32;

/// A block of the key-value cache: [`BLOCK`] positions of one sequence, of every layer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BlockId(pub u32);

/// How the numbers of the key-value cache are stored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum KvType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    #[default]
    F16,
    /// Bytes, with a scale in half precision for each 32 numbers of a head: scale `max |x| / 127`, ties to even.
    Q8_0,
    /// Four bits, with a scale in half precision for each 32 numbers of a head: the number furthest from 0 is -8 times the
    /// scale. Heads are turned first by a Hadamard matrix, which spreads what is large over all elements; queries and
    /// results are turned likewise, so that only rounding shows (QuaRot, arXiv 2404.00456).
    Q4_0,
}

impl KvType {
    /// Bytes of so many numbers, whole heads, with their scales.
    pub fn bytes(self, numbers: usize) -> usize {
        match self {
            KvType::F32 => 4 * numbers,
            KvType::F16 => 2 * numbers,
            KvType::Q8_0 => numbers + 2 * (numbers / 32),
            KvType::Q4_0 => numbers / 2 + 2 * (numbers / 32),
        }
    }
}

/// How the keys and the values of the cache are stored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KvTypes {
    /// Keys, and values that are part of their keys.
    pub keys: KvType,
    /// Values.
    pub values: KvType,
}

impl KvTypes {
    /// Bytes of a position of a layer.
    pub fn bytes(self, layer: &Kv) -> usize {
        let values = if layer.latent { 0 } else { self.values.bytes(layer.heads * layer.value_dim) };
        self.keys.bytes(layer.heads * layer.head_dim) + values
    }
}

impl From<KvType> for KvTypes {
    /// Both alike.
    fn from(ty: KvType) -> Self {
        KvTypes { keys: ty, values: ty }
    }
}

/// The size of the key-value cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KvShape {
    /// How its numbers are stored. The reference keeps all it is given, whatever this says.
    pub ty: KvTypes,
    /// Blocks in the pool; ids run from 0.
    pub blocks: usize,
    /// The most rows that one step may have.
    pub max_rows: usize,
    /// Slots of recurrent state; ids run from 0. A plan without states needs none.
    pub slots: usize,
}

/// Where the bytes of a plan's weights are while a backend loads.
pub trait Weights: Sync {
    /// The bytes of a weight: `weight.rows` rows of whole blocks, borrowed where they are stored like this, made for the
    /// call where not. An error says that the file changed since it was opened, or why they cannot be made.
    fn bytes(&self, w: Wt) -> Result<Cow<'_, [u8]>, Error>;
    /// The backend holds its own copy now; the source may let go of the pages.
    fn release(&self, _w: Wt) {}
}

/// The rows of one step: tokens of one or more sequences, side by side.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The token of each row.
    pub tokens: &'a [u32],
    /// The sequences, in the order of their rows; together they cover all rows.
    pub seqs: &'a [SeqRows<'a>],
}

/// One sequence's rows in a step.
#[derive(Clone, Debug)]
pub struct SeqRows<'a> {
    /// Its rows in the step.
    pub rows: Range<usize>,
    /// The position of the first of them in the sequence; the others follow it.
    pub first_pos: usize,
    /// The sequence's blocks: position `p` lives in `blocks[p / BLOCK]`. Covers every row's position.
    pub blocks: &'a [BlockId],
    /// Where the sequence's recurrent states are: those behind position `first_pos - 1`, or anything where `first_pos`
    /// is 0. The step leaves those behind its last row there. A plan without states looks at none.
    pub slot: Option<SlotId>,
}

/// A row whose next token is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SampleRow {
    /// The row of the step.
    pub row: usize,
    /// Whether its logits are wanted too; the most likely token always is.
    pub logits: bool,
}

/// What a step gives back, reused from step to step.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct StepOutput {
    /// For each row asked for: the token of the greatest logit, the lowest id among equals.
    pub tokens: Vec<u32>,
    /// For each row that asked for logits, in order: `vocabulary` of them.
    pub logits: Vec<f32>,
}

/// A way to run plans.
pub trait Backend: Send {
    /// A short name, as `--device` takes it.
    fn name(&self) -> &'static str;
    /// Whether the backend runs this fused op; [`cera_plan::fuse`] asks.
    fn takes(&self, op: &Fused) -> bool;
    /// Takes a plan's weights into the backend's own form and sets up the cache.
    fn load(&mut self, weights: &dyn Weights, plan: &Plan, kv: &KvShape) -> Result<Box<dyn Loaded>, Error>;
}

/// A plan that is ready to run.
pub trait Loaded: Send {
    /// Runs one step: stores the rows' keys and values in the cache, and fills `out` for the rows of `sample`.
    fn step(&mut self, rows: &Rows<'_>, sample: &[SampleRow], out: &mut StepOutput) -> Result<(), Error>;
    /// Copies blocks of the cache, in order: `(from, to)`.
    fn copy_blocks(&mut self, pairs: &[(BlockId, BlockId)]) -> Result<(), Error>;
    /// Copies slots of recurrent state, in order: `(from, to)`.
    fn copy_slots(&mut self, pairs: &[(SlotId, SlotId)]) -> Result<(), Error>;
    /// What blocks and slots are outside of the backend; `None` where it does not give them out.
    fn image(&self) -> Option<Image> {
        None
    }
    /// Appends a block's bytes to `out`, [`Image::block_bytes`] of them. The same backend, loaded with the same plan and the
    /// same [`KvType`], takes them again, also in another process.
    fn read_block(&mut self, _block: BlockId, _out: &mut Vec<u8>) -> Result<(), Error> {
        Err(Error::Step("the backend does not give blocks out".into()))
    }
    /// Makes a block what [`read_block`](Self::read_block) read.
    fn write_block(&mut self, _block: BlockId, _bytes: &[u8]) -> Result<(), Error> {
        Err(Error::Step("the backend takes no blocks in".into()))
    }
    /// Appends the bytes of a slot's recurrent states to `out`, [`Image::slot_bytes`] of them.
    fn read_slot(&mut self, _slot: SlotId, _out: &mut Vec<u8>) -> Result<(), Error> {
        Err(Error::Step("the backend does not give slots out".into()))
    }
    /// Makes a slot what [`read_slot`](Self::read_slot) read when its states had seen so many positions.
    fn write_slot(&mut self, _slot: SlotId, _seen: usize, _bytes: &[u8]) -> Result<(), Error> {
        Err(Error::Step("the backend takes no slots in".into()))
    }
}

/// The form that a backend gives its cache out in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Image {
    /// Bytes of a block, all layers together.
    pub block_bytes: usize,
    /// Bytes of a slot of recurrent state, all layers together.
    pub slot_bytes: usize,
}

/// Checks a block and its bytes against the cache. Backends that give blocks out call it first.
pub fn check_image(kv: &KvShape, block: BlockId, bytes: usize, image: usize) -> Result<(), Error> {
    check_copy(kv, &[(block, block)])?;
    if bytes == image {
        return Ok(());
    }
    Err(Error::Step(format!("{bytes} bytes, but a block or slot has {image}")))
}

/// Checks a step against the plan and the cache. Backends call it first, so that a step can fail only for the
/// device.
pub fn check_step(plan: &Plan, kv: &KvShape, rows: &Rows<'_>, sample: &[SampleRow]) -> Result<(), Error> {
    let n = rows.tokens.len();
    if n == 0 || n > kv.max_rows {
        return Err(Error::Step(format!("{n} rows, but a step takes 1 to {}", kv.max_rows)));
    }
    let vocabulary = plan.vocabulary();
    if let Some(t) = rows.tokens.iter().find(|&&t| t as usize >= vocabulary) {
        return Err(Error::Step(format!("token {t}, but the vocabulary has {vocabulary}")));
    }
    let mut next = 0;
    for s in rows.seqs {
        if s.rows.start != next || s.rows.end <= s.rows.start || s.rows.end > n {
            return Err(Error::Step(format!("a sequence has rows {:?}, but {next} is next of {n}", s.rows)));
        }
        next = s.rows.end;
        let positions = s.first_pos.saturating_add(s.rows.len());
        let room = s.blocks.len().saturating_mul(BLOCK);
        if let Some(most) = plan.positions().filter(|&most| positions > most) {
            return Err(Error::Step(format!("{positions} positions, but the model has {most}")));
        }
        if positions > room {
            return Err(Error::Step(format!("{positions} positions, but the blocks hold {room}")));
        }
        if let Some(b) = s.blocks.iter().find(|b| b.0 as usize >= kv.blocks) {
            return Err(Error::Step(format!("block {}, but the cache has {}", b.0, kv.blocks)));
        }
    }
    check_written(rows)?;
    if let Some(s) = rows.seqs.iter().find(|s| s.first_pos > 0).filter(|_| plan.whole()) {
        return Err(Error::Parted { position: s.first_pos });
    }
    if next != n {
        return Err(Error::Step(format!("{n} tokens, but the sequences have {next} rows")));
    }
    if sample.len() > n {
        return Err(Error::Step(format!("{} rows wanted of {n}", sample.len())));
    }
    match sample.iter().find(|s| s.row >= n) {
        Some(s) => Err(Error::Step(format!("row {} is wanted of {n}", s.row))),
        None => Ok(()),
    }
}

/// Checks the blocks of [`Loaded::copy_blocks`] against the cache. Backends call it first.
pub fn check_copy(kv: &KvShape, pairs: &[(BlockId, BlockId)]) -> Result<(), Error> {
    match pairs.iter().flat_map(|(from, to)| [from, to]).find(|b| b.0 as usize >= kv.blocks) {
        Some(b) => Err(Error::Step(format!("block {}, but the cache has {}", b.0, kv.blocks))),
        None => Ok(()),
    }
}

/// The blocks of a sequence that the step's rows are stored in.
fn written<'a>(s: &SeqRows<'a>) -> &'a [BlockId] {
    let end = (s.first_pos + s.rows.len()).div_ceil(BLOCK);
    &s.blocks[s.first_pos / BLOCK..end]
}

/// A block that the step writes stands in one place of one sequence: backends store rows in any order, on several
/// threads. Sequences may share the blocks that they only read.
fn check_written(rows: &Rows<'_>) -> Result<(), Error> {
    for (i, s) in rows.seqs.iter().enumerate() {
        for (at, block) in written(s).iter().enumerate() {
            let own = s.blocks.iter().filter(|b| *b == block).count();
            let elsewhere = rows.seqs[i + 1..].iter().any(|o| o.blocks.contains(block))
                || rows.seqs[..i].iter().any(|o| o.blocks.contains(block));
            if own > 1 || elsewhere {
                let position = (s.first_pos / BLOCK + at) * BLOCK;
                return Err(Error::Step(format!(
                    "block {} would be written for position {position} of sequence {i} and stands elsewhere too",
                    block.0
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(seqs: &[SeqRows<'_>]) -> Option<String> {
        check_written(&Rows { tokens: &[], seqs }).err().map(|e| e.to_string())
    }

    #[test]
    fn a_written_block_stands_in_one_place() {
        let ids = |ids: &[u32]| ids.iter().map(|&i| BlockId(i)).collect::<Vec<_>>();
        let (shared, other, twice) = (ids(&[7, 1]), ids(&[7, 2]), ids(&[3, 3]));
        let seq = |rows, first_pos, blocks| SeqRows { rows, first_pos, blocks, slot: None };
        // Both read block 7, and each writes its own.
        assert_eq!(refusal(&[seq(0..1, BLOCK, &shared), seq(1..2, BLOCK, &other)]), None);
        // The second writes the block that the first reads.
        let text = refusal(&[seq(0..1, BLOCK, &shared), seq(1..2, 0, &other)]).unwrap();
        assert!(text.contains("block 7") && text.contains("sequence 1"), "{text}");
        assert!(refusal(&[seq(0..40, 0, &twice)]).unwrap().contains("block 3"));
    }
}
