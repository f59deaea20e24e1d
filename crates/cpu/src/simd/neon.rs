//! NEON with dot products of bytes: 4 lanes, a panel as four quarters of 4 rows.
//!
//! Stable Rust has no intrinsics for `sdot` and for prefetching; these two are assembly.

use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};

use super::{Bytes32, HalfScales, HalfStarts, Points, STEPS, SUMS, Simd, unroll};

/// Proof that the processor has NEON and the dot products (FEAT_DotProd).
#[derive(Clone, Copy)]
pub struct Neon(());

impl Neon {
    /// The token, where the processor has the instructions.
    pub fn detect() -> Option<Self> {
        let has = is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("dotprod");
        has.then_some(Neon(()))
    }

    /// The token.
    ///
    /// # Safety
    /// [`Self::detect`] gave one before.
    pub unsafe fn assume() -> Self {
        Neon(())
    }
}

const N: usize = 4;

/// A call of intrinsics that take and give values.
macro_rules! arm {
    ($e:expr) => {{
        // SAFETY: the tier's token proves that the processor has the instructions; values only, no memory.
        unsafe { $e }
    }};
}

impl Simd for Neon {
    const LANES: usize = N;
    const REGISTERS: usize = 32;
    type F = float32x4_t;
    type I = int32x4_t;
    type B = uint8x16_t;
    /// The products of weights and scales, as signed bytes.
    type Folded = [uint8x16_t; STEPS];

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        // SAFETY: a hint, which gives no fault whatever the address.
        unsafe { asm!("prfm pldl1keep, [{at}]", at = in(reg) at, options(nomem, nostack, preserves_flags)) }
    }
    #[inline(always)]
    fn splat(self, v: f32) -> float32x4_t {
        arm!(vdupq_n_f32(v))
    }
    #[inline(always)]
    fn load(self, x: &[f32]) -> float32x4_t {
        let x: &[f32; N] = x.first_chunk().expect("4 lanes");
        // SAFETY: 4 f32 are readable; `self` proves the instruction.
        unsafe { vld1q_f32(x.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, v: float32x4_t, x: &mut [f32]) {
        let x: &mut [f32; N] = x.first_chunk_mut().expect("4 lanes");
        // SAFETY: 4 f32 are writable; `self` proves the instruction.
        unsafe { vst1q_f32(x.as_mut_ptr(), v) }
    }
    #[inline(always)]
    fn load_f16(self, x: &[u16]) -> float32x4_t {
        arm!(vcvt_f32_f16(vreinterpret_f16_u16(load_u16(x))))
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16]) -> float32x4_t {
        arm!(vreinterpretq_f32_u32(vshll_n_u16::<16>(load_u16(x))))
    }
    #[inline(always)]
    fn store_f16(self, v: float32x4_t, x: &mut [u16]) {
        let x: &mut [u16; N] = x.first_chunk_mut().expect("4 lanes");
        // Rust code always runs in the default rounding mode, to nearest even.
        // SAFETY: 8 bytes are writable; `self` proves the instruction.
        unsafe { vst1_u16(x.as_mut_ptr(), vreinterpret_u16_f16(vcvt_f16_f32(v))) }
    }
    #[inline(always)]
    fn add(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        arm!(vaddq_f32(a, b))
    }
    #[inline(always)]
    fn sub(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        arm!(vsubq_f32(a, b))
    }
    #[inline(always)]
    fn mul(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        arm!(vmulq_f32(a, b))
    }
    #[inline(always)]
    fn div(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        arm!(vdivq_f32(a, b))
    }
    #[inline(always)]
    fn fma(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        arm!(vfmaq_f32(c, a, b))
    }
    #[inline(always)]
    fn max(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // `fmax` would give the NaN.
        arm!(vbslq_f32(vcgtq_f32(a, b), a, b))
    }
    #[inline(always)]
    fn min(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        arm!(vbslq_f32(vcltq_f32(a, b), a, b))
    }
    #[inline(always)]
    fn select(self, lo: usize, hi: usize, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        arm!({
            let lane = vcombine_u32(vcreate_u32(1 << 32), vcreate_u32(3 << 32 | 2));
            let from = vcgeq_u32(lane, vdupq_n_u32(lo.min(N) as u32));
            let to = vcltq_u32(lane, vdupq_n_u32(hi.min(N) as u32));
            vbslq_f32(vandq_u32(from, to), a, b)
        })
    }
    #[inline(always)]
    fn tree_sum(self, v: &[float32x4_t]) -> f32 {
        const { assert!(SUMS == 4 * N) };
        arm!({
            let v = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
            vpadds_f32(vadd_f32(vget_low_f32(v), vget_high_f32(v)))
        })
    }

    #[inline(always)]
    fn splat_i(self, v: i32) -> int32x4_t {
        arm!(vdupq_n_s32(v))
    }
    #[inline(always)]
    fn add_i(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        arm!(vaddq_s32(a, b))
    }
    #[inline(always)]
    fn sub_i(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        arm!(vsubq_s32(a, b))
    }
    #[inline(always)]
    fn and_i(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        arm!(vandq_s32(a, b))
    }
    #[inline(always)]
    fn or_i(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        arm!(vorrq_s32(a, b))
    }
    #[inline(always)]
    fn xor_i(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        arm!(veorq_s32(a, b))
    }
    #[inline(always)]
    fn max_i(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        arm!(vmaxq_s32(a, b))
    }
    #[inline(always)]
    fn shl_i<const K: i32>(self, a: int32x4_t) -> int32x4_t {
        arm!(vshlq_n_s32::<K>(a))
    }
    #[inline(always)]
    fn shr_i<const K: i32>(self, a: int32x4_t) -> int32x4_t {
        arm!(vreinterpretq_s32_u32(vshrq_n_u32::<K>(vreinterpretq_u32_s32(a))))
    }
    #[inline(always)]
    fn to_f(self, a: int32x4_t) -> float32x4_t {
        arm!(vcvtq_f32_s32(a))
    }
    #[inline(always)]
    fn round(self, a: float32x4_t) -> int32x4_t {
        arm!(vcvtnq_s32_f32(a))
    }
    #[inline(always)]
    fn bits(self, a: float32x4_t) -> int32x4_t {
        arm!(vreinterpretq_s32_f32(a))
    }
    #[inline(always)]
    fn float_of(self, a: int32x4_t) -> float32x4_t {
        arm!(vreinterpretq_f32_s32(a))
    }
    #[inline(always)]
    fn load_u8(self, x: &[u8]) -> int32x4_t {
        arm!(vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(load_4(x))))))
    }
    #[inline(always)]
    fn load_i8(self, x: &[u8]) -> int32x4_t {
        arm!(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(load_4(x))))))
    }
    #[inline(always)]
    fn dot_pair(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        arm!({
            let (a, b) = (vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b));
            vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b))
        })
    }
    #[inline(always)]
    fn store_i8(self, a: int32x4_t, x: &mut [i8]) {
        let x: &mut [i8; N] = x.first_chunk_mut().expect("4 bytes");
        let bytes = arm!({
            let words = vmovn_s32(a);
            vget_lane_u32::<0>(vreinterpret_u32_s8(vmovn_s16(vcombine_s16(words, words))))
        });
        *x = bytes.to_le_bytes().map(|b| b as i8);
    }

    #[inline(always)]
    fn load_b(self, x: &[u8]) -> uint8x16_t {
        let x: &[u8; 4 * N] = x.first_chunk().expect("16 bytes");
        // SAFETY: 16 bytes are readable; `self` proves the instruction.
        unsafe { vld1q_u8(x.as_ptr()) }
    }
    #[inline(always)]
    fn splat_b(self, v: u8) -> uint8x16_t {
        arm!(vdupq_n_u8(v))
    }
    #[inline(always)]
    fn and_b(self, a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        arm!(vandq_u8(a, b))
    }
    #[inline(always)]
    fn or_b(self, a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        arm!(vorrq_u8(a, b))
    }
    #[inline(always)]
    fn add_b(self, a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        arm!(vaddq_u8(a, b))
    }
    #[inline(always)]
    fn to_b(self, a: int32x4_t) -> uint8x16_t {
        arm!(vreinterpretq_u8_s32(a))
    }
    #[inline(always)]
    fn to_i(self, a: uint8x16_t) -> int32x4_t {
        arm!(vreinterpretq_s32_u8(a))
    }
    #[inline(always)]
    fn at_least<const K: u8>(self, a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        arm!(vandq_u8(vcgeq_u8(a, vdupq_n_u8(K)), b))
    }
    #[inline(always)]
    fn negated<const BIT: u32>(self, w: uint8x16_t, signs: uint8x16_t) -> uint8x16_t {
        arm!({
            let negative = vreinterpretq_u8_s8(vnegq_s8(vreinterpretq_s8_u8(w)));
            vbslq_u8(vtstq_u8(signs, vdupq_n_u8(1 << BIT)), negative, w)
        })
    }
    #[inline(always)]
    fn shr_b<const K: i32>(self, a: uint8x16_t) -> uint8x16_t {
        arm!(vreinterpretq_u8_u16(vshrq_n_u16::<K>(vreinterpretq_u16_u8(a))))
    }
    #[inline(always)]
    fn shl_b<const K: i32>(self, a: uint8x16_t) -> uint8x16_t {
        arm!(vreinterpretq_u8_u16(vshlq_n_u16::<K>(vreinterpretq_u16_u8(a))))
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], w: uint8x16_t) -> uint8x16_t {
        // SAFETY: 16 bytes are readable; `self` proves the instructions.
        unsafe { vqtbl1q_u8(vld1q_u8(table.as_ptr()), w) }
    }
    #[inline(always)]
    fn points<const K: usize>(self, points: &Points<K>, at: int32x4_t) -> [uint8x16_t; 2] {
        let point = |code: i32| u64::from(points.bytes[code as usize % K]);
        let pair = |first: i32, second: i32| point(first) | point(second) << 32;
        arm!({
            let (a, b) = (vgetq_lane_s32::<0>(at), vgetq_lane_s32::<1>(at));
            let (c, d) = (vgetq_lane_s32::<2>(at), vgetq_lane_s32::<3>(at));
            [0, 16].map(|half| {
                let [a, b, c, d] = [a, b, c, d].map(|both| both >> half & 0xffff);
                vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(pair(a, b)), vcreate_u64(pair(c, d))))
            })
        })
    }
    #[inline(always)]
    fn signed(self, w: uint8x16_t) -> uint8x16_t {
        w
    }
    #[inline(always)]
    fn dot_unsigned<const MAX: i32>(self, w: &[uint8x16_t; STEPS], x: &Bytes32, start: i32) -> int32x4_t {
        const { assert!(MAX <= i8::MAX as i32) };
        self.dot(w, x, start)
    }
    #[inline(always)]
    fn dot_signed(self, w: &[uint8x16_t; STEPS], x: &Bytes32, _minus128: i32) -> int32x4_t {
        self.dot(w, x, 0)
    }
    #[inline(always)]
    fn dots_of_halves(
        self,
        w: &[uint8x16_t; STEPS],
        x: &Bytes32,
        start: &HalfStarts,
    ) -> (int32x4_t, int32x4_t) {
        let (first, last) = halves(x);
        let low = self.four([w[0], w[1], w[2], w[3]], first, self.splat_i(start.low));
        let high = self.four([w[4], w[5], w[6], w[7]], last, self.splat_i(start.high));
        (low, high)
    }
    #[inline(always)]
    fn dot_signed_halves(
        self,
        w: &[uint8x16_t; STEPS],
        x: &Bytes32,
        s: &HalfScales<Self>,
        _start: &HalfStarts,
    ) -> int32x4_t {
        let (low, high) = self.dots_of_halves(w, x, &HalfStarts::default());
        arm!(vmlaq_s32(vmulq_s32(low, s.low), high, s.high))
    }
    #[inline(always)]
    fn dot_halves(
        self,
        w: &[uint8x16_t; STEPS],
        x: &Bytes32,
        s: &HalfScales<Self>,
        start: &HalfStarts,
    ) -> int32x4_t {
        let (low, high) = self.dots_of_halves(w, x, start);
        arm!(vmlaq_s32(vmulq_s32(low, s.low), high, s.high))
    }
    #[inline(always)]
    fn fold<const OFFSET: i32>(
        self,
        mut w: [uint8x16_t; STEPS],
        low: int32x4_t,
        high: int32x4_t,
    ) -> Self::Folded {
        // Bytes wrap, so what fits a byte in the end comes out right.
        let start = |scale| self.in_bytes(arm!(vmulq_s32(scale, self.splat_i(-OFFSET))));
        let (low, low_start) = (self.in_bytes(low), start(low));
        let (high, high_start) = (self.in_bytes(high), start(high));
        unroll!(i < STEPS of 8 {
            let (by, start) = if i < 4 { (low, low_start) } else { (high, high_start) };
            w[i] = arm!(vmlaq_u8(start, w[i], by));
        });
        w
    }
    #[inline(always)]
    fn dot_folded<const OFFSET: i32>(
        self,
        w: &Self::Folded,
        x: &Bytes32,
        _minus128: i32,
        _pair: i32,
    ) -> int32x4_t {
        self.dot(w, x, 0)
    }
    #[inline(always)]
    fn after(self, _v: float32x4_t, n: usize) -> usize {
        n
    }
}

impl Neon {
    /// Each lane's low byte in all of its four.
    #[inline(always)]
    fn in_bytes(self, v: int32x4_t) -> uint8x16_t {
        const LOWEST: [u8; 16] = [0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12];
        // SAFETY: 16 bytes are readable; `self` proves the instructions.
        unsafe { vqtbl1q_u8(vreinterpretq_u8_s32(v), vld1q_u8(LOWEST.as_ptr())) }
    }

    /// `start` plus the dot products of rows of 32 signed weights with `x`.
    #[inline(always)]
    fn dot(self, w: &[uint8x16_t; STEPS], x: &Bytes32, start: i32) -> int32x4_t {
        let (first, last) = halves(x);
        let sum = self.four([w[0], w[1], w[2], w[3]], first, self.splat_i(start));
        self.four([w[4], w[5], w[6], w[7]], last, sum)
    }

    /// Adds the products of four steps of signed weights with 16 columns of activations.
    #[inline(always)]
    fn four(self, w: [uint8x16_t; 4], x: int32x4_t, acc: int32x4_t) -> int32x4_t {
        let acc = self.step::<0>(w[0], x, acc);
        let acc = self.step::<1>(w[1], x, acc);
        let acc = self.step::<2>(w[2], x, acc);
        self.step::<3>(w[3], x, acc)
    }

    /// Adds to each lane the dot product of its four signed bytes with those of lane `K` of `x`.
    #[inline(always)]
    pub fn step<const K: i32>(self, w: uint8x16_t, x: int32x4_t, mut acc: int32x4_t) -> int32x4_t {
        // SAFETY: `self` proves that the processor has the instruction; registers only, no memory.
        unsafe {
            asm!(
                "sdot {acc:v}.4s, {w:v}.16b, {x:v}.4b[{k}]",
                acc = inout(vreg) acc,
                w = in(vreg) w,
                x = in(vreg) x,
                k = const K,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        acc
    }
}

/// The first and the last 16 columns of a group of activations.
#[inline(always)]
fn halves(x: &Bytes32) -> (int32x4_t, int32x4_t) {
    // SAFETY: 8 i32 are readable.
    unsafe { (vld1q_s32(x.as_ptr()), vld1q_s32(x[N..].as_ptr())) }
}

/// The first 4 of `x`.
#[inline(always)]
fn load_u16(x: &[u16]) -> uint16x4_t {
    let x: &[u16; N] = x.first_chunk().expect("4 lanes");
    // SAFETY: 8 bytes are readable.
    unsafe { vld1_u16(x.as_ptr()) }
}

/// The first 4 bytes of `x`, and four zeros.
#[inline(always)]
fn load_4(x: &[u8]) -> uint8x8_t {
    let x: &[u8; N] = x.first_chunk().expect("4 bytes");
    arm!(vcreate_u8(u64::from(u32::from_le_bytes(*x))))
}
