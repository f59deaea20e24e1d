//! Weights in the form that the kernels read.

use cera_quant::Type;
use rayon::prelude::*;

use crate::format::{Format, GROUP, PANEL, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
use crate::kernels::{Kernels, PanelFn};

/// A cache line: what the panels of a matrix are aligned to.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

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
    match ty {
        Type::Q4_0 => of::<Q4_0>(),
        Type::Q4_1 => of::<Q4_1>(),
        Type::Q5_0 => of::<Q5_0>(),
        Type::Q5_1 => of::<Q5_1>(),
        Type::Q8_0 => of::<Q8_0>(),
        Type::Q4_K => of::<Q4K>(),
        Type::Q5_K => of::<Q5K>(),
        Type::Q6_K => of::<Q6K>(),
        _ => None,
    }
}

/// A weight matrix `[rows, cols]`: panels of 16 rows, interleaved where it is quantized, as they were where it
/// holds floats.
pub struct Matrix {
    /// How its numbers are stored.
    pub ty: Type,
    /// Outputs.
    pub rows: usize,
    /// The kernel that multiplies a panel.
    pub kernel: PanelFn,
    packer: Option<Packer>,
    panel_bytes: usize,
    lines: Vec<Line>,
}

impl Matrix {
    /// Packs a matrix from the file's bytes: `rows` rows of whole blocks. `None` where there is no kernel for
    /// the type or no memory.
    pub fn pack(kernels: &Kernels, ty: Type, rows: usize, cols: usize, bytes: &[u8]) -> Option<Matrix> {
        let kernel = (kernels.panel)(ty)?;
        let packer = packer(ty);
        let row_bytes = ty.row_bytes(cols)?;
        let panel_bytes = PANEL.checked_mul(row_bytes)?;
        if cols == 0
            || bytes.len() != rows.checked_mul(row_bytes)?
            || (packer.is_some() && !cols.is_multiple_of(GROUP))
        {
            return None;
        }
        let whole = match packer {
            Some(_) => rows.div_ceil(PANEL).checked_mul(panel_bytes)?,
            None => bytes.len(),
        };
        let mut lines: Vec<Line> = bytemuck::allocation::try_zeroed_vec(whole.div_ceil(64)).ok()?;
        want_huge_pages(&mut lines);
        let out: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut lines)[..whole];
        let sources = bytes.par_chunks(panel_bytes);
        out.par_chunks_mut(panel_bytes).zip(sources).for_each(|(panel, source)| match packer {
            Some(p) => pack_panel(p, ty, row_bytes, source, panel),
            None => panel.copy_from_slice(source),
        });
        Some(Matrix { ty, rows, kernel, packer, panel_bytes, lines })
    }

    /// Panels, the last of which may hold fewer than 16 rows.
    pub fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL)
    }

    /// Whether the kernel reads quantized activations.
    pub fn is_quantized(&self) -> bool {
        self.packer.is_some()
    }

    /// Bytes of a whole panel.
    pub fn panel_bytes(&self) -> usize {
        self.panel_bytes
    }

    /// The bytes of panel `p`.
    pub fn panel(&self, p: usize) -> &[u8] {
        let bytes: &[u8] = bytemuck::cast_slice(&self.lines);
        let end = match self.packer {
            Some(_) => (p + 1) * self.panel_bytes,
            None => ((p + 1) * self.panel_bytes).min(self.rows * (self.panel_bytes / PANEL)),
        };
        &bytes[p * self.panel_bytes..end]
    }

    /// Decodes row `row` into `out [cols]`; `block` holds one block of the file.
    pub fn decode_row(&self, row: usize, block: &mut Vec<u8>, out: &mut [f32]) {
        let panel = self.panel(row / PANEL);
        let Some(codec) = self.ty.codec() else { return };
        let Some(packer) = self.packer else {
            let row_bytes = self.panel_bytes / PANEL;
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

/// Asks for pages of 2 MiB under untouched memory: fewer faults while packing, and no end of a page every 4 KiB
/// where the hardware's prefetch stops.
#[cfg(target_os = "linux")]
fn want_huge_pages(lines: &mut [Line]) {
    const HUGE: usize = 2 << 20;
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(lines);
    let skip = bytes.as_ptr().align_offset(HUGE);
    let Some(whole) = bytes.len().checked_sub(skip).map(|n| n / HUGE * HUGE).filter(|n| *n > 0) else {
        return;
    };
    let inside = &mut bytes[skip..skip + whole];
    // SAFETY: the range is whole pages of memory that `inside` borrows alone; the advice changes no byte of it. A
    // refusal leaves small pages, which are only slower.
    unsafe { libc::madvise(inside.as_mut_ptr().cast(), inside.len(), libc::MADV_HUGEPAGE) };
}

/// Elsewhere the system decides.
#[cfg(not(target_os = "linux"))]
fn want_huge_pages(_lines: &mut [Line]) {}

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
            Type::Q4_K,
            Type::Q5_K,
            Type::Q6_K,
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
