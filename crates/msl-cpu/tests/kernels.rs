//! Every kernel against its meaning in f64, under three orders of threads.

mod support;

use cera_gpu::ops::{self, NormShape};
use cera_gpu::{Buffer, Device, Error};
use cera_msl_cpu::MslCpu;
use support::compiler;

/// Orders in which threads run.
const SEEDS: [u64; 3] = [0, 1, 0x5eed];

/// Numbers without a pattern, between -1 and 1.
fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2).wrapping_add(0x9E37_79B9_7F4A_7C15);
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(n).collect()
}

/// Runs `act` on a device under every seed; each must give the same numbers.
fn under_seeds(act: impl Fn(&mut MslCpu) -> Result<Vec<f32>, Error>) -> Option<Vec<f32>> {
    let compiler = compiler()?;
    let results: Vec<Vec<f32>> =
        SEEDS.iter().map(|&seed| act(&mut MslCpu::new(compiler.clone(), seed)).unwrap()).collect();
    for (result, seed) in results.iter().zip(SEEDS) {
        assert!(result == &results[0], "seed {seed} gives other numbers");
    }
    results.into_iter().next()
}

fn upload(device: &mut dyn Device, x: &[f32]) -> Result<Buffer, Error> {
    let buffer = device.buffer(4 * x.len(), "a test")?;
    device.write(buffer.at(0), bytemuck::cast_slice(x))?;
    Ok(buffer)
}

fn download(device: &mut dyn Device, buffer: Buffer, len: usize) -> Result<Vec<f32>, Error> {
    let mut x = vec![0.0; len];
    device.read(buffer.at(0), bytemuck::cast_slice_mut(&mut x))?;
    Ok(x)
}

fn close(got: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (&a, &b)) in got.iter().zip(expected).enumerate() {
        let off = (f64::from(a) - b).abs();
        assert!(off <= tolerance * b.abs().max(1.0), "{what}: number {i} is {a}, not {b}");
    }
}

/// The norm of each row, as the reference has it.
fn normed(rows: &[f64], width: usize, weight: &[f32], eps: f32) -> Vec<f64> {
    let one = |row: &[f64]| -> Vec<f64> {
        let mean = row.iter().map(|v| v * v).sum::<f64>() / width as f64;
        let factor = 1.0 / (mean + f64::from(eps)).sqrt();
        row.iter().zip(weight).map(|(v, &w)| v * factor * f64::from(w)).collect()
    };
    rows.chunks_exact(width).flat_map(one).collect()
}

/// Rows of `stride` numbers, of which `width` count.
fn dense(x: &[f32], stride: usize, width: usize) -> Vec<f64> {
    x.chunks_exact(stride).flat_map(|row| &row[..width]).map(|&v| f64::from(v)).collect()
}

const WIDTHS: [usize; 7] = [1, 31, 100, 256, 576, 1000, 4097];

#[test]
fn a_batch_of_rows_is_normalised() {
    for (case, width) in WIDTHS.into_iter().enumerate() {
        for (rows, pad, eps) in [(1, 0, 1e-5), (5, 3, 0.1), (3, 64, 1e-6)] {
            let (from, to) = (width + pad, width + 2 * pad);
            let x = numbers(rows * from, case as u64);
            let weight = numbers(width, 77);
            let shape = NormShape {
                rows: rows as u32,
                width: width as u32,
                source_stride: from as u32,
                destination_stride: to as u32,
                eps,
            };
            let got = under_seeds(|device| {
                let (source, weight) = (upload(device, &x)?, upload(device, &weight)?);
                let destination = upload(device, &vec![5.0; rows * to])?;
                let launch = ops::rms_norm(device, &shape, source.at(0), weight.at(0), destination.at(0))?;
                device.run(&[launch])?;
                download(device, destination, rows * to)
            });
            let Some(got) = got else { return };
            let expected = normed(&dense(&x, from, width), width, &weight, eps);
            let written: Vec<f32> = got.chunks_exact(to).flat_map(|row| &row[..width]).copied().collect();
            close(&written, &expected, 2e-6, &format!("{rows} rows of {width}"));
            assert!(
                got.chunks_exact(to).all(|row| row[width..].iter().all(|&v| v == 5.0)),
                "between the rows"
            );
        }
    }
}

#[test]
fn a_residual_is_added_in_place_and_normalised() {
    for (case, width) in WIDTHS.into_iter().enumerate() {
        let (rows, stride, eps) = (4, width + 5, 1e-5);
        let x = numbers(rows * stride, case as u64);
        let residual = numbers(rows * stride, 100 + case as u64);
        let weight = numbers(width, 7);
        let shape = NormShape {
            rows: rows as u32,
            width: width as u32,
            source_stride: stride as u32,
            destination_stride: width as u32,
            eps,
        };
        let got = under_seeds(|device| {
            let [source, sum, weight] =
                [upload(device, &x)?, upload(device, &residual)?, upload(device, &weight)?];
            let destination = upload(device, &vec![5.0; rows * width])?;
            let inputs = [source.at(0), sum.at(0)];
            let launch =
                ops::add_rms_norm(device, &shape, inputs, weight.at(0), sum.at(0), destination.at(0))?;
            device.run(&[launch])?;
            Ok([download(device, sum, rows * stride)?, download(device, destination, rows * width)?].concat())
        });
        let Some(got) = got else { return };
        let (sum, destination) = got.split_at(rows * stride);
        let inputs = x.iter().zip(&residual).enumerate();
        let added: Vec<f32> = inputs.map(|(i, (a, b))| if i % stride < width { b + a } else { *b }).collect();
        assert!(sum == added, "width {width}: the sum, and nothing between the rows");
        let expected = normed(&dense(sum, stride, width), width, &weight, eps);
        close(destination, &expected, 2e-6, &format!("sums of {width}"));
    }
}

/// A row's norm does not depend on the rows beside it.
#[test]
fn rows_do_not_show_in_each_other() {
    let (rows, width) = (6, 300);
    let (x, weight) = (numbers(rows * width, 1), numbers(width, 2));
    let norm = |x: &[f32]| {
        under_seeds(|device| {
            let rows = (x.len() / width) as u32;
            let stride = width as u32;
            let shape = NormShape {
                rows,
                width: stride,
                source_stride: stride,
                destination_stride: stride,
                eps: 1e-5,
            };
            let (source, weight) = (upload(device, x)?, upload(device, &weight)?);
            // In place.
            let launch = ops::rms_norm(device, &shape, source.at(0), weight.at(0), source.at(0))?;
            device.run(&[launch])?;
            download(device, source, x.len())
        })
    };
    let Some(all) = norm(&x) else { return };
    for (r, row) in x.chunks_exact(width).enumerate() {
        assert!(norm(row).unwrap() == all[r * width..][..width], "row {r}");
    }
}
