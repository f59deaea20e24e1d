//! A panel of 16 rows of a matrix of floats times the step's rows.
//!
//! Each output is 16 partial sums by column modulo 16, chains of fma in order of the columns, and then the tree. A
//! tile is some rows of the matrix by some of the step's, as many as have room in registers. Columns are taken 1024 at
//! a time, so that the step's rows stay in the nearest cache; between two such parts the partial sums wait in memory,
//! which changes no bit of them.

use half::{bf16, f16};

use super::linear::{AHEAD, Input};
use crate::format::PANEL;
use crate::simd::{Lanes16, SUMS, Simd, sum16, unroll};

/// Columns that are taken at a time: 4 KiB of each row of activations.
const COLUMNS: usize = 1024;

/// Numbers stored one by one; a panel is 16 rows of them, as the file has them.
pub trait Float: 'static {
    /// How one is stored.
    type Bits: bytemuck::Pod;
    /// Widens `LANES` of them.
    fn load<S: Simd>(s: S, x: &[Self::Bits]) -> S::F;
    /// Widens one.
    fn widen(x: Self::Bits) -> f32;
}

/// IEEE single precision.
pub struct F32;
/// IEEE half precision.
pub struct F16;
/// bfloat16.
pub struct Bf16;

impl Float for F32 {
    type Bits = f32;
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[f32]) -> S::F {
        s.load(x)
    }
    #[inline(always)]
    fn widen(x: f32) -> f32 {
        x
    }
}

impl Float for F16 {
    type Bits = u16;
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[u16]) -> S::F {
        s.load_f16(x)
    }
    #[inline(always)]
    fn widen(x: u16) -> f32 {
        f16::from_bits(x).to_f32()
    }
}

impl Float for Bf16 {
    type Bits = u16;
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[u16]) -> S::F {
        s.load_bf16(x)
    }
    #[inline(always)]
    fn widen(x: u16) -> f32 {
        bf16::from_bits(x).to_f32()
    }
}

/// 16 partial sums.
type Sums = [f32; SUMS];

/// Continues the partial sums of `R` rows of weights, rows `cols` apart, with `T` rows of activations, as far apart: the
/// first `n` columns of each.
#[inline(always)]
fn tile<S: Simd, W: Float, const R: usize, const T: usize>(
    s: S,
    w: &[W::Bits],
    x: &[f32],
    cols: usize,
    n: usize,
    sums: &mut [[Sums; T]],
) {
    let parts = SUMS / S::LANES;
    let mut ws = [&w[..0]; R];
    for (r, row) in ws.iter_mut().enumerate() {
        *row = &w[r * cols..r * cols + n];
    }
    let mut xs = [&x[..0]; T];
    for (t, row) in xs.iter_mut().enumerate() {
        *row = &x[t * cols..t * cols + n];
    }
    let mut acc: [[Lanes16<S>; T]; R] = [[[s.splat(0.0); 4]; T]; R];
    unroll!(r < R of 4 {
        unroll!(t < T of 16 {
            unroll!(p < parts of 4 { acc[r][t][p] = s.load(&sums[r][t][p * S::LANES..]); });
        });
    });
    let whole = n / SUMS * SUMS;
    let mut at = 0;
    while at < whole {
        unroll!(p < parts of 4 {
            let at = at + p * S::LANES;
            let mut x = [s.splat(0.0); T];
            unroll!(t < T of 16 { x[t] = s.load(&xs[t][at..at + S::LANES]); });
            unroll!(r < R of 4 {
                if T == 1 && p == 0 {
                    // The matrix streams from memory.
                    s.prefetch(ws[r][at..].as_ptr().cast::<u8>().wrapping_add(AHEAD));
                }
                let w = W::load(s, &ws[r][at..at + S::LANES]);
                unroll!(t < T of 16 { acc[r][t][p] = s.fma(w, x[t], acc[r][t][p]); });
            });
        });
        at += SUMS;
    }
    if whole < n {
        let mut tails = [[0.0; SUMS]; T];
        for (tail, x) in tails.iter_mut().zip(&xs) {
            tail[..n - whole].copy_from_slice(&x[whole..]);
        }
        unroll!(r < R of 4 {
            let mut tail = [0.0; SUMS];
            for (to, w) in tail.iter_mut().zip(&ws[r][whole..]) {
                *to = W::widen(*w);
            }
            unroll!(p < parts of 4 {
                let w = s.load(&tail[p * S::LANES..]);
                unroll!(t < T of 16 { acc[r][t][p] = s.fma(w, s.load(&tails[t][p * S::LANES..]), acc[r][t][p]); });
            });
        });
    }
    unroll!(r < R of 4 {
        unroll!(t < T of 16 {
            unroll!(p < parts of 4 { s.store(acc[r][t][p], &mut sums[r][t][p * S::LANES..]); });
        });
    });
}

/// `T` rows of activations times a panel, `R` of its rows at a time: `out[t * 16 + row of the panel]`.
#[inline(always)]
fn rows<S: Simd, W: Float, const R: usize, const T: usize>(
    s: S,
    panel: &[W::Bits],
    x: &Input<'_>,
    first: usize,
    out: &mut [f32],
) {
    let cols = x.cols;
    let height = panel.len() / cols;
    let mut sums = [[[0.0; SUMS]; T]; PANEL];
    // One row takes the matrix as it lies in memory.
    let columns = if T == 1 { cols } else { COLUMNS };
    for from in (0..cols).step_by(columns) {
        let n = columns.min(cols - from);
        let x = &x.f[first * cols + from..];
        let mut r = 0;
        while r + R <= height {
            tile::<S, W, R, T>(s, &panel[r * cols + from..], x, cols, n, &mut sums[r..]);
            r += R;
        }
        while r < height {
            tile::<S, W, 1, T>(s, &panel[r * cols + from..], x, cols, n, &mut sums[r..]);
            r += 1;
        }
    }
    for (row, sums) in sums.iter().enumerate().take(height) {
        unroll!(t < T of 16 {
            let mut lanes = [s.splat(0.0); 4];
            for p in 0..SUMS / S::LANES {
                lanes[p] = s.load(&sums[t][p * S::LANES..]);
            }
            out[t * PANEL + row] = sum16(s, &lanes);
        });
    }
}

/// [`super::linear::panel`] for float weights; a panel of fewer than 16 rows is shorter.
#[inline(always)]
pub fn panel<S: Simd, W: Float>(
    s: S,
    panel: &[u8],
    x: &Input<'_>,
    first: usize,
    count: usize,
    out: &mut [f32],
) {
    let w: &[W::Bits] = bytemuck::cast_slice(panel);
    let mut r = 0;
    if const { S::LANES == SUMS && S::REGISTERS == 32 } {
        // 24 of 32 registers hold sums.
        while r + 6 <= count {
            rows::<S, W, 4, 6>(s, w, x, first + r, &mut out[r * PANEL..]);
            r += 6;
        }
    }
    while const { S::REGISTERS > 0 } && r + 3 <= count {
        rows::<S, W, 2, 3>(s, w, x, first + r, &mut out[r * PANEL..]);
        r += 3;
    }
    while r < count {
        if const { S::LANES < 8 } {
            rows::<S, W, 4, 1>(s, w, x, first + r, &mut out[r * PANEL..]);
        } else {
            // A chain of fma is as fast as memory, and one stream of memory faster than four: 37 GB/s on a Zen 5 core, not 29.
            rows::<S, W, 1, 1>(s, w, x, first + r, &mut out[r * PANEL..]);
        }
        r += 1;
    }
}
