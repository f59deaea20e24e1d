//! What tests share: the compiler, numbers, and memory of a device.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::path::Path;

use cera_gpu::{Buffer, Device, Error};
use cera_msl_cpu::{Compiler, MslCpu};

/// Orders in which threads run.
const SEEDS: [u64; 3] = [0, 1, 0x5eed];

/// Numbers without a pattern, between -1 and 1.
pub fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2).wrapping_add(0x9E37_79B9_7F4A_7C15);
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(n).collect()
}

/// Runs `act` on a device under every seed; each must give the same numbers.
pub fn under_seeds(act: impl Fn(&mut MslCpu) -> Result<Vec<f32>, Error>) -> Option<Vec<f32>> {
    let compiler = compiler()?;
    let results: Vec<Vec<f32>> =
        SEEDS.iter().map(|&seed| act(&mut MslCpu::new(compiler.clone(), seed)).unwrap()).collect();
    for (result, seed) in results.iter().zip(SEEDS) {
        assert!(result == &results[0], "seed {seed} gives other numbers");
    }
    results.into_iter().next()
}

pub fn upload(device: &mut dyn Device, x: &[f32]) -> Result<Buffer, Error> {
    let buffer = device.buffer(4 * x.len(), "a test")?;
    device.write(buffer.at(0), bytemuck::cast_slice(x))?;
    Ok(buffer)
}

pub fn download(device: &mut dyn Device, buffer: Buffer, len: usize) -> Result<Vec<f32>, Error> {
    let mut x = vec![0.0; len];
    device.read(buffer.at(0), bytemuck::cast_slice_mut(&mut x))?;
    Ok(x)
}

pub fn close(got: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (&a, &b)) in got.iter().zip(expected).enumerate() {
        let off = (f64::from(a) - b).abs();
        assert!(off <= tolerance * b.abs().max(1.0), "{what}: number {i} is {a}, not {b}");
    }
}

/// The compiler, or `None`, which it says, where there is none. `cargo xtask test` sees that there is one.
pub fn compiler() -> Option<Compiler> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        println!("skipped: the fibers are written for Linux on x86-64");
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("msl");
    let found = Compiler::find(folder);
    if let Err(e) = &found {
        assert!(std::env::var_os("CERA_TEST_MODELS").is_none(), "{e}");
        println!("skipped: {e}");
    }
    found.ok()
}
