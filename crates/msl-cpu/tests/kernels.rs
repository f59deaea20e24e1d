//! Every kernel against its meaning in f64, under three orders of threads.

mod support;

use cera_gpu::Device;
use cera_gpu::ops::{self, NormShape};
use support::{close, download, numbers, under_seeds, upload};

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
