//! A panel of 16 rows of a matrix times the step's rows.
//!
//! One shape serves decode and prefill: unpack a group of the panel once, dot it with up to `T` rows of
//! activations. Each output element is one sequence of operations over the columns, whatever `T` is.

use half::{bf16, f16};

use crate::format::{ActGroup, Format, GROUP, PANEL, QUAD};
use crate::simd::{Lanes16, SUMS, Simd, sum16, unroll};

/// Bytes between what is read of a panel and what is asked of memory.
const AHEAD: usize = 4096;

/// Rows as a panel kernel reads them. Quantized panels use `groups`, float panels `f`.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// Columns of a row.
    pub cols: usize,
    /// How many rows there are.
    pub rows: usize,
    /// `[rows, cols]`.
    pub f: &'a [f32],
    /// `[rows / 4, cols / 32, 4]`: quads of rows, and `[rows % 4, cols / 32]`: the rows behind the last quad.
    pub groups: &'a [ActGroup],
}

/// Rows `first..first + T` times one panel: `out[t * 16 + row of the panel]`. A tile is whole quads or, where
/// `T < 4`, rows behind the last quad.
#[inline(always)]
fn tile<S: Simd, F: Format, const T: usize>(
    s: S,
    panel: &[u8],
    x: &Input<'_>,
    first: usize,
    out: &mut [f32],
) {
    let passes = PANEL / S::LANES;
    let per_row = x.cols / GROUP;
    // Rows that lie together, and how many such bundles there are.
    let together = if T < QUAD { 1 } else { QUAD };
    let mut bundles = [&x.groups[..0]; 4];
    for (i, bundle) in bundles.iter_mut().enumerate().take(T / together) {
        let at = (first + i * together) * per_row;
        *bundle = &x.groups[at..at + together * per_row];
    }
    let mut acc = [[s.splat(0.0); T]; 4];
    for (b, block) in panel.chunks_exact(F::PANEL_BYTES).take(per_row / F::GROUPS).enumerate() {
        for g in 0..F::GROUPS {
            // The panel streams from memory. The hardware's own prefetch stops at every page.
            let share = F::PANEL_BYTES / F::GROUPS;
            let ahead = block.as_ptr().wrapping_add(g * share + AHEAD);
            let mut line = 0;
            while line < share {
                s.prefetch(ahead.wrapping_add(line));
                line += 64;
            }
            let at = (b * F::GROUPS + g) * together;
            unroll!(p < passes of 4 {
                let w = F::unpack(s, block, g, p * S::LANES);
                let mut at = at;
                unroll!(t < T of 16 {
                    // SAFETY: `at` is below `per_row * together`, the length of every bundle.
                    let a = unsafe { bundles[t / together].get_unchecked(at + t % together) };
                    acc[p][t] = F::accumulate(s, &w, a, acc[p][t]);
                    if t % QUAD == QUAD - 1 {
                        at = s.after(acc[p][t], at);
                    }
                });
                let _ = at;
            });
        }
    }
    unroll!(t < T of 16 {
        unroll!(p < passes of 4 { s.store(acc[p][t], &mut out[t * PANEL + p * S::LANES..]); });
    });
}

/// Rows `first..first + rows` times one panel. `out` is `[rows, 16]`. `first` is a multiple of 4 or behind the last
/// quad; so is the end.
#[inline(always)]
pub fn panel<S: Simd, F: Format>(
    s: S,
    panel: &[u8],
    x: &Input<'_>,
    first: usize,
    rows: usize,
    out: &mut [f32],
) {
    let quads = (x.rows / QUAD * QUAD).saturating_sub(first).min(rows);
    let mut r = 0;
    if S::LANES == PANEL {
        // One register holds a column of sums: 16 of 32 hold those of a tile.
        while r + 16 <= quads {
            tile::<S, F, 16>(s, panel, x, first + r, &mut out[r * PANEL..]);
            r += 16;
        }
        if r + 8 <= quads {
            tile::<S, F, 8>(s, panel, x, first + r, &mut out[r * PANEL..]);
            r += 8;
        }
    }
    while r + 4 <= quads {
        tile::<S, F, 4>(s, panel, x, first + r, &mut out[r * PANEL..]);
        r += 4;
    }
    if r + 2 <= rows {
        tile::<S, F, 2>(s, panel, x, first + r, &mut out[r * PANEL..]);
        r += 2;
    }
    if r < rows {
        tile::<S, F, 1>(s, panel, x, first + r, &mut out[r * PANEL..]);
    }
}

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

/// One row of weights times `T` rows: 16 partial sums by column modulo 16, then the tree.
#[inline(always)]
fn float_tile<S: Simd, W: Float, const T: usize>(
    s: S,
    w: &[W::Bits],
    x: &Input<'_>,
    first: usize,
    row: usize,
    out: &mut [f32],
) {
    let parts = SUMS / S::LANES;
    let mut rows = [&x.f[..0]; T];
    for (row, r) in rows.iter_mut().zip(first..) {
        *row = &x.f[r * x.cols..(r + 1) * x.cols];
    }
    let mut acc: [Lanes16<S>; T] = [[s.splat(0.0); 4]; T];
    let whole = x.cols / SUMS * SUMS;
    let mut k = 0;
    while k < whole {
        let w = &w[k..k + SUMS];
        unroll!(p < parts of 4 {
            let v = W::load(s, &w[p * S::LANES..]);
            unroll!(t < T of 16 { acc[t][p] = s.fma(v, s.load(&rows[t][k + p * S::LANES..]), acc[t][p]); });
        });
        k += SUMS;
    }
    if k < x.cols {
        let mut tail = [0.0; SUMS];
        for (t, w) in tail.iter_mut().zip(&w[k..x.cols]) {
            *t = W::widen(*w);
        }
        unroll!(t < T of 16 {
            let mut xs = [0.0; SUMS];
            xs[..x.cols - k].copy_from_slice(&rows[t][k..]);
            unroll!(p < parts of 4 {
                let at = p * S::LANES;
                acc[t][p] = s.fma(s.load(&tail[at..]), s.load(&xs[at..]), acc[t][p]);
            });
        });
    }
    unroll!(t < T of 16 { out[t * PANEL + row] = sum16(s, &acc[t]); });
}

/// [`panel`] for float weights; a panel of fewer than 16 rows is shorter.
#[inline(always)]
pub fn float_panel<S: Simd, W: Float>(
    s: S,
    panel: &[u8],
    x: &Input<'_>,
    first: usize,
    rows: usize,
    out: &mut [f32],
) {
    let w: &[W::Bits] = bytemuck::cast_slice(panel);
    let mut r = 0;
    while r < rows {
        let out = &mut out[r * PANEL..];
        let four = r + 4 <= rows;
        for (row, w) in w.chunks_exact(x.cols).enumerate() {
            if four {
                float_tile::<S, W, 4>(s, w, x, first + r, row, out);
            } else {
                float_tile::<S, W, 1>(s, w, x, first + r, row, out);
            }
        }
        r += if four { 4 } else { 1 };
    }
}
