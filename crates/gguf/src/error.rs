//! What can be wrong with a file, by name.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::{MAX_ALIGNMENT, MAX_DIMS, MAX_HEADER, MAX_NAME};

/// A name that came from a file, made fit to print: quoted, control characters escaped, long ones cut.
pub fn shown(name: &str) -> String {
    const MOST: usize = 100;
    match name.char_indices().nth(MOST) {
        Some((cut, _)) => format!("{:?}… ({} bytes)", name.get(..cut).unwrap_or_default(), name.len()),
        None => format!("{name:?}"),
    }
}

/// What is to be said of the number of a tensor type that cannot be read. The names of those that files had once are ggml's
/// (`ggml/include/ggml.h`).
fn of_type(id: u32) -> &'static str {
    match id {
        4 => "Q4_2, which ggml dropped",
        5 => "Q4_3, which ggml dropped",
        31 => "Q4_0_4_4, which ggml dropped: convert the model anew",
        32 => "Q4_0_4_8, which ggml dropped: convert the model anew",
        33 => "Q4_0_8_8, which ggml dropped: convert the model anew",
        36 => "IQ4_NL_4_4, which ggml dropped: convert the model anew",
        37 => "IQ4_NL_4_8, which ggml dropped: convert the model anew",
        38 => "IQ4_NL_8_8, which ggml dropped: convert the model anew",
        _ => "which is unknown",
    }
}

/// The part of a file that was being read or written when a fault was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The magic, the version and the two counts.
    Header,
    /// The name of the n-th key, from 0.
    Key(u64),
    /// The value of a key.
    Value(String),
    /// One item of a key's array.
    Element(String, u64),
    /// The name of the n-th tensor, from 0.
    TensorName(u64),
    /// The description of a tensor: dimensions, type, offset.
    Tensor(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Header => write!(f, "the header"),
            Place::Key(index) => write!(f, "the name of key {index}"),
            Place::Value(key) => write!(f, "the value of key {}", shown(key)),
            Place::Element(key, index) => write!(f, "item {index} of key {}", shown(key)),
            Place::TensorName(index) => write!(f, "the name of tensor {index}"),
            Place::Tensor(name) => write!(f, "the description of tensor {}", shown(name)),
        }
    }
}

/// Why a file cannot be read or written.
///
/// Offsets are bytes from the start of the file unless said otherwise. Names are as the file has them; the
/// message shows them through [`shown`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused to open or read a file.
    #[error("{path:?}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The path leads to something that has no fixed length: a directory, a socket, a pipe, a device.
    #[error("{path:?} is {kind}, not a file")]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// Fewer bytes than the smallest header.
    #[error("not a GGUF file: {len} bytes, where the header alone takes 24")]
    TooShort {
        /// Bytes of the file.
        len: u64,
    },
    /// The first four bytes are not `GGUF`.
    #[error("not a GGUF file: it starts with \"{}\"", magic.escape_ascii())]
    NotGguf {
        /// The first four bytes.
        magic: [u8; 4],
    },
    /// The file is written for big-endian machines.
    #[error("big-endian GGUF is not supported")]
    BigEndian,
    /// A version other than 2 and 3.
    #[error("GGUF version {version} is not supported, only 2 and 3")]
    Version {
        /// The version.
        version: u32,
    },
    /// More keys or tensors than the rest of the file could hold.
    #[error("{count} {what} claimed, but the {left} bytes left can hold at most {limit}")]
    Count {
        /// `keys` or `tensors`.
        what: &'static str,
        /// The count claimed.
        count: u64,
        /// Bytes left in the file.
        left: u64,
        /// The most that fit in them.
        limit: u64,
    },
    /// Metadata and tensor descriptions larger than [`MAX_HEADER`].
    #[error("metadata and tensor descriptions pass {MAX_HEADER} bytes in {place}")]
    HeaderTooLarge {
        /// What was being read at that point.
        place: Place,
    },
    /// The file ends inside a number.
    #[error("the file ends in {place}, at offset {offset}: {need} bytes needed, {left} left")]
    Truncated {
        /// What is cut.
        place: Place,
        /// Where it starts.
        offset: u64,
        /// Bytes that it takes.
        need: u64,
        /// Bytes left in the file.
        left: u64,
    },
    /// A string longer than the rest of the file.
    #[error("{place}, at offset {offset}, is a string of {len} bytes, but only {left} are left")]
    StringLength {
        /// The string.
        place: Place,
        /// Where its length stands.
        offset: u64,
        /// The length claimed.
        len: u64,
        /// Bytes left in the file after the length.
        left: u64,
    },
    /// A string that is not UTF-8.
    #[error("{place}, at offset {offset}, is not UTF-8")]
    NotUtf8 {
        /// The string.
        place: Place,
        /// Where its length stands.
        offset: u64,
    },
    /// A key or tensor name of no or too many bytes.
    #[error("{place}, at offset {offset}, has {len} bytes, not 1 to {MAX_NAME}")]
    NameLength {
        /// The name.
        place: Place,
        /// Where its length stands; 0 for a name that was to be written.
        offset: u64,
        /// Its bytes.
        len: u64,
    },
    /// A key given twice.
    #[error("key {} is given twice", shown(.key))]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// A tensor name given twice.
    #[error("tensor {} is given twice", shown(.tensor))]
    DuplicateTensor {
        /// The tensor.
        tensor: String,
    },
    /// A value type that the specification does not have.
    #[error("key {}, at offset {offset}, has value type {id}, which does not exist", shown(.key))]
    ValueType {
        /// The key.
        key: String,
        /// Where the type stands.
        offset: u64,
        /// The type's number.
        id: u32,
    },
    /// An array whose items are arrays.
    #[error("key {}, at offset {offset}, is an array of arrays, which is not supported", shown(.key))]
    NestedArray {
        /// The key.
        key: String,
        /// Where the item type stands.
        offset: u64,
    },
    /// An array with more items than the rest of the file could hold.
    #[error("key {}, at offset {offset}, is an array of {count} items, but only {left} bytes are left", shown(.key))]
    ArrayLength {
        /// The key.
        key: String,
        /// Where the count stands.
        offset: u64,
        /// The count claimed.
        count: u64,
        /// Bytes left in the file after the count.
        left: u64,
    },
    /// A truth value that is neither 0 nor 1.
    #[error("{place}, at offset {offset}, is a truth value of {value}, not 0 or 1")]
    Bool {
        /// The value.
        place: Place,
        /// Where it stands.
        offset: u64,
        /// The byte found.
        value: u8,
    },
    /// An alignment that is no power of two from 8 to [`MAX_ALIGNMENT`].
    #[error("general.alignment is {alignment}, not a power of two from 8 to {MAX_ALIGNMENT}")]
    Alignment {
        /// The alignment found.
        alignment: u64,
    },
    /// A tensor of too many dimensions.
    #[error("tensor {} has {count} dimensions, more than {MAX_DIMS}", shown(.tensor))]
    Dimensions {
        /// The tensor.
        tensor: String,
        /// How many.
        count: u64,
    },
    /// A tensor with a dimension of 0.
    #[error("tensor {} has a dimension of 0: {dims:?}", shown(.tensor))]
    ZeroDimension {
        /// The tensor.
        tensor: String,
        /// Its dimensions.
        dims: Vec<u64>,
    },
    /// A tensor whose elements or bytes cannot be counted in 63 bits.
    #[error("tensor {} of dimensions {dims:?} is larger than any file", shown(.tensor))]
    TensorSize {
        /// The tensor.
        tensor: String,
        /// Its dimensions.
        dims: Vec<u64>,
    },
    /// A tensor type that no version of ggml has, or that it dropped.
    #[error("tensor {} has type {id}, {}", shown(.tensor), of_type(*id))]
    TensorType {
        /// The tensor.
        tensor: String,
        /// The type's number.
        id: u32,
    },
    /// A row that is not a whole number of blocks.
    #[error("tensor {} is {ty} with rows of {cols}, not a multiple of its block of {block}", shown(.tensor))]
    RowBlocks {
        /// The tensor.
        tensor: String,
        /// Its type's name.
        ty: &'static str,
        /// Elements of a row.
        cols: u64,
        /// Elements of a block.
        block: u64,
    },
    /// Tensor data that does not start at a multiple of the alignment.
    #[error("tensor {} starts at {offset} of the data, not a multiple of {alignment}", shown(.tensor))]
    Unaligned {
        /// The tensor.
        tensor: String,
        /// Its offset in the data section.
        offset: u64,
        /// The file's alignment.
        alignment: u64,
    },
    /// Tensor data that the file does not hold, or not whole.
    #[error("tensor {} takes {bytes} bytes at {offset} of the data, which has only {available}", shown(.tensor))]
    PastEnd {
        /// The tensor.
        tensor: String,
        /// Its offset in the data section.
        offset: u64,
        /// Its bytes.
        bytes: u64,
        /// Bytes of the data section.
        available: u64,
    },
    /// Two tensors that share bytes.
    #[error("tensors {} and {} overlap at {offset} of the data", shown(.first), shown(.second))]
    Overlap {
        /// The one that starts first.
        first: String,
        /// The one that starts inside it.
        second: String,
        /// Where the second starts in the data section.
        offset: u64,
    },
    /// A key that is needed and not there.
    #[error("key {} is missing", shown(.key))]
    Missing {
        /// The key.
        key: String,
    },
    /// A key of another type than it should have.
    #[error("key {} is {found}, not {wanted}", shown(.key))]
    WrongType {
        /// The key.
        key: String,
        /// The type asked for.
        wanted: &'static str,
        /// The type in the file.
        found: &'static str,
    },
    /// A number that the type asked for cannot hold.
    #[error("key {} is {value}, which is out of range for {wanted}", shown(.key))]
    OutOfRange {
        /// The key.
        key: String,
        /// The number.
        value: String,
        /// The type asked for.
        wanted: &'static str,
    },
    /// The file's length is no longer what it was when it was opened.
    #[error("{path:?} changed while it was open: {was} bytes before, {now} now")]
    Changed {
        /// The file.
        path: PathBuf,
        /// Bytes when it was opened.
        was: u64,
        /// Bytes now.
        now: u64,
    },
    /// Bytes asked of a tensor that it does not have.
    #[error("tensor {} has {bytes} bytes, so not {len} at {start}", shown(.tensor))]
    Range {
        /// The tensor.
        tensor: String,
        /// First byte asked for.
        start: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes of the tensor.
        bytes: u64,
    },
    /// Rows asked of a tensor that it does not have.
    #[error("tensor {} has {rows} rows, so not {count} from row {first} on", shown(.tensor))]
    Rows {
        /// The tensor.
        tensor: String,
        /// First row asked for.
        first: u64,
        /// Rows asked for.
        count: u64,
        /// Rows of the tensor.
        rows: u64,
    },
    /// A tensor that is made from another format's, and cannot be.
    #[error("tensor {}: {why}", shown(.tensor))]
    Make {
        /// The tensor.
        tensor: String,
        /// What is in the way.
        why: String,
    },
    /// A part of a split model whose name does not say where the others are.
    #[error(
        "{file} is part {part} of {parts} of a model, but its name does not end in {end:?}, so the others cannot be found"
    )]
    SplitName {
        /// The file, as it is shown.
        file: String,
        /// Its part, from 1.
        part: u64,
        /// How many parts there are.
        parts: u64,
        /// How its name would end.
        end: String,
    },
    /// A file that stands in the place of a part of a split model and is another.
    #[error("{path:?} is {found}, where {wanted} is to be")]
    SplitPart {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: String,
        /// What it is to be.
        wanted: String,
    },
    /// A split model whose parts do not hold the tensors that they should.
    #[error("key \"split.tensors.count\" is {claimed}, but the {parts} parts have {found} tensors together")]
    SplitTensors {
        /// What the key says.
        claimed: u64,
        /// What is there.
        found: u64,
        /// How many parts there are.
        parts: u64,
    },
    /// The system refused to write.
    #[error("cannot write: {0}")]
    Write(#[source] io::Error),
    /// More data given for a tensor than it takes, or data after the last tensor.
    #[error("{extra} bytes too many written{}", .tensor.as_ref().map(|t| format!(" for tensor {}", shown(t))).unwrap_or_default())]
    Surplus {
        /// The tensor; `None` after the last one.
        tensor: Option<String>,
        /// Bytes beyond its end.
        extra: u64,
    },
    /// The writer was finished before all data of a tensor was given.
    #[error("tensor {} lacks {left} bytes of its data", shown(.tensor))]
    Unfinished {
        /// The first tensor that is not whole.
        tensor: String,
        /// Bytes still to come.
        left: u64,
    },
}
