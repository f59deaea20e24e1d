//! The arguments and grids of every kernel. A function here makes one launch; none of them names a device.

mod attend;
mod elements;
mod linear;
mod norm;

pub use attend::{Attend, KvWrite, Paged, SPAN, attend, attend_partial, kv_write};
pub use elements::{Binary, RopeShape, Unary, argmax, binary, columns, copy, rope, select_rows, take, unary};
pub use linear::{After, MatrixPlace, embed, linear};
pub use norm::{GroupNorm, NormShape, add_rms_norm, group_norm, rms_norm};

use bytemuck::{Pod, bytes_of};

use crate::{Device, Dispatch, Error, Place};

/// Threads of a threadgroup where a kernel fixes no other number.
const THREADS: u32 = 256;

fn launch(
    device: &mut dyn Device,
    kernel: &str,
    buffers: &[Place],
    params: &impl Pod,
    groups: [u32; 3],
) -> Result<Dispatch, Error> {
    Ok(Dispatch {
        pipeline: device.pipeline(kernel)?,
        buffers: buffers.to_vec(),
        params: bytes_of(params).to_vec(),
        groups,
        threads: THREADS,
    })
}

/// A launch with a thread for each of `count` things.
fn for_each(
    device: &mut dyn Device,
    kernel: &str,
    buffers: &[Place],
    params: &impl Pod,
    count: u32,
) -> Result<Dispatch, Error> {
    launch(device, kernel, buffers, params, [count.div_ceil(THREADS), 1, 1])
}
