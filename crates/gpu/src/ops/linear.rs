//! Products with matrices, and rows of tables.

use bytemuck::{Pod, Zeroable};

use super::launch;
use crate::pack::Layout;
use crate::{Device, Dispatch, Error, Place};

/// A matrix on the device, in the planes that `pack` makes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MatrixPlace {
    /// How its numbers lie.
    pub layout: Layout,
    /// Rows: outputs.
    pub rows: u32,
    /// Columns: inputs.
    pub columns: u32,
    /// The planes: low, high, head.
    pub planes: [Place; 3],
}

impl MatrixPlace {
    fn groups(&self) -> u32 {
        self.columns.div_ceil(32)
    }
}

/// What is added to a product.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum After {
    /// Nothing.
    Nothing,
    /// As many rows as the product has. They may lie where the product goes.
    Rows(Place),
    /// One row.
    Row(Place),
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct LinearParams {
    rows: u32,
    columns: u32,
    groups: u32,
    n: u32,
    after: u32,
}

/// Rows of a matrix that a threadgroup has: eight SIMD-groups with two each.
const ROWS_OF_GROUP: u32 = 16;

/// `out = x * w^T` plus what comes after, for `n` rows of `x`.
///
/// # Errors
/// What the device says of the kernel.
pub fn linear(
    device: &mut dyn Device,
    w: &MatrixPlace,
    n: u32,
    x: Place,
    after: After,
    out: Place,
) -> Result<Dispatch, Error> {
    // Rows of x that a threadgroup takes. No output depends on it.
    let tile = match n {
        1 => 1,
        2 => 2,
        _ => 4,
    };
    let (after, extra) = match after {
        After::Nothing => (0, x),
        After::Rows(place) => (1, place),
        After::Row(place) => (2, place),
    };
    let params = LinearParams { rows: w.rows, columns: w.columns, groups: w.groups(), n, after };
    let [low, high, head] = w.planes;
    let groups = [n.div_ceil(tile), w.rows.div_ceil(ROWS_OF_GROUP), 1];
    let kernel = format!("linear_{}_{tile}", w.layout.name());
    launch(device, &kernel, &[low, high, head, x, extra, out], &params, groups)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct EmbedParams {
    columns: u32,
    groups: u32,
}

/// `out[i] = table[rows[i]]` for `n` numbers of rows.
///
/// # Errors
/// What the device says of the kernel.
pub fn embed(
    device: &mut dyn Device,
    table: &MatrixPlace,
    n: u32,
    rows: Place,
    out: Place,
) -> Result<Dispatch, Error> {
    let params = EmbedParams { columns: table.columns, groups: table.groups() };
    let [low, high, head] = table.planes;
    let kernel = format!("embed_{}", table.layout.name());
    launch(device, &kernel, &[low, high, head, rows, out], &params, [n, 1, 1])
}
