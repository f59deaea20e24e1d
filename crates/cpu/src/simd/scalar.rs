//! Plain Rust: any processor, and what the other tiers are tested against.

use half::{bf16, f16};

use super::{Bytes32, HalfScales, HalfStarts, Points, STEPS, SUMS, Simd, tree};

const N: usize = 16;

/// The tier that needs no instruction beyond the target's own.
#[derive(Clone, Copy)]
pub struct Scalar;

impl Scalar {
    /// The token.
    ///
    /// # Safety
    /// None is needed; the other tiers' tokens need a proof.
    pub unsafe fn assume() -> Self {
        Scalar
    }
}

/// Applies a function lane by lane.
macro_rules! lanes {
    ($i:ident => $e:expr) => {{
        let mut out = [Default::default(); N];
        for $i in 0..N {
            out[$i] = $e;
        }
        out
    }};
}

/// Adding and subtracting this leaves the nearest integer, ties to even, of `|x| < 2^22`; in between, the low
/// bits of the sum are that integer.
const ROUND: f32 = 12_582_912.0;

/// The dot products of 16 rows with steps of four columns.
#[inline(always)]
fn dot_steps(w: &[[u8; 4 * N]], x: &[i32], weight: impl Fn(u8) -> i32 + Copy) -> [i32; N] {
    let mut out = [0; N];
    for (w, x) in w.iter().zip(x) {
        let x = x.to_le_bytes().map(|x| i32::from(x as i8));
        for (o, w) in out.iter_mut().zip(w.chunks_exact(4)) {
            for (w, x) in w.iter().zip(x) {
                *o += weight(*w) * x;
            }
        }
    }
    out
}

impl Simd for Scalar {
    const LANES: usize = N;
    const REGISTERS: usize = 0;
    type F = [f32; N];
    type I = [i32; N];
    type B = [u8; 4 * N];
    type Folded = ([Self::B; STEPS], Self::I, Self::I);

    #[inline(always)]
    fn prefetch(self, _at: *const u8) {}
    #[inline(always)]
    fn splat(self, v: f32) -> Self::F {
        [v; N]
    }
    #[inline(always)]
    fn load(self, x: &[f32]) -> Self::F {
        lanes!(i => x[i])
    }
    #[inline(always)]
    fn store(self, v: Self::F, x: &mut [f32]) {
        x[..N].copy_from_slice(&v);
    }
    #[inline(always)]
    fn load_f16(self, x: &[u16]) -> Self::F {
        lanes!(i => f16::from_bits(x[i]).to_f32())
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16]) -> Self::F {
        lanes!(i => bf16::from_bits(x[i]).to_f32())
    }
    #[inline(always)]
    fn store_f16(self, v: Self::F, x: &mut [u16]) {
        for (x, v) in x[..N].iter_mut().zip(v) {
            *x = f16::from_f32(v).to_bits();
        }
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => a[i] / b[i])
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        lanes!(i => a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn select(self, lo: usize, hi: usize, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => if lo <= i && i < hi { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn tree_sum(self, v: &[Self::F]) -> f32 {
        const { assert!(SUMS == N) };
        tree(v[0])
    }

    #[inline(always)]
    fn splat_i(self, v: i32) -> Self::I {
        [v; N]
    }
    #[inline(always)]
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I {
        lanes!(i => a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I {
        lanes!(i => a[i].wrapping_sub(b[i]))
    }
    #[inline(always)]
    fn and_i(self, a: Self::I, b: Self::I) -> Self::I {
        lanes!(i => a[i] & b[i])
    }
    #[inline(always)]
    fn or_i(self, a: Self::I, b: Self::I) -> Self::I {
        lanes!(i => a[i] | b[i])
    }
    #[inline(always)]
    fn xor_i(self, a: Self::I, b: Self::I) -> Self::I {
        lanes!(i => a[i] ^ b[i])
    }
    #[inline(always)]
    fn max_i(self, a: Self::I, b: Self::I) -> Self::I {
        lanes!(i => a[i].max(b[i]))
    }
    #[inline(always)]
    fn shl_i<const K: i32>(self, a: Self::I) -> Self::I {
        lanes!(i => a[i] << K)
    }
    #[inline(always)]
    fn shr_i<const K: i32>(self, a: Self::I) -> Self::I {
        lanes!(i => ((a[i] as u32) >> K) as i32)
    }
    #[inline(always)]
    fn to_f(self, a: Self::I) -> Self::F {
        lanes!(i => a[i] as f32)
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::I {
        lanes!(i => ((a[i] + ROUND).to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32))
    }
    #[inline(always)]
    fn bits(self, a: Self::F) -> Self::I {
        lanes!(i => a[i].to_bits() as i32)
    }
    #[inline(always)]
    fn float_of(self, a: Self::I) -> Self::F {
        lanes!(i => f32::from_bits(a[i] as u32))
    }
    #[inline(always)]
    fn load_u8(self, x: &[u8]) -> Self::I {
        lanes!(i => i32::from(x[i]))
    }
    #[inline(always)]
    fn load_i8(self, x: &[u8]) -> Self::I {
        lanes!(i => i32::from(x[i] as i8))
    }
    #[inline(always)]
    fn dot_pair(self, a: Self::I, b: Self::I) -> Self::I {
        let low = |v: i32| i32::from(v as i16);
        let high = |v: i32| v >> 16;
        lanes!(i => (low(a[i]) * low(b[i])).wrapping_add(high(a[i]) * high(b[i])))
    }
    #[inline(always)]
    fn store_i8(self, a: Self::I, x: &mut [i8]) {
        for (x, a) in x[..N].iter_mut().zip(a) {
            *x = a as i8;
        }
    }

    #[inline(always)]
    fn load_b(self, x: &[u8]) -> Self::B {
        let mut out = [0; 4 * N];
        out.copy_from_slice(&x[..4 * N]);
        out
    }
    #[inline(always)]
    fn splat_b(self, v: u8) -> Self::B {
        [v; 4 * N]
    }
    #[inline(always)]
    fn and_b(self, mut a: Self::B, b: Self::B) -> Self::B {
        for (a, b) in a.iter_mut().zip(b) {
            *a &= b;
        }
        a
    }
    #[inline(always)]
    fn or_b(self, mut a: Self::B, b: Self::B) -> Self::B {
        for (a, b) in a.iter_mut().zip(b) {
            *a |= b;
        }
        a
    }
    #[inline(always)]
    fn add_b(self, mut a: Self::B, b: Self::B) -> Self::B {
        for (a, b) in a.iter_mut().zip(b) {
            *a = a.wrapping_add(b);
        }
        a
    }
    #[inline(always)]
    fn to_b(self, a: Self::I) -> Self::B {
        let mut out = [0; 4 * N];
        for (out, a) in out.chunks_exact_mut(4).zip(a) {
            out.copy_from_slice(&a.to_le_bytes());
        }
        out
    }
    #[inline(always)]
    fn to_i(self, a: Self::B) -> Self::I {
        lanes!(i => i32::from_le_bytes([a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]]))
    }
    #[inline(always)]
    fn at_least<const K: u8>(self, a: Self::B, mut b: Self::B) -> Self::B {
        for (a, b) in a.iter().zip(&mut b) {
            *b = if *a >= K { *b } else { 0 };
        }
        b
    }
    #[inline(always)]
    fn negated<const BIT: u32>(self, mut w: Self::B, signs: Self::B) -> Self::B {
        for (w, signs) in w.iter_mut().zip(signs) {
            *w = if signs >> BIT & 1 == 1 { w.wrapping_neg() } else { *w };
        }
        w
    }
    #[inline(always)]
    fn shr_b<const K: i32>(self, mut a: Self::B) -> Self::B {
        for p in a.chunks_exact_mut(2) {
            let v = u16::from_le_bytes([p[0], p[1]]) >> K;
            p.copy_from_slice(&v.to_le_bytes());
        }
        a
    }
    #[inline(always)]
    fn shl_b<const K: i32>(self, mut a: Self::B) -> Self::B {
        for p in a.chunks_exact_mut(2) {
            let v = u16::from_le_bytes([p[0], p[1]]) << K;
            p.copy_from_slice(&v.to_le_bytes());
        }
        a
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], w: Self::B) -> Self::B {
        w.map(|w| table[usize::from(w & 15)])
    }
    #[inline(always)]
    fn points<const K: usize>(self, points: &Points<K>, at: Self::I) -> [Self::B; 2] {
        let point = |code: i32| points.bytes[code as usize % K] as i32;
        [self.to_b(lanes!(i => point(at[i] & 0xffff))), self.to_b(lanes!(i => point((at[i] >> 16) & 0xffff)))]
    }
    #[inline(always)]
    fn signed(self, w: Self::B) -> Self::B {
        w
    }
    #[inline(always)]
    fn dot_unsigned<const MAX: i32>(self, w: &[Self::B; STEPS], x: &Bytes32, start: i32) -> Self::I {
        self.add_i(dot_steps(w, x, i32::from), [start; N])
    }
    #[inline(always)]
    fn dot_signed(self, w: &[Self::B; STEPS], x: &Bytes32, _minus128: i32) -> Self::I {
        dot_steps(w, x, |w| i32::from(w as i8))
    }
    #[inline(always)]
    fn dots_of_halves(self, w: &[Self::B; STEPS], x: &Bytes32, start: &HalfStarts) -> (Self::I, Self::I) {
        let low = dot_steps(&w[..4], &x[..4], i32::from);
        let high = dot_steps(&w[4..], &x[4..], i32::from);
        (self.add_i(low, [start.low; N]), self.add_i(high, [start.high; N]))
    }
    #[inline(always)]
    fn dot_signed_halves(
        self,
        w: &[Self::B; STEPS],
        x: &Bytes32,
        s: &HalfScales<Self>,
        _start: &HalfStarts,
    ) -> Self::I {
        let low = dot_steps(&w[..4], &x[..4], |w| i32::from(w as i8));
        let high = dot_steps(&w[4..], &x[4..], |w| i32::from(w as i8));
        lanes!(i => s.low[i] * low[i] + s.high[i] * high[i])
    }
    #[inline(always)]
    fn dot_halves(
        self,
        w: &[Self::B; STEPS],
        x: &Bytes32,
        s: &HalfScales<Self>,
        start: &HalfStarts,
    ) -> Self::I {
        let (low, high) = self.dots_of_halves(w, x, start);
        lanes!(i => s.low[i] * low[i] + s.high[i] * high[i])
    }
    #[inline(always)]
    fn fold<const OFFSET: i32>(self, w: [Self::B; STEPS], low: Self::I, high: Self::I) -> Self::Folded {
        (w, low, high)
    }
    #[inline(always)]
    fn dot_folded<const OFFSET: i32>(
        self,
        (w, by_low, by_high): &Self::Folded,
        x: &Bytes32,
        _minus128: i32,
        _pair: i32,
    ) -> Self::I {
        let low = dot_steps(&w[..4], &x[..4], |w| i32::from(w) - OFFSET);
        let high = dot_steps(&w[4..], &x[4..], |w| i32::from(w) - OFFSET);
        lanes!(i => by_low[i] * low[i] + by_high[i] * high[i])
    }
    #[inline(always)]
    fn after(self, _v: Self::F, n: usize) -> usize {
        n
    }
}
