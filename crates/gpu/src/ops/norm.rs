//! Norms.

use bytemuck::{Pod, Zeroable};

use super::launch;
use crate::{Device, Dispatch, Error, Place};

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
    /// Rows one after another.
    pub fn dense(rows: u32, width: u32, eps: f32) -> NormShape {
        NormShape { rows, width, source_stride: width, destination_stride: width, eps }
    }

    fn params(&self) -> RmsNormParams {
        RmsNormParams {
            width: self.width,
            eps_bits: self.eps.to_bits(),
            source_stride: self.source_stride,
            destination_stride: self.destination_stride,
        }
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
    let buffers = [source, weight, destination];
    launch(device, "rms_norm", &buffers, &shape.params(), [shape.rows, 1, 1])
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
    let buffers = [source, residual, weight, sum, destination];
    launch(device, "add_rms_norm", &buffers, &shape.params(), [shape.rows, 1, 1])
}

/// Norms of groups of a row's elements by themselves.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GroupNorm {
    /// Rows.
    pub rows: u32,
    /// Elements of a group.
    pub group: u32,
    /// Groups of a row.
    pub per_row: u32,
    /// Whether the mean is taken away first.
    pub centred: bool,
    /// Added to the mean square.
    pub eps: f32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct GroupNormParams {
    group: u32,
    per_row: u32,
    centred: u32,
    weight_len: u32,
    bias: u32,
    eps_bits: u32,
}

/// Normalises groups; `weight` comes with its length, a group's or a row's, and `bias` is as long. `out` may be `x`.
///
/// # Errors
/// What the device says of the kernel.
pub fn group_norm(
    device: &mut dyn Device,
    shape: &GroupNorm,
    x: Place,
    weight: Option<(Place, u32)>,
    bias: Option<Place>,
    out: Place,
) -> Result<Dispatch, Error> {
    let params = GroupNormParams {
        group: shape.group,
        per_row: shape.per_row,
        centred: shape.centred.into(),
        weight_len: weight.map_or(0, |(_, len)| len),
        bias: bias.is_some().into(),
        eps_bits: shape.eps.to_bits(),
    };
    let buffers = [x, weight.map_or(x, |(place, _)| place), bias.unwrap_or(x), out];
    launch(device, "group_norm", &buffers, &params, [shape.rows * shape.per_row, 1, 1])
}
