//! A mapped file, whatever its format.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::{Mmap, MmapOptions};

use crate::Error;

/// A file, open and mapped for reading.
///
/// # Files that change while they are open
/// A mapping follows the file: if another program cuts the file, touching the bytes that are gone ends the process with
/// SIGBUS, and if it rewrites the file, slices change under their reader. No portable call forbids either. What this
/// type offers:
///
/// - [`Mapped::check_len`] tells a cut, and is cheap enough to call before each tensor is packed. A cut between
///   the check and the last touch of the slice still faults: the window is as long as one tensor's packing.
/// - [`Mapped::read_at`] copies through ordinary reads, which never fault: a file cut at any moment is an
///   [`Error::Changed`]. Loading that must survive any change goes through it.
///
/// Files replaced by renaming another over them, as downloads and editors do, are not affected: the mapping
/// keeps the old one.
#[derive(Debug)]
pub struct Mapped {
    map: Mmap,
    file: File,
    path: PathBuf,
}

impl Mapped {
    /// Opens and maps a file, and tells the system that it will be read from front to back.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::NotAFile`] name the path.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let io = |source| Error::Io { path: path.into(), source };
        // Before opening: to open a pipe waits for its writer.
        require_file(path, &fs::metadata(path).map_err(io)?)?;
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        require_file(path, &metadata)?;
        let too_large = |_| io(io::Error::from(io::ErrorKind::FileTooLarge));
        let len = usize::try_from(metadata.len()).map_err(too_large)?;
        // SAFETY: the mapping is read only, and only shared slices of it are handed out. Whoever else may write to
        // the file is outside of this program's control, as for every mapped file; the type's documentation
        // says what follows. No decision about memory is ever taken from mapped bytes: headers are read apart.
        let map = unsafe { MmapOptions::new().len(len).map(&file) }.map_err(io)?;
        // Advice that the system does not take costs speed only.
        #[cfg(unix)]
        let _ = map.advise(memmap2::Advice::Sequential);
        Ok(Self { map, file, path: path.into() })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file, for ordinary reads from its start.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// All bytes; see the type for what may happen to them.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Copies bytes from `start` on, as many as `out` takes. Never faults, also where the file was cut after it was
    /// opened.
    ///
    /// # Errors
    /// [`Error::Changed`] where the file is shorter now than it was, [`Error::Io`].
    pub fn read_at(&self, start: u64, out: &mut [u8]) -> Result<(), Error> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::FileExt;
            self.file.read_exact_at(out, start).map_err(|source| {
                let cut = source.kind() == io::ErrorKind::UnexpectedEof;
                let changed = if cut { self.check_len().err() } else { None };
                changed.unwrap_or_else(|| Error::Io { path: self.path.clone(), source })
            })
        }
        // Elsewhere a mapped file cannot be cut (Windows refuses it).
        #[cfg(not(unix))]
        {
            let from = usize::try_from(start).ok();
            let bytes = from.and_then(|from| self.map.get(from..)?.get(..out.len()));
            let past = || Error::Io {
                path: self.path.clone(),
                source: io::Error::from(io::ErrorKind::UnexpectedEof),
            };
            out.copy_from_slice(bytes.ok_or_else(past)?);
            Ok(())
        }
    }

    /// Checks that the file still has the length that it was opened with.
    ///
    /// # Errors
    /// [`Error::Changed`] with both lengths; [`Error::Io`].
    pub fn check_len(&self) -> Result<(), Error> {
        let io = |source| Error::Io { path: self.path.clone(), source };
        let (was, now) = (self.map.len() as u64, self.file.metadata().map_err(io)?.len());
        if was == now { Ok(()) } else { Err(Error::Changed { path: self.path.clone(), was, now }) }
    }

    /// Tells the system that some bytes are not needed for now: the whole pages inside them leave this program's
    /// memory, and come back from the file if they are touched again. Nothing happens where the system has no such
    /// call.
    pub fn release(&self, bytes: Range<usize>) {
        #[cfg(unix)]
        {
            // The largest page in use anywhere: smaller ones divide it.
            const PAGE: usize = 64 << 10;
            let end = bytes.end.min(self.map.len()) / PAGE * PAGE;
            let Some(start) = bytes.start.checked_next_multiple_of(PAGE).filter(|start| *start < end) else {
                return;
            };
            // SAFETY: for a read-only mapping of a file MADV_DONTNEED drops nothing that the file does not have:
            // the bytes read the same afterwards, so slices that are still held stay true.
            let _ = unsafe {
                self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start)
            };
        }
        #[cfg(not(unix))]
        let _ = bytes;
    }
}

fn require_file(path: &Path, metadata: &fs::Metadata) -> Result<(), Error> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return Ok(());
    }
    let kind = if kind.is_dir() { "a directory" } else { special(kind) };
    Err(Error::NotAFile { path: path.into(), kind })
}

#[cfg(unix)]
fn special(kind: fs::FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    if kind.is_socket() {
        "a socket"
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "a device"
    }
}

#[cfg(not(unix))]
fn special(_: fs::FileType) -> &'static str {
    "a device"
}
