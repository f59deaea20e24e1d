//! Every tier against the scalar one, bit for bit, and the scalar one against plain arithmetic.

use cera_backend::{BLOCK, BlockId};
use cera_plan::{Act, Attention, RopeStyle};
use cera_quant::Type;

use super::attend::{Queries, Scratch};
use super::linear::Input;
use super::numbers::{Cache, Stored};
use super::{Kernels, PanelFn};
use crate::Tier;
use crate::format::{ActGroup, GROUP, PANEL, QUAD};
use crate::pack::Matrix;

const TYPES: [Type; 28] = [
    Type::F32,
    Type::F16,
    Type::BF16,
    Type::Q4_0,
    Type::Q4_1,
    Type::Q5_0,
    Type::Q5_1,
    Type::Q8_0,
    Type::Q2_K,
    Type::Q3_K,
    Type::Q4_K,
    Type::Q5_K,
    Type::Q6_K,
    Type::IQ4_NL,
    Type::IQ4_XS,
    Type::MXFP4,
    Type::IQ1_S,
    Type::IQ1_M,
    Type::IQ2_XXS,
    Type::IQ2_XS,
    Type::IQ2_S,
    Type::IQ3_XXS,
    Type::IQ3_S,
    Type::TQ1_0,
    Type::TQ2_0,
    Type::NVFP4,
    Type::Q1_0,
    Type::Q2_0,
];

/// Numbers that look random, the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    /// Between -1 and 1.
    fn float(&mut self) -> f32 {
        self.next() as f32 / (1u64 << 30) as f32 - 1.0
    }

    fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
}

fn scalar() -> Kernels {
    Kernels::new(Tier::Scalar).unwrap()
}

fn others() -> impl Iterator<Item = (Tier, Kernels)> {
    Tier::available().into_iter().filter(|t| *t != Tier::Scalar).map(|t| (t, Kernels::new(t).unwrap()))
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

/// Asserts that every tier gives the scalar tier's bits, and returns these.
fn same_bits(what: &str, run: impl Fn(&Kernels) -> Vec<f32>) -> Vec<f32> {
    let expected = run(&scalar());
    for (tier, kernels) in others() {
        assert_eq!(bits(&run(&kernels)), bits(&expected), "{what} on {tier}");
    }
    expected
}

/// Gives a block's f16 scales and minima values; an exponent, that of the value.
fn set_scales(ty: Type, block: &mut [u8], mut value: impl FnMut() -> f32) {
    let halves: &[usize] = match ty {
        Type::Q4_0 | Type::Q5_0 | Type::Q8_0 | Type::IQ4_NL | Type::IQ4_XS => &[0],
        Type::IQ1_S | Type::IQ2_XXS | Type::IQ2_XS | Type::IQ2_S | Type::IQ3_XXS | Type::IQ3_S => &[0],
        Type::Q1_0 | Type::Q2_0 => &[0],
        Type::TQ1_0 => &[52],
        Type::TQ2_0 => &[64],
        Type::IQ1_M => {
            let d = half::f16::from_f32(value()).to_bits();
            for (i, byte) in block[48..].iter_mut().skip(1).step_by(2).enumerate() {
                *byte = *byte & 15 | ((d >> (4 * i)) as u8) << 4;
            }
            return;
        }
        // Four of its own kind, all of which are numbers.
        Type::NVFP4 => return,
        Type::Q2_K => &[80, 82],
        Type::Q3_K => &[108],
        Type::Q6_K => &[208],
        Type::MXFP4 => {
            block[0] = (value().to_bits() >> 23) as u8;
            return;
        }
        _ => &[0, 2],
    };
    for &at in halves {
        block[at..at + 2].copy_from_slice(&half::f16::from_f32(value()).to_le_bytes());
    }
}

/// Blocks of a type with scales of a sensible size and every other bit random.
fn random_rows(ty: Type, rows: usize, cols: usize, random: &mut Random) -> Vec<u8> {
    let x = random.floats(rows * cols);
    match ty {
        Type::F32 => bytemuck::cast_slice(&x).to_vec(),
        Type::F16 => x.iter().flat_map(|v| half::f16::from_f32(*v).to_bits().to_le_bytes()).collect(),
        Type::BF16 => x.iter().flat_map(|v| half::bf16::from_f32(*v).to_bits().to_le_bytes()).collect(),
        _ => {
            let bytes = ty.block_bytes();
            let mut out: Vec<u8> =
                (0..rows * ty.row_bytes(cols).unwrap()).map(|_| random.next() as u8).collect();
            for block in out.chunks_exact_mut(bytes) {
                set_scales(ty, block, || random.float() * 0.1);
            }
            out
        }
    }
}

fn quantize(kernels: &Kernels, x: &[f32], cols: usize) -> Vec<ActGroup> {
    let mut out = vec![ActGroup::default(); x.len() / GROUP];
    for (x, out) in x.chunks_exact(cols).zip(out.chunks_exact_mut(cols / GROUP)) {
        (kernels.quantize)(x, out, 1);
    }
    out
}

/// Rows of groups as the kernels read them: those of each quad between each other.
fn in_quads(rows: &[ActGroup], per_row: usize) -> Vec<ActGroup> {
    let mut out = rows.to_vec();
    for (quad, out) in rows.chunks_exact(QUAD * per_row).zip(out.chunks_exact_mut(QUAD * per_row)) {
        for (i, group) in quad.iter().enumerate() {
            out[i % per_row * QUAD + i / per_row] = *group;
        }
    }
    out
}

/// The bytes of quantized rows.
fn bytes_of(groups: &[ActGroup]) -> Vec<i8> {
    groups.iter().flat_map(|g| g.q.iter().flat_map(|w| w.to_le_bytes().map(|b| b as i8))).collect()
}

fn multiply(kernel: PanelFn, m: &Matrix, input: &Input<'_>, first: usize, rows: usize) -> Vec<f32> {
    let mut out = vec![0.0; m.panels() * rows * PANEL];
    for (p, out) in out.chunks_exact_mut(rows * PANEL).enumerate() {
        kernel(m.panel(p), input, first, rows, out);
    }
    out
}

#[test]
fn products_agree_on_every_tier_in_every_format_and_number_of_rows() {
    let mut random = Random(1);
    for ty in TYPES {
        let (rows, cols, steps) = (35, 512, 31);
        let bytes = random_rows(ty, rows, cols, &mut random);
        let mut x = random.floats(steps * cols);
        // Extremes of the quantized range, and rows of nothing.
        x[..cols].fill(0.0);
        x[cols..2 * cols].fill(1.0);
        x[2 * cols..3 * cols].fill(-3e4);
        let a = quantize(&scalar(), &x, cols);
        let quads = in_quads(&a, cols / GROUP);
        let input = Input { cols, rows: steps, f: &x, groups: &quads };
        let all = same_bits(ty.name(), |k| {
            let m = Matrix::pack(k, ty, rows, cols, &bytes).unwrap();
            multiply(m.kernel, &m, &input, 0, steps)
        });
        // One row at a time gives the bits of all rows at once.
        for (tier, k) in others().chain([(Tier::Scalar, scalar())]) {
            let m = Matrix::pack(&k, ty, rows, cols, &bytes).unwrap();
            for first in 0..steps {
                let (row, per_row) = (first * cols..(first + 1) * cols, cols / GROUP);
                let groups = &a[first * per_row..(first + 1) * per_row];
                let input = Input { cols, rows: 1, f: &x[row], groups };
                let one = multiply(m.kernel, &m, &input, 0, 1);
                for p in 0..m.panels() {
                    let together = &all[(p * steps + first) * PANEL..][..PANEL];
                    assert_eq!(
                        bits(&one[p * PANEL..][..PANEL]),
                        bits(together),
                        "{} {tier} row {first}",
                        ty.name()
                    );
                }
            }
        }
        // The meaning: decoded weights times the activations that the quantized bytes stand for.
        let mut w = vec![0.0; rows * cols];
        cera_quant::decode(ty, &bytes, &mut w).unwrap();
        let q = bytes_of(&a);
        let is_float = matches!(ty, Type::F32 | Type::F16 | Type::BF16);
        for t in 0..steps {
            for r in 0..rows {
                let (mut sum, mut size) = (0.0, 1e-20);
                for k in 0..cols {
                    let act = match is_float {
                        true => f64::from(x[t * cols + k]),
                        false => {
                            let g = &a[t * (cols / GROUP) + k / GROUP];
                            f64::from(q[t * cols + k]) * f64::from(g.scale)
                        }
                    };
                    sum += f64::from(w[r * cols + k]) * act;
                    size += (f64::from(w[r * cols + k]) * act).abs();
                }
                let got = f64::from(all[((r / PANEL) * steps + t) * PANEL + r % PANEL]);
                // Formats with a minimum cancel it against the scaled sum: their error is relative to the larger.
                assert!((got - sum).abs() < 1e-5 * size, "{} [{r}, {t}]: {got} for {sum}", ty.name());
            }
        }
    }
}

#[test]
fn extreme_bytes_do_not_overflow_the_integer_dot() {
    for ty in TYPES.into_iter().filter(|t| t.block_len() > 1) {
        let cols = 256;
        for fill in [0x00, 0x7f, 0x80, 0xff] {
            let mut bytes = vec![fill; PANEL * ty.row_bytes(cols).unwrap()];
            for block in bytes.chunks_exact_mut(ty.block_bytes()) {
                set_scales(ty, block, || 1.0);
            }
            for sign in [1.0, -1.0] {
                let x = vec![sign; cols];
                let a = quantize(&scalar(), &x, cols);
                assert!(bytes_of(&a).iter().all(|q| i32::from(*q) == 127 * sign as i32));
                let input = Input { cols, rows: 1, f: &x, groups: &a };
                let got = same_bits(ty.name(), |k| {
                    let m = Matrix::pack(k, ty, PANEL, cols, &bytes).unwrap();
                    multiply(m.kernel, &m, &input, 0, 1)
                });
                let mut w = vec![0.0; PANEL * cols];
                cera_quant::decode(ty, &bytes, &mut w).unwrap();
                let sum: f64 = w[..cols].iter().map(|w| f64::from(*w) * f64::from(sign)).sum();
                let size: f64 = w[..cols].iter().map(|w| f64::from(w.abs())).sum();
                assert!(
                    (f64::from(got[0]) - sum).abs() <= 1e-4 * size,
                    "{} {fill:#x}: {} for {sum}",
                    ty.name(),
                    got[0]
                );
            }
        }
    }
}

#[test]
fn quantized_rows_agree_and_stay_within_half_a_step() {
    let mut random = Random(2);
    let mut x = random.floats(1024);
    x[..32].fill(0.0);
    x[40] = 1e-38;
    x[64..96].fill(1e-35);
    x[100] = 6e4;
    let expected = quantize(&scalar(), &x, x.len());
    for (tier, k) in others() {
        assert_eq!(quantize(&k, &x, x.len()), expected, "{tier}");
    }
    let q = bytes_of(&expected);
    for (i, x) in x.iter().enumerate() {
        let g = &expected[i / GROUP];
        let stands_for = f32::from(q[i]) * g.scale;
        assert!((x - stands_for).abs() <= g.scale * 0.5001 + 1e-30, "{i}: {x} became {stands_for}");
    }
    for (q, g) in q.chunks(GROUP).zip(&expected) {
        let sum = |q: &[i8]| q.iter().map(|q| i32::from(*q)).sum::<i32>();
        let (low, high) = (sum(&q[..16]), sum(&q[16..]));
        let start = g.start;
        assert_eq!([start.minus8, start.minus16, start.minus128], [8, 16, 128].map(|by| -by * (low + high)));
        assert_eq!((start.halves.low, start.halves.high), (-32 * low, -32 * high));
        assert_eq!((start.halves.pair as i16 as i32, start.halves.pair >> 16), (low, high));
        assert_eq!(g.sum_scaled, (low + high) as f32 * g.scale);
    }
}

#[test]
fn two_quantizations_of_a_row_leave_a_step_of_the_second() {
    let mut random = Random(4);
    let x = random.floats(256);
    let first = quantize(&scalar(), &x, x.len());
    let rest = same_bits("rest", |k| {
        let mut out = vec![0.0; x.len()];
        (k.rest)(&x, &first, 1, &mut out);
        out
    });
    let second = quantize(&scalar(), &rest, x.len());
    let (q, r) = (bytes_of(&first), bytes_of(&second));
    for (i, x) in x.iter().enumerate() {
        let g = i / GROUP;
        let stands_for = f32::from(q[i]) * first[g].scale + f32::from(r[i]) * second[g].scale;
        assert!((x - stands_for).abs() <= first[g].scale / 250.0, "{i}: {x} became {stands_for}");
    }
}

#[test]
fn a_number_that_is_not_finite_shows_in_the_scale() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN] {
        let mut x = vec![0.5; 64];
        x[40] = bad;
        for tier in Tier::available() {
            let a = quantize(&Kernels::new(tier).unwrap(), &x, 64);
            assert!(!a[0].scale.is_nan() && a[1].scale.is_nan(), "{tier} {bad}");
        }
    }
}

#[test]
fn norms_agree_whatever_the_width() {
    let mut random = Random(3);
    for width in [1, 7, 16, 48, 64, 100, 576] {
        let (x, w) = (random.floats(3 * width), random.floats(width));
        let got = same_bits("rms_norm", |k| {
            let mut out = vec![0.0; x.len()];
            (k.rms_norm)(&x, &w, 1e-5, &mut out);
            out
        });
        for (r, row) in x.chunks(width).enumerate() {
            let mean = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / width as f64;
            for (i, v) in row.iter().enumerate() {
                let expected = f64::from(*v) / (mean + 1e-5).sqrt() * f64::from(w[i]);
                assert!((f64::from(got[r * width + i]) - expected).abs() < 1e-5);
            }
        }
    }
}

#[test]
fn layer_norms_agree() {
    for (width, bias) in [(64, true), (80, false), (37, true), (5, true)] {
        let mut random = Random(width as u64);
        let x: Vec<f32> = (0..width).map(|_| random.float() + 3.0).collect();
        let (w, b): (Vec<f32>, Vec<f32>) = (0..width).map(|_| (random.float(), random.float())).unzip();
        let b = if bias { b } else { vec![] };
        let got = same_bits("layer norm", |k| {
            let mut out = vec![0.0; width];
            (k.layer_norm)(&x, &w, &b, 1e-5, &mut out);
            out
        });
        let mean = x.iter().map(|v| f64::from(*v)).sum::<f64>() / width as f64;
        let variance = x.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / width as f64;
        for (i, v) in x.iter().enumerate() {
            let bias = b.get(i).map_or(0.0, |b| f64::from(*b));
            let expected = (f64::from(*v) - mean) / (variance + 1e-5).sqrt() * f64::from(w[i]) + bias;
            assert!((f64::from(got[i]) - expected).abs() < 1e-5, "{} is not {expected}", got[i]);
        }
    }
}

/// What an activation is, in f64.
fn activation(act: Act, x: f64) -> f64 {
    match act {
        Act::Silu => x / (1.0 + (-x).exp()),
        Act::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        Act::GeluErf => 0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt())),
        Act::GeluQuick => x / (1.0 + (-1.702 * x).exp()),
        Act::Relu => x.max(0.0),
        Act::Relu2 => x.max(0.0).powi(2),
        Act::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Act::Tanh => x.tanh(),
        Act::ClampedSilu => x.min(7.0) / (1.0 + (-1.702 * x.min(7.0)).exp()),
    }
}

const ACTS: [Act; 9] = [
    Act::Silu,
    Act::GeluTanh,
    Act::GeluErf,
    Act::GeluQuick,
    Act::Relu,
    Act::Relu2,
    Act::Sigmoid,
    Act::Tanh,
    Act::ClampedSilu,
];

#[test]
fn activations_and_caps_agree() {
    let mut x: Vec<f32> = (0..203).map(|i| (i as f32 - 101.0) * 0.13).collect();
    x.extend([-1e4, 1e4, -88.0, 88.0, 0.0, -0.0]);
    let up: Vec<f32> = x.iter().map(|g| 1.0 + g.abs() * 0.01).collect();
    for act in ACTS {
        let name = format!("{act:?}");
        let alone = same_bits(&name, |k| {
            let mut out = vec![0.0; x.len()];
            (k.act)(act, &x, &mut out);
            out
        });
        let gated = same_bits(&name, |k| {
            let mut out = vec![0.0; x.len()];
            (k.glu)(act, &x, &up, &mut out);
            out
        });
        for (i, (x, u)) in x.iter().zip(&up).enumerate() {
            let expected = activation(act, f64::from(*x));
            let error = (f64::from(alone[i]) - expected).abs();
            assert!(error <= 2e-6 * (1.0 + expected.abs()), "{name}({x}) = {}, not {expected}", alone[i]);
            let u = if act == Act::ClampedSilu { u.clamp(-7.0, 7.0) + 1.0 } else { *u };
            assert_eq!(gated[i], alone[i] * u, "{name}({x}) * {u}");
        }
    }
    let capped = same_bits("softcap", |k| {
        let mut out = vec![0.0; x.len()];
        (k.softcap)(30.0, &x, &mut out);
        out
    });
    for (x, capped) in x.iter().zip(capped) {
        let expected = 30.0 * (f64::from(*x) / 30.0).tanh();
        assert!((f64::from(capped) - expected).abs() <= 1e-5, "cap({x}) = {capped}");
    }
}

#[test]
fn rows_by_themselves_agree() {
    let mut random = Random(11);
    for n in [1, 16, 40, 203] {
        let (x, to) = (random.floats(n), random.floats(n));
        let run = |what: &str, f: &dyn Fn(&Kernels, &mut [f32])| {
            same_bits(what, |k| {
                let mut out = to.clone();
                f(k, &mut out);
                out
            })
        };
        let wide = |x: &[f32]| x.iter().map(|v| f64::from(*v)).collect::<Vec<_>>();
        let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
        let square = |x: &[f64]| x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
        let check = |got: Vec<f32>, expected: Vec<f64>, what: &str| {
            for (got, expected) in got.iter().zip(expected) {
                let off = (f64::from(*got) - expected).abs();
                assert!(off <= 1e-5 * (1.0 + expected.abs()), "{what} of {n}: {got}, not {expected}");
            }
        };
        let (wide_x, wide_to) = (wide(&x), wide(&to));
        let by = (square(&wide_to) / square(&wide_x).max(1e-5)).sqrt();
        let sized = run("match_size", &|k, out| (k.match_size)(&x, &to, out));
        check(sized, wide_x.iter().map(|v| v * by).collect(), "match_size");
        let zeros = vec![0.0; n];
        assert_eq!(run("match_size", &|k, out| (k.match_size)(&zeros, &to, out)), zeros);
        let around = mean(&wide_x);
        let deviation = square(&wide_x.iter().map(|v| v - around).collect::<Vec<_>>()).sqrt();
        let sparse = run("sparsify", &|k, out| (k.sparsify)(&x, 0.7, out));
        let above = wide_x.iter().map(|v| (v - around - f64::from(0.7f32) * deviation).max(0.0)).collect();
        check(sparse, above, "sparsify");
        let sum = run("add_scaled", &|k, out| (k.add_scaled)(0.3, &x, out));
        let added = wide_x.iter().zip(&wide_to).map(|(x, to)| to + f64::from(0.3f32) * x).collect();
        check(sum, added, "add_scaled");
    }
    let nan = same_bits("sparsify", |k| {
        let mut out = vec![0.0; 3];
        (k.sparsify)(&[1.0, f32::NAN, 2.0], 1.0, &mut out);
        out.iter().map(|v| if v.is_nan() { 1.0 } else { 0.0 }).collect()
    });
    assert_eq!(nan, [1.0; 3]);
}

#[test]
fn activations_keep_a_nan() {
    for act in ACTS {
        let nan = same_bits(&format!("{act:?}"), |k| {
            let mut out = vec![0.0; 16];
            (k.act)(act, &[f32::NAN; 16], &mut out);
            out.iter().map(|v| if v.is_nan() { 1.0 } else { 0.0 }).collect()
        });
        assert_eq!(nan, [1.0; 16], "{act:?}");
    }
}

#[test]
fn rotations_agree_and_keep_lengths() {
    let mut random = Random(5);
    let (dim, pairs) = (64, 24);
    let x = random.floats(3 * dim);
    let angles = random.floats(pairs);
    let cos: Vec<f32> = angles.iter().map(|a| a.cos()).collect();
    let sin: Vec<f32> = angles.iter().map(|a| a.sin()).collect();
    for style in [RopeStyle::Interleaved, RopeStyle::Halved] {
        let got = same_bits("rope", |k| {
            let mut out = x.clone();
            (k.rope)(style, (dim, 0), &cos, &sin, &mut out);
            out
        });
        for (x, got) in x.chunks(dim).zip(got.chunks(dim)) {
            assert_eq!(x[2 * pairs..], got[2 * pairs..], "what does not turn passes through");
            for p in 0..pairs {
                let (a, b) = match style {
                    RopeStyle::Interleaved => (2 * p, 2 * p + 1),
                    RopeStyle::Halved => (p, p + pairs),
                };
                assert!((got[a] - (x[a] * cos[p] - x[b] * sin[p])).abs() < 1e-6);
                assert!((got[b] - (x[a] * sin[p] + x[b] * cos[p])).abs() < 1e-6);
            }
        }
    }
}

/// A cache of one layer whose sequence lies in `blocks`, every other slot holding NaN.
struct TestCache {
    k: Vec<u16>,
    v: Vec<u16>,
    blocks: Vec<BlockId>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl TestCache {
    fn stored(&self) -> Cache<'_> {
        Cache { k: Stored::F16(&self.k), v: Some(Stored::F16(&self.v)) }
    }
}

fn test_cache(heads: usize, dim: usize, positions: usize, random: &mut Random) -> TestCache {
    let used = positions.div_ceil(BLOCK);
    let total = used + 2;
    // Blocks in no order, as a pool hands them out.
    let blocks: Vec<BlockId> = (0..used).map(|i| BlockId(((i * 7 + 3) % total) as u32)).collect();
    let nan = half::f16::NAN.to_bits();
    let mut c = TestCache {
        k: vec![nan; total * heads * dim * BLOCK],
        v: vec![nan; total * heads * dim * BLOCK],
        blocks,
        keys: Vec::new(),
        values: Vec::new(),
    };
    for p in 0..positions {
        let block = c.blocks[p / BLOCK].0 as usize;
        for h in 0..heads {
            for d in 0..dim {
                let (k, v) = (half::f16::from_f32(random.float()), half::f16::from_f32(random.float()));
                c.k[((block * heads + h) * dim + d) * BLOCK + p % BLOCK] = k.to_bits();
                c.v[((block * heads + h) * BLOCK + p % BLOCK) * dim + d] = v.to_bits();
                c.keys.push(k.to_f32());
                c.values.push(v.to_f32());
            }
        }
    }
    c
}

/// Rows element by element: `[len / n, n]` of `[n, len / n]`.
fn side_by_side(x: &[f32], n: usize) -> Vec<f32> {
    (0..x.len()).map(|i| x[i % n * (x.len() / n) + i / n]).collect()
}

#[test]
fn attention_agrees_with_plain_softmax_and_does_not_depend_on_the_other_queries() {
    let mut random = Random(6);
    let cases = [
        (64, 40, None, None),
        (16, 1300, None, None),
        (64, 1100, Some(100), None),
        (80, 70, Some(33), Some(2.0)),
    ];
    let cases = cases
        .into_iter()
        .flat_map(|case| [(case, true, None), (case, false, None), (case, false, Some(8.0))]);
    for ((dim, positions, window, softcap), causal, alibi) in cases {
        let (heads, kv_heads) = (4, 2);
        let attention = Attention {
            heads,
            kv_heads,
            head_dim: dim,
            value_dim: dim,
            scale: 0.3,
            causal,
            window,
            softcap,
            sinks: None,
            alibi,
        };
        // Query heads 2 and 3 read the second head of the cache.
        let slope = |i: usize| attention.slope(2 + i % 2);
        let c = test_cache(kv_heads, dim, positions, &mut random);
        let cache = c.stored();
        let at: Vec<usize> = [0, 1, 31, 32, positions / 2, positions - 2, positions - 1]
            .into_iter()
            .filter(|p| *p < positions)
            .collect();
        let q = random.floats(at.len() * dim);
        let run = |k: &Kernels, from: usize, n: usize| {
            let mut scratch = Scratch::new(16, dim);
            let slopes: Vec<f32> = (from..from + n).filter_map(|i| alibi.map(|_| slope(i))).collect();
            let mut out = vec![0.0; n * dim];
            let queries = Queries {
                q: &side_by_side(&q[from * dim..(from + n) * dim], n),
                positions: &at[from..from + n],
                blocks: &c.blocks,
                length: positions,
                kv_head: 1,
                sinks: &[],
                slopes: &slopes,
            };
            k.attend(&attention, &cache, &queries, &mut scratch, &mut out);
            out
        };
        let together = same_bits("attend", |k| run(k, 0, at.len()));
        for (i, &p) in at.iter().enumerate() {
            let alone = run(&scalar(), i, 1);
            assert_eq!(bits(&alone), bits(&together[i * dim..(i + 1) * dim]), "query {i}");
            let seen = match (causal, window) {
                (true, window) => window.map_or(0, |w: usize| (p + 1).saturating_sub(w))..p + 1,
                (false, None) => 0..positions,
                (false, Some(w)) => p.saturating_sub(w / 2)..(p + w / 2 + 1).min(positions),
            };
            let mut weights = Vec::new();
            for j in seen.clone() {
                let key = &c.keys[(j * kv_heads + 1) * dim..][..dim];
                let dot: f64 =
                    key.iter().zip(&q[i * dim..]).map(|(k, q)| f64::from(*k) * f64::from(*q)).sum();
                let score = dot * f64::from(attention.scale);
                let score = softcap.map_or(score, |c| f64::from(c) * (score / f64::from(c)).tanh());
                weights.push((score - f64::from(slope(i)) * p.abs_diff(j) as f64).exp());
            }
            let total: f64 = weights.iter().sum();
            for (d, got) in alone.iter().enumerate() {
                let values = seen.clone().map(|j| f64::from(c.values[(j * kv_heads + 1) * dim + d]));
                let expected: f64 = values.zip(&weights).map(|(v, w)| v * w).sum::<f64>() / total;
                let got = f64::from(*got);
                assert!((got - expected).abs() < 1e-5, "dim {dim} position {p}: {got} for {expected}");
            }
        }
    }
}

#[test]
fn attention_keeps_a_nan_in_a_query() {
    let mut random = Random(7);
    let dim = 16;
    let attention = Attention {
        heads: 1,
        kv_heads: 1,
        head_dim: dim,
        value_dim: dim,
        scale: 1.0,
        causal: true,
        window: None,
        softcap: None,
        sinks: None,
        alibi: None,
    };
    let c = test_cache(1, dim, 600, &mut random);
    let mut q = random.floats(dim);
    q[3] = f32::NAN;
    for tier in Tier::available() {
        let mut out = vec![0.0; dim];
        let queries = Queries {
            q: &q,
            positions: &[599],
            blocks: &c.blocks,
            length: 600,
            kv_head: 0,
            sinks: &[],
            slopes: &[],
        };
        let k = Kernels::new(tier).unwrap();
        k.attend(&attention, &c.stored(), &queries, &mut Scratch::new(1, dim), &mut out);
        assert!(out.iter().all(|v| v.is_nan()), "{tier}");
    }
}
