//! Products: rows are normalised and quantized, then multiplied with every panel.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Core, Local, Prepared};
use crate::format::{ActGroup, GROUP, PANEL, QUAD};
use crate::kernels::linear::Input;
use crate::pool::Team;
use crate::stage::{Linear, Part};

/// With at least this many rows, threads claim work as they go; below, it is split beforehand.
pub const CLAIM_FROM: usize = 4;
/// Bytes of the rows that a panel is multiplied with before the next panel's turn: they stay in the core's own cache.
const ROW_BYTES: usize = 384 << 10;
/// Bytes of the panels that all rows are multiplied with before the next panels' turn: they stay there too.
pub const PANEL_BYTES: usize = 256 << 10;
/// Rows of such a block come in these: whole tiles of every tier.
const TILE: usize = 16;
/// The same where only float matrices are multiplied with.
const FLOAT_TILE: usize = 6;
/// The most rows of a block.
pub const ROW_BLOCK: usize = 128;

/// How many rows a panel is multiplied with before the next panel's turn.
pub fn row_block(cols: usize, quantized: bool) -> usize {
    let (of_row, tile) = match quantized {
        true => (cols / GROUP * size_of::<ActGroup>(), TILE),
        false => (cols * size_of::<f32>(), FLOAT_TILE),
    };
    (ROW_BYTES / of_row.max(1)).clamp(tile, ROW_BLOCK) / tile * tile
}

/// The rows of a product as panel kernels read them.
struct Inputs<'a> {
    rows: Input<'a>,
    /// What quantization left out of them, where the product is precise.
    rest: Input<'a>,
    /// Both, one after the other: a row and its rest, or whole quads.
    both: Input<'a>,
}

/// Where a thread's kernels leave products, `[rows, 16]` each.
struct Tiles<'a> {
    tile: &'a mut [f32],
    joined: &'a mut [f32],
}

impl Core {
    pub(super) fn linear(&self, linear: &Linear, claim: &AtomicUsize, team: &Team<'_>, local: &mut Local) {
        let n = self.rows_of(linear.x);
        let cols = self.width(linear.x);
        if n == 0 {
            return;
        }
        let Local { prepared: own, tile, joined, heads, .. } = local;
        let mut tiles = Tiles { tile, joined };
        // One row is prepared by every thread for itself: cheaper than to wait for the one that does it.
        let prepared = if n == 1 {
            self.prepare(linear, 0..1, own, heads);
            &*own
        } else {
            // Rows of a quad lie between each other: one thread has them all.
            let (quads, single) = (n / QUAD, n % QUAD);
            for i in team.share(quads + single) {
                let rows = match i.checked_sub(quads) {
                    None => i * QUAD..(i + 1) * QUAD,
                    Some(i) => quads * QUAD + i..quads * QUAD + i + 1,
                };
                self.prepare(linear, rows, &self.prepared, heads);
            }
            team.barrier();
            &self.prepared
        };
        let per_row = cols / GROUP;
        // SAFETY: prepared by this thread, or by all before the barrier; nobody writes until the next stage.
        let (f, both): (_, &[ActGroup]) = unsafe {
            let f = match linear.norm {
                Some(_) => prepared.f.read(0..n * cols),
                None => self.read(linear.x, 0..n),
            };
            let times = if linear.precise { 2 } else { 1 };
            let groups = if linear.quantized { prepared.groups.read(0..times * n * per_row) } else { &[] };
            (f, groups)
        };
        let (groups, rest) = both.split_at(both.len().min(n * per_row));
        let rows = Input { cols, rows: n, f, groups };
        let inputs = Inputs {
            rows,
            rest: Input { groups: rest, ..rows },
            both: Input { rows: 2 * n, groups: both, ..rows },
        };
        if n < CLAIM_FROM {
            for panel in linear.split[team.thread]..linear.split[team.thread + 1] {
                self.panel(linear, panel, &inputs, 0..n, &mut tiles);
            }
            return;
        }
        let block = row_block(cols, linear.quantized);
        let chunk = (PANEL_BYTES / linear.panel_bytes).min(linear.panels / (8 * team.threads)).max(1);
        let chunks = linear.panels.div_ceil(chunk);
        loop {
            let task = claim.fetch_add(1, Ordering::Relaxed);
            if task >= chunks {
                return;
            }
            let panels = task * chunk..((task + 1) * chunk).min(linear.panels);
            for first in (0..n).step_by(block) {
                for panel in panels.clone() {
                    self.panel(linear, panel, &inputs, first..(first + block).min(n), &mut tiles);
                }
            }
        }
    }

    /// Normalises and quantizes rows: a quad, or one row behind the last quad.
    fn prepare(&self, linear: &Linear, rows: Range<usize>, to: &Prepared, scratch: &mut [f32]) {
        let cols = self.width(linear.x);
        let per_row = cols / GROUP;
        let all = self.rows_of(linear.x);
        let part = rows.start * per_row..rows.end * per_row;
        let apart = rows.len();
        for (i, r) in rows.enumerate() {
            // SAFETY: an earlier stage wrote the row.
            let x = unsafe { self.read(linear.x, r..r + 1) };
            let mut row = x;
            if let Some(norm) = &linear.norm {
                // SAFETY: this row of `to` is this thread's alone.
                let normed = unsafe { to.f.write(r * cols..(r + 1) * cols) };
                (self.kernels.rms_norm)(x, self.vector(norm), norm.eps, normed);
                row = normed;
            }
            if linear.quantized {
                // SAFETY: the quad's groups are this thread's alone.
                let groups = unsafe { to.groups.write(part.clone()) };
                (self.kernels.quantize)(row, &mut groups[i..], apart);
                if linear.precise {
                    (self.kernels.rest)(row, &groups[i..], apart, &mut scratch[..cols]);
                    // What is left out lies behind all rows.
                    let behind = all * per_row;
                    // SAFETY: as above.
                    let rest = unsafe { to.groups.write(behind + part.start..behind + part.end) };
                    (self.kernels.quantize)(&scratch[..cols], &mut rest[i..], apart);
                }
            }
        }
    }

    /// Multiplies rows with one panel of the stage, and stores the product.
    fn panel(
        &self,
        linear: &Linear,
        mut panel: usize,
        inputs: &Inputs<'_>,
        rows: Range<usize>,
        Tiles { tile, joined }: &mut Tiles<'_>,
    ) {
        let n = rows.len();
        let joined = &mut joined[..n * PANEL];
        if let Some(act) = linear.glu {
            let tile = &mut tile[..n * PANEL];
            let [gate, up] = [0, 1].map(|i| self.stages.matrix(linear.parts[i].w));
            (gate.kernel)(gate.panel(panel), &inputs.rows, rows.start, n, tile);
            (up.kernel)(up.panel(panel), &inputs.rows, rows.start, n, joined);
            let part = &linear.parts[0];
            self.store(part, panel, rows, tile, |gate, i, out| {
                (self.kernels.glu)(act, gate, &joined[i..i + gate.len()], out);
            });
            return;
        }
        for part in &linear.parts {
            let matrix = self.stages.matrix(part.w);
            if panel >= matrix.panels() {
                panel -= matrix.panels();
                continue;
            }
            let bytes = matrix.panel(panel);
            if part.precise
                && n == inputs.rows.rows
                && (n == 1 || n.is_multiple_of(QUAD) && 2 * n <= ROW_BLOCK)
            {
                // Both quantizations of few rows in one pass over the panel.
                (matrix.kernel)(bytes, &inputs.both, 0, 2 * n, tile);
                let (tile, rest) = tile.split_at_mut(n * PANEL);
                add_to(tile, &rest[..n * PANEL]);
            } else {
                (matrix.kernel)(bytes, &inputs.rows, rows.start, n, tile);
                if part.precise {
                    (matrix.kernel)(bytes, &inputs.rest, rows.start, n, joined);
                    add_to(tile, joined);
                }
            }
            let tile = &tile[..n * PANEL];
            let column = panel * PANEL;
            let bias = part.bias.map(|b| &self.stages.vectors[b.index()][column..]);
            self.store(part, panel, rows, tile, |product, _, out| match (bias, part.add) {
                (Some(bias), _) => {
                    for ((o, p), b) in out.iter_mut().zip(product).zip(bias) {
                        *o = p + b;
                    }
                }
                (None, Some(_)) => {
                    for (o, p) in out.iter_mut().zip(product) {
                        *o += p;
                    }
                }
                (None, None) => out.copy_from_slice(product),
            });
            return;
        }
    }

    /// Hands each row's piece of a finished tile `[rows, 16]` to `put(product, index in the tile, out)`. Where
    /// the part adds rows, `out` holds them already.
    fn store(
        &self,
        part: &Part,
        panel: usize,
        rows: Range<usize>,
        tile: &[f32],
        put: impl Fn(&[f32], usize, &mut [f32]),
    ) {
        let (width, column) = (self.width(part.out), panel * PANEL);
        let end = (column + PANEL).min(width);
        for (i, r) in rows.enumerate() {
            let (region, row) = self.place(part.out, r..r + 1);
            // SAFETY: these columns of the row belong to this panel, which one thread has.
            let out = unsafe { region.write(row.start + column..row.start + end) };
            if let Some(add) = part.add {
                let (from, row) = self.place(add, r..r + 1);
                if self.arena.places[add.index()] != self.arena.places[part.out.index()] {
                    // SAFETY: an earlier stage wrote them.
                    out.copy_from_slice(unsafe { from.read(row.start + column..row.start + end) });
                }
            }
            put(&tile[i * PANEL..i * PANEL + out.len()], i * PANEL, out);
        }
    }
}

fn add_to(to: &mut [f32], x: &[f32]) {
    for (to, x) in to.iter_mut().zip(x) {
        *to += *x;
    }
}
