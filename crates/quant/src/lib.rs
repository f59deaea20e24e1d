//! What a block of quantized weights means: one file per format.
//!
//! [`Type`] names every tensor type that ggml does, with its block size. A type that can be run has a [`Codec`];
//! [`decode`] and [`encode`] use it with checked lengths. A backend that unpacks blocks itself finds their layout as
//! constants in the format's module, such as [`q4_k`].
//!
//! Decoding gives the bits that ggml's own dequantization gives on x86-64, where each multiplication and addition
//! rounds separately (on other targets compilers may fuse ggml's; ours are never fused).
#![forbid(unsafe_code)]

mod affine;
mod bf16;
mod block;
mod codebook;
mod codec;
mod e2m1;
mod error;
mod f16;
mod f32;
mod grid;
mod grids;
mod half_float;
mod head;
mod importance;
mod lanes;
mod nibbles;
mod pairs;
mod shifted;
mod signed;
mod symmetric;
mod ternary;
mod types;

pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod mxfp4;
pub mod nvfp4;
pub mod q1_0;
pub mod q2_0;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
pub mod tq1_0;
pub mod tq2_0;

pub use bf16::Bf16;
pub use codec::{Codec, decode, encode, encode_with_importance};
pub use error::Error;
pub use f16::F16;
pub use f32::F32;
pub use half_float::{f16_to_f32, f32_to_f16};
pub use head::scale_min_k4;
pub use types::{QK_K, Type};
