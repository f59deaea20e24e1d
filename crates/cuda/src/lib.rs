//! NVIDIA GPUs as a device of the GPU backend. The driver is loaded when a device is asked for, and nothing but the driver is
//! needed: kernels are committed as PTX, which `cargo xtask ptx` makes of the Metal source, and the driver compiles that.

mod device;
mod driver;
mod ptx;
mod staging;

pub use device::Cuda;
pub use driver::{GpuInfo, gpus};

use cera_gpu::Gpu;

/// The backend's name, in errors too.
pub const NAME: &str = "cuda";

/// A backend over GPU number `index`.
pub fn backend(index: usize) -> Gpu {
    Gpu::new(NAME, move || Ok(Box::new(Cuda::new(index)?)))
}
