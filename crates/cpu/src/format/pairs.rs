//! Numbers of two bits, or the two high bits of longer ones: where Q2_K, Q3_K and Q6_K have them in the file, and the
//! two planes of a panel that hold a group's.

use super::{PANEL, PLANE, Steps, put_word, word};
use crate::simd::{STEPS, Simd};

const LOW_PAIRS: u32 = 0x0303_0303;

/// The pairs of group `g` in the 64 bytes that a block of the file has of them: four groups share 32 bytes.
pub fn read_pairs(qs: &[u8], g: usize) -> Steps {
    std::array::from_fn(|j| (word(qs, STEPS * (g / 4) + j) >> (2 * (g % 4))) & LOW_PAIRS)
}

/// The inverse of [`read_pairs`]; `qs` starts as zeros.
pub fn write_pairs(qs: &mut [u8], g: usize, steps: &Steps) {
    for (j, step) in steps.iter().enumerate() {
        let at = STEPS * (g / 4) + j;
        let v = word(qs, at) | (step & LOW_PAIRS) << (2 * (g % 4));
        put_word(qs, at, v);
    }
}

/// Stores the low two bits of a row's numbers in two planes of a panel.
pub fn put_pairs(steps: &Steps, row: usize, planes: &mut [u8]) {
    for h in 0..2 {
        let v = (0..4).fold(0, |v, j| v | (steps[4 * h + j] & LOW_PAIRS) << (2 * j));
        put_word(planes, PANEL * h + row, v);
    }
}

/// The inverse of [`put_pairs`].
pub fn get_pairs(planes: &[u8], row: usize) -> Steps {
    std::array::from_fn(|j| (word(planes, PANEL * (j / 4) + row) >> (2 * (j % 4))) & LOW_PAIRS)
}

/// The pairs of a group, as 8 vectors.
#[inline(always)]
pub fn load_pairs<S: Simd>(s: S, planes: &[u8], first: usize) -> [S::B; STEPS] {
    let low = s.splat_b(3);
    let mut w = [low; STEPS];
    for h in 0..2 {
        let v = s.load_b(&planes[PLANE * h + 4 * first..PLANE * h + 4 * (first + S::LANES)]);
        let w = &mut w[4 * h..4 * h + 4];
        w[0] = s.and_b(v, low);
        w[1] = s.and_b(s.shr_b::<2>(v), low);
        w[2] = s.and_b(s.shr_b::<4>(v), low);
        w[3] = s.and_b(s.shr_b::<6>(v), low);
    }
    w
}

/// Eight times the pairs of a group: with `minus8` of the activations, the product with them less one.
#[inline(always)]
pub fn load_eightfold<S: Simd>(s: S, planes: &[u8], first: usize) -> [S::B; STEPS] {
    let bits = s.splat_b(3 << 3);
    let mut w = [bits; STEPS];
    for h in 0..2 {
        let v = s.load_b(&planes[PLANE * h + 4 * first..PLANE * h + 4 * (first + S::LANES)]);
        let w = &mut w[4 * h..4 * h + 4];
        w[0] = s.and_b(s.shl_b::<3>(v), bits);
        w[1] = s.and_b(s.shl_b::<1>(v), bits);
        w[2] = s.and_b(s.shr_b::<1>(v), bits);
        w[3] = s.and_b(s.shr_b::<3>(v), bits);
    }
    w
}
