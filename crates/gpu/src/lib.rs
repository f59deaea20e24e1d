//! What the GPU backends share: kernels written once in Metal Shading Language (`kernels/*.metal`), the layer that
//! knows their arguments and grids, and the seam below which devices differ.
//!
//! A [`Device`] is Metal, CUDA, or for tests the CPU; code above the seam names none.

mod device;
mod error;
pub mod kernels;
pub mod ops;

pub use device::{Buffer, Device, Dispatch, Memory, Pipeline, Place, Recording};
pub use error::Error;
