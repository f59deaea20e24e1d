//! Numbers of the cache as attention reads them: rows of f32 vectors, whatever they are stored as.

use half::f16;

use crate::format::GROUP;
use crate::simd::Simd;

/// One layer's cache. Keys of a block and head are `[head_dim][32]`, values `[32][value_dim]`.
#[derive(Clone, Copy)]
pub struct Cache<'a> {
    /// `[blocks, heads, head_dim, 32]`.
    pub k: Stored<'a>,
    /// `[blocks, heads, 32, value_dim]`; none where the values are the first `value_dim` elements of the keys.
    pub v: Option<Stored<'a>>,
}

/// Numbers of the cache.
#[derive(Clone, Copy)]
pub enum Stored<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Half precision.
    F16(&'a [u16]),
    /// Bytes, and a scale in half precision for each 32 numbers of a head. Scales lie as the numbers do: of keys
    /// `[head_dim / 32][32 positions]`, of values `[32 positions][head_dim / 32]`.
    Q8_0(&'a [u8], &'a [u16]),
    /// Four bits a number, and scales as of `Q8_0`. A byte holds two numbers of a head that are 16 apart, the first in its
    /// lower half, and bytes lie as numbers would: of keys `[head_dim / 32][16][32 positions]`, of values
    /// `[32 positions][value_dim / 32][16]`.
    Q4_0(&'a [u8], &'a [u16]),
}

impl Stored<'_> {
    /// Numbers `at..at + len`, both multiples of 32.
    #[inline(always)]
    pub fn part(&self, at: usize, len: usize) -> Self {
        match self {
            Stored::F32(x) => Stored::F32(&x[at..at + len]),
            Stored::F16(x) => Stored::F16(&x[at..at + len]),
            Stored::Q8_0(x, scales) => {
                Stored::Q8_0(&x[at..at + len], &scales[at / GROUP..(at + len) / GROUP])
            }
            Stored::Q4_0(x, scales) => {
                Stored::Q4_0(&x[at / 2..(at + len) / 2], &scales[at / GROUP..(at + len) / GROUP])
            }
        }
    }

    /// Where number `at` lies.
    pub fn address(&self, at: usize) -> *const u8 {
        match self {
            Stored::F32(x) => x.as_ptr().wrapping_add(at).cast(),
            Stored::F16(x) => x.as_ptr().wrapping_add(at).cast(),
            Stored::Q8_0(x, _) => x.as_ptr().wrapping_add(at),
            Stored::Q4_0(x, _) => x.as_ptr().wrapping_add(at / 2),
        }
    }
}

/// Keys or values of a block and head, in rows.
pub trait Numbers<S: Simd>: Copy {
    /// Bits of a number.
    const BITS: usize;
    /// A row.
    type Row: Copy;
    /// Row `r`.
    fn row(self, r: usize) -> Self::Row;
    /// Numbers `at..at + LANES` of a row.
    fn load(s: S, row: Self::Row, at: usize) -> S::F;
}

/// Numbers in single precision.
#[derive(Clone, Copy)]
pub struct Singles<'a> {
    pub x: &'a [f32],
    pub width: usize,
}

/// Numbers in half precision.
#[derive(Clone, Copy)]
pub struct Halves<'a> {
    pub x: &'a [u16],
    pub width: usize,
}

/// Keys in bytes: 32 rows share a row of scales.
#[derive(Clone, Copy)]
pub struct ByteKeys<'a> {
    pub x: &'a [u8],
    pub scales: &'a [u16],
    pub width: usize,
}

/// Values in bytes: 32 numbers of a row share a scale.
#[derive(Clone, Copy)]
pub struct ByteValues<'a> {
    pub x: &'a [u8],
    pub scales: &'a [u16],
    pub width: usize,
}

/// Keys in four bits: 32 rows share a row of scales, two rows 16 apart a row of bytes.
#[derive(Clone, Copy)]
pub struct NibbleKeys<'a> {
    pub x: &'a [u8],
    pub scales: &'a [u16],
    pub width: usize,
}

/// Values in four bits: 32 numbers of a row share a scale, two numbers 16 apart a byte.
#[derive(Clone, Copy)]
pub struct NibbleValues<'a> {
    pub x: &'a [u8],
    pub scales: &'a [u16],
    pub width: usize,
}

impl<'a, S: Simd> Numbers<S> for Singles<'a> {
    const BITS: usize = 32;
    type Row = &'a [f32];

    #[inline(always)]
    fn row(self, r: usize) -> &'a [f32] {
        &self.x[r * self.width..(r + 1) * self.width]
    }

    #[inline(always)]
    fn load(s: S, row: &'a [f32], at: usize) -> S::F {
        s.load(&row[at..at + S::LANES])
    }
}

impl<'a, S: Simd> Numbers<S> for Halves<'a> {
    const BITS: usize = 16;
    type Row = &'a [u16];

    #[inline(always)]
    fn row(self, r: usize) -> &'a [u16] {
        &self.x[r * self.width..(r + 1) * self.width]
    }

    #[inline(always)]
    fn load(s: S, row: &'a [u16], at: usize) -> S::F {
        s.load_f16(&row[at..at + S::LANES])
    }
}

impl<'a, S: Simd> Numbers<S> for ByteKeys<'a> {
    const BITS: usize = 8;
    type Row = (&'a [u8], &'a [u16]);

    #[inline(always)]
    fn row(self, r: usize) -> Self::Row {
        let (w, scales) = (self.width, r / GROUP * self.width);
        (&self.x[r * w..(r + 1) * w], &self.scales[scales..scales + w])
    }

    #[inline(always)]
    fn load(s: S, (x, scales): Self::Row, at: usize) -> S::F {
        let end = at + S::LANES;
        s.mul(s.to_f(s.load_i8(&x[at..end])), s.load_f16(&scales[at..end]))
    }
}

impl<'a, S: Simd> Numbers<S> for ByteValues<'a> {
    const BITS: usize = 8;
    type Row = (&'a [u8], &'a [u16]);

    #[inline(always)]
    fn row(self, r: usize) -> Self::Row {
        let (w, scales) = (self.width, self.width / GROUP);
        (&self.x[r * w..(r + 1) * w], &self.scales[r * scales..(r + 1) * scales])
    }

    #[inline(always)]
    fn load(s: S, (x, scales): Self::Row, at: usize) -> S::F {
        let scale = s.splat(f16::from_bits(scales[at / GROUP]).to_f32());
        s.mul(s.to_f(s.load_i8(&x[at..at + S::LANES])), scale)
    }
}

/// `LANES` numbers of four bits, the lower or the upper halves of bytes.
#[inline(always)]
fn nibbles<S: Simd>(s: S, x: &[u8], upper: bool) -> S::F {
    let x = s.load_u8(x);
    let x = if upper { s.shr_i::<4>(x) } else { s.and_i(x, s.splat_i(15)) };
    s.to_f(s.sub_i(x, s.splat_i(8)))
}

impl<'a, S: Simd> Numbers<S> for NibbleKeys<'a> {
    const BITS: usize = 4;
    type Row = (&'a [u8], bool, &'a [u16]);

    #[inline(always)]
    fn row(self, r: usize) -> Self::Row {
        let (w, group, within) = (self.width, r / GROUP, r % GROUP);
        let (bytes, scales) = (group * (GROUP / 2) + within % (GROUP / 2), group * w);
        (&self.x[bytes * w..(bytes + 1) * w], within >= GROUP / 2, &self.scales[scales..scales + w])
    }

    #[inline(always)]
    fn load(s: S, (x, upper, scales): Self::Row, at: usize) -> S::F {
        let end = at + S::LANES;
        s.mul(nibbles(s, &x[at..end], upper), s.load_f16(&scales[at..end]))
    }
}

impl<'a, S: Simd> Numbers<S> for NibbleValues<'a> {
    const BITS: usize = 4;
    type Row = (&'a [u8], &'a [u16]);

    #[inline(always)]
    fn row(self, r: usize) -> Self::Row {
        let (bytes, scales) = (self.width / 2, self.width / GROUP);
        (&self.x[r * bytes..(r + 1) * bytes], &self.scales[r * scales..(r + 1) * scales])
    }

    #[inline(always)]
    fn load(s: S, (x, scales): Self::Row, at: usize) -> S::F {
        let (group, within) = (at / GROUP, at % GROUP);
        let bytes = group * (GROUP / 2) + within % (GROUP / 2);
        let scale = s.splat(f16::from_bits(scales[group]).to_f32());
        s.mul(nibbles(s, &x[bytes..bytes + S::LANES], within >= GROUP / 2), scale)
    }
}
