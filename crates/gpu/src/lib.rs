//! What the GPU backends share: kernels written once in Metal Shading Language (`kernels/*.metal`), the layer that
//! knows their arguments and grids, the runner of plans, and the seam below which devices differ.
//!
//! A [`Device`] is Metal, CUDA, or for tests the CPU; code above the seam names none.
#![forbid(unsafe_code)]

mod device;
mod error;
pub mod kernels;
mod load;
pub mod ops;
pub mod pack;
mod run;
mod step;

pub use device::{Buffer, Device, Dispatch, Memory, Pipeline, Place, Recording};
pub use error::Error;
pub use load::Gpu;
