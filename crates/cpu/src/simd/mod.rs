//! The vector type that every kernel is written over, once.
//!
//! A tier is a zero-sized token: holding one proves that the processor has its instructions, so its methods
//! are safe to call. Kernels are generic functions, marked to be inlined into one shell a tier that turns the
//! instructions on (see [`crate::kernels`]). What a kernel computes is therefore one sequence of operations
//! whatever the tier, and the bits agree by construction: each method below is exact, or rounds once as IEEE
//! 754 says.

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
#[cfg(target_arch = "aarch64")]
pub mod neon;
pub mod scalar;

/// Lanes of the partial sums of a reduction, whatever the tier's own width (ARCHITECTURE.md: the numeric contract).
pub const SUMS: usize = 16;

/// Steps of four columns in a group of 32.
pub const STEPS: usize = 8;

/// 32 signed bytes, the four of a step in one little-endian word, so that a step is one broadcast.
pub type Bytes32 = [i32; STEPS];

/// Repeats a block with a constant index while it is below a constant: `unroll!(i < N of 8 { .. })`, `N` being
/// at most the number behind `of` (4, 8 or 16). A loop would leave it to the optimizer whether an array of
/// vectors stays in registers; here every index is a constant.
macro_rules! unroll {
    ($i:ident < $n:tt of 4 $body:block) => { unroll!(@ $i, $n, $body, 0 1 2 3) };
    ($i:ident < $n:tt of 8 $body:block) => { unroll!(@ $i, $n, $body, 0 1 2 3 4 5 6 7) };
    ($i:ident < $n:tt of 16 $body:block) => {
        unroll!(@ $i, $n, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $i:ident, $n:tt, $body:block, $($k:literal)*) => {
        $({
            #[allow(non_upper_case_globals)]
            const $i: usize = $k;
            if $i < $n $body
        })*
    };
}
pub(crate) use unroll;

/// A tier's vectors of `LANES` 32-bit lanes. In panel kernels a lane is a row of the weight matrix.
pub trait Simd: Copy + Send + Sync + 'static {
    /// Lanes of a vector; divides 16.
    const LANES: usize;
    /// Vector registers, of which tiles use as many as they can. With 0, vectors are arrays in memory and tiles small: all
    /// of a tile is unrolled, lane by lane then, which would take the compiler minutes and win nothing.
    const REGISTERS: usize;
    /// `LANES` f32.
    type F: Copy;
    /// `LANES` i32.
    type I: Copy;
    /// `LANES` rows of four bytes.
    type B: Copy;
    /// The weights of a group of `LANES` rows with a small scale for each half, in the form that the tier multiplies
    /// fastest.
    type Folded: Copy;
    /// What [`Self::signed`] adds to each weight, for tables that are made in its form.
    const BIAS: u8 = 0;

    /// Asks for the cache line at an address, which need not be valid.
    fn prefetch(self, at: *const u8);
    /// All lanes `v`.
    fn splat(self, v: f32) -> Self::F;
    /// The first `LANES` of `x`.
    fn load(self, x: &[f32]) -> Self::F;
    /// The first `LANES` of `x` to memory.
    fn store(self, v: Self::F, x: &mut [f32]);
    /// `LANES` IEEE half-precision numbers, widened (exact).
    fn load_f16(self, x: &[u16]) -> Self::F;
    /// `LANES` bfloat16 numbers, widened (exact).
    fn load_bf16(self, x: &[u16]) -> Self::F;
    /// Narrows to IEEE half precision, ties to even.
    fn store_f16(self, v: Self::F, x: &mut [u16]);
    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `if a > b { a } else { b }`: a NaN in `a` gives `b`.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `if a < b { a } else { b }`: a NaN in `a` gives `b`.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// Lanes `lo..hi` of `a`, the others of `b`.
    fn select(self, lo: usize, hi: usize, a: Self::F, b: Self::F) -> Self::F;
    /// Adds the upper half of 16 lanes to the lower, then of 8, 4 and 2: the tree of the numeric contract.
    /// `v` holds `16 / LANES` vectors, in order of lane.
    fn tree_sum(self, v: &[Self::F]) -> f32;

    /// All lanes `v`.
    fn splat_i(self, v: i32) -> Self::I;
    /// `a + b`, wrapping.
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a - b`, wrapping.
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a & b`.
    fn and_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a | b`.
    fn or_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a ^ b`.
    fn xor_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// The greater, as signed numbers.
    fn max_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a << N`.
    fn shl_i<const N: i32>(self, a: Self::I) -> Self::I;
    /// `a >> N`, unsigned.
    fn shr_i<const N: i32>(self, a: Self::I) -> Self::I;
    /// The lanes' i32 as f32, ties to even.
    fn to_f(self, a: Self::I) -> Self::F;
    /// The nearest integers, ties to even; `|a| < 2^22` or the lane's value is unspecified.
    fn round(self, a: Self::F) -> Self::I;
    /// The same bits.
    fn bits(self, a: Self::F) -> Self::I;
    /// The same bits.
    fn float_of(self, a: Self::I) -> Self::F;
    /// The first `LANES` bytes of `x`, each widened without sign.
    fn load_u8(self, x: &[u8]) -> Self::I;
    /// The first `LANES` bytes of `x`, each widened with its sign.
    fn load_i8(self, x: &[u8]) -> Self::I;
    /// Each lane as two i16: the sum of the two products with `b`'s.
    fn dot_pair(self, a: Self::I, b: Self::I) -> Self::I;
    /// The lanes' low bytes (each lane within -128..=127), `LANES` of them.
    fn store_i8(self, a: Self::I, x: &mut [i8]);

    /// The first `4 * LANES` bytes of `x`.
    fn load_b(self, x: &[u8]) -> Self::B;
    /// All bytes `v`.
    fn splat_b(self, v: u8) -> Self::B;
    /// `a & b`.
    fn and_b(self, a: Self::B, b: Self::B) -> Self::B;
    /// `a | b`.
    fn or_b(self, a: Self::B, b: Self::B) -> Self::B;
    /// `a + b`, wrapping.
    fn add_b(self, a: Self::B, b: Self::B) -> Self::B;
    /// The same bits.
    fn to_b(self, a: Self::I) -> Self::B;
    /// The same bits.
    fn to_i(self, a: Self::B) -> Self::I;
    /// `b` where `a >= N` without regard to signs, else 0, for each byte.
    fn at_least<const N: u8>(self, a: Self::B, b: Self::B) -> Self::B;
    /// `w`, negated where bit `BIT` of `signs` is set, for each byte.
    fn negated<const BIT: u32>(self, w: Self::B, signs: Self::B) -> Self::B;
    /// Each pair of bytes as a u16, shifted right: mask afterwards.
    fn shr_b<const N: i32>(self, a: Self::B) -> Self::B;
    /// Each pair of bytes as a u16, shifted left: mask before.
    fn shl_b<const N: i32>(self, a: Self::B) -> Self::B;

    /// `table[w]` for each byte, all of them below 16.
    fn lookup(self, table: &[u8; 16], w: Self::B) -> Self::B;
    /// For each lane, the points that its lower and its upper u16 name, both modulo `N`.
    fn points<const N: usize>(self, points: &Points<N>, at: Self::I) -> [Self::B; 2];
    /// Signed weights in the form that [`Self::dot_signed`] takes.
    fn signed(self, w: Self::B) -> Self::B;
    /// For each row, `start` plus the dot product of its 32 unsigned weights (`w[j]` holds columns `4j..4j+4`), none
    /// above `MAX` (15, 31 or 63), with those of `x`, all within -127..=127.
    fn dot_unsigned<const MAX: i32>(self, w: &[Self::B; STEPS], x: &Bytes32, start: i32) -> Self::I;
    /// The same for signed weights; `minus128` is -128 times the sum of `x`.
    fn dot_signed(self, w: &[Self::B; STEPS], x: &Bytes32, minus128: i32) -> Self::I;
    /// `(w[..16] - 32) . x[..16]` and `(w[16..] - 32) . x[16..]` for unsigned weights up to 63; `start` is that of `x`.
    fn dots_of_halves(self, w: &[Self::B; STEPS], x: &Bytes32, start: &HalfStarts) -> (Self::I, Self::I);
    /// `s.low * (w[..16] . x[..16]) + s.high * (w[16..] . x[16..])` for signed weights, in [`Self::signed`]'s form, none
    /// beyond 64; `start` is that of `x`.
    fn dot_signed_halves(
        self,
        w: &[Self::B; STEPS],
        x: &Bytes32,
        s: &HalfScales<Self>,
        start: &HalfStarts,
    ) -> Self::I;
    /// `s.low * ((w[..16] - 32) . x[..16]) + s.high * ((w[16..] - 32) . x[16..])` for unsigned weights up to 63;
    /// `start` is that of `x`.
    fn dot_halves(
        self,
        w: &[Self::B; STEPS],
        x: &Bytes32,
        s: &HalfScales<Self>,
        start: &HalfStarts,
    ) -> Self::I;

    /// Weights and the scales of the two halves of their group for [`Self::dot_folded`]. With an `OFFSET` of 0, weights
    /// and scales are not negative and products are below 64; else `(w - OFFSET) * scale` is within -128..=127. No
    /// weight is above 7.
    fn fold<const OFFSET: i32>(self, w: [Self::B; STEPS], low: Self::I, high: Self::I) -> Self::Folded;
    /// `low * ((w[..16] - OFFSET) . x[..16]) + high * ((w[16..] - OFFSET) . x[16..])`; `minus128` is -128 times the sum
    /// of `x`, and `pair` the sums of its halves, as in [`HalfStarts`].
    fn dot_folded<const OFFSET: i32>(
        self,
        w: &Self::Folded,
        x: &Bytes32,
        minus128: i32,
        pair: i32,
    ) -> Self::I;

    /// `n`, of which the compiler must not know before `v` is computed: what is indexed by it comes later in the
    /// program. So the sums of one row are done before the next row's begin, and few registers are live. It is no
    /// instruction.
    fn after(self, v: Self::F, n: usize) -> usize;
}

/// Points of four coordinates, each below 16, that codes name.
#[repr(align(64))]
pub struct Points<const N: usize> {
    /// A coordinate a byte, for tiers that fetch a point from memory.
    pub bytes: [u32; N],
    /// A coordinate a nibble, for tiers that permute the table.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // AVX-512 alone does
    pub nibbles: [u16; N],
}

impl<const N: usize> Points<N> {
    /// From points as bytes; their number is a power of two of at least 64.
    pub const fn new(bytes: [u32; N]) -> Self {
        assert!(N.is_power_of_two() && N >= 64 && N <= 1 << 16);
        let mut nibbles = [0; N];
        let mut i = 0;
        while i < N {
            let [a, b, c, d] = bytes[i].to_le_bytes();
            assert!(a | b | c | d < 16);
            nibbles[i] = u16::from_le_bytes([a | b << 4, c | d << 4]);
            i += 1;
        }
        Points { bytes, nibbles }
    }
}

/// The sums of the two halves of a group of activations, in the forms that tiers want.
#[derive(Clone, Copy, Default, PartialEq, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct HalfStarts {
    /// -32 times the sum of the first 16 bytes.
    pub low: i32,
    /// -32 times the sum of the last 16 bytes.
    pub high: i32,
    /// Both sums, as the lower and the upper i16.
    pub pair: i32,
}

/// The integer scales of the two halves of a group, in the forms that tiers want.
pub struct HalfScales<S: Simd> {
    /// The first half's, sign-extended.
    pub low: S::I,
    /// The second half's.
    pub high: S::I,
    /// The first half's as two equal i16.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // AVX2 alone wants them
    pub low_twice: S::I,
    /// The second half's as two equal i16.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub high_twice: S::I,
    /// The first half's as the lower i16, the second's as the upper.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub pair: S::I,
}

impl<S: Simd> Clone for HalfScales<S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Simd> Copy for HalfScales<S> {}

impl<S: Simd> HalfScales<S> {
    /// From `LANES` signed bytes each.
    #[inline(always)]
    pub fn load(s: S, low: &[u8], high: &[u8]) -> Self {
        Self::of(s, s.load_i8(low), s.load_i8(high))
    }

    /// From scales that fit i16.
    #[inline(always)]
    pub fn of(s: S, low: S::I, high: S::I) -> Self {
        let low16 = s.and_i(low, s.splat_i(0xffff));
        let high16 = s.and_i(high, s.splat_i(0xffff));
        HalfScales {
            low,
            high,
            low_twice: s.or_i(low16, s.shl_i::<16>(low)),
            high_twice: s.or_i(high16, s.shl_i::<16>(high)),
            pair: s.or_i(low16, s.shl_i::<16>(high)),
        }
    }
}

/// Vectors that make up 16 lanes; only the first `16 / LANES` count.
pub type Lanes16<S> = [<S as Simd>::F; 4];

/// The sum of 16 lanes by the contract's tree.
#[inline(always)]
pub fn sum16<S: Simd>(s: S, v: &Lanes16<S>) -> f32 {
    s.tree_sum(&v[..SUMS / S::LANES])
}

/// The tree of the numeric contract over 16 partial sums.
#[inline(always)]
pub fn tree(mut v: [f32; SUMS]) -> f32 {
    let mut half = SUMS / 2;
    while half > 0 {
        for i in 0..half {
            v[i] += v[i + half];
        }
        half /= 2;
    }
    v[0]
}

/// `e^x`, within 2 units in the last place for `-86 <= x <= 88`; clamped to that range, so never 0, infinite
/// or subnormal. A NaN stays one.
///
/// Cody and Waite's reduction (`x = n ln 2 + r`, `ln 2` in two parts), then Taylor's polynomial of degree 7 for
/// `e^r` on `|r| <= ln 2 / 2`: the first term left out is `r^8 / 40320 < 6e-9`, a tenth of a unit in the last
/// place of the result.
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    // The bounds come first, so that a NaN in x passes both.
    let x = s.min(s.splat(88.0), s.max(s.splat(-86.0), x));
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let nf = s.to_f(n);
    // ln 2 = 0.693145751953125 (15 bits, so that n times it is exact) + the rest.
    let r = s.fma(nf, s.splat(-0.693_145_75), x);
    let r = s.fma(nf, s.splat(-1.428_606_8e-6), r);
    let mut p = s.splat(1.0 / 5040.0);
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = s.fma(p, r, s.splat(c));
    }
    let e = s.float_of(s.add_i(s.bits(p), s.shl_i::<23>(n)));
    // What rounding an integer from a NaN gives depends on the tier; this puts the NaN back.
    s.fma(x, s.splat(0.0), e)
}

/// `tanh(x) = 1 - 2 / (e^2x + 1)`: absolute error within 2^-23.
#[inline(always)]
pub fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let e = exp(s, s.add(x, x));
    s.sub(s.splat(1.0), s.div(s.splat(2.0), s.add(e, s.splat(1.0))))
}
