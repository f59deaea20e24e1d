//! The mixes of tensor types that llama.cpp's quantize names.

use std::fmt;
use std::str::FromStr;

use cera_quant::Type;

use crate::Error;

/// Builds the enum and its look-ups from one table: `variant "name" = number in files, the type of most tensors`.
macro_rules! mixes {
    ($($mix:ident $name:literal = $number:literal, $ty:ident;)*) => {
        /// Which types the tensors of a quantized model have: most of them one, some of them one of more bits.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types, missing_docs, reason = "the field's own spelling; each variant is its name")]
        pub enum Mix {
            $($mix,)*
        }

        impl Mix {
            /// All of them, the smallest numbers first.
            pub const ALL: &[Mix] = &[$(Mix::$mix,)*];

            /// Its name, as llama.cpp spells it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Mix::$mix => $name,)*
                }
            }

            /// Its number under `general.file_type`.
            pub const fn number(self) -> u32 {
                match self {
                    $(Mix::$mix => $number,)*
                }
            }

            /// The type of those tensors that no rule gives another.
            pub const fn ty(self) -> Type {
                match self {
                    $(Mix::$mix => Type::$ty,)*
                }
            }
        }
    };
}

mixes! {
    F32 "F32" = 0, F32;
    F16 "F16" = 1, F16;
    Q4_0 "Q4_0" = 2, Q4_0;
    Q4_1 "Q4_1" = 3, Q4_1;
    Q8_0 "Q8_0" = 7, Q8_0;
    Q5_0 "Q5_0" = 8, Q5_0;
    Q5_1 "Q5_1" = 9, Q5_1;
    Q2_K "Q2_K" = 10, Q2_K;
    Q3_K_S "Q3_K_S" = 11, Q3_K;
    Q3_K_M "Q3_K_M" = 12, Q3_K;
    Q3_K_L "Q3_K_L" = 13, Q3_K;
    Q4_K_S "Q4_K_S" = 14, Q4_K;
    Q4_K_M "Q4_K_M" = 15, Q4_K;
    Q5_K_S "Q5_K_S" = 16, Q5_K;
    Q5_K_M "Q5_K_M" = 17, Q5_K;
    Q6_K "Q6_K" = 18, Q6_K;
    IQ2_XXS "IQ2_XXS" = 19, IQ2_XXS;
    IQ2_XS "IQ2_XS" = 20, IQ2_XS;
    Q2_K_S "Q2_K_S" = 21, Q2_K;
    IQ3_XS "IQ3_XS" = 22, IQ3_S;
    IQ3_XXS "IQ3_XXS" = 23, IQ3_XXS;
    IQ1_S "IQ1_S" = 24, IQ1_S;
    IQ4_NL "IQ4_NL" = 25, IQ4_NL;
    IQ3_S "IQ3_S" = 26, IQ3_S;
    IQ3_M "IQ3_M" = 27, IQ3_S;
    IQ2_S "IQ2_S" = 28, IQ2_XS;
    IQ2_M "IQ2_M" = 29, IQ2_S;
    IQ4_XS "IQ4_XS" = 30, IQ4_XS;
    IQ1_M "IQ1_M" = 31, IQ1_M;
    BF16 "BF16" = 32, BF16;
    TQ1_0 "TQ1_0" = 36, TQ1_0;
    TQ2_0 "TQ2_0" = 37, TQ2_0;
    MXFP4_MOE "MXFP4_MOE" = 38, MXFP4;
    Q1_0 "Q1_0" = 40, Q1_0;
    Q2_0 "Q2_0" = 41, Q2_0;
}

/// Names that stand for others.
const ALIASES: [(&str, Mix); 3] = [("Q3_K", Mix::Q3_K_M), ("Q4_K", Mix::Q4_K_M), ("Q5_K", Mix::Q5_K_M)];

impl FromStr for Mix {
    type Err = Error;

    /// By name, in letters of either case, or by the number that files have.
    fn from_str(text: &str) -> Result<Self, Error> {
        let named = |mix: &Mix| mix.name().eq_ignore_ascii_case(text) || mix.number().to_string() == text;
        let alias = || ALIASES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, mix)| *mix);
        let found = Self::ALL.iter().copied().find(named).or_else(alias);
        found.ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|mix| mix.name()).collect();
            Error::Mix { found: text.into(), known: known.join(", ") }
        })
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back() {
        for &mix in Mix::ALL {
            for text in [mix.name().to_owned(), mix.name().to_lowercase(), mix.number().to_string()] {
                assert_eq!(text.parse::<Mix>().unwrap(), mix);
            }
        }
        assert_eq!("q4_k".parse::<Mix>().unwrap(), Mix::Q4_K_M);
        let error = "Q4_K_XL".parse::<Mix>().unwrap_err().to_string();
        assert!(error.contains("Q4_K_XL") && error.contains("Q4_K_M"), "{error}");
    }
}
