//! Q4_K (`d * sc * q - dmin * m`): blocks of 256, 8 groups with 6-bit scales and minima.

use cera_quant::Type;

use super::{
    ActGroup, Format, HALVES, NIBBLES, PANEL, Steps, get_half, get_nibbles, load_halves, load_nibbles,
    put_half, put_nibbles, put_word, scaled, word,
};
use crate::simd::{STEPS, Simd};

/// Bytes of a row's packed scales and minima in the file, and in the panel one after another of 16 rows each.
pub const SCALES: usize = 12;

/// Panel block: 8 groups of nibbles, 12 x 16 bytes of scales, 16 `d`, 16 `dmin`.
pub struct Q4K;

const SCALES_AT: usize = 8 * NIBBLES;

/// A group in registers: numbers, scale (`d * sc`) and minimum (`dmin * m`).
pub type KGroup<S> = ([<S as Simd>::B; STEPS], <S as Simd>::F, <S as Simd>::F);

/// The words of group `g` in a block's nibbles: two groups share 32 bytes.
pub fn read_nibbles(qs: &[u8], g: usize) -> Steps {
    std::array::from_fn(|j| (word(qs, 8 * (g / 2) + j) >> (4 * (g % 2))) & 0x0f0f_0f0f)
}

/// The inverse of [`read_nibbles`]; `qs` starts as zeros.
pub fn write_nibbles(qs: &mut [u8], g: usize, steps: &Steps) {
    for (j, step) in steps.iter().enumerate() {
        let at = 8 * (g / 2) + j;
        let v = word(qs, at) | (step & 0x0f0f_0f0f) << (4 * (g % 2));
        put_word(qs, at, v);
    }
}

/// Stores a block's first 16 bytes (`d`, `dmin`, scales) in a panel's last part.
pub fn pack_scales(block: &[u8], row: usize, part: &mut [u8]) {
    for i in 0..SCALES {
        part[PANEL * i + row] = block[4 + i];
    }
    put_half(block, row, &mut part[PANEL * SCALES..]);
    put_half(&block[2..], row, &mut part[PANEL * SCALES + HALVES..]);
}

/// The inverse of [`pack_scales`].
pub fn unpack_scales(part: &[u8], row: usize, block: &mut [u8]) {
    for i in 0..SCALES {
        block[4 + i] = part[PANEL * i + row];
    }
    get_half(&part[PANEL * SCALES..], row, block);
    get_half(&part[PANEL * SCALES + HALVES..], row, &mut block[2..]);
}

/// The scales and minima of group `g`: 6 bits each, those of the last four groups in two pieces.
#[inline(always)]
pub fn load_scales<S: Simd>(s: S, part: &[u8], g: usize, first: usize) -> (S::F, S::F) {
    let b = |i: usize| s.load_u8(&part[PANEL * i + first..PANEL * i + first + S::LANES]);
    let low6 = s.splat_i(63);
    let low4 = s.splat_i(15);
    let (sc, m) = if g < 4 {
        (s.and_i(b(g), low6), s.and_i(b(g + 4), low6))
    } else {
        let both = b(g + 4);
        let sc = s.or_i(s.and_i(both, low4), s.shl_i::<4>(s.shr_i::<6>(b(g - 4))));
        let m = s.or_i(s.shr_i::<4>(both), s.shl_i::<4>(s.shr_i::<6>(b(g))));
        (sc, m)
    };
    let d = load_halves(s, &part[PANEL * SCALES..], first);
    let dmin = load_halves(s, &part[PANEL * SCALES + HALVES..], first);
    // 11 bits by 6: exact.
    (s.mul(d, s.to_f(sc)), s.mul(dmin, s.to_f(m)))
}

/// The scale's term, then the minimum's.
#[inline(always)]
pub fn accumulate<S: Simd>(s: S, isum: S::I, d: S::F, m: S::F, a: &ActGroup, acc: S::F) -> S::F {
    let acc = scaled(s, isum, d, a, acc);
    s.fma(m, s.splat(-a.sum_scaled), acc)
}

impl Format for Q4K {
    const TYPE: Type = Type::Q4_K;
    type Group<S: Simd> = KGroup<S>;

    fn pack(block: &[u8], row: usize, panel: &mut [u8]) {
        pack_scales(block, row, &mut panel[SCALES_AT..]);
        for g in 0..Self::GROUPS {
            put_nibbles(&read_nibbles(&block[16..], g), row, &mut panel[g * NIBBLES..]);
        }
    }

    fn unpack_row(panel: &[u8], row: usize, block: &mut [u8]) {
        unpack_scales(&panel[SCALES_AT..], row, block);
        block[16..].fill(0);
        for g in 0..Self::GROUPS {
            write_nibbles(&mut block[16..], g, &get_nibbles(&panel[g * NIBBLES..], row));
        }
    }

    #[inline(always)]
    fn unpack<S: Simd>(s: S, panel: &[u8], g: usize, first: usize) -> KGroup<S> {
        let (d, m) = load_scales(s, &panel[SCALES_AT..], g, first);
        (load_nibbles(s, &panel[g * NIBBLES..], first), d, m)
    }

    #[inline(always)]
    fn accumulate<S: Simd>(s: S, (w, d, m): &KGroup<S>, a: &ActGroup, acc: S::F) -> S::F {
        accumulate(s, s.dot_unsigned::<15>(w, &a.q, 0), *d, *m, a, acc)
    }
}
