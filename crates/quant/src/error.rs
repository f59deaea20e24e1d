//! What can be wrong with a request to decode or encode.

use crate::Type;

/// Why bytes or weights could not be translated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The type is known by name, but this build has no codec for it.
    #[error("tensor type {0} is known but not supported")]
    NoCodec(Type),
    /// The byte count is not a whole number of blocks.
    #[error("{bytes} bytes are not a whole number of {ty} blocks of {block_bytes} bytes")]
    PartialBlock {
        /// The type that was asked for.
        ty: Type,
        /// Bytes given.
        bytes: usize,
        /// Bytes a block takes.
        block_bytes: usize,
    },
    /// The weight count is not a whole number of blocks.
    #[error("{weights} weights are not a whole number of {ty} blocks of {block_len} weights")]
    PartialRow {
        /// The type that was asked for.
        ty: Type,
        /// Weights given.
        weights: usize,
        /// Weights a block holds.
        block_len: usize,
    },
    /// The output does not hold as many weights as the bytes encode.
    #[error("{bytes} bytes of {ty} hold {weights} weights, but the output has room for {room}")]
    OutputLength {
        /// The type that was asked for.
        ty: Type,
        /// Bytes given.
        bytes: usize,
        /// Weights that those bytes hold.
        weights: usize,
        /// Length of the output, in weights.
        room: usize,
    },
    /// A quantized block has one scale for all its weights, so NaN or infinity would spoil its neighbours.
    #[error("weight {index} is {class}, which {ty} cannot hold")]
    NotFinite {
        /// The type that was asked for.
        ty: Type,
        /// Position of the first such weight.
        index: usize,
        /// `"NaN"` or `"infinite"`.
        class: &'static str,
    },
    /// The importances are not one for each column of rows of whole blocks.
    #[error(
        "{weights} weights are not whole rows of {columns} columns, or those not whole {ty} blocks of {block_len}"
    )]
    Columns {
        /// The type that was asked for.
        ty: Type,
        /// Weights given.
        weights: usize,
        /// Importances given.
        columns: usize,
        /// Weights a block holds.
        block_len: usize,
    },
    /// An importance is not a number from 0 up.
    #[error("the importance of column {index} is {class}")]
    Importance {
        /// The first such column.
        index: usize,
        /// `"NaN"`, `"infinite"` or `"negative"`.
        class: &'static str,
    },
}
