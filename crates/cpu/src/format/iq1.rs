//! IQ1_S (blocks of 256, 3-bit scales and shifts of 32 numbers each) and IQ1_M (scales of 16, shifts of 8): both
//! `d * (2 sc + 1) / 8 * (8 v ± 1)`, with `v` of -1, 0 and 1 in eights.
//!
//! A group has a word of 16 bits a row. From the lowest bit up it holds the high three bits of the codes of eights 0, 2,
//! 1 and 3, then four bits that differ.

use cera_quant::Type;
use cera_quant::{iq1_m, iq1_s};

use super::grid::{
    eights, eights_of, get_two_bytes, in_pairs, load_two_bytes, load_words, of_eights, put_two_bytes,
};
use super::{
    ActGroup, Format, PANEL, PLANE, get_half, load_byte, load_halves, put_half, put_word, scaled, word,
};
use crate::simd::{HalfScales, Points, STEPS, Simd};

static POINTS: Points<2048> = eights(&iq1_s::POINTS, [-1, 0, 1]);
const LEVELS: [i8; 3] = [-8, 0, 8];

/// Where a group has its words, behind the codes' low bits.
const WORDS_AT: usize = PLANE;
const GROUP_BYTES: usize = WORDS_AT + 2 * PANEL;
/// The bits of a word that are not of codes.
const OTHERS: u32 = 12;

/// The word of a group: the high bits of its codes, and the other four.
fn join_word(high: [u8; 4], others: u8) -> u16 {
    let [a, b, c, d] = high.map(u16::from);
    a | c << 3 | b << 6 | d << 9 | u16::from(others) << OTHERS
}

/// The inverse of [`join_word`].
fn split_word(word: u16) -> ([u8; 4], u8) {
    ([0, 6, 3, 9].map(|shift| (word >> shift & 7) as u8), (word >> OTHERS) as u8)
}

/// `8 v` of a group plus an offset, of which `levels` know, and the group's words.
#[inline(always)]
fn load_values<S: Simd>(s: S, part: &[u8], levels: &[[u8; 16]; 2], first: usize) -> ([S::B; STEPS], S::I) {
    let word = load_two_bytes(s, &part[WORDS_AT..], first);
    // Bit `6p` for the lower u16 of pair `p`; three places lower, the next three for the upper.
    let high = s.or_i(word, s.shl_i::<13>(word));
    let bits = s.splat_i(0x0700_0700);
    let (even, odd) = in_pairs(s, load_words(s, part, first));
    let even = s.or_i(even, s.and_i(s.shl_i::<8>(high), bits));
    let odd = s.or_i(odd, s.and_i(s.shl_i::<2>(high), bits));
    (eights_of(s, &POINTS, levels, even, odd), word)
}

/// The lowest byte of each lane, the others being 0, in all four.
#[inline(always)]
fn in_all_bytes<S: Simd>(s: S, v: S::I) -> S::B {
    let v = s.or_i(v, s.shl_i::<8>(v));
    s.to_b(s.or_i(v, s.shl_i::<16>(v)))
}

/// What a scale of the file stands for.
#[inline(always)]
fn odd<S: Simd>(s: S, scale: S::I) -> S::I {
    s.add_i(s.shl_i::<1>(scale), s.splat_i(1))
}

/// Panel block: 8 groups of codes and words, whose upper bits are the scale and whether the shift is up; 16 `d`.
pub struct Iq1S;

const S_D_AT: usize = 8 * GROUP_BYTES;

impl Format for Iq1S {
    const TYPE: Type = Type::IQ1_S;
    type Group<S: Simd> = ([S::B; STEPS], S::F);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let part = &mut panel[g * GROUP_BYTES..];
            put_word(part, row, word(&block[iq1_s::QS..], g));
            let at = iq1_s::QH + 2 * g;
            let file = u16::from_le_bytes([block[at], block[at + 1]]);
            let high = [0, 3, 6, 9].map(|shift| (file >> shift & 7) as u8);
            // The file says whether the shift is down.
            let others = (file >> OTHERS) as u8 ^ 8;
            put_two_bytes(join_word(high, others), row, &mut part[WORDS_AT..]);
        }
        put_half(&block[iq1_s::D..], row, &mut panel[S_D_AT..]);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let part = &panel[g * GROUP_BYTES..];
            put_word(&mut block[iq1_s::QS..], g, word(part, row));
            let (high, others) = split_word(get_two_bytes(&part[WORDS_AT..], row));
            let high = high.iter().rev().fold(0, |word, high| word << 3 | u16::from(*high));
            let file = high | u16::from(others ^ 8) << OTHERS;
            let at = iq1_s::QH + 2 * g;
            block[at..at + 2].copy_from_slice(&file.to_le_bytes());
        }
        get_half(&panel[S_D_AT..], row, &mut block[iq1_s::D..]);
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> Self::Group<S> {
        let part = &panel[g * GROUP_BYTES..(g + 1) * GROUP_BYTES];
        // With 16 added they have no sign and five bits. The shift is down so far.
        let levels = const { &of_eights(LEVELS, 16 - 1) };
        let (mut w, word) = load_values(s, part, levels, first);
        let up = in_all_bytes(s, s.and_i(s.shr_i::<14>(word), s.splat_i(2)));
        for w in &mut w {
            *w = s.add_b(*w, up);
        }
        let scale = s.and_i(s.shr_i::<12>(word), s.splat_i(7));
        let d = s.mul(load_halves(s, &panel[S_D_AT..], first), s.splat(0.125));
        (w, s.mul(d, s.to_f(odd(s, scale))))
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, d): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        scaled(s, s.dot_unsigned::<31>(w, &a.q, a.start.minus16), *d, a, acc)
    }
}

/// Panel block: 8 groups of codes and words, whose upper bits are whether the shift of each eight is up; 6 x 16 bytes of
/// scales, 16 `d`.
///
/// The two scales of a group are six bits. Those of groups 0, 1 and 2 of four are the low bits of three bytes, and those of
/// group 3 are spread over what is above.
pub struct Iq1M;

const SCALES_AT: usize = 8 * GROUP_BYTES;
const SCALE_BYTES: usize = 6;
const M_D_AT: usize = SCALES_AT + SCALE_BYTES * PANEL;

/// The six bits of each group as bytes.
fn join_scales(sixes: [u8; 8]) -> [u8; SCALE_BYTES] {
    std::array::from_fn(|i| {
        let (four, i) = (i / 3 * 4, i % 3);
        sixes[four + i] | (sixes[four + 3] >> (2 * i) & 3) << 6
    })
}

/// The inverse of [`join_scales`].
fn split_scales(bytes: [u8; SCALE_BYTES]) -> [u8; 8] {
    std::array::from_fn(|g| {
        let three = &bytes[g / 4 * 3..g / 4 * 3 + 3];
        match g % 4 {
            3 => three[0] >> 6 | three[1] >> 6 << 2 | three[2] >> 6 << 4,
            i => three[i] & 63,
        }
    })
}

/// The scales of a group.
#[inline(always)]
fn load_scales<S: Simd>(s: S, bytes: &[u8], g: usize, first: usize) -> HalfScales<S> {
    let byte = |i: usize| load_byte(s, bytes, g / 4 * 3 + i, first);
    let high = |i: usize| s.shr_i::<6>(byte(i));
    let both = match g % 4 {
        3 => s.or_i(high(0), s.or_i(s.shl_i::<2>(high(1)), s.shl_i::<4>(high(2)))),
        i => s.and_i(byte(i), s.splat_i(63)),
    };
    HalfScales::of(s, odd(s, s.and_i(both, s.splat_i(7))), odd(s, s.shr_i::<3>(both)))
}

/// The four words behind the codes of a block of the file.
fn file_words(block: &[u8]) -> [u16; 4] {
    std::array::from_fn(|i| {
        let at = iq1_m::SCALES + 2 * i;
        u16::from_le_bytes([block[at], block[at + 1]])
    })
}

impl Format for Iq1M {
    const TYPE: Type = Type::IQ1_M;
    type Group<S: Simd> = ([S::B; STEPS], HalfScales<S>, S::F);

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let part = &mut panel[g * GROUP_BYTES..];
            put_word(part, row, word(&block[iq1_m::QS..], g));
            let nibbles: [u8; 4] =
                std::array::from_fn(|e| block[iq1_m::QH + 2 * g + e / 2] >> (e % 2 * 4) & 15);
            let up = (0..4).fold(0, |up, e| up | (nibbles[e] >> 3 ^ 1) << e);
            put_two_bytes(join_word(nibbles.map(|nibble| nibble & 7), up), row, &mut part[WORDS_AT..]);
        }
        let words = file_words(block);
        let scales = join_scales(std::array::from_fn(|g| (words[g / 2] >> (g % 2 * 6) & 63) as u8));
        for (i, byte) in scales.into_iter().enumerate() {
            panel[SCALES_AT + PANEL * i + row] = byte;
        }
        let d = words.iter().rev().fold(0, |d, word| d << 4 | word >> 12);
        put_half(&d.to_le_bytes(), row, &mut panel[M_D_AT..]);
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        for g in 0..Self::GROUPS {
            let part = &panel[g * GROUP_BYTES..];
            put_word(&mut block[iq1_m::QS..], g, word(part, row));
            let (high, up) = split_word(get_two_bytes(&part[WORDS_AT..], row));
            let nibble = |e: usize| high[e] | (up >> e & 1 ^ 1) << 3;
            for i in 0..2 {
                block[iq1_m::QH + 2 * g + i] = nibble(2 * i) | nibble(2 * i + 1) << 4;
            }
        }
        let mut d = [0; 2];
        get_half(&panel[M_D_AT..], row, &mut d);
        let d = u16::from_le_bytes(d);
        let sixes = split_scales(std::array::from_fn(|i| panel[SCALES_AT + PANEL * i + row]));
        for i in 0..4 {
            let scales = u16::from(sixes[2 * i]) | u16::from(sixes[2 * i + 1]) << 6;
            let at = iq1_m::SCALES + 2 * i;
            block[at..at + 2].copy_from_slice(&(scales | (d >> (4 * i)) << 12).to_le_bytes());
        }
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> Self::Group<S> {
        let part = &panel[g * GROUP_BYTES..(g + 1) * GROUP_BYTES];
        // With 32 added, as `dot_halves` takes them. The shift is down so far.
        let levels = const { &of_eights(LEVELS, 32 - 1) };
        let (w, word) = load_values(s, part, levels, first);
        let up = in_all_bytes(s, s.shr_i::<12>(word));
        let two = s.splat_b(2);
        let ups = [
            s.and_b(s.shl_b::<1>(up), two),
            s.and_b(up, two),
            s.and_b(s.shr_b::<1>(up), two),
            s.and_b(s.shr_b::<2>(up), two),
        ];
        let w = std::array::from_fn(|j| s.add_b(w[j], ups[j / 2]));
        let d = s.mul(load_halves(s, &panel[M_D_AT..], first), s.splat(0.125));
        (w, load_scales(s, &panel[SCALES_AT..], g, first), d)
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, scales, d): &Self::Group<S>, a: &ActGroup, acc: S::F) -> S::F {
        scaled(s, s.dot_halves(w, &a.q, scales, &a.start.halves), *d, a, acc)
    }
}
