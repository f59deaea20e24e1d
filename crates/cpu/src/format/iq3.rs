//! IQ3_XXS (`d * (2 sc + 1) / 4 * ±magnitude`) and IQ3_S (`d * (2 sc + 1) * ±magnitude`): blocks of 256, 4-bit scales of 32
//! numbers each, magnitudes in fours.

use cera_quant::Type;
use cera_quant::{iq3_s, iq3_xxs};

use super::grid::{
    all_signs, fours, free_bits, gather_sevens, gather_signs, in_pairs, join_sevens, load_words, of_fours,
    put_four, sevens, spread_sevens, spread_signs, with_signs,
};
use super::{
    ActGroup, Format, PANEL, PLANE, get_half, load_byte, load_halves, put_half, put_word, scaled, word,
};
use crate::simd::{Points, STEPS, Simd};

/// Where a group has its signs: behind the low bits of the codes.
const SIGNS_AT: usize = 2 * PLANE;
/// Codes of a group.
const CODES: usize = 8;

/// The steps that pair `p` of codes is of.
const fn steps_of(p: usize) -> [usize; 2] {
    let first = 4 * (p / 2) + p % 2;
    [first, first + 2]
}

/// The magnitudes of a group: `codes` has pairs of u16.
#[inline(always)]
fn magnitudes<S: Simd, const N: usize>(
    s: S,
    points: &Points<N>,
    levels: &[u8; 16],
    codes: [S::I; 4],
) -> [S::B; STEPS] {
    let mut w = [s.splat_b(0); STEPS];
    for (p, at) in codes.into_iter().enumerate() {
        let [first, second] = s.points(points, at);
        let [i, j] = steps_of(p);
        (w[i], w[j]) = (s.lookup(levels, first), s.lookup(levels, second));
    }
    w
}

/// The low bytes of the codes of a group, in pairs.
#[inline(always)]
fn load_codes<S: Simd>(s: S, part: &[u8], first: usize) -> [S::I; 4] {
    let (a, b) = in_pairs(s, load_words(s, part, first));
    let (c, d) = in_pairs(s, load_words(s, &part[PLANE..], first));
    [a, b, c, d]
}

fn pack_codes(codes: &[u8], row: usize, part: &mut [u8]) {
    for half in 0..2 {
        put_word(&mut part[PLANE * half..], row, word(codes, half));
    }
}

fn unpack_codes(part: &[u8], row: usize, codes: &mut [u8]) {
    for half in 0..2 {
        put_word(codes, half, word(&part[PLANE * half..], row));
    }
}

/// Panel block: 8 groups of codes and signs, which have the scale in them; 16 `d`.
pub struct Iq3Xxs;

static POINTS_XXS: Points<256> = fours(&iq3_xxs::POINTS, iq3_xxs::LEVELS);
const XXS_BYTES: usize = SIGNS_AT + PLANE;

impl Format for Iq3Xxs {
    const TYPE: Type = Type::IQ3_XXS;
    type Group<S: Simd> = ([S::B; STEPS], S::F);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let part = &mut panel[g * XXS_BYTES..];
            pack_codes(&block[iq3_xxs::QS + CODES * g..], row, part);
            let signs = word(&block[iq3_xxs::SIGNS..], g);
            put_word(&mut part[SIGNS_AT..], row, spread_sevens(sevens(signs), (signs >> 28) as u8));
        }
        put_half(&block[iq3_xxs::D..], row, &mut panel[Self::GROUPS * XXS_BYTES..]);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let part = &panel[g * XXS_BYTES..];
            unpack_codes(part, row, &mut block[iq3_xxs::QS + CODES * g..]);
            let (signs, scale) = gather_sevens(word(&part[SIGNS_AT..], row));
            put_word(&mut block[iq3_xxs::SIGNS..], g, join_sevens(signs) | u32::from(scale) << 28);
        }
        get_half(&panel[Self::GROUPS * XXS_BYTES..], row, &mut block[iq3_xxs::D..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> Self::Group<S> {
        let part = &panel[g * XXS_BYTES..(g + 1) * XXS_BYTES];
        let levels = const { &of_fours(iq3_xxs::LEVELS, S::BIAS) };
        let w = magnitudes(s, &POINTS_XXS, levels, load_codes(s, part, first));
        let plane = load_words(s, &part[SIGNS_AT..], first);
        let odd = s.add_i(s.shl_i::<1>(free_bits(s, plane)), s.splat_i(1));
        let d = s.mul(load_halves(s, &panel[Self::GROUPS * XXS_BYTES..], first), s.splat(0.25));
        (with_signs(s, w, all_signs(s, plane)), s.mul(d, s.to_f(odd)))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, d): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        scaled(s, s.dot_signed(w, &a.q, a.start.minus128), *d, a, acc)
    }
}

/// Panel block: 8 groups of codes, signs and ninth bits of codes; 4 x 16 bytes of scales, 16 `d`.
pub struct Iq3S;

static POINTS_S: Points<512> = fours(&iq3_s::POINTS, iq3_s::LEVELS);
/// Where a group has the ninth bits: pair by pair of codes.
const NINTH_AT: usize = SIGNS_AT + PLANE;
const S_BYTES: usize = NINTH_AT + PANEL;
const SCALES_AT: usize = 8 * S_BYTES;
const SCALE_BYTES: usize = 4;
const D_AT: usize = SCALES_AT + SCALE_BYTES * PANEL;

/// Where the bit of each step lies.
fn by_pairs(bits: u8) -> u8 {
    (0..4).fold(0, |v, p| {
        let [first, second] = steps_of(p).map(|step| bits >> step & 1);
        v | (first | second << 1) << (2 * p)
    })
}

/// The inverse of [`by_pairs`].
fn by_steps(bits: u8) -> u8 {
    (0..4).fold(0, |v, p| {
        let [first, second] = steps_of(p);
        v | (bits >> (2 * p) & 1) << first | (bits >> (2 * p + 1) & 1) << second
    })
}

impl Format for Iq3S {
    const TYPE: Type = Type::IQ3_S;
    type Group<S: Simd> = ([S::B; STEPS], S::F);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let part = &mut panel[g * S_BYTES..];
            pack_codes(&block[iq3_s::QS + CODES * g..], row, part);
            let signs = word(&block[iq3_s::SIGNS..], g).to_le_bytes();
            put_word(&mut part[SIGNS_AT..], row, spread_signs(signs));
            part[NINTH_AT + row] = by_pairs(block[iq3_s::QH + g]);
        }
        for i in 0..SCALE_BYTES {
            panel[SCALES_AT + PANEL * i + row] = block[iq3_s::SCALES + i];
        }
        put_half(&block[iq3_s::D..], row, &mut panel[D_AT..]);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let part = &panel[g * S_BYTES..];
            unpack_codes(part, row, &mut block[iq3_s::QS + CODES * g..]);
            let signs = gather_signs(word(&part[SIGNS_AT..], row));
            put_four(signs, g, &mut block[iq3_s::SIGNS..]);
            block[iq3_s::QH + g] = by_steps(part[NINTH_AT + row]);
        }
        for i in 0..SCALE_BYTES {
            block[iq3_s::SCALES + i] = panel[SCALES_AT + PANEL * i + row];
        }
        get_half(&panel[D_AT..], row, &mut block[iq3_s::D..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> Self::Group<S> {
        let part = &panel[g * S_BYTES..(g + 1) * S_BYTES];
        // Bit `2p` for the lower u16 of pair `p`; one place lower, bit `2p + 1` for the upper.
        let ninth = load_byte(s, &part[NINTH_AT..], 0, first);
        let ninth = s.or_i(ninth, s.shl_i::<15>(ninth));
        let bit = s.splat_i(0x0100_0100);
        let [a, b, c, d] = load_codes(s, part, first);
        let codes = [
            s.or_i(a, s.and_i(s.shl_i::<8>(ninth), bit)),
            s.or_i(b, s.and_i(s.shl_i::<6>(ninth), bit)),
            s.or_i(c, s.and_i(s.shl_i::<4>(ninth), bit)),
            s.or_i(d, s.and_i(s.shl_i::<2>(ninth), bit)),
        ];
        let levels = const { &of_fours(iq3_s::LEVELS, S::BIAS) };
        let w = magnitudes(s, &POINTS_S, levels, codes);
        let signs = s.load_b(&part[SIGNS_AT + 4 * first..SIGNS_AT + 4 * (first + S::LANES)]);
        let scale = load_byte(s, &panel[SCALES_AT..], g / 2, first);
        let scale = if g.is_multiple_of(2) { s.and_i(scale, s.splat_i(15)) } else { s.shr_i::<4>(scale) };
        let odd = s.add_i(s.shl_i::<1>(scale), s.splat_i(1));
        (with_signs(s, w, signs), s.mul(load_halves(s, &panel[D_AT..], first), s.to_f(odd)))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, d): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        scaled(s, s.dot_signed(w, &a.q, a.start.minus128), *d, a, acc)
    }
}
