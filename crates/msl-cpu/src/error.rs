//! What can go wrong before and while kernels run.

/// A kernel that could not be compiled or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not what the lowering knows.
    #[error("{0}")]
    Source(String),
    /// No compiler was found.
    #[error("no clang++ of version 17 or later was found; Debian's package clang-19 has one")]
    NoCompiler,
    /// The compiler refused the text.
    #[error("clang refused {name}:\n{message}")]
    Compile {
        /// The text's name.
        name: String,
        /// What the compiler says.
        message: String,
    },
    /// A file could not be read or written, or the compiled library not be loaded.
    #[error("{what}: {why}")]
    File {
        /// Which file.
        what: String,
        /// The system's reason.
        why: String,
    },
    /// No kernel has this name.
    #[error("no kernel is named {0}")]
    NoKernel(String),
    /// A kernel did what MSL leaves undefined.
    #[error("kernel {kernel}: {why}")]
    Kernel {
        /// The kernel.
        kernel: String,
        /// What it did.
        why: String,
    },
}
