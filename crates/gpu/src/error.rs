//! What a device can fail with.

/// A device that cannot do what it is asked for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Memory could not be had.
    #[error("out of memory: {bytes} bytes for {what}")]
    Memory {
        /// What it was for.
        what: &'static str,
        /// Its size.
        bytes: usize,
    },
    /// No kernel has this name.
    #[error("no kernel is named {0}")]
    NoKernel(String),
    /// The device, its driver or a kernel failed.
    #[error("{device}: {why}")]
    Failed {
        /// The device's kind.
        device: &'static str,
        /// What it knows of the cause.
        why: String,
    },
}

impl From<Error> for cera_backend::Error {
    fn from(e: Error) -> Self {
        match e {
            Error::Memory { what, bytes } => cera_backend::Error::Memory { what, bytes },
            Error::Failed { device, why } => cera_backend::Error::Failed { backend: device, why },
            Error::NoKernel(_) => cera_backend::Error::Failed { backend: "gpu", why: e.to_string() },
        }
    }
}
