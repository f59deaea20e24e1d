//! Kernels that keep one unit of the processor busy and do nothing else.
//!
//! Each runs rounds of independent chains: with at least as many chains as an instruction's latency times the
//! units that take it, the units and not the latency bound the round. Operands stay in registers.

use std::hint::black_box;

use crate::Tier;
use crate::kernels::linear::AHEAD;
use crate::kernels::shell;
use crate::simd::{STEPS, Simd, scalar::Scalar, unroll};

/// Bytes that [`Loads::read`] takes at a time; what it is given is whole pieces of this.
pub const PIECE: usize = 1024;

/// Chains of a round: enough for a latency of 6 on two units or 3 on four, and few enough for 16 registers.
const CHAINS: usize = 12;

/// A kernel that is run by rounds.
#[derive(Clone, Copy)]
pub struct Load {
    /// Runs so many rounds.
    pub run: fn(u64),
    /// Multiplications and additions of a round, a multiply-add being two.
    pub operations: u64,
}

/// The loads of a tier.
pub struct Loads {
    /// Reads every byte once: as it comes, and with memory asked ahead as the panel kernels ask. Which is faster depends
    /// on the processor.
    pub read: [fn(&[u8]); 2],
    /// The multiply-add of bytes that the tier's panel kernels are made of.
    pub int8: Load,
    /// Multiply-adds of f32, as the float kernels and attention use them.
    pub f32: Load,
    /// Pairs of bf16 into f32, where the processor multiplies them itself. No kernel uses it yet.
    pub bf16: Option<Load>,
}

/// Both ways to read of a tier: its token and its instructions.
macro_rules! reads {
    ($S:ty, $features:tt) => {
        [
            shell!($S, $features, read::<_, false>, (bytes: &[u8])),
            shell!($S, $features, read::<_, true>, (bytes: &[u8])),
        ]
    };
}

impl Loads {
    /// A tier's loads, where this processor runs them.
    pub fn new(tier: Tier) -> Option<Loads> {
        match tier {
            Tier::Scalar => Some(Loads {
                read: reads!(Scalar, []),
                int8: Load { run: shell!(Scalar, [], int8, (rounds: u64)), operations: 2 * 4 * 8 * 16 },
                f32: Load {
                    run: shell!(Scalar, [], float::<_, CHAINS>, (rounds: u64)),
                    operations: float_operations::<Scalar>(),
                },
                bf16: None,
            }),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => crate::simd::avx2::Avx2::detect().map(x86::avx2),
            #[cfg(target_arch = "x86_64")]
            Tier::AvxVnni => crate::simd::avx2::AvxVnni::detect().map(x86::avxvnni),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512 => crate::simd::avx512::Avx512::detect().map(x86::avx512),
            #[cfg(not(target_arch = "x86_64"))]
            Tier::Avx2 | Tier::AvxVnni | Tier::Avx512 => None,
            #[cfg(target_arch = "aarch64")]
            Tier::Neon => crate::simd::neon::Neon::detect().map(arm::neon),
            #[cfg(not(target_arch = "aarch64"))]
            Tier::Neon => None,
        }
    }
}

/// Reads every byte once, into sums that nothing waits for.
#[inline(always)]
fn read<S: Simd, const ASK: bool>(s: S, bytes: &[u8]) {
    let width = 4 * S::LANES;
    let mut acc = [s.splat_b(0); 8];
    for piece in bytes.chunks_exact(PIECE) {
        if ASK {
            for line in (0..PIECE).step_by(64) {
                s.prefetch(piece.as_ptr().wrapping_add(line + AHEAD));
            }
        }
        for part in piece.chunks_exact(8 * width) {
            unroll!(i < 8 of 8 { acc[i] = s.or_b(acc[i], s.load_b(&part[i * width..])); });
        }
    }
    black_box(acc);
}

/// Operations of a round of [`float`].
const fn float_operations<S: Simd>() -> u64 {
    2 * (CHAINS * S::LANES) as u64
}

/// `N` chains of fma. The numbers approach 1, so they stay normal.
#[inline(always)]
fn float<S: Simd, const N: usize>(s: S, rounds: u64) {
    let (by, plus) = (s.splat(black_box(0.75)), s.splat(black_box(0.25)));
    let mut acc = [by; N];
    unroll!(i < N of 16 { acc[i] = s.splat(black_box(0.5)); });
    for _ in 0..rounds {
        unroll!(i < N of 16 { acc[i] = s.fma(acc[i], by, plus); });
    }
    black_box(acc);
}

/// What plain Rust makes of a group: the scalar tier's own dot product, operands in the first cache.
#[inline(always)]
fn int8(s: Scalar, rounds: u64) {
    let w = [[1; 64]; STEPS];
    let x = [0x0102_0304; STEPS];
    for _ in 0..rounds {
        black_box(s.dot_unsigned::<15>(black_box(&w), black_box(&x), 0));
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::*;

    use super::*;
    use crate::simd::avx2::{Avx2, AvxVnni};
    use crate::simd::avx512::Avx512;

    /// Loads of AVX2.
    pub fn avx2(_proof: Avx2) -> Loads {
        Loads {
            read: reads!(Avx2, ["avx2,fma,f16c"]),
            int8: Load {
                run: |rounds| {
                    // SAFETY: the tier's token proves that the processor has AVX2.
                    unsafe { int8_avx2::<CHAINS>(rounds) }
                },
                operations: 2 * 32 * CHAINS as u64,
            },
            f32: Load {
                run: shell!(Avx2, ["avx2,fma,f16c"], float::<_, CHAINS>, (rounds: u64)),
                operations: float_operations::<Avx2>(),
            },
            bf16: None,
        }
    }

    /// Loads of AVX-VNNI: AVX2's, but for the multiply-add of bytes.
    pub fn avxvnni(proof: AvxVnni) -> Loads {
        let int8 = Load {
            run: |rounds| {
                // SAFETY: the tier's token proves that the processor has AVX-VNNI.
                unsafe { int8_avxvnni::<CHAINS>(rounds) }
            },
            operations: 2 * 32 * CHAINS as u64,
        };
        Loads { int8, ..avx2(proof.avx2()) }
    }

    /// Loads of AVX-512 with VNNI.
    pub fn avx512(_proof: Avx512) -> Loads {
        Loads {
            read: reads!(Avx512, ["avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"]),
            int8: Load {
                run: |rounds| {
                    // SAFETY: the tier's token proves that the processor has VNNI.
                    unsafe { int8_avx512(rounds) }
                },
                operations: 2 * 64 * 16,
            },
            f32: Load {
                run: shell!(Avx512, ["avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"], float::<_, CHAINS>, (rounds: u64)),
                operations: float_operations::<Avx512>(),
            },
            bf16: is_x86_feature_detected!("avx512bf16").then_some(Load {
                run: |rounds| {
                    // SAFETY: the line above found the instructions, and the tier's token proves AVX-512 F.
                    unsafe { bf16(rounds) }
                },
                operations: 2 * 32 * 16,
            }),
        }
    }

    /// Products of bytes in pairs and their sum, which is what a step costs where sums are widened once a group.
    #[target_feature(enable = "avx2")]
    fn int8_avx2<const N: usize>(rounds: u64) {
        let w = _mm256_set1_epi8(black_box(3));
        let mut x = _mm256_set1_epi8(black_box(5));
        let mut acc = [_mm256_setzero_si256(); N];
        for _ in 0..rounds {
            unroll!(i < N of 16 {
                // SAFETY: no instruction. As far as the compiler knows, x is another number each time, so that each
                // product is computed.
                unsafe { asm!("/* {} */", inout(ymm_reg) x, options(nomem, nostack, preserves_flags)) };
                acc[i] = _mm256_add_epi16(acc[i], _mm256_maddubs_epi16(w, x));
            });
        }
        black_box(acc);
    }

    /// `N` chains of AVX-VNNI's multiply-add.
    #[target_feature(enable = "avx2,avxvnni")]
    fn int8_avxvnni<const N: usize>(rounds: u64) {
        let (w, x) = (_mm256_set1_epi8(black_box(3)), _mm256_set1_epi8(black_box(5)));
        let mut acc = [w; N];
        // To the compiler each chain begins with another number, so that none is taken for another.
        unroll!(i < N of 16 { acc[i] = _mm256_set1_epi32(black_box(0)); });
        for _ in 0..rounds {
            unroll!(i < N of 16 { acc[i] = _mm256_dpbusd_avx_epi32(acc[i], w, x); });
        }
        black_box(acc);
    }

    /// 16 chains of VNNI's multiply-add: enough for a latency of 5 on three units.
    #[target_feature(enable = "avx512f,avx512vnni")]
    fn int8_avx512(rounds: u64) {
        let (w, x) = (_mm512_set1_epi8(black_box(3)), _mm512_set1_epi8(black_box(5)));
        let (mut low, mut high) = ([w; 8], [w; 8]);
        // To the compiler each chain begins with another number, so that none is taken for another.
        unroll!(i < 8 of 8 {
            low[i] = _mm512_set1_epi32(black_box(0));
            high[i] = _mm512_set1_epi32(black_box(0));
        });
        for _ in 0..rounds {
            unroll!(i < 8 of 8 {
                low[i] = _mm512_dpbusd_epi32(low[i], w, x);
                high[i] = _mm512_dpbusd_epi32(high[i], w, x);
            });
        }
        black_box((low, high));
    }

    /// 16 chains of the multiply-add of pairs of bf16.
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn bf16(rounds: u64) {
        let half = _mm512_set1_ps(black_box(0.5));
        let pairs = _mm512_cvtne2ps_pbh(half, half);
        let (mut low, mut high) = ([half; 8], [half; 8]);
        unroll!(i < 8 of 8 {
            low[i] = _mm512_set1_ps(black_box(0.0));
            high[i] = _mm512_set1_ps(black_box(0.0));
        });
        for _ in 0..rounds {
            unroll!(i < 8 of 8 {
                low[i] = _mm512_dpbf16_ps(low[i], pairs, pairs);
                high[i] = _mm512_dpbf16_ps(high[i], pairs, pairs);
            });
        }
        black_box((low, high));
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::*;

    use super::*;
    use crate::simd::neon::Neon;

    /// Loads of NEON with dot products.
    pub fn neon(_proof: Neon) -> Loads {
        Loads {
            read: reads!(Neon, ["neon,dotprod"]),
            int8: Load {
                run: shell!(Neon, ["neon,dotprod"], int8_neon::<CHAINS>, (rounds: u64)),
                operations: 2 * 16 * CHAINS as u64,
            },
            f32: Load {
                run: shell!(Neon, ["neon,dotprod"], float::<_, CHAINS>, (rounds: u64)),
                operations: float_operations::<Neon>(),
            },
            bf16: None,
        }
    }

    /// `N` chains of dot products of four bytes.
    #[inline(always)]
    fn int8_neon<const N: usize>(s: Neon, rounds: u64) {
        let (w, x) = (s.splat_b(black_box(3)), s.splat_i(black_box(0x0505_0505)));
        let mut acc: [int32x4_t; N] = [x; N];
        unroll!(i < N of 16 { acc[i] = s.splat_i(black_box(0)); });
        for _ in 0..rounds {
            unroll!(i < N of 16 { acc[i] = s.step::<0>(w, x, acc[i]); });
        }
        black_box(acc);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tier_that_runs_here_has_its_loads() {
        for tier in Tier::ALL {
            let loads = Loads::new(tier);
            assert_eq!(loads.is_some(), tier.runs_here(), "{tier}");
            let Some(loads) = loads else { continue };
            for read in loads.read {
                read(&[7; 4 * PIECE]);
            }
            for load in [Some(loads.int8), Some(loads.f32), loads.bf16].into_iter().flatten() {
                (load.run)(3);
            }
        }
    }
}
