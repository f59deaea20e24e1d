//! Kernels over one row of activations.

use cera_plan::RopeStyle;

use crate::format::{ActGroup, GROUP, Starts};
use crate::simd::{HalfStarts, Lanes16, SUMS, Simd, sum16, tanh};

/// Below this, a group's largest magnitude counts as zero: `127 / max` would overflow, and no product with a
/// weight could matter.
const TINY: f32 = 1e-30;

/// Quantizes a row to bytes in groups of 32: scale `max |x| / 127`, ties to even. A group that holds a number
/// that is not finite gets a scale that is not a number, so that the fault shows in every output.
/// `x.len()` is a multiple of 32; every `apart`th of `groups` is one of this row.
#[inline(always)]
pub fn quantize<S: Simd>(s: S, x: &[f32], groups: &mut [ActGroup], apart: usize) {
    for (x, group) in x.chunks_exact(GROUP).zip(groups.iter_mut().step_by(apart)) {
        // Magnitudes compare as integers, and a NaN is above all numbers.
        let magnitude = s.splat_i(0x7fff_ffff);
        let mut top = s.splat_i(0);
        for x in x.chunks_exact(S::LANES) {
            top = s.max_i(top, s.and_i(s.bits(s.load(x)), magnitude));
        }
        let mut lanes = [0.0; SUMS];
        s.store(s.float_of(top), &mut lanes);
        let mut max = 0;
        for lane in &lanes[..S::LANES] {
            max = max.max(lane.to_bits());
        }
        let max = f32::from_bits(max);
        if !(TINY..=f32::MAX).contains(&max) {
            let scale = if max < TINY { 0.0 } else { f32::NAN };
            *group = ActGroup { scale, sum_scaled: scale, ..ActGroup::default() };
            continue;
        }
        let inverse = s.splat(127.0 / max);
        let q: &mut [i8] = bytemuck::cast_slice_mut(&mut group.q);
        for (x, q) in x.chunks_exact(S::LANES).zip(q.chunks_exact_mut(S::LANES)) {
            s.store_i8(s.round(s.mul(s.load(x), inverse)), q);
        }
        let mut half = [0i32; 2];
        for (half, q) in half.iter_mut().zip(q.chunks_exact(GROUP / 2)) {
            for q in q {
                *half += i32::from(*q);
            }
        }
        group.scale = max / 127.0;
        let sum = half[0] + half[1];
        group.sum_scaled = sum as f32 * group.scale;
        let pair = (half[0] & 0xffff) | half[1] << 16;
        let halves = HalfStarts { low: -32 * half[0], high: -32 * half[1], pair };
        group.start = Starts { minus8: -8 * sum, minus16: -16 * sum, minus128: -128 * sum, halves };
    }
}

/// What quantization left out of a row: `out = x - scale * q`. Groups are as [`quantize`] takes them.
#[inline(always)]
pub fn rest<S: Simd>(_s: S, x: &[f32], groups: &[ActGroup], apart: usize, out: &mut [f32]) {
    let groups = groups.iter().step_by(apart);
    for ((x, group), out) in x.chunks_exact(GROUP).zip(groups).zip(out.chunks_exact_mut(GROUP)) {
        let q: &[i8] = bytemuck::cast_slice(&group.q);
        for ((x, q), out) in x.iter().zip(q).zip(out) {
            *out = f32::from(*q).mul_add(-group.scale, *x);
        }
    }
}

/// The sum of `term` over the elements of a row: 16 partial sums, each in order, and the tree. Behind the row's end
/// `padding` stands.
#[inline(always)]
fn sum<S: Simd>(s: S, x: &[f32], padding: f32, term: impl Fn(S, S::F, S::F) -> S::F) -> f32 {
    let mut acc: Lanes16<S> = [s.splat(0.0); 4];
    let mut rows = x.chunks_exact(SUMS);
    for x in rows.by_ref() {
        for p in 0..SUMS / S::LANES {
            acc[p] = term(s, s.load(&x[p * S::LANES..]), acc[p]);
        }
    }
    let rest = rows.remainder();
    if !rest.is_empty() {
        let mut tail = [padding; SUMS];
        tail[..rest.len()].copy_from_slice(rest);
        for p in 0..SUMS / S::LANES {
            acc[p] = term(s, s.load(&tail[p * S::LANES..]), acc[p]);
        }
    }
    sum16(s, &acc)
}

/// `out = x / sqrt(mean(x^2) + eps) * weight`, over `weight.len()` elements at a time.
#[inline(always)]
pub fn rms_norm<S: Simd>(s: S, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let n = weight.len();
    for (x, out) in x.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
        let squares = sum(s, x, 0.0, |s: S, v, acc| s.fma(v, v, acc));
        let scale = 1.0 / (squares / n as f32 + eps).sqrt();
        for ((o, x), w) in out.iter_mut().zip(x).zip(weight) {
            *o = x * scale * w;
        }
    }
}

/// `out = (x - mean) / sqrt(variance + eps) * weight + bias`, over a row, or a head, of any length; without a bias that
/// is empty.
#[inline(always)]
pub fn layer_norm<S: Simd>(s: S, x: &[f32], weight: &[f32], bias: &[f32], eps: f32, out: &mut [f32]) {
    let n = x.len() as f32;
    let mean = sum(s, x, 0.0, |s: S, v, acc| s.add(v, acc)) / n;
    let around = s.splat(mean);
    let squares = sum(s, x, mean, |s: S, v, acc| {
        let d = s.sub(v, around);
        s.fma(d, d, acc)
    });
    let scale = 1.0 / (squares / n + eps).sqrt();
    for ((o, x), w) in out.iter_mut().zip(x).zip(weight) {
        *o = (x - mean) * scale * w;
    }
    for (o, b) in out.iter_mut().zip(bias) {
        *o += b;
    }
}

/// Applies a function of vectors to rows of any length; what lies past the end counts as 0.
macro_rules! elementwise {
    ($s:ident, $out:ident, ($($v:ident = $x:ident),+) $e:expr) => {{
        let whole = $out.len() / S::LANES * S::LANES;
        let mut i = 0;
        while i < whole {
            $(let $v = $s.load(&$x[i..]);)+
            let v = $e;
            $s.store(v, &mut $out[i..]);
            i += S::LANES;
        }
        if i < $out.len() {
            let mut buffer = [0.0; SUMS];
            $(
                buffer.fill(0.0);
                buffer[..$x.len() - i].copy_from_slice(&$x[i..]);
                let $v = $s.load(&buffer);
            )+
            let v = $e;
            $s.store(v, &mut buffer);
            let rest = $out.len() - i;
            $out[i..].copy_from_slice(&buffer[..rest]);
        }
    }};
}

pub(super) use elementwise;

/// `out = cap * tanh(x / cap)`.
#[inline(always)]
pub fn softcap<S: Simd>(s: S, cap: f32, x: &[f32], out: &mut [f32]) {
    let (by, cap) = (s.splat(1.0 / cap), s.splat(cap));
    elementwise!(s, out, (v = x) s.mul(cap, tanh(s, s.mul(v, by))));
}

/// The least mean square that a row is divided by.
const LEAST: f32 = 1e-5;

/// `out = x * sqrt(mean(to^2) / max(mean(x^2), 1e-5))`.
#[inline(always)]
pub fn match_size<S: Simd>(s: S, x: &[f32], to: &[f32], out: &mut [f32]) {
    let n = x.len() as f32;
    let mean = |x: &[f32]| sum(s, x, 0.0, |s: S, v, acc| s.fma(v, v, acc)) / n;
    let own = mean(x);
    let own = if own < LEAST { LEAST } else { own };
    let by = (mean(to) / own).sqrt();
    for (o, x) in out.iter_mut().zip(x) {
        *o = x * by;
    }
}

/// `out = max(0, x - mean - deviations * sqrt(variance))`.
#[inline(always)]
pub fn sparsify<S: Simd>(s: S, x: &[f32], deviations: f32, out: &mut [f32]) {
    let n = x.len() as f32;
    let mean = sum(s, x, 0.0, |s: S, v, acc| s.add(v, acc)) / n;
    let around = s.splat(mean);
    let squares = sum(s, x, mean, |s: S, v, acc| {
        let d = s.sub(v, around);
        s.fma(d, d, acc)
    });
    let least = mean + deviations * (squares / n).sqrt();
    for (o, x) in out.iter_mut().zip(x) {
        let above = x - least;
        // What is no number stays none.
        *o = if above < 0.0 { 0.0 } else { above };
    }
}

/// `out += by * x`.
#[inline(always)]
pub fn add_scaled<S: Simd>(s: S, by: f32, x: &[f32], out: &mut [f32]) {
    let by = s.splat(by);
    elementwise!(s, out, (v = x, o = out) s.fma(by, v, o));
}

/// Turns each head of `head_dim` elements in place, from its element `first` on; `cos` and `sin` are those of the row's position, one for
/// each pair.
#[inline(always)]
pub fn rope<S: Simd>(
    _s: S,
    style: RopeStyle,
    (head_dim, first): (usize, usize),
    cos: &[f32],
    sin: &[f32],
    x: &mut [f32],
) {
    let pairs = cos.len();
    for head in x.chunks_exact_mut(head_dim) {
        let head = &mut head[first..];
        match style {
            RopeStyle::Interleaved => {
                for ((pair, c), s) in head.chunks_exact_mut(2).zip(cos).zip(sin) {
                    (pair[0], pair[1]) = turn(pair[0], pair[1], *c, *s);
                }
            }
            RopeStyle::Halved => {
                let (a, b) = head[..2 * pairs].split_at_mut(pairs);
                for (((a, b), c), s) in a.iter_mut().zip(b).zip(cos).zip(sin) {
                    (*a, *b) = turn(*a, *b, *c, *s);
                }
            }
        }
    }
}

#[inline(always)]
fn turn(a: f32, b: f32, cos: f32, sin: f32) -> (f32, f32) {
    (a.mul_add(cos, -(b * sin)), a.mul_add(sin, b * cos))
}

/// Narrows to IEEE half precision, ties to even.
#[inline(always)]
pub fn to_f16<S: Simd>(s: S, x: &[f32], out: &mut [u16]) {
    for (x, out) in x.chunks_exact(S::LANES).zip(out.chunks_exact_mut(S::LANES)) {
        s.store_f16(s.load(x), out);
    }
}
