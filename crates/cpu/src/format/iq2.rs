//! IQ2_XXS (blocks of 256, 4-bit scales of 32 numbers each), IQ2_XS and IQ2_S (scales of 16 numbers each): all
//! `d * (2 sc + 1) / 8 * ±magnitude`, magnitudes in eights.

use cera_quant::Type;
use cera_quant::{iq2_s, iq2_xs, iq2_xxs};

use super::grid::{
    all_signs, eights, eights_of, free_bits, gather_sevens, gather_signs, get_four, in_pairs, join_sevens,
    load_words, of_eights, put_four, sevens, spread_sevens, spread_signs, with_signs,
};
use super::{
    ActGroup, Format, PANEL, PLANE, get_half, load_byte, load_halves, put_half, put_word, scaled, word,
};
use crate::simd::{HalfScales, Points, STEPS, Simd};

/// What a scale of the file stands for: an odd number.
#[inline(always)]
fn odd<S: Simd>(s: S, scale: S::I) -> S::I {
    s.add_i(s.shl_i::<1>(scale), s.splat_i(1))
}

/// An eighth of `d`: exact.
#[inline(always)]
fn eighth<S: Simd>(s: S, panel: &[u8], first: usize) -> S::F {
    s.mul(load_halves(s, panel, first), s.splat(0.125))
}

/// The two scales of a byte.
#[inline(always)]
fn both_scales<S: Simd>(s: S, bytes: &[u8], first: usize) -> HalfScales<S> {
    let both = load_byte(s, bytes, 0, first);
    HalfScales::of(s, odd(s, s.and_i(both, s.splat_i(15))), odd(s, s.shr_i::<4>(both)))
}

/// Panel block: 8 groups of codes and signs, which have the scale in them; 16 `d`.
pub struct Iq2Xxs;

static POINTS_XXS: Points<256> = eights(&iq2_xxs::POINTS, iq2_xxs::LEVELS);
const XXS_BYTES: usize = 2 * PLANE;

impl Format for Iq2Xxs {
    const TYPE: Type = Type::IQ2_XXS;
    type Group<S: Simd> = ([S::B; STEPS], S::F);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let (part, group) = (&mut panel[g * XXS_BYTES..], &block[iq2_xxs::QS + 8 * g..]);
            put_word(part, row, word(group, 0));
            let signs = word(group, 1);
            put_word(&mut part[PLANE..], row, spread_sevens(sevens(signs), (signs >> 28) as u8));
        }
        put_half(&block[iq2_xxs::D..], row, &mut panel[Self::GROUPS * XXS_BYTES..]);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let (part, group) = (&panel[g * XXS_BYTES..], &mut block[iq2_xxs::QS + 8 * g..]);
            put_word(group, 0, word(part, row));
            let (signs, scale) = gather_sevens(word(&part[PLANE..], row));
            put_word(group, 1, join_sevens(signs) | u32::from(scale) << 28);
        }
        get_half(&panel[Self::GROUPS * XXS_BYTES..], row, &mut block[iq2_xxs::D..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> Self::Group<S> {
        let part = &panel[g * XXS_BYTES..(g + 1) * XXS_BYTES];
        let (even_at, odd_at) = in_pairs(s, load_words(s, part, first));
        let levels = const { &of_eights(iq2_xxs::LEVELS, S::BIAS) };
        let w = eights_of(s, &POINTS_XXS, levels, even_at, odd_at);
        let plane = load_words(s, &part[PLANE..], first);
        let scale = s.to_f(odd(s, free_bits(s, plane)));
        let d = eighth(s, &panel[Self::GROUPS * XXS_BYTES..], first);
        (with_signs(s, w, all_signs(s, plane)), s.mul(d, scale))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, d): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        scaled(s, s.dot_signed(w, &a.q, a.start.minus128), *d, a, acc)
    }
}

/// Panel block: 8 groups of the codes' low bits, signs, which have their ninth bits in them, and 16 bytes of two scales;
/// 16 `d`.
pub struct Iq2Xs;

static POINTS_XS: Points<512> = eights(&iq2_xs::POINTS, iq2_xs::LEVELS);
const XS_SCALES_AT: usize = 2 * PLANE;
const XS_BYTES: usize = XS_SCALES_AT + PANEL;
const XS_D_AT: usize = 8 * XS_BYTES;

/// The word of eight `e` of group `g`.
fn xs_word(block: &[u8], g: usize, e: usize) -> u16 {
    let at = iq2_xs::QS + 2 * (4 * g + e);
    u16::from_le_bytes([block[at], block[at + 1]])
}

impl Format for Iq2Xs {
    const TYPE: Type = Type::IQ2_XS;
    type Group<S: Simd> = ([S::B; STEPS], HalfScales<S>, S::F);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let part = &mut panel[g * XS_BYTES..];
            let words: [u16; 4] = std::array::from_fn(|e| xs_word(block, g, e));
            put_four(words.map(|word| word as u8), row, part);
            let ninth = (0..4).fold(0, |ninth, e| ninth | (words[e] >> 8 & 1) << e);
            let signs = words.map(|word| (word >> 9) as u8);
            put_word(&mut part[PLANE..], row, spread_sevens(signs, ninth as u8));
            part[XS_SCALES_AT + row] = block[iq2_xs::SCALES + g];
        }
        put_half(&block[iq2_xs::D..], row, &mut panel[XS_D_AT..]);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let part = &panel[g * XS_BYTES..];
            let (signs, ninth) = gather_sevens(word(&part[PLANE..], row));
            for (e, (low, signs)) in get_four(part, row).into_iter().zip(signs).enumerate() {
                let at = iq2_xs::QS + 2 * (4 * g + e);
                block[at..at + 2].copy_from_slice(&[low, signs << 1 | ninth >> e & 1]);
            }
            block[iq2_xs::SCALES + g] = part[XS_SCALES_AT + row];
        }
        get_half(&panel[XS_D_AT..], row, &mut block[iq2_xs::D..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> Self::Group<S> {
        let part = &panel[g * XS_BYTES..(g + 1) * XS_BYTES];
        let plane = load_words(s, &part[PLANE..], first);
        let (even_at, odd_at) = in_pairs(s, load_words(s, part, first));
        // The ninth bits lie at 25 (eight 0), 27, 29 and 31.
        let (lower, upper) = (s.splat_i(1 << 8), s.splat_i(1 << 24));
        let even_at = s.or_i(even_at, s.and_i(s.shr_i::<17>(plane), lower));
        let even_at = s.or_i(even_at, s.and_i(s.shr_i::<5>(plane), upper));
        let odd_at = s.or_i(odd_at, s.and_i(s.shr_i::<19>(plane), lower));
        let odd_at = s.or_i(odd_at, s.and_i(s.shr_i::<7>(plane), upper));
        let levels = const { &of_eights(iq2_xs::LEVELS, S::BIAS) };
        let w = eights_of(s, &POINTS_XS, levels, even_at, odd_at);
        let scales = both_scales(s, &part[XS_SCALES_AT..], first);
        (with_signs(s, w, all_signs(s, plane)), scales, eighth(s, &panel[XS_D_AT..], first))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, scales, d): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        scaled(s, s.dot_signed_halves(w, &a.q, scales, &a.start.halves), *d, a, acc)
    }
}

/// Panel block: 8 groups of the codes' low bits, signs, 16 bytes of the codes' high bits and 16 of two scales; 16 `d`.
pub struct Iq2S;

static POINTS_S: Points<1024> = eights(&iq2_s::POINTS, iq2_s::LEVELS);
const S_HIGH_AT: usize = 2 * PLANE;
const S_SCALES_AT: usize = S_HIGH_AT + PANEL;
const S_BYTES: usize = S_SCALES_AT + PANEL;
const S_D_AT: usize = 8 * S_BYTES;

/// Pairs of bits of eights 0, 1, 2, 3 in the order 0, 2, 1, 3; the inverse too.
fn crossed(pairs: u8) -> u8 {
    pairs & 0xc3 | (pairs & 0x0c) << 2 | (pairs & 0x30) >> 2
}

impl Format for Iq2S {
    const TYPE: Type = Type::IQ2_S;
    type Group<S: Simd> = ([S::B; STEPS], HalfScales<S>, S::F);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let part = &mut panel[g * S_BYTES..];
            put_word(part, row, word(&block[iq2_s::QS..], g));
            let signs = word(&block[iq2_s::SIGNS..], g).to_le_bytes();
            put_word(&mut part[PLANE..], row, spread_signs(signs));
            part[S_HIGH_AT + row] = crossed(block[iq2_s::QH + g]);
            part[S_SCALES_AT + row] = block[iq2_s::SCALES + g];
        }
        put_half(&block[iq2_s::D..], row, &mut panel[S_D_AT..]);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let part = &panel[g * S_BYTES..];
            put_word(&mut block[iq2_s::QS..], g, word(part, row));
            let signs = gather_signs(word(&part[PLANE..], row));
            put_four(signs, g, &mut block[iq2_s::SIGNS..]);
            block[iq2_s::QH + g] = crossed(part[S_HIGH_AT + row]);
            block[iq2_s::SCALES + g] = part[S_SCALES_AT + row];
        }
        get_half(&panel[S_D_AT..], row, &mut block[iq2_s::D..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> Self::Group<S> {
        let part = &panel[g * S_BYTES..(g + 1) * S_BYTES];
        let (even_at, odd_at) = in_pairs(s, load_words(s, part, first));
        // Bits `4p` and above for the lower u16 of pair `p`; two places lower, the next two for the upper.
        let high = load_byte(s, &part[S_HIGH_AT..], 0, first);
        let high = s.or_i(high, s.shl_i::<14>(high));
        let bits = s.splat_i(0x0300_0300);
        let even_at = s.or_i(even_at, s.and_i(s.shl_i::<8>(high), bits));
        let odd_at = s.or_i(odd_at, s.and_i(s.shl_i::<4>(high), bits));
        let levels = const { &of_eights(iq2_s::LEVELS, S::BIAS) };
        let w = eights_of(s, &POINTS_S, levels, even_at, odd_at);
        let signs = s.load_b(&part[PLANE + 4 * first..PLANE + 4 * (first + S::LANES)]);
        let scales = both_scales(s, &part[S_SCALES_AT..], first);
        (with_signs(s, w, signs), scales, eighth(s, &panel[S_D_AT..], first))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, scales, d): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        scaled(s, s.dot_signed_halves(w, &a.q, scales, &a.start.halves), *d, a, acc)
    }
}
