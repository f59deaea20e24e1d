//! A panel of 16 rows of a quantized matrix times the step's rows.
//!
//! One shape serves decode and prefill: unpack a group of the panel once, dot it with a tile of `T` rows of
//! activations. Where there are several tiles, groups are unpacked into a buffer for all of them, some columns at a time.
//! Each output element is one sequence of operations over the columns, whatever `T` is.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::format::{ActGroup, Format, GROUP, PANEL, QUAD};
use crate::simd::{Simd, unroll};

/// Bytes between what is read of a panel and what is asked of memory. Measured on a Zen 5 core, one row of activations,
/// matrices of ten times the last cache: 38 GB/s at 8 KiB, 36 at 4, 34 at 16 or 32, 24 to 34 (by format) without. Four or
/// eight rows gain a fifth and an eighth from 4 to 8 KiB, and many rows nothing more.
pub const AHEAD: usize = 8 << 10;

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

/// Groups that are unpacked at a time for several tiles: what they take stays in the first cache.
const CHUNK: usize = 16;

/// Where a tile has a panel's groups from.
trait Groups<S: Simd, F: Format>: Copy {
    /// Rows `pass * LANES..` of group `g` of block `b`.
    fn group(self, s: S, b: usize, g: usize, pass: usize) -> F::Group<S>;
}

/// A panel: its groups are unpacked as they are needed.
impl<S: Simd, F: Format> Groups<S, F> for &[u8] {
    /// Asks for what comes later with the first pass.
    #[inline(always)]
    fn group(self, s: S, b: usize, g: usize, pass: usize) -> F::Group<S> {
        let block = &self[b * F::PANEL_BYTES..(b + 1) * F::PANEL_BYTES];
        if pass == 0 {
            // The panel streams from memory. The hardware's own prefetch stops at every page.
            let share = F::PANEL_BYTES / F::GROUPS;
            let ahead = block.as_ptr().wrapping_add(g * share + AHEAD);
            let mut line = 0;
            while line < share {
                s.prefetch(ahead.wrapping_add(line));
                line += 64;
            }
        }
        F::unpack(s, block, g, pass * S::LANES)
    }
}

/// Groups that were unpacked before: `[groups of the chunk, passes]`.
type Unpacked<G> = [[MaybeUninit<G>; 4]; CHUNK];

impl<S: Simd, F: Format> Groups<S, F> for &Unpacked<F::Group<S>> {
    #[inline(always)]
    fn group(self, _s: S, b: usize, g: usize, pass: usize) -> F::Group<S> {
        // SAFETY: `several_tiles` writes the groups of a chunk before it hands them out.
        unsafe { self[(b * F::GROUPS + g) % CHUNK][pass].assume_init() }
    }
}

/// Rows `first..first + T` times blocks of one panel, added to what `out` has if there are blocks before:
/// `out[t * 16 + row of the panel]`. A tile is whole quads or, where `T < 4`, rows behind the last quad.
#[inline(always)]
fn tile<S: Simd, F: Format, const T: usize>(
    s: S,
    blocks: Range<usize>,
    from: impl Groups<S, F>,
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
        *bundle = &x.groups[at..at + together * per_row][..together * F::GROUPS * blocks.end];
    }
    let mut acc = [[s.splat(0.0); T]; 4];
    if blocks.start > 0 {
        unroll!(t < T of 16 {
            unroll!(p < passes of 4 { acc[p][t] = s.load(&out[t * PANEL + p * S::LANES..]); });
        });
    }
    for b in blocks {
        // A loop of its own: what all groups of a block share is done once.
        for g in 0..F::GROUPS {
            let at = (b * F::GROUPS + g) * together;
            unroll!(p < passes of 4 {
                let w = from.group(s, b, g, p);
                let mut at = at;
                unroll!(t < T of 16 {
                    // SAFETY: `at` is below `blocks.end * GROUPS * together`, the length of every bundle.
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
    let blocks = 0..x.cols / F::TYPE.block_len();
    let quads = (x.rows / QUAD * QUAD).saturating_sub(first).min(rows);
    let mut r = 0;
    if const { S::LANES == PANEL && S::REGISTERS == 32 } {
        // One register holds a column of sums: 16 of them hold those of a tile, and others its weights, for so many rows that
        // unpacking hardly shows.
        while r + 16 <= quads {
            tile::<S, F, 16>(s, blocks.clone(), panel, x, first + r, &mut out[r * PANEL..]);
            r += 16;
        }
        if r + 8 <= quads {
            tile::<S, F, 8>(s, blocks.clone(), panel, x, first + r, &mut out[r * PANEL..]);
            r += 8;
        }
    } else if const { S::REGISTERS > 0 } && quads > QUAD {
        several_tiles::<S, F>(s, panel, x, first, quads, out);
        r = quads;
    }
    while r + 4 <= quads {
        tile::<S, F, 4>(s, blocks.clone(), panel, x, first + r, &mut out[r * PANEL..]);
        r += 4;
    }
    if const { S::REGISTERS > 0 } && r + 2 <= rows {
        tile::<S, F, 2>(s, blocks.clone(), panel, x, first + r, &mut out[r * PANEL..]);
        r += 2;
    }
    while r < rows {
        tile::<S, F, 1>(s, blocks.clone(), panel, x, first + r, &mut out[r * PANEL..]);
        r += 1;
    }
}

/// Whole quads of rows times one panel, whose groups are unpacked once for all of them.
#[inline(always)]
fn several_tiles<S: Simd, F: Format>(
    s: S,
    panel: &[u8],
    x: &Input<'_>,
    first: usize,
    rows: usize,
    out: &mut [f32],
) {
    let passes = PANEL / S::LANES;
    let all = x.cols / F::TYPE.block_len();
    let mut unpacked: Unpacked<F::Group<S>> = [[const { MaybeUninit::uninit() }; 4]; CHUNK];
    for from in (0..all).step_by(CHUNK / F::GROUPS) {
        let blocks = from..(from + CHUNK / F::GROUPS).min(all);
        for b in blocks.clone() {
            for g in 0..F::GROUPS {
                for (pass, to) in unpacked[(b * F::GROUPS + g) % CHUNK].iter_mut().enumerate().take(passes) {
                    to.write(Groups::<S, F>::group(panel, s, b, g, pass));
                }
            }
        }
        for r in (0..rows).step_by(QUAD) {
            tile::<S, F, QUAD>(s, blocks.clone(), &unpacked, x, first + r, &mut out[r * PANEL..]);
        }
    }
}
