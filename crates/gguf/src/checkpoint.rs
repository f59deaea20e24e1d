//! What a model is made from, whichever files hold it.

use std::borrow::Cow;

use crate::{Error, Metadata, TensorInfo};

/// Keys and tensors of a model under the names that GGUF files give them.
///
/// A [`Gguf`](crate::Gguf) is one. So is what another format holds, once its keys and tensors are translated; whoever
/// builds a model cannot tell the two apart.
pub trait Checkpoint: Send + Sync {
    /// The keys and values.
    fn metadata(&self) -> &Metadata;

    /// All tensors, in the order in which a file holds or would hold them.
    fn tensors(&self) -> &[TensorInfo];

    /// The tensor of that name.
    fn tensor(&self, name: &str) -> Option<&TensorInfo>;

    /// The bytes of `count` rows of a tensor, from row `first` on: blocks of the tensor's type, borrowed where they are
    /// stored like this and made for the call where not. `t` is one of [`Checkpoint::tensors`].
    ///
    /// # Errors
    /// [`Error::Rows`] where the tensor has fewer, [`Error::Changed`] where a file is shorter now than it was, and
    /// [`Error::Make`] where the bytes cannot be made.
    fn rows(&self, t: &TensorInfo, first: u64, count: u64) -> Result<Cow<'_, [u8]>, Error>;

    /// The tensor's bytes are not needed for now: the system may take back the memory of their pages.
    fn release(&self, t: &TensorInfo);
}
