//! Numbers of a sign, three or four levels with one scale: Q1_0 (`d * ±1`, blocks of 128), Q2_0 (`d * (q - 1)`, blocks of
//! 64), TQ2_0 (the same, blocks of 256) and TQ1_0 (`d * (digit - 1)`, blocks of 256, five digits a byte).
//!
//! Weights in registers are eight times the numbers without their offset: activations have `-8` times their sum ready.

use cera_quant::Type;
use cera_quant::{q1_0, q2_0, tq1_0, tq2_0};

use super::pairs::{get_pairs, load_eightfold, put_pairs, read_pairs, write_pairs};
use super::{
    ActGroup, Format, PLANE, Steps, get_bits, get_half, load_halves, put_bits, put_half, put_word, scaled,
    word,
};
use crate::simd::{STEPS, Simd};

/// A group whose weights are eightfold.
type Eightfold<S> = ([<S as Simd>::B; STEPS], <S as Simd>::F);

/// An eighth of `d`: exact.
#[inline(always)]
fn eighth<S: Simd>(s: S, panel: &[u8], first: usize) -> S::F {
    s.mul(load_halves(s, panel, first), s.splat(0.125))
}

#[inline(always)]
fn accumulate<S: Simd>(s: S, (w, d): &Eightfold<S>, a: &ActGroup, acc: S::F) -> S::F {
    scaled(s, s.dot_unsigned::<31>(w, &a.q, a.start.minus8), *d, a, acc)
}

/// Panel block: 4 groups of bits, 16 `d`.
pub struct Q1_0;

impl Format for Q1_0 {
    const TYPE: Type = Type::Q1_0;
    type Group<S: Simd> = Eightfold<S>;

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let bits = word(&block[q1_0::QS..], g);
            // Where `put_bits` wants them.
            let steps: Steps = std::array::from_fn(|j| {
                (0..4).fold(0, |step, b| step | (bits >> (4 * j + b) & 1) << (8 * b + 4))
            });
            put_bits(&steps, row, &mut panel[PLANE * g..]);
        }
        put_half(&block[q1_0::D..], row, &mut panel[Self::GROUPS * PLANE..]);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let steps = get_bits(&panel[PLANE * g..], row);
            let bits = (0..32).fold(0, |bits, i| bits | (steps[i / 4] >> (8 * (i % 4) + 4) & 1) << i);
            put_word(&mut block[q1_0::QS..], g, bits);
        }
        get_half(&panel[Self::GROUPS * PLANE..], row, &mut block[q1_0::D..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> Eightfold<S> {
        let v = s.load_b(&panel[PLANE * g + 4 * first..PLANE * g + 4 * (first + S::LANES)]);
        let bit = s.splat_b(2 << 3);
        let w = [
            s.shl_b::<4>(v),
            s.shl_b::<3>(v),
            s.shl_b::<2>(v),
            s.shl_b::<1>(v),
            v,
            s.shr_b::<1>(v),
            s.shr_b::<2>(v),
            s.shr_b::<3>(v),
        ];
        (w.map(|w| s.and_b(w, bit)), eighth(s, &panel[Self::GROUPS * PLANE..], first))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, w: &Eightfold<S>, a: &ActGroup, acc: S::F) -> S::F {
        accumulate(s, w, a, acc)
    }
}

/// Bytes of a group's pairs of bits.
const PAIRS: usize = 2 * PLANE;

/// Panel block: 2 groups of pairs of bits, 16 `d`.
pub struct Q2_0;

impl Format for Q2_0 {
    const TYPE: Type = Type::Q2_0;
    type Group<S: Simd> = Eightfold<S>;

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        for g in 0..Self::GROUPS {
            // A step is a byte.
            let steps: Steps = std::array::from_fn(|j| {
                let step = u32::from(block[q2_0::QS + STEPS * g + j]);
                (0..4).fold(0, |v, b| v | (step >> (2 * b) & 3) << (8 * b))
            });
            put_pairs(&steps, row, &mut panel[PAIRS * g..]);
        }
        put_half(&block[q2_0::D..], row, &mut panel[Self::GROUPS * PAIRS..]);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        for g in 0..Self::GROUPS {
            for (j, step) in get_pairs(&panel[PAIRS * g..], row).into_iter().enumerate() {
                let byte = (0..4).fold(0, |v, b| v | (step >> (8 * b) & 3) << (2 * b));
                block[q2_0::QS + STEPS * g + j] = byte as u8;
            }
        }
        get_half(&panel[Self::GROUPS * PAIRS..], row, &mut block[q2_0::D..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> Eightfold<S> {
        (load_eightfold(s, &panel[PAIRS * g..], first), eighth(s, &panel[Self::GROUPS * PAIRS..], first))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, w: &Eightfold<S>, a: &ActGroup, acc: S::F) -> S::F {
        accumulate(s, w, a, acc)
    }
}

/// Panel block: 8 groups of pairs of bits, 16 `d`.
pub struct Tq2_0;

impl Format for Tq2_0 {
    const TYPE: Type = Type::TQ2_0;
    type Group<S: Simd> = Eightfold<S>;

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        for g in 0..Self::GROUPS {
            put_pairs(&read_pairs(&block[tq2_0::QS..], g), row, &mut panel[PAIRS * g..]);
        }
        put_half(&block[tq2_0::D..], row, &mut panel[Self::GROUPS * PAIRS..]);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        block[..tq2_0::D].fill(0);
        for g in 0..Self::GROUPS {
            write_pairs(&mut block[tq2_0::QS..], g, &get_pairs(&panel[PAIRS * g..], row));
        }
        get_half(&panel[Self::GROUPS * PAIRS..], row, &mut block[tq2_0::D..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> Eightfold<S> {
        (load_eightfold(s, &panel[PAIRS * g..], first), eighth(s, &panel[Self::GROUPS * PAIRS..], first))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, w: &Eightfold<S>, a: &ActGroup, acc: S::F) -> S::F {
        accumulate(s, w, a, acc)
    }
}

/// Panel block: 13 lines, of which line `i` has steps `5i..5i + 5` of the block, five digits a byte; 16 `d`.
///
/// A byte is a fraction as in the file: see [`tq1_0`].
pub struct Tq1_0;

/// Digits in a byte.
const DIGITS: usize = 5;
/// Steps of a block.
const ALL_STEPS: usize = 8 * STEPS;
const LINES: usize = ALL_STEPS.div_ceil(DIGITS);
const TQ1_D_AT: usize = LINES * PLANE;

impl Format for Tq1_0 {
    const TYPE: Type = Type::TQ1_0;
    type Group<S: Simd> = Eightfold<S>;

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        let Some(file) = block.first_chunk() else { return };
        let codes = tq1_0::codes(file);
        for line in 0..LINES {
            let bytes = std::array::from_fn(|b| {
                let digit = |i| codes.get(4 * (DIGITS * line + i) + b).copied().unwrap_or(0);
                tq1_0::fraction(std::array::from_fn(digit))
            });
            put_word(&mut panel[PLANE * line..], row, u32::from_le_bytes(bytes));
        }
        put_half(&block[tq1_0::D..], row, &mut panel[TQ1_D_AT..]);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        let digits: [[[u8; DIGITS]; 4]; LINES] =
            std::array::from_fn(|line| word(&panel[PLANE * line..], row).to_le_bytes().map(tq1_0::digits));
        let codes = std::array::from_fn(|i| digits[i / 4 / DIGITS][i % 4][i / 4 % DIGITS]);
        block[..tq1_0::D].copy_from_slice(&tq1_0::pack(&codes));
        get_half(&panel[TQ1_D_AT..], row, &mut block[tq1_0::D..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> Eightfold<S> {
        // Where a group begins within a line is known to the compiler then.
        let w = match g {
            0 => eightfold_digits::<S, 0>(s, panel, first),
            1 => eightfold_digits::<S, 1>(s, panel, first),
            2 => eightfold_digits::<S, 2>(s, panel, first),
            3 => eightfold_digits::<S, 3>(s, panel, first),
            4 => eightfold_digits::<S, 4>(s, panel, first),
            5 => eightfold_digits::<S, 5>(s, panel, first),
            6 => eightfold_digits::<S, 6>(s, panel, first),
            _ => eightfold_digits::<S, 7>(s, panel, first),
        };
        (w, eighth(s, &panel[TQ1_D_AT..], first))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, w: &Eightfold<S>, a: &ActGroup, acc: S::F) -> S::F {
        accumulate(s, w, a, acc)
    }
}

/// Eight times the digits of group `G`.
#[inline(always)]
fn eightfold_digits<S: Simd, const G: usize>(s: S, panel: &[u8], first: usize) -> [S::B; STEPS] {
    let line = |i: usize| s.load_b(&panel[PLANE * i + 4 * first..PLANE * i + 4 * (first + S::LANES)]);
    let tripled = |fraction: S::B| s.add_b(s.add_b(fraction, fraction), fraction);
    let (begin, eight) = (STEPS * G, s.splat_b(8));
    let mut fraction = line(begin / DIGITS);
    for _ in 0..begin % DIGITS {
        fraction = tripled(fraction);
    }
    let mut w = [eight; STEPS];
    for (j, w) in w.iter_mut().enumerate() {
        if j > 0 {
            let step = begin + j;
            fraction = if step.is_multiple_of(DIGITS) { line(step / DIGITS) } else { tripled(fraction) };
        }
        // A third of 256 is above 85, two above 170.
        *w = s.add_b(s.at_least::<86>(fraction, eight), s.at_least::<171>(fraction, eight));
    }
    w
}
