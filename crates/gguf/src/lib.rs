//! GGUF files: metadata and tensor slices, reader and writer. Knows no model.
//!
//! [`Checkpoint`] is what others take in its place: the same keys and tensors, wherever they come from.
//!
//! The layout is that of ggml's GGUF specification (`docs/gguf.md` of ggml), versions 2 and 3, little endian:
//! a header of counts, typed key/value metadata, tensor descriptions, padding to the alignment, tensor data.
//!
//! Any bytes are safe to open. Sizes are computed with checked arithmetic, a claimed count is compared with
//! the bytes that are left before anything is allocated for it, and every fault is an [`Error`] that names
//! the key, the tensor or the offset.
//!
//! ```no_run
//! let file = cera_gguf::Gguf::open("model.gguf")?;
//! let layers: u32 = file.metadata().need("llama.block_count")?;
//! for tensor in file.tensors() {
//!     println!("{} {} {:?}", tensor.name, tensor.ty.name(), tensor.dims);
//!     let bytes: &[u8] = file.tensor_bytes(tensor);
//! #   let _ = (bytes, layers);
//! }
//! # Ok::<(), cera_gguf::Error>(())
//! ```

#![deny(unsafe_code)]

mod checkpoint;
mod error;
mod file;
#[allow(unsafe_code, reason = "a mapping")]
mod map;
mod metadata;
mod read;
mod split;
mod tensor;
mod value;
mod write;

pub use checkpoint::Checkpoint;
pub use error::{Error, Place, shown};
pub use file::Gguf;
pub use map::Mapped;
pub use metadata::{FromValue, Metadata};
pub use tensor::{MAX_DIMS, TensorInfo};
pub use value::{Array, Value};
pub use write::{Body, Writer};

/// Key of the alignment of tensor data, in bytes.
pub const ALIGNMENT_KEY: &str = "general.alignment";

/// Alignment of a file that has no [`ALIGNMENT_KEY`].
pub const DEFAULT_ALIGNMENT: u64 = 32;

/// Largest alignment accepted: a huge page. More would only be padding.
pub const MAX_ALIGNMENT: u64 = 2 << 20;

/// Longest key or tensor name, in bytes, as the specification has it for keys.
pub const MAX_NAME: u64 = 65_535;

/// Most bytes that counts, metadata and tensor descriptions may take together.
///
/// The largest vocabularies need about 20 MB. Without this bound a sparse file, which costs its author
/// nothing, could make the reader allocate as much as the file claims to be long.
pub const MAX_HEADER: u64 = 256 << 20;
