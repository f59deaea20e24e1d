//! E2M1, the 4-bit floats of MXFP4 and NVFP4 (OCP Microscaling Formats specification, version 1.0): the sign in bit 3,
//! the magnitude, 0, 0.5, 1, 1.5, 2, 3, 4 or 6, in the others. As in ggml there is no negative zero.

use crate::importance::Weighed;
use crate::lanes::Lanes;

/// Twice the values that the codes stand for.
pub const LEVELS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The codes of the nearest levels (of two as near, the smaller) to magnitudes, and the levels.
#[inline]
fn nearest(magnitude: Lanes) -> (Lanes, Lanes) {
    let (mut code, mut level) = (Lanes::default(), Lanes::default());
    for neighbours in LEVELS[..8].windows(2) {
        let (below, above) = (f32::from(neighbours[0]), f32::from(neighbours[1]));
        let passed = magnitude.above((below + above) / 2.0);
        code += passed;
        level += passed * (above - below);
    }
    (code, level)
}

/// The squared error of magnitudes in units of half a scale, and in these units.
pub(crate) fn squared_error<const L: usize>(magnitudes: Weighed<L>) -> f32 {
    let mut sum = Lanes::default();
    for (v, w) in magnitudes.lanes() {
        let error = nearest(v).1 - v;
        sum += error * error * w;
    }
    sum.total()
}

/// The codes of weights `x`, whose magnitudes are given in units of half a scale.
pub(crate) fn codes<const L: usize>(x: &[f32; L], magnitudes: &[f32; L]) -> [u8; L] {
    let mut codes = [0; L];
    for (codes, v) in codes.as_chunks_mut().0.iter_mut().zip(Lanes::of(magnitudes)) {
        *codes = nearest(v).0.array().map(|code| code as u8);
    }
    for (code, v) in codes.iter_mut().zip(x) {
        *code |= if *v < 0.0 && *code > 0 { 8 } else { 0 };
    }
    codes
}
