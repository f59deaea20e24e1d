//! Weights in the form that the kernels read.

use std::sync::Arc;

use cera_quant::Type;
use memmap2::{Mmap, MmapMut};
use rayon::prelude::*;

use crate::format::{Format, GROUP, PANEL, by_type};
use crate::kernels::{Kernels, PanelFn};

/// Bytes of a cache line, to which packed matrices are aligned.
const LINE: usize = 64;
/// Bytes that a task of packing takes.
const TASK_BYTES: usize = 256 << 10;

/// How a format's blocks go in and out of a panel.
#[derive(Clone, Copy)]
struct Packer {
    pack: fn(&[u8], usize, &mut [u8]),
    unpack_row: fn(&[u8], usize, &mut [u8]),
}

fn packer(ty: Type) -> Option<Packer> {
    fn of<F: Format>() -> Option<Packer> {
        Some(Packer { pack: F::pack, unpack_row: F::unpack_row })
    }
    by_type!(ty, of)
}

/// How a stack of weight matrices `[rows, cols]`, mostly of one, is packed: panels of 16 rows, interleaved where it is
/// quantized, as they were where it holds floats. Each matrix begins a panel.
#[derive(Clone, Copy)]
pub struct Layout {
    ty: Type,
    /// Matrices.
    count: usize,
    /// Rows of each.
    rows: usize,
    row_bytes: usize,
    kernel: PanelFn,
    packer: Option<Packer>,
}

impl Layout {
    /// One matrix. `None` where there is no kernel for the type, or a row is not whole groups.
    pub fn new(kernels: &Kernels, ty: Type, rows: usize, cols: usize) -> Option<Layout> {
        Layout::stack(kernels, ty, 1, rows, cols)
    }

    /// `count` matrices, one after another. `None` as in [`Self::new`].
    pub fn stack(kernels: &Kernels, ty: Type, count: usize, rows: usize, cols: usize) -> Option<Layout> {
        let kernel = (kernels.panel)(ty)?;
        let packer = packer(ty);
        let row_bytes = ty.row_bytes(cols)?;
        let whole = cols > 0 && (packer.is_none() || cols.is_multiple_of(GROUP));
        let layout = Layout { ty, count, rows, row_bytes, kernel, packer };
        // With room to round up to a cache line.
        layout.panel_rows().checked_mul(row_bytes)?.checked_mul(count)?.checked_add(LINE)?;
        whole.then_some(layout)
    }

    /// Rows of a matrix in memory: the last panel of an interleaved matrix is whole.
    fn panel_rows(&self) -> usize {
        match self.packer {
            Some(_) => self.rows.next_multiple_of(PANEL),
            None => self.rows,
        }
    }

    /// Bytes of one packed matrix.
    fn matrix_bytes(&self) -> usize {
        self.panel_rows() * self.row_bytes
    }

    /// Bytes of the packed stack, whole cache lines.
    pub fn bytes(&self) -> usize {
        (self.count * self.matrix_bytes()).next_multiple_of(LINE)
    }

    /// Packs the file's bytes, `rows` rows of whole blocks for each matrix, into [`Self::bytes`] zeros, with all cores. Returns whether the
    /// source has the right size.
    pub fn pack(&self, source: &[u8], out: &mut [u8]) -> bool {
        if source.len() != self.count * self.rows * self.row_bytes || out.len() != self.bytes() {
            return false;
        }
        if self.rows > 0 {
            let sources = source.par_chunks(self.rows * self.row_bytes);
            let matrices = out.par_chunks_mut(self.matrix_bytes());
            matrices.zip(sources).for_each(|(out, source)| self.pack_one(source, out));
        }
        true
    }

    /// Packs one matrix.
    fn pack_one(&self, source: &[u8], out: &mut [u8]) {
        let panel_bytes = PANEL * self.row_bytes;
        // Some panels for each task, so that the tasks of small matrices are worth their cost.
        let each = (TASK_BYTES / panel_bytes).max(1) * panel_bytes;
        out.par_chunks_mut(each).zip(source.par_chunks(each)).for_each(|(out, source)| match self.packer {
            Some(packer) => {
                for (panel, source) in out.chunks_mut(panel_bytes).zip(source.chunks(panel_bytes)) {
                    pack_panel(packer, self.ty, self.row_bytes, source, panel);
                }
            }
            None => out[..source.len()].copy_from_slice(source),
        });
    }
}

/// A packed weight matrix, or a stack of them.
pub struct Matrix {
    /// How its numbers are stored.
    pub ty: Type,
    /// The kernel that multiplies a panel.
    pub kernel: PanelFn,
    layout: Layout,
    memory: Arc<Mmap>,
    /// Where it starts.
    at: usize,
}

impl Matrix {
    /// The matrix that was packed at `at` of `memory`.
    pub fn new(layout: Layout, memory: Arc<Mmap>, at: usize) -> Matrix {
        Matrix { ty: layout.ty, kernel: layout.kernel, layout, memory, at }
    }

    /// A matrix in memory of its own.
    #[cfg(test)]
    pub fn pack(kernels: &Kernels, ty: Type, rows: usize, cols: usize, bytes: &[u8]) -> Option<Matrix> {
        let layout = Layout::new(kernels, ty, rows, cols)?;
        let mut memory = memory(layout.bytes()).ok()?;
        let fits = layout.pack(bytes, &mut memory[..layout.bytes()]);
        fits.then(|| Some(Matrix::new(layout, Arc::new(memory.make_read_only().ok()?), 0)))?
    }

    /// Panels of one matrix, the last of which may hold fewer than 16 rows.
    pub fn panels(&self) -> usize {
        self.layout.rows.div_ceil(PANEL)
    }

    /// Whether the kernel reads quantized activations.
    pub fn is_quantized(&self) -> bool {
        self.layout.packer.is_some()
    }

    /// Bytes of a whole panel.
    pub fn panel_bytes(&self) -> usize {
        PANEL * self.layout.row_bytes
    }

    /// The bytes of panel `p`.
    pub fn panel(&self, p: usize) -> &[u8] {
        self.panel_of(0, p)
    }

    /// The bytes of panel `p` of matrix `m` of a stack.
    pub fn panel_of(&self, m: usize, p: usize) -> &[u8] {
        let end = ((p + 1) * PANEL).min(self.layout.panel_rows()) * self.layout.row_bytes;
        let at = self.at + m * self.layout.matrix_bytes();
        &self.memory[at + p * self.panel_bytes()..at + end]
    }

    /// Decodes row `row` into `out [cols]`; `block` holds one block of the file.
    pub fn decode_row(&self, row: usize, block: &mut Vec<u8>, out: &mut [f32]) {
        let panel = self.panel(row / PANEL);
        let Some(codec) = self.ty.codec() else { return };
        let Some(packer) = self.layout.packer else {
            let row_bytes = self.layout.row_bytes;
            let at = row % PANEL * row_bytes;
            codec.decode(&panel[at..at + row_bytes], out);
            return;
        };
        let bytes = self.ty.block_bytes();
        block.resize(bytes, 0);
        for (part, out) in panel.chunks_exact(PANEL * bytes).zip(out.chunks_exact_mut(self.ty.block_len())) {
            (packer.unpack_row)(part, row % PANEL, block);
            codec.decode(block, out);
        }
    }
}

/// Memory for packed matrices: zeros that nothing has touched, so that the system can give pages of 2 MiB for it. With
/// those, packing meets fewer faults, and the hardware's prefetch does not stop every 4 KiB.
pub fn memory(bytes: usize) -> std::io::Result<MmapMut> {
    let memory = MmapMut::map_anon(bytes.max(1))?;
    // A refusal leaves small pages, which are only slower.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    Ok(memory)
}

fn pack_panel(packer: Packer, ty: Type, row_bytes: usize, source: &[u8], panel: &mut [u8]) {
    let bytes = ty.block_bytes();
    for (row, source) in source.chunks_exact(row_bytes).enumerate() {
        for (block, part) in source.chunks_exact(bytes).zip(panel.chunks_exact_mut(PANEL * bytes)) {
            (packer.pack)(block, row, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tier;

    #[test]
    fn a_packed_row_decodes_to_the_files_own_bits_in_every_format() {
        let kernels = Kernels::new(Tier::Scalar).unwrap();
        let mut state = 1u64;
        let mut byte = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u8
        };
        let types = [
            Type::F32,
            Type::F16,
            Type::BF16,
            Type::Q4_0,
            Type::Q4_1,
            Type::Q5_0,
            Type::Q5_1,
            Type::Q8_0,
            Type::Q2_K,
            Type::Q3_K,
            Type::Q4_K,
            Type::Q5_K,
            Type::Q6_K,
            Type::IQ4_NL,
            Type::IQ4_XS,
            Type::MXFP4,
            Type::IQ1_S,
            Type::IQ1_M,
            Type::IQ2_XXS,
            Type::IQ2_XS,
            Type::IQ2_S,
            Type::IQ3_XXS,
            Type::IQ3_S,
            Type::TQ1_0,
            Type::TQ2_0,
            Type::NVFP4,
            Type::Q1_0,
            Type::Q2_0,
        ];
        for ty in types {
            let (rows, cols) = (37, 512);
            let row_bytes = ty.row_bytes(cols).unwrap();
            let bytes: Vec<u8> = (0..rows * row_bytes).map(|_| byte()).collect();
            let m = Matrix::pack(&kernels, ty, rows, cols, &bytes).unwrap();
            let (mut got, mut expected) = (vec![0.0; cols], vec![0.0; cols]);
            for (row, source) in bytes.chunks_exact(row_bytes).enumerate() {
                m.decode_row(row, &mut Vec::new(), &mut got);
                cera_quant::decode(ty, source, &mut expected).unwrap();
                let bits = |x: &[f32]| x.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&got), bits(&expected), "{} row {row}", ty.name());
            }
        }
    }
}
