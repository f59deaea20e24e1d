//! A panel of 16 rows of a quantized matrix times the step's rows.
//!
//! One shape serves decode and prefill: unpack a group of the panel once, dot it with up to `T` rows of
//! activations. Each output element is one sequence of operations over the columns, whatever `T` is.

use crate::format::{ActGroup, Format, GROUP, PANEL, QUAD};
use crate::simd::{Simd, unroll};

/// Bytes between what is read of a panel and what is asked of memory. Measured on a Zen 5 core, one row of activations,
/// matrices in memory: 35 to 40 GB/s at 4 KiB or without, 50 at 16 KiB.
pub const AHEAD: usize = 16 << 10;
/// The same where many rows share what is read: the next panel may be in the cache already.
const NEAR: usize = 4 << 10;

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
            let distance = if T < QUAD { AHEAD } else { NEAR };
            let ahead = block.as_ptr().wrapping_add(g * share + distance);
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
    if const { S::LANES == PANEL && S::REGISTERS == 32 } {
        // One register holds a column of sums: 16 of them hold those of a tile.
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
    if const { S::REGISTERS > 0 } && r + 2 <= rows {
        tile::<S, F, 2>(s, panel, x, first + r, &mut out[r * PANEL..]);
        r += 2;
    }
    while r < rows {
        tile::<S, F, 1>(s, panel, x, first + r, &mut out[r * PANEL..]);
        r += 1;
    }
}
