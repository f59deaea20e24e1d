//! What the formats have in common whose codes name points of a grid: tables of points, and planes of signs.
//!
//! A plane of signs is one of single bits (see the table in [`super`]): bit `j` of a row's byte `b` is the sign of column
//! `4j + b`. Where the file has seven signs for each eight columns, the place of the eighth is free: bits 25, 27, 29 and
//! 31 of a row's word, for eight 0 to 3. Something else that the group has lies there, and the plane takes no more room
//! than the file's signs.

use super::{PANEL, load_byte, put_word, word};
use crate::simd::{Points, STEPS, Simd, unroll};

/// The bits of a row's word that hold the last sign of each eight.
const LAST: u32 = 0xaa00_0000;
/// The lowest of them.
const FIRST_LAST: u32 = 25;

/// Points of four: coordinates as numbers of levels, which begin with `levels[0]`.
pub const fn fours<const N: usize, const K: usize>(points: &[[i8; 4]; N], levels: [i8; K]) -> Points<N> {
    let mut words = [0; N];
    let mut i = 0;
    while i < N {
        let [a, b, c, d] = points[i];
        let bytes = [level(a, levels), level(b, levels), level(c, levels), level(d, levels)];
        words[i] = u32::from_le_bytes(bytes);
        i += 1;
    }
    Points::new(words)
}

/// Points of eight coordinates of three levels as points of four: number `i` is that of coordinate `i`, plus three times
/// that of coordinate `i + 4`.
pub const fn eights<const N: usize>(points: &[[i8; 8]; N], levels: [i8; 3]) -> Points<N> {
    let mut words = [0; N];
    let mut i = 0;
    while i < N {
        let mut bytes = [0; 4];
        let mut j = 0;
        while j < 4 {
            bytes[j] = level(points[i][j], levels) + 3 * level(points[i][j + 4], levels);
            j += 1;
        }
        words[i] = u32::from_le_bytes(bytes);
        i += 1;
    }
    Points::new(words)
}

/// Which level a value is.
const fn level<const K: usize>(value: i8, levels: [i8; K]) -> u8 {
    let mut i = 0;
    while levels[i] != value {
        i += 1;
    }
    i as u8
}

/// What [`fours`]' numbers stand for, plus `bias`.
pub const fn of_fours<const K: usize>(levels: [i8; K], bias: u8) -> [u8; 16] {
    let mut table = [0; 16];
    let mut i = 0;
    while i < K {
        table[i] = (levels[i] as u8).wrapping_add(bias);
        i += 1;
    }
    table
}

/// What [`eights`]' numbers stand for, plus `bias`: for the first four coordinates and for the last.
pub const fn of_eights(levels: [i8; 3], bias: u8) -> [[u8; 16]; 2] {
    let mut tables = [[0; 16]; 2];
    let mut i = 0;
    while i < 9 {
        tables[0][i] = (levels[i % 3] as u8).wrapping_add(bias);
        tables[1][i] = (levels[i / 3] as u8).wrapping_add(bias);
        i += 1;
    }
    tables
}

/// A row's word of a plane of signs, from those of each eight (bit `i`: that of column `i`).
pub fn spread_signs(eights: [u8; 4]) -> u32 {
    (0..32).fold(0, |plane, column| {
        let sign = u32::from(eights[column / 8] >> (column % 8) & 1);
        plane | sign << (8 * (column % 4) + column / 4)
    })
}

/// The inverse of [`spread_signs`].
pub fn gather_signs(plane: u32) -> [u8; 4] {
    std::array::from_fn(|eight| {
        (0..8).fold(0, |signs, i| {
            let column = 8 * eight + i;
            signs | ((plane >> (8 * (column % 4) + column / 4) & 1) as u8) << i
        })
    })
}

/// A row's word of a plane of which the last sign of each eight is free: signs, seven a byte, and four other bits there.
pub fn spread_sevens(eights: [u8; 4], other: u8) -> u32 {
    let free = (0..4).fold(0, |free, i| free | u32::from(other >> i & 1) << (FIRST_LAST + 2 * i));
    spread_signs(eights) & !LAST | free
}

/// The inverse of [`spread_sevens`].
pub fn gather_sevens(plane: u32) -> ([u8; 4], u8) {
    let other = (0..4).fold(0, |other, i| other | ((plane >> (FIRST_LAST + 2 * i) & 1) as u8) << i);
    (gather_signs(plane).map(|signs| signs & 127), other)
}

/// The seven signs of each eight, where the file has them in the low 28 bits of a word.
pub fn sevens(word: u32) -> [u8; 4] {
    std::array::from_fn(|eight| (word >> (7 * eight)) as u8 & 127)
}

/// The inverse of [`sevens`].
pub fn join_sevens(eights: [u8; 4]) -> u32 {
    eights.iter().rev().fold(0, |word, signs| word << 7 | u32::from(*signs))
}

/// Stores 4 bytes at `4 * i` of `bytes`.
pub fn put_four(four: [u8; 4], i: usize, bytes: &mut [u8]) {
    put_word(bytes, i, u32::from_le_bytes(four));
}

/// The inverse of [`put_four`].
pub fn get_four(bytes: &[u8], i: usize) -> [u8; 4] {
    word(bytes, i).to_le_bytes()
}

/// Stores the two bytes of a row, each beside those of the other rows.
pub fn put_two_bytes(v: u16, row: usize, panel: &mut [u8]) {
    let [low, high] = v.to_le_bytes();
    (panel[row], panel[PANEL + row]) = (low, high);
}

/// The inverse of [`put_two_bytes`].
pub fn get_two_bytes(panel: &[u8], row: usize) -> u16 {
    u16::from_le_bytes([panel[row], panel[PANEL + row]])
}

/// What [`put_two_bytes`] stored of rows `first..`.
#[inline(always)]
pub fn load_two_bytes<S: Simd>(s: S, panel: &[u8], first: usize) -> S::I {
    s.or_i(load_byte(s, panel, 0, first), s.shl_i::<8>(load_byte(s, panel, 1, first)))
}

/// The words of rows `first..`.
#[inline(always)]
pub fn load_words<S: Simd>(s: S, panel: &[u8], first: usize) -> S::I {
    s.to_i(s.load_b(&panel[4 * first..4 * (first + S::LANES)]))
}

/// All signs, from a plane of which the last of each eight is free. The number of negative ones is even.
#[inline(always)]
pub fn all_signs<S: Simd>(s: S, plane: S::I) -> S::B {
    let known = s.and_i(plane, s.splat_i(!LAST as i32));
    // Bit `j` of the lowest byte: whether step `j` has an odd number; then whether steps `j` and `j + 1` together have.
    let odd = s.xor_i(known, s.shr_i::<16>(known));
    let odd = s.xor_i(odd, s.shr_i::<8>(odd));
    let odd = s.and_i(s.xor_i(odd, s.shr_i::<1>(odd)), s.splat_i(0x55));
    s.to_b(s.or_i(known, s.shl_i::<25>(odd)))
}

/// The four bits that lie where the last signs would.
#[inline(always)]
pub fn free_bits<S: Simd>(s: S, plane: S::I) -> S::I {
    let v = s.and_i(s.shr_i::<25>(plane), s.splat_i(0x55));
    let v = s.and_i(s.or_i(v, s.shr_i::<1>(v)), s.splat_i(0x33));
    s.and_i(s.or_i(v, s.shr_i::<2>(v)), s.splat_i(15))
}

/// Weights with the signs of a plane.
#[inline(always)]
pub fn with_signs<S: Simd>(s: S, mut w: [S::B; STEPS], signs: S::B) -> [S::B; STEPS] {
    unroll!(j < STEPS of 8 { w[j] = s.negated::<{ j as u32 }>(w[j], signs); });
    w
}

/// The weights of four eights. The u16 of `even` name eights 0 and 2, those of `odd` 1 and 3.
#[inline(always)]
pub fn eights_of<S: Simd, const N: usize>(
    s: S,
    points: &Points<N>,
    [first, last]: &[[u8; 16]; 2],
    even: S::I,
    odd: S::I,
) -> [S::B; STEPS] {
    let ([a, c], [b, d]) = (s.points(points, even), s.points(points, odd));
    [
        s.lookup(first, a),
        s.lookup(last, a),
        s.lookup(first, b),
        s.lookup(last, b),
        s.lookup(first, c),
        s.lookup(last, c),
        s.lookup(first, d),
        s.lookup(last, d),
    ]
}

/// Bytes 0 and 2, and bytes 1 and 3, of each lane, as u16.
#[inline(always)]
pub fn in_pairs<S: Simd>(s: S, codes: S::I) -> (S::I, S::I) {
    let low = s.splat_i(0x00ff_00ff);
    (s.and_i(codes, low), s.and_i(s.shr_i::<8>(codes), low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::scalar::Scalar;

    #[test]
    fn planes_keep_signs_and_what_lies_in_the_place_of_the_last() {
        for (i, other) in (0..64u32).zip((0..16).cycle()) {
            let word = i.wrapping_mul(0x9e37_79b9) & 0x0fff_ffff;
            let eights = sevens(word);
            assert_eq!(join_sevens(eights), word);
            assert_eq!(gather_signs(spread_signs(eights)), eights);
            let plane = spread_sevens(eights, other);
            assert_eq!(gather_sevens(plane), (eights, other));
            let all = eights.map(|seven| seven | (seven.count_ones() as u8 % 2) << 7);
            assert_eq!(Scalar.to_i(all_signs(Scalar, [plane as i32; 16])), [spread_signs(all) as i32; 16]);
            assert_eq!(free_bits(Scalar, [plane as i32; 16]), [i32::from(other); 16]);
        }
    }

    #[test]
    fn tables_give_the_points_back() {
        const LEVELS: [i8; 3] = [8, 25, 43];
        let points: [[i8; 8]; 64] =
            std::array::from_fn(|i| std::array::from_fn(|j| LEVELS[(i >> (j % 4)) * (j + 1) % 3]));
        let (table, [first, last]) = (eights(&points, LEVELS), of_eights(LEVELS, 0));
        for (point, word) in points.iter().zip(table.bytes) {
            let numbers = word.to_le_bytes();
            let back: Vec<i8> =
                [first, last].iter().flat_map(|of| numbers.map(|n| of[usize::from(n)] as i8)).collect();
            assert_eq!(back, point);
        }
    }
}
