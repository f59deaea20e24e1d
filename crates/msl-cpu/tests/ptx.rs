//! Every kernel, lowered for NVIDIA's GPUs by the same clang: PTX text with one entry for each. Nothing runs it here.

mod support;

use std::path::Path;
use std::process::Command;

use cera_msl_cpu::{SHIM, Target, entry_name, lower};
use support::compiler;

#[test]
fn every_kernel_becomes_an_entry_in_ptx() {
    let Some(compiler) = compiler() else { return };
    let (kernels, cpp) = lower(&cera_gpu::kernels::source(), "kernels.metal", Target::Nvptx).unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (text, ptx) = (folder.join("kernels.nvptx.cpp"), folder.join("kernels.ptx"));
    std::fs::write(&text, cpp).unwrap();
    for processor in ["sm_80", "sm_90a"] {
        let target = ["--target=nvptx64-nvidia-cuda", &format!("-march={processor}")].map(str::to_owned);
        let mut clang = Command::new(compiler.clang());
        clang.args(target).args([
            "-std=c++14",
            "-O3",
            "-ffp-contract=off",
            "-fno-exceptions",
            "-nostdinc",
            "-S",
        ]);
        // The PTX version that sm_90a came with.
        clang.args(["-Xclang", "-target-feature", "-Xclang", "+ptx80"]);
        clang.arg("-I").arg(SHIM).arg(&text).arg("-o").arg(&ptx);
        let output = clang.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let made = std::fs::read_to_string(&ptx).unwrap();
        assert!(made.contains(&format!(".target {processor}")), "{processor}");
        for kernel in &kernels {
            let entry = format!(".entry {}(", entry_name(&kernel.name));
            assert!(made.contains(&entry), "{processor}: no {entry}");
        }
        // Sums of SIMD-groups and barriers are the hardware's.
        assert!(made.contains("shfl.sync") && made.contains("bar.sync"), "{processor}");
    }
}
