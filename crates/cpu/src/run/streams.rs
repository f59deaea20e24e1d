//! Stages on rows by themselves, or on several streams of them.

use super::Core;
use crate::stage::streams::Streams;

impl Core {
    /// A stage on row `r`.
    pub(super) fn streams(&self, stage: &Streams, r: usize, copy: &mut [f32]) {
        let row = r..r + 1;
        // SAFETY (for the whole match): row `r` of every output is this thread's alone in this stage, and inputs
        // were written by earlier stages; an output in the place of an input is read before it is written.
        match stage {
            Streams::ScaleColumns { out, x, w } => {
                let by = &self.stages.vectors[w.index()];
                // SAFETY: as above.
                let out = unsafe { self.moved(*out, *x, r) };
                match by[..] {
                    [by] => out.iter_mut().for_each(|o| *o *= by),
                    _ => out.iter_mut().zip(by).for_each(|(o, by)| *o *= by),
                }
            }
            Streams::UnitNorm { out, x, ones, eps } => {
                // SAFETY: as above; the copy keeps input and output apart.
                let x = unsafe { self.read(*x, row.clone()) };
                let copy = &mut copy[..x.len()];
                copy.copy_from_slice(x);
                // SAFETY: as above. Times 1 changes no bit.
                (self.kernels.rms_norm)(copy, ones, *eps, unsafe { self.write(*out, row) });
            }
            Streams::MatchSize { out, x, to } => {
                // SAFETY: as above; the output has a place of its own.
                let (x, to, out) = unsafe {
                    (self.read(*x, row.clone()), self.read(*to, row.clone()), self.write(*out, row))
                };
                (self.kernels.match_size)(x, to, out);
            }
            Streams::Blend { out, base, xs, weights } => {
                // SAFETY: as above; the output is in none of these places.
                let weights = &unsafe { self.read(weights.of, row.clone()) }[weights.first..];
                // SAFETY: as above.
                let out = unsafe { self.moved(*out, *base, r) };
                for (x, by) in xs.iter().zip(weights) {
                    // SAFETY: as above.
                    (self.kernels.add_scaled)(*by, unsafe { self.read(*x, row.clone()) }, out);
                }
            }
            Streams::Sparsify { out, x, deviations } => {
                // SAFETY: as above; the copy keeps input and output apart.
                let x = unsafe { self.read(*x, row.clone()) };
                let copy = &mut copy[..x.len()];
                copy.copy_from_slice(x);
                // SAFETY: as above.
                (self.kernels.sparsify)(copy, *deviations, unsafe { self.write(*out, row) });
            }
        }
    }
}
