//! Activations of a row, alone and as the gate of a gated unit.

use cera_plan::Act;

use super::row::elementwise;
use crate::simd::{SUMS, Simd, exp, tanh};

/// Runs `$body` with `$f` as the function of vectors that an activation is.
macro_rules! by_act {
    ($act:ident, $f:ident => $body:expr) => {
        match $act {
            Act::Silu => by_act!(@ silu, $f, $body),
            Act::GeluTanh => by_act!(@ gelu_tanh, $f, $body),
            Act::GeluErf => by_act!(@ gelu_erf, $f, $body),
            Act::GeluQuick => by_act!(@ gelu_quick, $f, $body),
            Act::Relu => by_act!(@ relu, $f, $body),
            Act::Relu2 => by_act!(@ relu2, $f, $body),
            Act::Sigmoid => by_act!(@ sigmoid, $f, $body),
            Act::Tanh => by_act!(@ tanh, $f, $body),
            Act::ClampedSilu => by_act!(@ clamped_silu, $f, $body),
        }
    };
    (@ $function:ident, $f:ident, $body:expr) => {{
        use $function as $f;
        $body
    }};
}

/// `out = act(gate) * up`.
#[inline(always)]
pub fn glu<S: Simd>(s: S, act: Act, gate: &[f32], up: &[f32], out: &mut [f32]) {
    match act {
        Act::ClampedSilu => elementwise!(s, out, (g = gate, u = up) {
            // What is not a number stays so: `min` and `max` give their second operand then.
            let u = s.max(s.splat(-7.0), s.min(s.splat(7.0), u));
            s.mul(clamped_silu(s, g), s.add(u, s.splat(1.0)))
        }),
        act => by_act!(act, f => elementwise!(s, out, (g = gate, u = up) s.mul(f(s, g), u))),
    }
}

/// `out = act(x)`.
#[inline(always)]
pub fn act<S: Simd>(s: S, act: Act, x: &[f32], out: &mut [f32]) {
    by_act!(act, f => elementwise!(s, out, (v = x) f(s, v)));
}

/// `x / (1 + e^-x)`.
#[inline(always)]
fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    let e = exp(s, s.sub(s.splat(0.0), x));
    s.div(x, s.add(s.splat(1.0), e))
}

/// `x / (1 + e^(-1.702 x))`.
#[inline(always)]
fn gelu_quick<S: Simd>(s: S, x: S::F) -> S::F {
    let e = exp(s, s.mul(x, s.splat(-1.702)));
    s.div(x, s.add(s.splat(1.0), e))
}

/// `y / (1 + e^(-1.702 y))`, `y` being `x` or 7 if that is less.
#[inline(always)]
fn clamped_silu<S: Simd>(s: S, x: S::F) -> S::F {
    gelu_quick(s, s.min(s.splat(7.0), x))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    let e = exp(s, s.sub(s.splat(0.0), x));
    s.div(one, s.add(one, e))
}

/// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
#[inline(always)]
fn gelu_tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let cubic = s.mul(s.mul(x, x), s.mul(x, s.splat(0.044_715)));
    let inner = s.mul(s.add(x, cubic), s.splat(0.797_884_6));
    let half = s.mul(x, s.splat(0.5));
    s.mul(half, s.add(s.splat(1.0), tanh(s, inner)))
}

/// `x / 2 * (1 + erf(x / sqrt(2)))`.
#[inline(always)]
fn gelu_erf<S: Simd>(s: S, x: S::F) -> S::F {
    let half = s.mul(x, s.splat(0.5));
    let z = s.mul(x, s.splat(std::f32::consts::FRAC_1_SQRT_2));
    s.mul(half, s.add(s.splat(1.0), erf(s, z)))
}

/// The error function, its absolute error within 3e-7.
///
/// `1 - erf(z) = t * exp(-z^2 + p(t))` for `z >= 0`, `t = 1 / (1 + z / 2)`, with the polynomial of degree 9 of Press et
/// al., Numerical Recipes, 2nd edition, section 6.2 (Chebyshev's fit, relative error below 1.2e-7).
#[inline(always)]
fn erf<S: Simd>(s: S, x: S::F) -> S::F {
    let sign = s.and_i(s.bits(x), s.splat_i(i32::MIN));
    let z = s.float_of(s.and_i(s.bits(x), s.splat_i(i32::MAX)));
    let one = s.splat(1.0);
    let t = s.div(one, s.fma(z, s.splat(0.5), one));
    let mut p = s.splat(0.170_872_77);
    for c in [
        -0.822_152_23,
        1.488_515_9,
        -1.135_204,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_7,
        -1.265_512_2,
    ] {
        p = s.fma(p, t, s.splat(c));
    }
    let rest = s.mul(t, exp(s, s.fma(s.sub(s.splat(0.0), z), z, p)));
    let magnitude = s.sub(one, rest);
    // With the sign of x. A NaN keeps its bits but perhaps for the sign.
    s.float_of(s.or_i(s.bits(magnitude), sign))
}

/// `max(x, 0)`; a NaN stays one.
#[inline(always)]
fn relu<S: Simd>(s: S, x: S::F) -> S::F {
    s.max(s.splat(0.0), x)
}

/// `max(x, 0)^2`.
#[inline(always)]
fn relu2<S: Simd>(s: S, x: S::F) -> S::F {
    let x = relu(s, x);
    s.mul(x, x)
}
