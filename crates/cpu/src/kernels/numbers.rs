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
        }
    }

    /// Where number `at` lies.
    pub fn address(&self, at: usize) -> *const u8 {
        match self {
            Stored::F32(x) => x.as_ptr().wrapping_add(at).cast(),
            Stored::F16(x) => x.as_ptr().wrapping_add(at).cast(),
            Stored::Q8_0(x, _) => x.as_ptr().wrapping_add(at),
        }
    }
}

/// Keys or values of a block and head, in rows.
pub trait Numbers<S: Simd>: Copy {
    /// Bytes of a number.
    const BYTES: usize;
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

impl<'a, S: Simd> Numbers<S> for Singles<'a> {
    const BYTES: usize = 4;
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
    const BYTES: usize = 2;
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
    const BYTES: usize = 1;
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
    const BYTES: usize = 1;
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
