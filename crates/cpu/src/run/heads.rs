//! Heads times their own matrices: each head is a product by itself, which one thread has.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::linear::row_block;
use super::moe::group_at;
use super::{Core, Local};
use crate::format::{ActGroup, GROUP, PANEL};
use crate::kernels::linear::Input;
use crate::stage::HeadLinear;

impl Core {
    /// Heads are claimed. A thread prepares all rows of a head and multiplies them with its matrix, so that nobody waits.
    pub(super) fn head_linear(&self, h: &HeadLinear, claim: &AtomicUsize, local: &mut Local) {
        let n = self.rows_of(h.x);
        if n == 0 {
            return;
        }
        loop {
            let head = claim.fetch_add(1, Ordering::Relaxed);
            if head >= h.heads {
                return;
            }
            self.one_head(h, head, n, &mut local.tile);
        }
    }

    fn one_head(&self, h: &HeadLinear, head: usize, n: usize, tile: &mut [f32]) {
        let HeadLinear { cols, rows, .. } = *h;
        let (matrix, dim) = (self.stages.matrix(h.w), self.width(h.x) / h.heads);
        let quantized = matrix.is_quantized();
        let per_row = cols / GROUP;
        let (mut f, mut groups): (&mut [f32], &mut [ActGroup]) = (&mut [], &mut []);
        let part = |of_row: usize| head * n * of_row..(head + 1) * n * of_row;
        if quantized {
            // SAFETY: this head's part of the prepared rows is this thread's alone in this stage.
            groups = unsafe { self.prepared.groups.write(part(per_row)) };
        } else {
            // SAFETY: as above.
            f = unsafe { self.prepared.f.write(part(cols)) };
        }
        let of_head = rows + dim - cols;
        for r in 0..n {
            // SAFETY: an earlier stage wrote the row.
            let x = unsafe { &self.read(h.x, r..r + 1)[head * dim..(head + 1) * dim] };
            if quantized {
                let first = group_at(r, n, per_row, 0);
                let apart = if per_row > 1 { group_at(r, n, per_row, 1) - first } else { 1 };
                (self.kernels.quantize)(&x[..cols], &mut groups[first..], apart);
            } else {
                f[r * cols..(r + 1) * cols].copy_from_slice(&x[..cols]);
            }
            self.of_head(h, r, head * of_head + rows..(head + 1) * of_head).copy_from_slice(&x[cols..]);
        }
        let input = Input { cols, rows: n, f, groups };
        let block = row_block(cols, quantized);
        for first in (0..n).step_by(block) {
            let some = block.min(n - first);
            for panel in 0..matrix.panels() {
                let tile = &mut tile[..some * PANEL];
                (matrix.kernel)(matrix.panel_of(head, panel), &input, first, some, tile);
                let columns = panel * PANEL..((panel + 1) * PANEL).min(rows);
                for (r, product) in (first..).zip(tile.chunks_exact(PANEL)) {
                    let out =
                        self.of_head(h, r, head * of_head + columns.start..head * of_head + columns.end);
                    out.copy_from_slice(&product[..columns.len()]);
                }
            }
        }
    }

    /// Columns of a row of the output, within one head, which one thread has in this stage.
    #[allow(clippy::mut_from_ref)] // see `Shared::write`
    fn of_head(&self, h: &HeadLinear, r: usize, columns: std::ops::Range<usize>) -> &mut [f32] {
        let (region, row) = self.place(h.out, r..r + 1);
        // SAFETY: as above; no slice of the head's columns outlives its use.
        unsafe { region.write(row.start + columns.start..row.start + columns.end) }
    }
}
