//! How a download tells what it is doing. The drawing is the caller's.

/// Hears of a download. One `start`, any number of `at`, one `finish` per file; notes at any time.
pub trait Progress {
    /// A file or package begins; `total` is its size in bytes where known.
    fn start(&mut self, what: &str, total: Option<u64>);
    /// So many bytes are here, counted from the file's beginning. May go back if a server cannot resume.
    fn at(&mut self, bytes: u64);
    /// The file is over, done or not.
    fn finish(&mut self);
    /// One sentence for the user: waiting for another process, a source that failed.
    fn note(&mut self, text: &str);
}

/// Says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn start(&mut self, _: &str, _: Option<u64>) {}
    fn at(&mut self, _: u64) {}
    fn finish(&mut self) {}
    fn note(&mut self, _: &str) {}
}
