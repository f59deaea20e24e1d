//! Kernels as PTX, by clang's target for NVIDIA's GPUs.

use std::process::Command;

use crate::{Compiler, Error, SHIM, Target, lower};

/// The processor that PTX is committed for; later ones take it too.
pub const PROCESSOR: &str = "sm_80";

/// clang's options, the processor apart. The version is the one that sm_90a came with.
const FLAGS: [&str; 11] = [
    "--target=nvptx64-nvidia-cuda",
    "-std=c++14",
    "-O3",
    "-ffp-contract=off",
    "-fno-exceptions",
    "-nostdinc",
    "-Xclang",
    "-target-feature",
    "-Xclang",
    "+ptx80",
    "-S",
];

impl Compiler {
    /// All kernels of the GPU backend as PTX for a processor, with one entry for each.
    ///
    /// # Errors
    /// [`Error::Source`], [`Error::Compile`], [`Error::File`].
    pub fn ptx(&self, processor: &str) -> Result<String, Error> {
        let name = format!("kernels-{processor}-{}", std::process::id());
        let (_, cpp) = lower(&cera_gpu::kernels::source(), "kernels.metal", Target::Nvptx)?;
        let [text, made] = ["cpp", "ptx"].map(|end| self.folder().join(format!("{name}.{end}")));
        let file = |what: &std::path::Path, e: std::io::Error| Error::File {
            what: what.display().to_string(),
            why: e.to_string(),
        };
        std::fs::create_dir_all(self.folder()).map_err(|e| file(self.folder(), e))?;
        std::fs::write(&text, cpp).map_err(|e| file(&text, e))?;
        let mut clang = Command::new(self.clang());
        clang.args(FLAGS).arg(format!("-march={processor}")).arg("-I").arg(SHIM);
        let output = clang.arg(&text).arg("-o").arg(&made).output().map_err(|e| file(self.clang(), e))?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::Compile { name, message });
        }
        let ptx = std::fs::read_to_string(&made).map_err(|e| file(&made, e))?;
        for path in [&text, &made] {
            std::fs::remove_file(path).map_err(|e| file(path, e))?;
        }
        // What says which compiler it was, and where.
        let told = |line: &&str| !line.starts_with("//") && !line.trim_start().starts_with(".file");
        Ok(ptx.lines().filter(told).flat_map(|line| [line.trim_end(), "\n"]).collect())
    }
}
