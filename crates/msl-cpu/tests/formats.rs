//! Products with matrices and rows of tables in every format, against what the format's codec decodes, under three orders
//! of threads.

mod support;

use cera_gpu::ops::{self, After, MatrixPlace};
use cera_gpu::pack::{Layout, pack};
use cera_gpu::{Device, Error};
use cera_quant::Type;
use support::{close, download, numbers, under_seeds, upload};

/// A matrix of a type with bytes of a file, and what they decode to.
struct Matrix {
    ty: Type,
    rows: usize,
    columns: usize,
    bytes: Vec<u8>,
    decoded: Vec<f32>,
}

fn matrix(ty: Type, rows: usize, columns: usize) -> Matrix {
    let bytes = cera_quant::encode(ty, &numbers(rows * columns, ty.id().into())).unwrap();
    let mut decoded = vec![0.0; rows * columns];
    cera_quant::decode(ty, &bytes, &mut decoded).unwrap();
    Matrix { ty, rows, columns, bytes, decoded }
}

impl Matrix {
    fn upload(&self, device: &mut dyn Device) -> Result<MatrixPlace, Error> {
        let layout = Layout::of(self.ty).expect("a format with kernels");
        let mut planes = Vec::new();
        for plane in pack(layout, self.columns, &self.bytes).planes {
            let buffer = device.buffer(plane.len().max(16), "a test")?;
            device.write(buffer.at(0), &plane)?;
            planes.push(buffer.at(0));
        }
        let planes = [planes[0], planes[1], planes[2]];
        Ok(MatrixPlace { layout, rows: self.rows as u32, columns: self.columns as u32, planes })
    }

    fn product(&self, x: &[f32], extra: impl Fn(usize) -> f32) -> Vec<f64> {
        let mut out = Vec::new();
        for row in x.chunks_exact(self.columns) {
            for w in self.decoded.chunks_exact(self.columns) {
                let sum: f64 = row.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
                out.push(sum + f64::from(extra(out.len())));
            }
        }
        out
    }
}

/// The formats that kernels read, with shapes: whole chunks of groups and not, more than one chunk, more rows than a
/// threadgroup has.
fn matrices() -> Vec<Matrix> {
    let with = Type::ALL.iter().copied().filter(|ty| Layout::of(*ty).is_some());
    let shapes = |ty: Type| match ty.block_len() {
        1 => [(19, 100), (5, 1030)],
        32 => [(19, 96), (5, 1056)],
        _ => [(19, 256), (5, 1280)],
    };
    with.flat_map(|ty| shapes(ty).map(|(rows, columns)| matrix(ty, rows, columns))).collect()
}

#[test]
fn products_are_those_of_the_decoded_weights() {
    let all = matrices();
    assert_eq!(all.len(), 32, "formats");
    for m in &all {
        let (x, extra) = (numbers(5 * m.columns, 3), numbers(5 * m.rows, 4));
        let of = |n: usize, after: u32| {
            under_seeds(|device| {
                let w = m.upload(device)?;
                let (x, extra) = (upload(device, &x[..n * m.columns])?, upload(device, &extra)?);
                let out = upload(device, &vec![9.0; n * m.rows])?;
                let after =
                    [After::Nothing, After::Rows(extra.at(0)), After::Row(extra.at(0))][after as usize];
                let launch = ops::linear(device, &w, n as u32, x.at(0), after, out.at(0))?;
                device.run(&[launch])?;
                download(device, out, n * m.rows)
            })
        };
        let Some(five) = of(5, 0) else { return };
        let what = format!("{} of {} columns", m.ty.name(), m.columns);
        close(&five, &m.product(&x, |_| 0.0), 3e-5, &what);
        // As many rows as there are do not show.
        for (n, after) in [(1, 0), (2, 0), (3, 0)] {
            assert!(of(n, after).unwrap() == five[..n * m.rows], "{what}: {n} rows");
        }
        close(&of(5, 1).unwrap(), &m.product(&x, |i| extra[i]), 3e-5, &what);
        close(&of(2, 2).unwrap(), &m.product(&x[..2 * m.columns], |i| extra[i % m.rows]), 3e-5, &what);
    }
}

#[test]
fn rows_of_tables_are_the_decoded_ones() {
    let wanted = [3u32, 0, 4, 3];
    for m in matrices() {
        let got = under_seeds(|device| {
            let table = m.upload(device)?;
            let rows = device.buffer(16, "a test")?;
            device.write(rows.at(0), bytemuck::cast_slice(&wanted))?;
            let out = upload(device, &vec![9.0; 4 * m.columns])?;
            let launch = ops::embed(device, &table, 4, rows.at(0), out.at(0))?;
            device.run(&[launch])?;
            download(device, out, 4 * m.columns)
        });
        let Some(got) = got else { return };
        let row = |&r: &u32| m.decoded[r as usize * m.columns..][..m.columns].iter().map(|&v| f64::from(v));
        let expected: Vec<f64> = wanted.iter().flat_map(row).collect();
        close(&got, &expected, 1e-6, m.ty.name());
    }
}
