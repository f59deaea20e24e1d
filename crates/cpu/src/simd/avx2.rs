//! AVX2 with FMA and F16C: 8 lanes, a panel as two halves of 8 rows. AVX-VNNI adds an instruction that multiplies bytes
//! and sums four products; nothing but the integer dot products differs with it.

use std::arch::x86_64::*;

use super::{Bytes32, HalfScales, HalfStarts, Points, STEPS, SUMS, Simd, unroll};

/// Proof that the processor has AVX2, FMA and F16C, and with `VNNI` AVX-VNNI.
#[derive(Clone, Copy)]
pub struct Avx<const VNNI: bool>(());

/// AVX2, FMA and F16C.
pub type Avx2 = Avx<false>;
/// AVX-VNNI besides.
pub type AvxVnni = Avx<true>;

impl<const VNNI: bool> Avx<VNNI> {
    /// The token, where the processor has the instructions.
    pub fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && (!VNNI || is_x86_feature_detected!("avxvnni"));
        has.then_some(Avx(()))
    }

    /// The token.
    ///
    /// # Safety
    /// [`Self::detect`] gave one before.
    pub unsafe fn assume() -> Self {
        Avx(())
    }
}

impl AvxVnni {
    /// What it is without AVX-VNNI.
    pub fn avx2(self) -> Avx2 {
        Avx(())
    }
}

const N: usize = 8;

/// A call of intrinsics that take and give values.
macro_rules! x86 {
    ($e:expr) => {{
        // SAFETY: `self` proves that the processor has the instructions; values only, no memory.
        #[allow(unused_unsafe)]
        unsafe {
            $e
        }
    }};
}

impl<const VNNI: bool> Simd for Avx<VNNI> {
    const LANES: usize = N;
    const REGISTERS: usize = 16;
    type F = __m256;
    type I = __m256i;
    type B = __m256i;
    type Folded = ([__m256i; STEPS], HalfScales<Self>);
    const BIAS: u8 = if VNNI { 128 } else { 0 };

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        x86!(_mm_prefetch::<_MM_HINT_T0>(at.cast()))
    }
    #[inline(always)]
    fn splat(self, v: f32) -> __m256 {
        x86!(_mm256_set1_ps(v))
    }
    #[inline(always)]
    fn load(self, x: &[f32]) -> __m256 {
        let x: &[f32; N] = x.first_chunk().expect("8 lanes");
        // SAFETY: 8 f32 are readable; `self` proves the instruction.
        unsafe { _mm256_loadu_ps(x.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, v: __m256, x: &mut [f32]) {
        let x: &mut [f32; N] = x.first_chunk_mut().expect("8 lanes");
        // SAFETY: 8 f32 are writable; `self` proves the instruction.
        unsafe { _mm256_storeu_ps(x.as_mut_ptr(), v) }
    }
    #[inline(always)]
    fn load_f16(self, x: &[u16]) -> __m256 {
        let x: &[u16; N] = x.first_chunk().expect("8 lanes");
        // SAFETY: 16 bytes are readable; `self` proves the instruction.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())) }
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16]) -> __m256 {
        let x: &[u16; N] = x.first_chunk().expect("8 lanes");
        // SAFETY: 16 bytes are readable; `self` proves the instruction.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(x.as_ptr().cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    fn store_f16(self, v: __m256, x: &mut [u16]) {
        let x: &mut [u16; N] = x.first_chunk_mut().expect("8 lanes");
        // SAFETY: 16 bytes are writable; `self` proves the instruction.
        unsafe {
            let h = _mm256_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(v);
            _mm_storeu_si128(x.as_mut_ptr().cast(), h);
        }
    }
    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        x86!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        x86!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        x86!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        x86!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        x86!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        x86!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        x86!(_mm256_min_ps(a, b))
    }
    #[inline(always)]
    fn select(self, lo: usize, hi: usize, a: __m256, b: __m256) -> __m256 {
        x86!({
            let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let (lo, hi) = (lo.min(N) as i32, hi.min(N) as i32);
            let from = _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(lo - 1));
            let to = _mm256_cmpgt_epi32(_mm256_set1_epi32(hi), lane);
            _mm256_blendv_ps(b, a, _mm256_castsi256_ps(_mm256_and_si256(from, to)))
        })
    }
    #[inline(always)]
    fn tree_sum(self, v: &[__m256]) -> f32 {
        const { assert!(SUMS == 2 * N) };
        x86!({
            let v = _mm256_add_ps(v[0], v[1]);
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        })
    }

    #[inline(always)]
    fn splat_i(self, v: i32) -> __m256i {
        x86!(_mm256_set1_epi32(v))
    }
    #[inline(always)]
    fn add_i(self, a: __m256i, b: __m256i) -> __m256i {
        x86!(_mm256_add_epi32(a, b))
    }
    #[inline(always)]
    fn sub_i(self, a: __m256i, b: __m256i) -> __m256i {
        x86!(_mm256_sub_epi32(a, b))
    }
    #[inline(always)]
    fn and_i(self, a: __m256i, b: __m256i) -> __m256i {
        x86!(_mm256_and_si256(a, b))
    }
    #[inline(always)]
    fn or_i(self, a: __m256i, b: __m256i) -> __m256i {
        x86!(_mm256_or_si256(a, b))
    }
    #[inline(always)]
    fn xor_i(self, a: __m256i, b: __m256i) -> __m256i {
        x86!(_mm256_xor_si256(a, b))
    }
    #[inline(always)]
    fn max_i(self, a: __m256i, b: __m256i) -> __m256i {
        x86!(_mm256_max_epi32(a, b))
    }
    #[inline(always)]
    fn shl_i<const K: i32>(self, a: __m256i) -> __m256i {
        x86!(_mm256_slli_epi32::<K>(a))
    }
    #[inline(always)]
    fn shr_i<const K: i32>(self, a: __m256i) -> __m256i {
        x86!(_mm256_srli_epi32::<K>(a))
    }
    #[inline(always)]
    fn to_f(self, a: __m256i) -> __m256 {
        x86!(_mm256_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn round(self, a: __m256) -> __m256i {
        // Rust code always runs in the default rounding mode, to nearest even.
        x86!(_mm256_cvtps_epi32(a))
    }
    #[inline(always)]
    fn bits(self, a: __m256) -> __m256i {
        x86!(_mm256_castps_si256(a))
    }
    #[inline(always)]
    fn float_of(self, a: __m256i) -> __m256 {
        x86!(_mm256_castsi256_ps(a))
    }
    #[inline(always)]
    fn load_u8(self, x: &[u8]) -> __m256i {
        let x: &[u8; N] = x.first_chunk().expect("8 bytes");
        x86!(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(*x))))
    }
    #[inline(always)]
    fn load_i8(self, x: &[u8]) -> __m256i {
        let x: &[u8; N] = x.first_chunk().expect("8 bytes");
        x86!(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(*x))))
    }
    #[inline(always)]
    fn dot_pair(self, a: __m256i, b: __m256i) -> __m256i {
        x86!(_mm256_madd_epi16(a, b))
    }
    #[inline(always)]
    fn store_i8(self, a: __m256i, x: &mut [i8]) {
        let x: &mut [i8; N] = x.first_chunk_mut().expect("8 bytes");
        let bytes = x86!({
            let words = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            _mm_cvtsi128_si64(_mm_packs_epi16(words, words))
        });
        *x = bytes.to_le_bytes().map(|b| b as i8);
    }

    #[inline(always)]
    fn load_b(self, x: &[u8]) -> __m256i {
        let x: &[u8; 4 * N] = x.first_chunk().expect("32 bytes");
        // SAFETY: 32 bytes are readable; `self` proves the instruction.
        unsafe { _mm256_loadu_si256(x.as_ptr().cast()) }
    }
    #[inline(always)]
    fn splat_b(self, v: u8) -> __m256i {
        x86!(_mm256_set1_epi8(v as i8))
    }
    #[inline(always)]
    fn and_b(self, a: __m256i, b: __m256i) -> __m256i {
        x86!(_mm256_and_si256(a, b))
    }
    #[inline(always)]
    fn or_b(self, a: __m256i, b: __m256i) -> __m256i {
        x86!(_mm256_or_si256(a, b))
    }
    #[inline(always)]
    fn add_b(self, a: __m256i, b: __m256i) -> __m256i {
        x86!(_mm256_add_epi8(a, b))
    }
    #[inline(always)]
    fn to_b(self, a: __m256i) -> __m256i {
        a
    }
    #[inline(always)]
    fn to_i(self, a: __m256i) -> __m256i {
        a
    }
    #[inline(always)]
    fn at_least<const K: u8>(self, a: __m256i, b: __m256i) -> __m256i {
        let reaches = x86!(_mm256_cmpeq_epi8(_mm256_max_epu8(a, self.splat_b(K)), a));
        self.and_b(reaches, b)
    }
    #[inline(always)]
    fn negated<const BIT: u32>(self, w: __m256i, signs: __m256i) -> __m256i {
        let bit = self.splat_b(1 << BIT);
        // -1 where it is set: `(w ^ -1) + 1` is `-w`.
        let negative = x86!(_mm256_cmpeq_epi8(_mm256_and_si256(signs, bit), bit));
        x86!(_mm256_sub_epi8(_mm256_xor_si256(w, negative), negative))
    }
    #[inline(always)]
    fn shr_b<const K: i32>(self, a: __m256i) -> __m256i {
        x86!(_mm256_srli_epi16::<K>(a))
    }
    #[inline(always)]
    fn shl_b<const K: i32>(self, a: __m256i) -> __m256i {
        x86!(_mm256_slli_epi16::<K>(a))
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], w: __m256i) -> __m256i {
        // SAFETY: 16 bytes are readable; `self` proves the instructions.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, w)
        }
    }
    #[inline(always)]
    fn points<const K: usize>(self, points: &Points<K>, at: __m256i) -> [__m256i; 2] {
        let within = self.splat_i(const { K as i32 - 1 });
        [at, self.shr_i::<16>(at)].map(|at| {
            let at = self.and_i(at, within);
            // SAFETY: indexes are below `K`, a power of two; `self` proves the instruction.
            unsafe { _mm256_i32gather_epi32::<4>(points.bytes.as_ptr().cast(), at) }
        })
    }
    #[inline(always)]
    fn signed(self, w: __m256i) -> __m256i {
        if VNNI {
            // It multiplies unsigned by signed: w + 128 is unsigned.
            return x86!(_mm256_xor_si256(w, _mm256_set1_epi8(i8::MIN)));
        }
        w
    }
    #[inline(always)]
    fn dot_unsigned<const MAX: i32>(self, w: &[__m256i; STEPS], x: &Bytes32, start: i32) -> __m256i {
        if VNNI {
            return self.steps(w, x, start);
        }
        // A 16-bit lane takes 2 * MAX * 127 a step: 8 steps of nibbles, 4 of 5 bits, 2 of 6 bits.
        let steps = (i16::MAX as i32 / (2 * MAX * 127)) as usize;
        let one = x86!(_mm256_set1_epi16(1));
        let mut sum = self.splat_i(start);
        let mut narrow = sum;
        unroll!(i < STEPS of 8 {
            let products = self.products(w[i], x[i]);
            narrow = if i.is_multiple_of(steps) { products } else { x86!(_mm256_add_epi16(narrow, products)) };
            if (i + 1).is_multiple_of(steps) {
                sum = self.add_i(sum, self.dot_pair(narrow, one));
            }
        });
        sum
    }
    #[inline(always)]
    fn dot_signed(self, w: &[__m256i; STEPS], x: &Bytes32, minus128: i32) -> __m256i {
        if VNNI {
            return self.steps(w, x, minus128);
        }
        // |w| * (x with w's sign): two products of at most 128 * 127 fit 16 bits.
        let one = x86!(_mm256_set1_epi16(1));
        let mut sum = self.splat_i(0);
        unroll!(i < STEPS of 8 {
            let signed = x86!(_mm256_sign_epi8(_mm256_set1_epi32(x[i]), w[i]));
            let products = x86!(_mm256_maddubs_epi16(_mm256_abs_epi8(w[i]), signed));
            sum = self.add_i(sum, self.dot_pair(products, one));
        });
        sum
    }
    #[inline(always)]
    fn dots_of_halves(self, w: &[__m256i; STEPS], x: &Bytes32, start: &HalfStarts) -> (__m256i, __m256i) {
        let (low, high) = (self.splat_i(start.low), self.splat_i(start.high));
        if VNNI {
            return self.steps_of_halves(w, x, low, high);
        }
        let one = x86!(_mm256_set1_epi16(1));
        let mut sums = [low, high];
        unroll!(i < 4 of 4 {
            let first = self.products(w[2 * i], x[2 * i]);
            let narrow = x86!(_mm256_add_epi16(first, self.products(w[2 * i + 1], x[2 * i + 1])));
            sums[i / 2] = self.add_i(sums[i / 2], self.dot_pair(narrow, one));
        });
        sums.into()
    }
    #[inline(always)]
    fn dot_signed_halves(
        self,
        w: &[__m256i; STEPS],
        x: &Bytes32,
        s: &HalfScales<Self>,
        start: &HalfStarts,
    ) -> __m256i {
        if VNNI {
            // Weights have 128 added: four times what the starts take out.
            let (low, high) = [start.low, start.high].map(|sum| self.shl_i::<2>(self.splat_i(sum))).into();
            let (low, high) = self.steps_of_halves(w, x, low, high);
            let (low, high) = x86!((_mm256_mullo_epi32(low, s.low), _mm256_mullo_epi32(high, s.high)));
            return self.add_i(low, high);
        }
        // As in `dot_signed`; the sums of two steps fit 16 bits.
        let mut sum = self.splat_i(0);
        unroll!(i < 4 of 4 {
            let scale = if i < 2 { s.low_twice } else { s.high_twice };
            let [first, second] = [2 * i, 2 * i + 1].map(|step| x86!({
                let signed = _mm256_sign_epi8(_mm256_set1_epi32(x[step]), w[step]);
                _mm256_maddubs_epi16(_mm256_abs_epi8(w[step]), signed)
            }));
            sum = self.add_i(sum, self.dot_pair(x86!(_mm256_add_epi16(first, second)), scale));
        });
        sum
    }
    #[inline(always)]
    fn dot_halves(
        self,
        w: &[__m256i; STEPS],
        x: &Bytes32,
        s: &HalfScales<Self>,
        start: &HalfStarts,
    ) -> __m256i {
        self.halves::<32>(w, x, s, start.pair)
    }
    #[inline(always)]
    fn fold<const OFFSET: i32>(self, w: [__m256i; STEPS], low: __m256i, high: __m256i) -> Self::Folded {
        (w, HalfScales::of(self, low, high))
    }
    #[inline(always)]
    fn dot_folded<const OFFSET: i32>(
        self,
        (w, s): &Self::Folded,
        x: &Bytes32,
        _minus128: i32,
        pair: i32,
    ) -> __m256i {
        self.halves::<OFFSET>(w, x, s, pair)
    }
    #[inline(always)]
    fn after(self, _v: __m256, n: usize) -> usize {
        n
    }
}

impl<const VNNI: bool> Avx<VNNI> {
    /// The sum over both halves of `scale * ((w - OFFSET) . x)`, for weights up to 63; `pair` is the sums of `x`.
    #[inline(always)]
    fn halves<const OFFSET: i32>(
        self,
        w: &[__m256i; STEPS],
        x: &Bytes32,
        s: &HalfScales<Self>,
        pair: i32,
    ) -> __m256i {
        let mut sum = self.splat_i(0);
        if OFFSET != 0 {
            let by = self.splat_i(-OFFSET);
            sum = x86!(_mm256_mullo_epi32(self.dot_pair(s.pair, self.splat_i(pair)), by));
        }
        if VNNI {
            let (low, high) = self.steps_of_halves(w, x, self.splat_i(0), self.splat_i(0));
            let (low, high) = x86!((_mm256_mullo_epi32(low, s.low), _mm256_mullo_epi32(high, s.high)));
            return self.add_i(sum, self.add_i(low, high));
        }
        // The multiplication that widens pairs to 32 bits is the one by the scale.
        unroll!(i < 4 of 4 {
            let scale = if i < 2 { s.low_twice } else { s.high_twice };
            let first = self.products(w[2 * i], x[2 * i]);
            let narrow = x86!(_mm256_add_epi16(first, self.products(w[2 * i + 1], x[2 * i + 1])));
            sum = self.add_i(sum, self.dot_pair(narrow, scale));
        });
        sum
    }

    /// `low` plus the dot product of the first 16 unsigned weights, and `high` plus that of the last. Wants `VNNI`.
    #[inline(always)]
    fn steps_of_halves(
        self,
        w: &[__m256i; STEPS],
        x: &Bytes32,
        mut low: __m256i,
        mut high: __m256i,
    ) -> (__m256i, __m256i) {
        unroll!(i < 4 of 4 {
            low = self.step(low, w[i], x[i]);
            high = self.step(high, w[i + 4], x[i + 4]);
        });
        (low, high)
    }

    /// `start` plus the products of a group of unsigned weights with one of activations. Wants `VNNI`.
    #[inline(always)]
    fn steps(self, w: &[__m256i; STEPS], x: &Bytes32, start: i32) -> __m256i {
        let mut sum = self.splat_i(start);
        unroll!(i < STEPS of 8 { sum = self.step(sum, w[i], x[i]); });
        sum
    }

    /// Adds the products of unsigned weights with four columns of activations. Wants `VNNI`.
    #[inline(always)]
    fn step(self, acc: __m256i, w: __m256i, x: i32) -> __m256i {
        x86!(_mm256_dpbusd_avx_epi32(acc, w, _mm256_set1_epi32(x)))
    }

    /// Sums of two neighbouring products of unsigned weights with four columns of activations, as i16.
    #[inline(always)]
    fn products(self, w: __m256i, x: i32) -> __m256i {
        x86!(_mm256_maddubs_epi16(w, _mm256_set1_epi32(x)))
    }
}
