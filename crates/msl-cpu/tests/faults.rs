//! Kernels that are wrong, each in one way, and what the shim says of them.

mod support;

use std::ffi::c_void;

use cera_msl_cpu::{Error, Guarded as Guard, Library};
use support::compiler;

const FAULTS: &str = include_str!("faults.metal");

/// Runs a kernel over 64 numbers.
fn run(library: &Library, name: &str, seed: u64) -> Result<Vec<f32>, Error> {
    let kernel = library.kernels().iter().position(|k| k.name == name).expect("a kernel of the file");
    let x: Vec<u8> = (0..64).flat_map(|i| (i as f32 + 1.0).to_le_bytes()).collect();
    let (mut x, mut y, mut p) = (Guard::of(&x), Guard::of(&[0; 256]), Guard::of(&[64, 0, 0, 0]));
    let buffers: [*mut c_void; 3] = [x.pointer(), y.pointer(), p.pointer()];
    // SAFETY: the kernel takes three buffers, each in front of a page that faults.
    unsafe { library.run(kernel, &buffers, [1, 1, 1], 64, seed) }?;
    Ok(y.bytes().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

#[test]
fn each_fault_is_caught() {
    let Some(compiler) = compiler() else { return };
    let library = compiler.compile("faults", FAULTS).unwrap();
    let seeds = [0, 1, 2];
    let expected: Vec<f32> = (0..64).map(|i| 64.0 - i as f32).collect();
    for seed in seeds {
        assert_eq!(run(&library, "right", seed).unwrap(), expected);
    }
    for (name, said) in [
        ("divergent_sum", "divergent SIMD-group operation"),
        ("divergent_barrier", "divergent threadgroup_barrier"),
        ("early_return", "returned"),
        ("reads_behind", "outside of every buffer"),
        ("writes_behind", "outside of every buffer"),
        ("too_much", "32 KiB"),
    ] {
        for seed in seeds {
            let why = run(&library, name, seed).unwrap_err().to_string();
            assert!(why.contains(said) && why.contains(name), "{name}: {why}");
        }
    }
    // After a fault the library goes on.
    assert_eq!(run(&library, "right", 3).unwrap(), expected);
}

#[test]
fn what_barriers_forget_shows_in_the_results() {
    let Some(compiler) = compiler() else { return };
    let library = compiler.compile("faults", FAULTS).unwrap();
    let seeds: Vec<Vec<f32>> = (0..3).map(|s| run(&library, "missing_barrier", s).unwrap()).collect();
    assert!(seeds.iter().all(|y| y.iter().any(|v| v.is_nan())), "unwritten threadgroup memory is NaN");
    let unwritten = run(&library, "unwritten", 0).unwrap();
    assert!(unwritten[63].is_nan() && unwritten[..63].iter().all(|v| v.is_finite()));
    let races: Vec<Vec<f32>> = (0..3).map(|s| run(&library, "race", s).unwrap()).collect();
    assert!(races.iter().any(|y| *y != races[0]), "a race gives other numbers under another seed");
}

#[test]
fn what_stands_before_a_buffer_is_watched() {
    let Some(compiler) = compiler() else { return };
    let library = compiler.compile("faults", FAULTS).unwrap();
    let kernel = library.kernels().iter().position(|k| k.name == "writes_before").unwrap();
    let (mut x, mut y, mut p) = (Guard::of(&[1; 256]), Guard::of(&[0; 256]), Guard::of(&[0; 4]));
    let buffers = [x.pointer(), y.pointer(), p.pointer()];
    // SAFETY: as above; what the kernel writes in front of the second buffer is the canary of that buffer.
    unsafe { library.run(kernel, &buffers, [1, 1, 1], 64, 0) }.unwrap();
    assert!(!y.intact() && x.intact());
}

#[test]
fn the_compiler_refuses_what_metal_would() {
    let Some(compiler) = compiler() else { return };
    let head = "#include <metal_stdlib>\nusing namespace metal;\n";
    let refusal = |body: &str| {
        let text = format!(
            "{head}kernel void f(device float *x [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {{ {body} }}"
        );
        compiler.compile("refused", &text).err().map(|e| e.to_string()).unwrap_or_default()
    };
    // Pointers keep their address space.
    let why = refusal("threadgroup float a[4]; threadgroup float *p = x; a[0] = p[t];");
    assert!(why.contains("'threadgroup float *' with an lvalue of type 'device float *'"), "{why}");
    assert!(refusal("double y = x[t]; x[t] = y;").contains("msl_has_no_double"));
    assert!(refusal("if constexpr (true) x[t] = 0;").contains("constexpr"));
    assert_eq!(refusal("x[t] = 0;"), "");
}
