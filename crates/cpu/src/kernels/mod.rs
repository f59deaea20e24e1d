//! The kernels, and the table that one tier's are called through.
//!
//! Each kernel is a generic function over [`crate::simd::Simd`], written once. A tier's module below wraps them
//! in functions that have the tier's instructions turned on; into those everything is inlined.

pub mod activation;
pub mod attend;
pub mod float;
pub mod linear;
pub mod moe;
pub mod numbers;
pub mod recurrent;
pub mod row;
#[cfg(test)]
mod tests;

use cera_plan::{Act, Attention, RopeStyle};
use cera_quant::Type;

use crate::Tier;
use crate::format::{ActGroup, Format, by_type};
use attend::{Queries, Scratch, State, finish, spans};
use linear::Input;
use numbers::Cache;
use recurrent::{Delta, Scan};

/// Rows `first..first + rows` of the input times one panel: `(panel, input, first, rows, out [rows, 16])`.
pub type PanelFn = fn(&[u8], &Input<'_>, usize, usize, &mut [f32]);

/// A row normalised around its mean: `(x, weight, bias, eps, out)`.
pub type LayerNormFn = fn(&[f32], &[f32], &[f32], f32, &mut [f32]);
/// A row of a convolution: `(rows seen, their factors, bias, silu, out)`.
pub type ConvFn = fn(&[&[f32]], &[&[f32]], Option<&[f32]>, bool, &mut [f32]);

/// Turns heads: `(style, (elements of a head, the first that turns), cosines, sines, x)`.
pub type RopeFn = fn(RopeStyle, (usize, usize), &[f32], &[f32], &mut [f32]);

/// One tier's kernels, chosen once.
pub struct Kernels {
    /// [`row::quantize`].
    pub quantize: fn(&[f32], &mut [ActGroup], usize),
    /// [`row::rest`].
    pub rest: fn(&[f32], &[ActGroup], usize, &mut [f32]),
    /// [`row::rms_norm`].
    pub rms_norm: fn(&[f32], &[f32], f32, &mut [f32]),
    /// [`row::layer_norm`].
    pub layer_norm: LayerNormFn,
    /// [`activation::glu`].
    pub glu: fn(Act, &[f32], &[f32], &mut [f32]),
    /// [`activation::act`].
    pub act: fn(Act, &[f32], &mut [f32]),
    /// [`row::softcap`].
    pub softcap: fn(f32, &[f32], &mut [f32]),
    /// [`row::match_size`].
    pub match_size: fn(&[f32], &[f32], &mut [f32]),
    /// [`row::sparsify`].
    pub sparsify: fn(&[f32], f32, &mut [f32]),
    /// [`row::add_scaled`].
    pub add_scaled: fn(f32, &[f32], &mut [f32]),
    /// [`moe::softmax`].
    pub softmax: fn(&[f32], &mut [f32]),
    /// [`moe::sigmoid`].
    pub sigmoid: fn(&[f32], &mut [f32]),
    /// [`row::rope`].
    pub rope: RopeFn,
    /// [`row::to_f16`].
    pub to_f16: fn(&[f32], &mut [u16]),
    /// [`attend::span`].
    pub span: fn(&Attention, &Cache<'_>, &Queries<'_>, usize, &mut Scratch),
    /// [`attend::merge`].
    pub merge: fn(&State, &[f32], &mut State, &mut [f32]),
    /// [`recurrent::conv`].
    pub conv: ConvFn,
    /// [`recurrent::decay`].
    pub decay: fn(&mut [f32], f32, &mut [f32]),
    /// [`recurrent::scan`].
    pub scan: fn(&Scan<'_>, &mut [f32], &mut [f32]),
    /// [`recurrent::unit`].
    pub unit: fn(&[f32], f32, f32, &mut [f32]),
    /// [`recurrent::delta`].
    pub delta: fn(&Delta<'_>, &mut [f32], &mut [f32]),
    /// The panel kernel of a type, if there is one.
    pub panel: fn(Type) -> Option<PanelFn>,
}

impl Kernels {
    /// A tier's kernels, where this processor runs them.
    pub fn new(tier: Tier) -> Option<Kernels> {
        match tier {
            Tier::Scalar => Some(scalar::table(crate::simd::scalar::Scalar)),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => crate::simd::avx2::Avx2::detect().map(avx2::table),
            #[cfg(target_arch = "x86_64")]
            Tier::AvxVnni => crate::simd::avx2::AvxVnni::detect().map(avxvnni::table),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512 => crate::simd::avx512::Avx512::detect().map(avx512::table),
            #[cfg(not(target_arch = "x86_64"))]
            Tier::Avx2 | Tier::AvxVnni | Tier::Avx512 => None,
            #[cfg(target_arch = "aarch64")]
            Tier::Neon => crate::simd::neon::Neon::detect().map(neon::table),
            #[cfg(not(target_arch = "aarch64"))]
            Tier::Neon => None,
        }
    }

    /// Attention over all spans: `out [queries, value_dim]` = softmax(q . k * scale) v.
    pub fn attend(
        &self,
        attention: &Attention,
        cache: &Cache<'_>,
        queries: &Queries<'_>,
        scratch: &mut Scratch,
        out: &mut [f32],
    ) {
        let (dim, n) = (attention.value_dim, queries.positions.len());
        scratch.totals[..n].fill(State::EMPTY);
        for span in spans(attention, queries.positions, queries.length) {
            (self.span)(attention, cache, queries, span, scratch);
            let Scratch { states, sums, totals, .. } = &mut *scratch;
            let of = states.iter().zip(sums.chunks_exact(dim)).zip(totals);
            for (((state, sums), total), out) in of.zip(out.chunks_exact_mut(dim)) {
                (self.merge)(state, sums, total, out);
            }
        }
        for (i, out) in out.chunks_exact_mut(dim).enumerate().take(n) {
            let sink = queries.sinks.get(i).copied();
            self.finish(&mut scratch.totals[i], sink, &scratch.nothing, out);
        }
    }

    /// Makes the sum of weighted values a mean. A sink counts as a last span, of one position whose value is `nothing`.
    pub fn finish(&self, total: &mut State, sink: Option<f32>, nothing: &[f32], out: &mut [f32]) {
        if let Some(sink) = sink {
            (self.merge)(&State::of(sink), &nothing[..out.len()], total, out);
        }
        finish(total, out);
    }
}

/// One kernel of a tier as a plain function: the generic code inlined where the instructions are on.
///
/// The table that holds it is made only from the tier's token, which proves that the processor has them.
macro_rules! shell {
    ($S:ty, [$($features:literal)?], $kernel:expr, ($($arg:ident: $ty:ty),*)) => {{
        $(#[target_feature(enable = $features)])?
        fn shell(s: $S, $($arg: $ty),*) {
            $kernel(s, $($arg),*)
        }
        |$($arg: $ty),*| {
            // SAFETY: reached only through a table, and a table is made from the tier's token.
            unsafe {
                shell(<$S>::assume(), $($arg),*)
            }
        }
    }};
}

pub(crate) use shell;

/// [`shell`] for a panel kernel, which is generic over the type of the matrix.
macro_rules! panel_shell {
    ($S:ty, [$($features:literal)?], $F:ident: $bound:ident, $kernel:expr) => {{
        $(#[target_feature(enable = $features)])?
        fn shell<$F: $bound>(s: $S, w: &[u8], x: &Input<'_>, first: usize, rows: usize, out: &mut [f32]) {
            $kernel(s, w, x, first, rows, out)
        }
        |w, x, first, rows, out| {
            // SAFETY: reached only through a table, and a table is made from the tier's token.
            unsafe {
                shell::<$F>(<$S>::assume(), w, x, first, rows, out)
            }
        }
    }};
}

/// A tier's table: its token and its instructions.
macro_rules! tier {
    ($module:ident, $S:ty, $features:tt) => {
        mod $module {
            use super::*;
            use float::{Bf16, F16, F32, Float};

            /// The tier's kernels.
            pub fn table(_proof: $S) -> Kernels {
                Kernels {
                    quantize: shell!($S, $features, row::quantize, (x: &[f32], groups: &mut [ActGroup], apart: usize)),
                    rest: shell!($S, $features, row::rest, (x: &[f32], groups: &[ActGroup], apart: usize, out: &mut [f32])),
                    rms_norm: shell!($S, $features, row::rms_norm, (x: &[f32], w: &[f32], eps: f32, out: &mut [f32])),
                    layer_norm: shell!(
                        $S,
                        $features,
                        row::layer_norm,
                        (x: &[f32], w: &[f32], b: &[f32], eps: f32, out: &mut [f32])
                    ),
                    glu: shell!($S, $features, activation::glu, (act: Act, gate: &[f32], up: &[f32], out: &mut [f32])),
                    act: shell!($S, $features, activation::act, (act: Act, x: &[f32], out: &mut [f32])),
                    softcap: shell!($S, $features, row::softcap, (cap: f32, x: &[f32], out: &mut [f32])),
                    match_size: shell!($S, $features, row::match_size, (x: &[f32], to: &[f32], out: &mut [f32])),
                    sparsify: shell!($S, $features, row::sparsify, (x: &[f32], by: f32, out: &mut [f32])),
                    add_scaled: shell!($S, $features, row::add_scaled, (by: f32, x: &[f32], out: &mut [f32])),
                    softmax: shell!($S, $features, moe::softmax, (x: &[f32], out: &mut [f32])),
                    sigmoid: shell!($S, $features, moe::sigmoid, (x: &[f32], out: &mut [f32])),
                    rope: shell!(
                        $S,
                        $features,
                        row::rope,
                        (style: RopeStyle, head: (usize, usize), cos: &[f32], sin: &[f32], x: &mut [f32])
                    ),
                    to_f16: shell!($S, $features, row::to_f16, (x: &[f32], out: &mut [u16])),
                    span: shell!(
                        $S,
                        $features,
                        attend::span,
                        (a: &Attention, cache: &Cache<'_>, q: &Queries<'_>, span: usize, scratch: &mut Scratch)
                    ),
                    merge: shell!(
                        $S,
                        $features,
                        attend::merge,
                        (span: &State, sums: &[f32], total: &mut State, out: &mut [f32])
                    ),
                    conv: shell!(
                        $S,
                        $features,
                        recurrent::conv,
                        (x: &[&[f32]], w: &[&[f32]], bias: Option<&[f32]>, silu: bool, out: &mut [f32])
                    ),
                    decay: shell!($S, $features, recurrent::decay, (x: &mut [f32], rate: f32, out: &mut [f32])),
                    scan: shell!($S, $features, recurrent::scan, (scan: &Scan<'_>, h: &mut [f32], out: &mut [f32])),
                    unit: shell!($S, $features, recurrent::unit, (x: &[f32], eps: f32, scale: f32, out: &mut [f32])),
                    delta: shell!($S, $features, recurrent::delta, (d: &Delta<'_>, h: &mut [f32], out: &mut [f32])),
                    panel,
                }
            }

            /// The panel kernel of a type, if there is one.
            pub fn panel(ty: Type) -> Option<PanelFn> {
                match ty {
                    Type::F32 => Some(float::<F32>()),
                    Type::F16 => Some(float::<F16>()),
                    Type::BF16 => Some(float::<Bf16>()),
                    _ => quantized(ty),
                }
            }

            quantized!($S, $features);

            fn float<F: Float>() -> PanelFn {
                panel_shell!($S, $features, F: Float, float::panel::<_, F>)
            }
        }
    };
}

/// A tier's panel kernels of quantized types, which are all that multiply bytes.
macro_rules! quantized {
    ($S:ty, $features:tt) => {
        fn quantized(ty: Type) -> Option<PanelFn> {
            fn of<F: Format>() -> Option<PanelFn> {
                Some(panel_shell!($S, $features, F: Format, linear::panel::<_, F>))
            }
            by_type!(ty, of)
        }
    };
}

tier!(scalar, crate::simd::scalar::Scalar, []);
#[cfg(target_arch = "x86_64")]
tier!(avx2, crate::simd::avx2::Avx2, ["avx2,fma,f16c"]);
/// AVX2's kernels, but for those that multiply bytes.
#[cfg(target_arch = "x86_64")]
mod avxvnni {
    use super::*;
    use crate::simd::avx2::AvxVnni;

    /// The tier's kernels.
    pub fn table(proof: AvxVnni) -> Kernels {
        Kernels { panel: |ty| quantized(ty).or_else(|| avx2::panel(ty)), ..avx2::table(proof.avx2()) }
    }

    quantized!(AvxVnni, ["avx2,fma,f16c,avxvnni"]);
}
#[cfg(target_arch = "x86_64")]
tier!(avx512, crate::simd::avx512::Avx512, ["avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"]);
#[cfg(target_arch = "aarch64")]
tier!(neon, crate::simd::neon::Neon, ["neon,dotprod"]);
