//! Every kernel, lowered for NVIDIA's GPUs by the same clang: PTX text with one entry for each.

mod support;

use cera_msl_cpu::{PROCESSOR, Target, entry_name, lower};
use support::compiler;

#[test]
fn every_kernel_becomes_an_entry_in_ptx() {
    let Some(compiler) = compiler() else { return };
    let (kernels, _) = lower(&cera_gpu::kernels::source(), "kernels.metal", Target::Nvptx).unwrap();
    for processor in [PROCESSOR, "sm_90a"] {
        let made = compiler.ptx(processor).unwrap();
        assert!(made.contains(&format!(".target {processor}")), "{processor}");
        for kernel in &kernels {
            let entry = format!(".entry {}(", entry_name(&kernel.name));
            assert!(made.contains(&entry), "{processor}: no {entry}");
        }
        // Sums of SIMD-groups and barriers are the hardware's.
        assert!(made.contains("shfl.sync") && made.contains("bar.sync"), "{processor}");
        let path = format!("{}/../cuda/ptx/{processor}.ptx", env!("CARGO_MANIFEST_DIR"));
        // Another compiler's text differs.
        if processor == PROCESSOR && compiler.clang().ends_with("clang++-19") {
            let committed = std::fs::read_to_string(&path).unwrap();
            assert!(
                committed == made,
                "{processor}: `cargo xtask ptx` was not run after the kernels changed"
            );
        }
    }
}
