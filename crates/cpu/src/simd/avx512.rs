//! AVX-512 with VNNI: 16 lanes, a panel at once.

use std::arch::asm;
use std::arch::x86_64::*;

use super::{Bytes32, HalfScales, HalfStarts, Points, STEPS, SUMS, Simd, unroll};

/// Proof that the processor has AVX-512 F, BW, VL, DQ and VNNI.
#[derive(Clone, Copy)]
pub struct Avx512(());

impl Avx512 {
    /// The token, where the processor has the instructions.
    pub fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vnni");
        has.then_some(Avx512(()))
    }

    /// The token.
    ///
    /// # Safety
    /// [`Self::detect`] gave one before.
    pub unsafe fn assume() -> Self {
        Avx512(())
    }
}

const N: usize = 16;

/// Entries of the largest table that is permuted; larger ones are gathered from. A choice by the number of instructions, 16
/// permutations and 15 blends for 32 indices here; not measured.
const PERMUTED: usize = 1024;

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

impl Simd for Avx512 {
    const LANES: usize = N;
    const REGISTERS: usize = 32;
    type F = __m512;
    type I = __m512i;
    type B = __m512i;
    /// The products of weights and scales: plain where they have no sign, else as [`Simd::signed`] gives them.
    type Folded = [__m512i; STEPS];
    const BIAS: u8 = 128;

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        x86!(_mm_prefetch::<_MM_HINT_T0>(at.cast()))
    }
    #[inline(always)]
    fn splat(self, v: f32) -> __m512 {
        x86!(_mm512_set1_ps(v))
    }
    #[inline(always)]
    fn load(self, x: &[f32]) -> __m512 {
        let x: &[f32; N] = x.first_chunk().expect("16 lanes");
        // SAFETY: 16 f32 are readable; `self` proves the instruction.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, v: __m512, x: &mut [f32]) {
        let x: &mut [f32; N] = x.first_chunk_mut().expect("16 lanes");
        // SAFETY: 16 f32 are writable; `self` proves the instruction.
        unsafe { _mm512_storeu_ps(x.as_mut_ptr(), v) }
    }
    #[inline(always)]
    fn load_f16(self, x: &[u16]) -> __m512 {
        let x: &[u16; N] = x.first_chunk().expect("16 lanes");
        // SAFETY: 32 bytes are readable; `self` proves the instruction.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast())) }
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16]) -> __m512 {
        let x: &[u16; N] = x.first_chunk().expect("16 lanes");
        // SAFETY: 32 bytes are readable; `self` proves the instruction.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(x.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    fn store_f16(self, v: __m512, x: &mut [u16]) {
        let x: &mut [u16; N] = x.first_chunk_mut().expect("16 lanes");
        // SAFETY: 32 bytes are writable; `self` proves the instruction.
        unsafe {
            let h = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(v);
            _mm256_storeu_si256(x.as_mut_ptr().cast(), h);
        }
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        x86!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        x86!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        x86!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        x86!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        x86!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        x86!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        x86!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn select(self, lo: usize, hi: usize, a: __m512, b: __m512) -> __m512 {
        let below = |n: usize| ((1u32 << n.min(N)) - 1) as u16;
        x86!(_mm512_mask_blend_ps(below(hi) & !below(lo), b, a))
    }
    #[inline(always)]
    fn tree_sum(self, v: &[__m512]) -> f32 {
        const { assert!(SUMS == N) };
        x86!({
            let v = _mm256_add_ps(_mm512_castps512_ps256(v[0]), _mm512_extractf32x8_ps::<1>(v[0]));
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        })
    }

    #[inline(always)]
    fn splat_i(self, v: i32) -> __m512i {
        x86!(_mm512_set1_epi32(v))
    }
    #[inline(always)]
    fn add_i(self, a: __m512i, b: __m512i) -> __m512i {
        x86!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn sub_i(self, a: __m512i, b: __m512i) -> __m512i {
        x86!(_mm512_sub_epi32(a, b))
    }
    #[inline(always)]
    fn and_i(self, a: __m512i, b: __m512i) -> __m512i {
        x86!(_mm512_and_si512(a, b))
    }
    #[inline(always)]
    fn or_i(self, a: __m512i, b: __m512i) -> __m512i {
        x86!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn xor_i(self, a: __m512i, b: __m512i) -> __m512i {
        x86!(_mm512_xor_si512(a, b))
    }
    #[inline(always)]
    fn max_i(self, a: __m512i, b: __m512i) -> __m512i {
        x86!(_mm512_max_epi32(a, b))
    }
    #[inline(always)]
    fn shl_i<const K: i32>(self, a: __m512i) -> __m512i {
        x86!(_mm512_sll_epi32(a, _mm_cvtsi32_si128(K)))
    }
    #[inline(always)]
    fn shr_i<const K: i32>(self, a: __m512i) -> __m512i {
        x86!(_mm512_srl_epi32(a, _mm_cvtsi32_si128(K)))
    }
    #[inline(always)]
    fn to_f(self, a: __m512i) -> __m512 {
        x86!(_mm512_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn round(self, a: __m512) -> __m512i {
        // Rust code always runs in the default rounding mode, to nearest even.
        x86!(_mm512_cvtps_epi32(a))
    }
    #[inline(always)]
    fn bits(self, a: __m512) -> __m512i {
        x86!(_mm512_castps_si512(a))
    }
    #[inline(always)]
    fn float_of(self, a: __m512i) -> __m512 {
        x86!(_mm512_castsi512_ps(a))
    }
    #[inline(always)]
    fn load_u8(self, x: &[u8]) -> __m512i {
        let x: &[u8; N] = x.first_chunk().expect("16 bytes");
        // SAFETY: 16 bytes are readable; `self` proves the instruction.
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(x.as_ptr().cast())) }
    }
    #[inline(always)]
    fn load_i8(self, x: &[u8]) -> __m512i {
        let x: &[u8; N] = x.first_chunk().expect("16 bytes");
        // SAFETY: 16 bytes are readable; `self` proves the instruction.
        unsafe { _mm512_cvtepi8_epi32(_mm_loadu_si128(x.as_ptr().cast())) }
    }
    #[inline(always)]
    fn dot_pair(self, a: __m512i, b: __m512i) -> __m512i {
        x86!(_mm512_madd_epi16(a, b))
    }
    #[inline(always)]
    fn store_i8(self, a: __m512i, x: &mut [i8]) {
        let x: &mut [i8; N] = x.first_chunk_mut().expect("16 bytes");
        // SAFETY: 16 bytes are writable; `self` proves the instruction.
        unsafe { _mm_storeu_si128(x.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(a)) }
    }

    #[inline(always)]
    fn load_b(self, x: &[u8]) -> __m512i {
        let x: &[u8; 4 * N] = x.first_chunk().expect("64 bytes");
        // SAFETY: 64 bytes are readable; `self` proves the instruction.
        unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
    }
    #[inline(always)]
    fn splat_b(self, v: u8) -> __m512i {
        x86!(_mm512_set1_epi8(v as i8))
    }
    #[inline(always)]
    fn and_b(self, a: __m512i, b: __m512i) -> __m512i {
        x86!(_mm512_and_si512(a, b))
    }
    #[inline(always)]
    fn or_b(self, a: __m512i, b: __m512i) -> __m512i {
        x86!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn add_b(self, a: __m512i, b: __m512i) -> __m512i {
        x86!(_mm512_add_epi8(a, b))
    }
    #[inline(always)]
    fn to_b(self, a: __m512i) -> __m512i {
        a
    }
    #[inline(always)]
    fn to_i(self, a: __m512i) -> __m512i {
        a
    }
    #[inline(always)]
    fn at_least<const K: u8>(self, a: __m512i, b: __m512i) -> __m512i {
        x86!(_mm512_maskz_mov_epi8(_mm512_cmpge_epu8_mask(a, self.splat_b(K)), b))
    }
    #[inline(always)]
    fn negated<const BIT: u32>(self, w: __m512i, signs: __m512i) -> __m512i {
        x86!({
            let is_negative = _mm512_test_epi8_mask(signs, self.splat_b(1 << BIT));
            _mm512_mask_sub_epi8(w, is_negative, self.splat_b(0), w)
        })
    }
    #[inline(always)]
    fn shr_b<const K: i32>(self, a: __m512i) -> __m512i {
        x86!(_mm512_srl_epi16(a, _mm_cvtsi32_si128(K)))
    }
    #[inline(always)]
    fn shl_b<const K: i32>(self, a: __m512i) -> __m512i {
        x86!(_mm512_sll_epi16(a, _mm_cvtsi32_si128(K)))
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], w: __m512i) -> __m512i {
        // SAFETY: 16 bytes are readable; `self` proves the instructions.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, w)
        }
    }
    #[inline(always)]
    fn points<const K: usize>(self, points: &Points<K>, at: __m512i) -> [__m512i; 2] {
        if K > PERMUTED {
            let within = self.splat_i(const { K as i32 - 1 });
            return [at, self.shr_i::<16>(at)].map(|at| {
                let at = self.and_i(at, within);
                // SAFETY: indexes are below `K`, a power of two; `self` proves the instruction.
                unsafe { _mm512_i32gather_epi32::<4>(at, points.bytes.as_ptr().cast()) }
            });
        }
        x86!({
            let both = self.permuted(&points.nibbles, at);
            let nibble = self.splat_b(15);
            let low = _mm512_and_si512(both, nibble);
            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(both), nibble);
            // Bytes of a lane's lower u16 give their nibbles in turns, low and high.
            let first = _mm512_set4_epi32(0x0d0d_0c0c, 0x0909_0808, 0x0505_0404, 0x0101_0000);
            let second = _mm512_set4_epi32(0x0f0f_0e0e, 0x0b0b_0a0a, 0x0707_0606, 0x0303_0202);
            [first, second].map(|of| {
                const HIGH: u64 = 0xaaaa_aaaa_aaaa_aaaa;
                _mm512_mask_shuffle_epi8(_mm512_shuffle_epi8(low, of), HIGH, high, of)
            })
        })
    }
    #[inline(always)]
    fn signed(self, w: __m512i) -> __m512i {
        // VNNI multiplies unsigned by signed: w + 128 is unsigned.
        x86!(_mm512_xor_si512(w, _mm512_set1_epi8(i8::MIN)))
    }
    #[inline(always)]
    fn dot_unsigned<const MAX: i32>(self, w: &[__m512i; STEPS], x: &Bytes32, start: i32) -> __m512i {
        let mut sum = self.splat_i(start);
        unroll!(i < STEPS of 8 { sum = self.step(sum, w[i], x[i]); });
        sum
    }
    #[inline(always)]
    fn dot_signed(self, w: &[__m512i; STEPS], x: &Bytes32, minus128: i32) -> __m512i {
        self.dot_unsigned::<255>(w, x, minus128)
    }
    #[inline(always)]
    fn dots_of_halves(self, w: &[__m512i; STEPS], x: &Bytes32, start: &HalfStarts) -> (__m512i, __m512i) {
        self.halves(w, x, self.splat_i(start.low), self.splat_i(start.high))
    }
    #[inline(always)]
    fn dot_signed_halves(
        self,
        w: &[__m512i; STEPS],
        x: &Bytes32,
        s: &HalfScales<Self>,
        start: &HalfStarts,
    ) -> __m512i {
        // Weights have 128 added: four times what the starts take out.
        let (low, high) = [start.low, start.high].map(|sum| self.shl_i::<2>(self.splat_i(sum))).into();
        let (low, high) = self.halves(w, x, low, high);
        x86!(_mm512_add_epi32(_mm512_mullo_epi32(low, s.low), _mm512_mullo_epi32(high, s.high)))
    }
    #[inline(always)]
    fn dot_halves(
        self,
        w: &[__m512i; STEPS],
        x: &Bytes32,
        s: &HalfScales<Self>,
        start: &HalfStarts,
    ) -> __m512i {
        let (low, high) = self.dots_of_halves(w, x, start);
        x86!(_mm512_add_epi32(_mm512_mullo_epi32(low, s.low), _mm512_mullo_epi32(high, s.high)))
    }
    #[inline(always)]
    fn fold<const OFFSET: i32>(self, mut w: [__m512i; STEPS], low: __m512i, high: __m512i) -> Self::Folded {
        // Two bytes are multiplied as one number of 16 bits: what the lower one gives is within 0..=255, with the bias
        // that makes it so, and carries nothing into the upper one.
        let (low, low_start) = self.factor_and_start(low, OFFSET);
        let (high, high_start) = self.factor_and_start(high, OFFSET);
        unroll!(i < STEPS of 8 {
            let (by, start) = if i < 4 { (low, low_start) } else { (high, high_start) };
            w[i] = x86!(_mm512_mullo_epi16(w[i], by));
            if OFFSET != 0 {
                w[i] = x86!(_mm512_add_epi16(w[i], start));
            }
        });
        w
    }
    #[inline(always)]
    fn dot_folded<const OFFSET: i32>(
        self,
        w: &Self::Folded,
        x: &Bytes32,
        minus128: i32,
        _pair: i32,
    ) -> __m512i {
        self.dot_unsigned::<255>(w, x, if OFFSET == 0 { 0 } else { minus128 })
    }
    #[inline(always)]
    fn after(self, v: __m512, n: usize) -> usize {
        x86!(after(v, n))
    }
}

impl Avx512 {
    /// `table[at]` for each u16, modulo `K`: a power of two from 64 to [`PERMUTED`].
    #[inline(always)]
    fn permuted<const K: usize>(self, table: &[u16; K], at: __m512i) -> __m512i {
        x86!({
            // One instruction looks into 64 entries; bits 6 and up of the index choose among what those give, two by two
            // as soon as there are two.
            let tables = K / 64;
            let upper = [64, 128, 256, 512].map(|bit| _mm512_test_epi16_mask(at, _mm512_set1_epi16(bit)));
            let mut kept = [at; 5];
            unroll!(i < tables of 16 {
                let part = |from: usize| self.load_b(bytemuck::cast_slice(&table[from..from + 32]));
                let mut found = _mm512_permutex2var_epi16(part(64 * i), at, part(64 * i + 32));
                let level = const { usize::count_ones(i ^ (i + 1)) as usize - 1 };
                unroll!(l < level of 4 { found = _mm512_mask_blend_epi16(upper[l], kept[l], found); });
                kept[level] = found;
            });
            kept[const { K.trailing_zeros() as usize - 6 }]
        })
    }

    /// `low` plus the dot product of the first 16 unsigned weights, and `high` plus that of the last.
    #[inline(always)]
    fn halves(
        self,
        w: &[__m512i; STEPS],
        x: &Bytes32,
        mut low: __m512i,
        mut high: __m512i,
    ) -> (__m512i, __m512i) {
        unroll!(i < 4 of 4 {
            low = self.step(low, w[i], x[i]);
            high = self.step(high, w[i + 4], x[i + 4]);
        });
        (low, high)
    }

    /// Of each lane: `scale` as two equal i16, and `128 - offset * scale` as four equal bytes.
    #[inline(always)]
    fn factor_and_start(self, scale: __m512i, offset: i32) -> (__m512i, __m512i) {
        x86!({
            let words = _mm512_setr4_epi32(0x0100_0100, 0x0504_0504, 0x0908_0908, 0x0d0c_0d0c);
            let bytes = _mm512_setr4_epi32(0, 0x0404_0404, 0x0808_0808, 0x0c0c_0c0c);
            let start = self.sub_i(self.splat_i(128), _mm512_mullo_epi32(scale, self.splat_i(offset)));
            (_mm512_shuffle_epi8(scale, words), _mm512_shuffle_epi8(start, bytes))
        })
    }

    /// Adds the products of unsigned weights with four columns of activations.
    #[inline(always)]
    fn step(self, acc: __m512i, w: __m512i, x: i32) -> __m512i {
        x86!(_mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x)))
    }
}

/// [`Simd::after`].
#[inline]
#[target_feature(enable = "avx512f")]
fn after(v: __m512, mut n: usize) -> usize {
    // SAFETY: no instruction, only the claim that `n` depends on `v`.
    unsafe {
        asm!("/* {n} {v} */", n = inout(reg) n, v = in(zmm_reg) v, options(pure, nomem, nostack, preserves_flags));
    }
    n
}
