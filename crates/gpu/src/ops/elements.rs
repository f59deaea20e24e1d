//! What goes element by element, and what leaves the device.

use bytemuck::{Pod, Zeroable};
use cera_plan::Act;

use super::{for_each, launch};
use crate::{Device, Dispatch, Error, Place};

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct UnaryParams {
    count: u32,
    op: u32,
    by: f32,
}

/// What is done to one element.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Unary {
    /// An activation.
    Act(Act),
    /// A product with a number.
    Scale(f32),
    /// `cap * tanh(x / cap)`.
    Softcap(f32),
}

/// What is done to two elements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Binary {
    /// Their sum.
    Add,
    /// Their product.
    Mul,
    /// The activation of the first times the second.
    Glu(Act),
}

const ADD: u32 = 16;
const MUL: u32 = 17;

/// The kernels' number of an activation.
fn number(act: Act) -> u32 {
    match act {
        Act::Silu => 0,
        Act::GeluTanh => 1,
        Act::GeluErf => 2,
        Act::GeluQuick => 3,
        Act::Relu => 4,
        Act::Relu2 => 5,
        Act::Sigmoid => 6,
        Act::ClampedSilu => 7,
        Act::Tanh => 8,
    }
}

/// `out = op(x)` for `count` elements; both may be the same place.
///
/// # Errors
/// What the device says of the kernel.
pub fn unary(
    device: &mut dyn Device,
    op: Unary,
    count: u32,
    x: Place,
    out: Place,
) -> Result<Dispatch, Error> {
    let (op, by) = match op {
        Unary::Act(act) => (number(act), 0.0),
        Unary::Scale(by) => (9, by),
        Unary::Softcap(cap) => (10, cap),
    };
    for_each(device, "unary", &[x, out], &UnaryParams { count, op, by }, count)
}

/// `out = op(a, b)` for `count` elements; `out` may be either.
///
/// # Errors
/// What the device says of the kernel.
pub fn binary(
    device: &mut dyn Device,
    op: Binary,
    count: u32,
    [a, b]: [Place; 2],
    out: Place,
) -> Result<Dispatch, Error> {
    let op = match op {
        Binary::Add => ADD,
        Binary::Mul => MUL,
        Binary::Glu(act) => number(act),
    };
    for_each(device, "binary", &[a, b, out], &UnaryParams { count, op, by: 0.0 }, count)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ColumnsParams {
    count: u32,
    width: u32,
    length: u32,
    op: u32,
}

/// `out = op(x, w)` for each of `rows` rows of `width`; `w` comes with its length, the width or 1. [`Binary::Add`] adds,
/// all else multiplies.
///
/// # Errors
/// What the device says of the kernel.
pub fn columns(
    device: &mut dyn Device,
    op: Binary,
    [rows, width]: [u32; 2],
    x: Place,
    (w, length): (Place, u32),
    out: Place,
) -> Result<Dispatch, Error> {
    let op = if op == Binary::Add { ADD } else { MUL };
    let params = ColumnsParams { count: rows * width, width, length, op };
    for_each(device, "columns", &[x, w, out], &params, rows * width)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct TakeParams {
    count: u32,
    first: u32,
    len: u32,
    every: u32,
}

/// Of each `every` of `count` elements the `len` from `first` on.
///
/// # Errors
/// What the device says of the kernel.
pub fn take(
    device: &mut dyn Device,
    count: u32,
    [first, len, every]: [u32; 3],
    x: Place,
    out: Place,
) -> Result<Dispatch, Error> {
    let count = count / every * len;
    for_each(device, "take", &[x, out], &TakeParams { count, first, len, every }, count)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SelectParams {
    count: u32,
    width: u32,
}

/// `out[i] = x[rows[i]]` for `n` numbers of rows.
///
/// # Errors
/// What the device says of the kernel.
pub fn select_rows(
    device: &mut dyn Device,
    [n, width]: [u32; 2],
    x: Place,
    rows: Place,
    out: Place,
) -> Result<Dispatch, Error> {
    let params = SelectParams { count: n * width, width };
    for_each(device, "select_rows", &[x, rows, out], &params, n * width)
}

/// How heads turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RopeShape {
    /// Rows.
    pub rows: u32,
    /// Heads of a row.
    pub heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// The element where pairs begin.
    pub first: u32,
    /// Pairs.
    pub half_dims: u32,
    /// Whether pairs are `half_dims` apart.
    pub halved: bool,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RopeParams {
    rows: u32,
    heads: u32,
    head_dim: u32,
    first: u32,
    half_dims: u32,
    halved: u32,
}

/// Turns heads by `turns`, a cosine and a sine for each row and pair. `out` may be `x`.
///
/// # Errors
/// What the device says of the kernel.
pub fn rope(
    device: &mut dyn Device,
    s: &RopeShape,
    x: Place,
    turns: Place,
    out: Place,
) -> Result<Dispatch, Error> {
    let params = RopeParams {
        rows: s.rows,
        heads: s.heads,
        head_dim: s.head_dim,
        first: s.first,
        half_dims: s.half_dims,
        halved: s.halved.into(),
    };
    let threads = s.rows * s.heads * (s.head_dim - s.half_dims);
    for_each(device, "rope", &[x, turns, out], &params, threads)
}

/// The number of the greatest element of each of `rows` rows; all bits where one is not finite.
///
/// # Errors
/// What the device says of the kernel.
pub fn argmax(
    device: &mut dyn Device,
    [rows, width]: [u32; 2],
    x: Place,
    out: Place,
) -> Result<Dispatch, Error> {
    launch(device, "argmax", &[x, out], &width, [rows, 1, 1])
}

/// Copies bytes, a multiple of 16.
///
/// # Errors
/// What the device says of the kernel.
pub fn copy(device: &mut dyn Device, bytes: usize, from: Place, to: Place) -> Result<Dispatch, Error> {
    let count = (bytes / 16) as u32;
    for_each(device, "copy", &[from, to], &count, count)
}
