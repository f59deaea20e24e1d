//! The tensor types that ggml names: id, name and block size of each.
//!
//! A GGUF tensor's type is a `u32` id (the GGUF specification and ggml's `ggml_type`). Ids that ggml has retired
//! (4, 5, 31 to 33, 36 to 38) have no name here: no program reads them any more.

use std::fmt;

use crate::Codec;

/// Weights in a super-block of the K and I families.
pub const QK_K: usize = 256;

/// Builds the enum and its look-ups from one table: `name = id, weights per block, bytes per block, meaning`.
macro_rules! types {
    ($($name:ident = $id:literal, $len:expr, $bytes:expr, $doc:literal;)*) => {
        /// A tensor type, by ggml's upper-case name.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(non_camel_case_types)] // the field's own spelling
        pub enum Type {
            $(#[doc = $doc] $name,)*
        }

        impl Type {
            /// Every type, in order of id.
            pub const ALL: &[Type] = &[$(Type::$name,)*];

            /// The type with ggml's `id`, or `None` where ggml names none (or no longer does).
            pub fn from_id(id: u32) -> Option<Type> {
                match id {
                    $($id => Some(Type::$name),)*
                    _ => None,
                }
            }

            /// ggml's number for the type, as stored in GGUF.
            pub const fn id(self) -> u32 {
                match self {
                    $(Type::$name => $id,)*
                }
            }

            /// ggml's upper-case name, such as `Q4_K`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Type::$name => stringify!($name),)*
                }
            }

            /// Weights that one block holds; 1 for the plain number types.
            pub const fn block_len(self) -> usize {
                match self {
                    $(Type::$name => $len,)*
                }
            }

            /// Bytes that one block takes.
            pub const fn block_bytes(self) -> usize {
                match self {
                    $(Type::$name => $bytes,)*
                }
            }
        }
    };
}

types! {
    F32 = 0, 1, 4, "IEEE 754 binary32.";
    F16 = 1, 1, 2, "IEEE 754 binary16.";
    Q4_0 = 2, 32, 2 + 16, "4 bits, scale per 32.";
    Q4_1 = 3, 32, 2 + 2 + 16, "4 bits, scale and minimum per 32.";
    Q5_0 = 6, 32, 2 + 4 + 16, "5 bits, scale per 32.";
    Q5_1 = 7, 32, 2 + 2 + 4 + 16, "5 bits, scale and minimum per 32.";
    Q8_0 = 8, 32, 2 + 32, "8 bits, scale per 32.";
    Q8_1 = 9, 32, 2 + 2 + 32, "8 bits, scale and scaled sum per 32 (ggml's activations; not shipped in files).";
    Q2_K = 10, QK_K, QK_K / 16 + QK_K / 4 + 2 + 2, "2 bits, 4-bit scale and minimum per 16.";
    Q3_K = 11, QK_K, QK_K / 8 + QK_K / 4 + 12 + 2, "3 bits, 6-bit scale per 16.";
    Q4_K = 12, QK_K, 2 + 2 + 12 + QK_K / 2, "4 bits, 6-bit scale and minimum per 32.";
    Q5_K = 13, QK_K, 2 + 2 + 12 + QK_K / 8 + QK_K / 2, "5 bits, 6-bit scale and minimum per 32.";
    Q6_K = 14, QK_K, QK_K / 2 + QK_K / 4 + QK_K / 16 + 2, "6 bits, 8-bit scale per 16.";
    Q8_K = 15, QK_K, 4 + QK_K + QK_K / 8, "8 bits, f32 scale per 256, sums per 16 (ggml's activations).";
    IQ2_XXS = 16, QK_K, 2 + QK_K / 4, "2.06 bits, codebook of 256 eights.";
    IQ2_XS = 17, QK_K, 2 + QK_K / 4 + QK_K / 32, "2.31 bits, codebook of 512 eights.";
    IQ3_XXS = 18, QK_K, 2 + QK_K / 4 + QK_K / 8, "3.06 bits, codebook of 256 fours.";
    IQ1_S = 19, QK_K, 2 + QK_K / 8 + QK_K / 16, "1.56 bits, codebook of 2048 ternary eights.";
    IQ4_NL = 20, 32, 2 + 16, "4 bits into a table of 16 uneven levels, scale per 32.";
    IQ3_S = 21, QK_K, 2 + QK_K / 4 + QK_K / 32 + QK_K / 8 + QK_K / 64, "3.44 bits, codebook of 512 fours.";
    IQ2_S = 22, QK_K, 2 + QK_K / 4 + QK_K / 32 + QK_K / 32, "2.56 bits, codebook of 1024 eights.";
    IQ4_XS = 23, QK_K, 2 + 2 + QK_K / 64 + QK_K / 2, "4 bits into IQ4_NL's table, 6-bit scale per 32.";
    I8 = 24, 1, 1, "Signed 8-bit integer.";
    I16 = 25, 1, 2, "Signed 16-bit integer.";
    I32 = 26, 1, 4, "Signed 32-bit integer.";
    I64 = 27, 1, 8, "Signed 64-bit integer.";
    F64 = 28, 1, 8, "IEEE 754 binary64.";
    IQ1_M = 29, QK_K, QK_K / 8 + QK_K / 16 + QK_K / 32, "1.75 bits, IQ1_S's codebook, finer scales.";
    BF16 = 30, 1, 2, "The upper half of a binary32.";
    TQ1_0 = 34, QK_K, (QK_K - 4 * QK_K / 64) / 5 + QK_K / 64 + 2, "Ternary, five to a byte.";
    TQ2_0 = 35, QK_K, QK_K / 4 + 2, "Ternary, four to a byte.";
    MXFP4 = 39, 32, 1 + 16, "E2M1 values, E8M0 scale per 32 (OCP microscaling).";
    NVFP4 = 40, 64, 4 + 32, "E2M1 values, E4M3 scale per 16.";
    Q1_0 = 41, 128, 2 + 16, "Signs alone, scale per 128.";
    Q2_0 = 42, 64, 2 + 16, "2 bits, scale per 64.";
}

impl Type {
    /// The type of that name, upper or lower case (`q4_k`, `Q4_K` and ggml's `q4_K` are the same).
    pub fn from_name(name: &str) -> Option<Type> {
        Self::ALL.iter().copied().find(|ty| ty.name().eq_ignore_ascii_case(name))
    }

    /// Bytes of a row of `cols` weights; `None` if `cols` is not a multiple of [`Self::block_len`] or the count
    /// overflows.
    pub fn row_bytes(self, cols: usize) -> Option<usize> {
        if !cols.is_multiple_of(self.block_len()) {
            return None;
        }
        (cols / self.block_len()).checked_mul(self.block_bytes())
    }

    /// How the type's bytes are read and written; `None` for a type that is named but not run.
    pub fn codec(self) -> Option<&'static dyn Codec> {
        let codec: &'static dyn Codec = match self {
            Type::F32 => &crate::F32,
            Type::F16 => &crate::F16,
            Type::BF16 => &crate::Bf16,
            Type::Q4_0 => &crate::q4_0::Q4_0,
            Type::Q4_1 => &crate::q4_1::Q4_1,
            Type::Q5_0 => &crate::q5_0::Q5_0,
            Type::Q5_1 => &crate::q5_1::Q5_1,
            Type::Q8_0 => &crate::q8_0::Q8_0,
            Type::Q2_K => &crate::q2_k::Q2K,
            Type::Q3_K => &crate::q3_k::Q3K,
            Type::Q4_K => &crate::q4_k::Q4K,
            Type::Q5_K => &crate::q5_k::Q5K,
            Type::Q6_K => &crate::q6_k::Q6K,
            Type::Q1_0 => &crate::q1_0::Q1_0,
            Type::Q2_0 => &crate::q2_0::Q2_0,
            Type::TQ1_0 => &crate::tq1_0::Tq1_0,
            Type::TQ2_0 => &crate::tq2_0::Tq2_0,
            Type::NVFP4 => &crate::nvfp4::Nvfp4,
            Type::IQ1_S => &crate::iq1_s::Iq1S,
            Type::IQ1_M => &crate::iq1_m::Iq1M,
            Type::IQ2_XXS => &crate::iq2_xxs::Iq2Xxs,
            Type::IQ2_XS => &crate::iq2_xs::Iq2Xs,
            Type::IQ2_S => &crate::iq2_s::Iq2S,
            Type::IQ3_XXS => &crate::iq3_xxs::Iq3Xxs,
            Type::IQ3_S => &crate::iq3_s::Iq3S,
            Type::IQ4_NL => &crate::iq4_nl::Iq4Nl,
            Type::IQ4_XS => &crate::iq4_xs::Iq4Xs,
            Type::MXFP4 => &crate::mxfp4::Mxfp4,
            _ => return None,
        };
        Some(codec)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_lead_back() {
        for &ty in Type::ALL {
            assert_eq!(Type::from_id(ty.id()), Some(ty));
            assert_eq!(Type::from_name(ty.name()), Some(ty));
            assert_eq!(Type::from_name(&ty.name().to_lowercase()), Some(ty));
        }
        assert!(Type::ALL.is_sorted_by(|a, b| a.id() < b.id()));
        for retired in [4, 5, 31, 32, 33, 36, 37, 38, 43, u32::MAX] {
            assert_eq!(Type::from_id(retired), None);
        }
        assert_eq!(Type::from_name("q4_K"), Some(Type::Q4_K));
        assert_eq!(Type::from_name("Q4"), None);
    }

    #[test]
    fn rows_are_whole_blocks() {
        assert_eq!(Type::Q4_K.row_bytes(512), Some(288));
        assert_eq!(Type::Q4_K.row_bytes(511), None);
        assert_eq!(Type::Q8_0.row_bytes(0), Some(0));
        assert_eq!(Type::F32.row_bytes(usize::MAX), None);
        assert_eq!(Type::F64.row_bytes(usize::MAX / 4), None);
    }

    #[test]
    fn a_codec_is_of_its_type() {
        let run: Vec<_> = Type::ALL.iter().filter_map(|ty| Some((*ty, ty.codec()?.ty()))).collect();
        assert_eq!(run.len(), 28);
        assert!(run.iter().all(|(ty, of_codec)| ty == of_codec));
    }

    #[test]
    fn names_align_in_tables() {
        assert_eq!(format!("{:>6}|{:<6}|", Type::Q8_0, Type::BF16), "  Q8_0|BF16  |");
    }
}
