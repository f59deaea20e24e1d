//! Kernels of routing: what the scores of experts count.

use super::row::elementwise;
use crate::simd::{Lanes16, SUMS, Simd, exp, sum16};

/// `out = exp(x - max) / sum`, over the whole row.
#[inline(always)]
pub fn softmax<S: Simd>(s: S, x: &[f32], out: &mut [f32]) {
    let max = x.iter().fold(f32::NEG_INFINITY, |max, v| if *v > max { *v } else { max });
    let top = s.splat(max);
    elementwise!(s, out, (v = x) exp(s, s.sub(v, top)));
    let mut acc: Lanes16<S> = [s.splat(0.0); 4];
    for part in out.chunks(SUMS) {
        let mut lanes = [0.0; SUMS];
        lanes[..part.len()].copy_from_slice(part);
        for p in 0..SUMS / S::LANES {
            acc[p] = s.add(acc[p], s.load(&lanes[p * S::LANES..]));
        }
    }
    let sum = sum16(s, &acc);
    for out in out {
        *out /= sum;
    }
}

/// `out = 1 / (1 + exp(-x))`.
#[inline(always)]
pub fn sigmoid<S: Simd>(s: S, x: &[f32], out: &mut [f32]) {
    let one = s.splat(1.0);
    elementwise!(s, out, (v = x) s.div(one, s.add(one, exp(s, s.sub(s.splat(0.0), v)))));
}
