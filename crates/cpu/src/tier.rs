//! Which instructions the kernels use.

use std::fmt;
use std::str::FromStr;

/// A set of instructions that the kernels are built for, worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Tier {
    /// Nothing beyond the target's own.
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX2 with AVX-VNNI, which multiplies bytes faster.
    AvxVnni,
    /// AVX-512 F, BW, VL, DQ and VNNI.
    Avx512,
    /// ARM's NEON with dot products of bytes.
    Neon,
}

impl Tier {
    /// Every tier that cera knows.
    pub const ALL: [Tier; 5] = [Tier::Scalar, Tier::Avx2, Tier::AvxVnni, Tier::Avx512, Tier::Neon];

    /// The tiers that this processor runs, worst first.
    pub fn available() -> Vec<Tier> {
        Tier::ALL.into_iter().filter(|t| t.runs_here()).collect()
    }

    /// The best tier that this processor runs.
    pub fn best() -> Tier {
        Tier::available().last().copied().unwrap_or(Tier::Scalar)
    }

    /// Whether this processor has the tier's instructions.
    pub fn runs_here(self) -> bool {
        match self {
            Tier::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => crate::simd::avx2::Avx2::detect().is_some(),
            #[cfg(target_arch = "x86_64")]
            Tier::AvxVnni => crate::simd::avx2::AvxVnni::detect().is_some(),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512 => crate::simd::avx512::Avx512::detect().is_some(),
            #[cfg(not(target_arch = "x86_64"))]
            Tier::Avx2 | Tier::AvxVnni | Tier::Avx512 => false,
            #[cfg(target_arch = "aarch64")]
            Tier::Neon => crate::simd::neon::Neon::detect().is_some(),
            #[cfg(not(target_arch = "aarch64"))]
            Tier::Neon => false,
        }
    }

    /// The tier's name, as `--cpu-tier` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Scalar => "scalar",
            Tier::Avx2 => "avx2",
            Tier::AvxVnni => "avxvnni",
            Tier::Avx512 => "avx512",
            Tier::Neon => "neon",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no tier.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no tier of the CPU backend: scalar, avx2, avxvnni, avx512 or neon")]
pub struct UnknownTier(String);

impl FromStr for Tier {
    type Err = UnknownTier;

    fn from_str(s: &str) -> Result<Self, UnknownTier> {
        Tier::ALL.into_iter().find(|t| t.name() == s).ok_or_else(|| UnknownTier(s.into()))
    }
}
