//! The arguments and grids of every kernel. A function here makes one launch; none of them names a device.

use bytemuck::{Pod, Zeroable, bytes_of};

use crate::{Device, Dispatch, Error, Place};

/// Threads of a threadgroup where a kernel fixes no other number.
const THREADS: u32 = 256;

/// Rows that are normalised: how many, and how they lie.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NormShape {
    /// Rows of the batch.
    pub rows: u32,
    /// Elements of a row.
    pub width: u32,
    /// Elements from row to row of what is read (of the residual and the sum too).
    pub source_stride: u32,
    /// Elements from row to row of the result.
    pub destination_stride: u32,
    /// Added to the mean square.
    pub eps: f32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RmsNormParams {
    width: u32,
    eps_bits: u32,
    source_stride: u32,
    destination_stride: u32,
}

impl NormShape {
    fn params(&self) -> Vec<u8> {
        let p = RmsNormParams {
            width: self.width,
            eps_bits: self.eps.to_bits(),
            source_stride: self.source_stride,
            destination_stride: self.destination_stride,
        };
        bytes_of(&p).to_vec()
    }
}

/// `destination = rms_norm(source) * weight`; both may be the same place.
///
/// # Errors
/// What the device says of the kernel.
pub fn rms_norm(
    device: &mut dyn Device,
    shape: &NormShape,
    source: Place,
    weight: Place,
    destination: Place,
) -> Result<Dispatch, Error> {
    Ok(Dispatch {
        pipeline: device.pipeline("rms_norm")?,
        buffers: vec![source, weight, destination],
        params: shape.params(),
        groups: [shape.rows, 1, 1],
        threads: THREADS,
    })
}

/// `sum = residual + source`, `destination = rms_norm(sum) * weight`; the sum may go where the residual or the source is.
///
/// # Errors
/// What the device says of the kernel.
pub fn add_rms_norm(
    device: &mut dyn Device,
    shape: &NormShape,
    [source, residual]: [Place; 2],
    weight: Place,
    sum: Place,
    destination: Place,
) -> Result<Dispatch, Error> {
    Ok(Dispatch {
        pipeline: device.pipeline("add_rms_norm")?,
        buffers: vec![source, residual, weight, sum, destination],
        params: shape.params(),
        groups: [shape.rows, 1, 1],
        threads: THREADS,
    })
}
