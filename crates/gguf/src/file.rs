//! An open file: its header, and its tensor data as slices of a mapping.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use memmap2::{Mmap, MmapOptions};

use crate::read::{Header, header};
use crate::{Error, Metadata, TensorInfo};

/// A GGUF file, checked as a whole: every tensor's bytes lie inside it and overlap no other's.
///
/// # Files that change while they are open
/// The header is read once, at opening, by ordinary reads. Tensor data is mapped, and a mapping follows the
/// file: if another program cuts the file, touching the bytes that are gone ends the process with SIGBUS, and if
/// it rewrites the file, slices change under their reader. No portable call forbids either. What this type
/// offers:
///
/// - [`Gguf::check_len`] tells a cut, and is cheap enough to call before each tensor is packed. A cut between
///   the check and the last touch of the slice still faults: the window is as long as one tensor's packing.
/// - [`Gguf::read_tensor`] copies through ordinary reads, which never fault: a file cut at any moment is an
///   [`Error::Changed`]. Loading that must survive any change goes through it.
///
/// Files replaced by renaming another over them, as downloads and editors do, are not affected: the mapping
/// keeps the old one.
#[derive(Debug)]
pub struct Gguf {
    header: Header,
    data: Data,
}

#[derive(Debug)]
enum Data {
    Owned(Vec<u8>),
    Mapped { map: Mmap, file: File, path: PathBuf },
}

impl Gguf {
    /// Opens and maps a file, and tells the system that it will be read from front to back.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::NotAFile`] name the path; the rest say what is wrong inside.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let io = |source| Error::Io { path: path.into(), source };
        // Before opening: to open a pipe waits for its writer.
        require_file(path, &fs::metadata(path).map_err(io)?)?;
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        require_file(path, &metadata)?;
        let len = metadata.len();
        let header = header(BufReader::with_capacity(64 << 10, &file), len, Some(path)).map_err(|fault| {
            // Cut or still being written: that is the news, not the nonsense which it leads to.
            check_file_len(&file, path, len).err().unwrap_or(fault)
        })?;

        let too_large = |_| io(io::Error::from(io::ErrorKind::FileTooLarge));
        let map_len = usize::try_from(len).map_err(too_large)?;
        // SAFETY: the mapping is read only, and only shared slices of it are handed out. Whoever else may write to
        // the file is outside of this program's control, as for every mapped file; the type's documentation
        // says what follows. No decision about memory is ever taken from mapped bytes: the header was read apart.
        let map = unsafe { MmapOptions::new().len(map_len).map(&file) }.map_err(io)?;
        // Advice that the system does not take costs speed only.
        #[cfg(unix)]
        let _ = map.advise(memmap2::Advice::Sequential);
        Ok(Self { header, data: Data::Mapped { map, file, path: path.into() } })
    }

    /// Reads a file that is in memory.
    ///
    /// # Errors
    /// What is wrong inside.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        let header = header(bytes.as_slice(), bytes.len() as u64, None)?;
        Ok(Self { header, data: Data::Owned(bytes) })
    }

    /// The keys and values.
    pub fn metadata(&self) -> &Metadata {
        &self.header.metadata
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.header.tensors
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let tensor = |&index: &usize| self.header.tensors.get(index);
        let name_of = |index: &usize| tensor(index).map(|t| t.name.as_str());
        let found = self.header.by_name.binary_search_by(|index| name_of(index).cmp(&Some(name))).ok()?;
        self.header.by_name.get(found).and_then(tensor)
    }

    /// The bytes of a tensor, without copying; see the type for what may happen to them. They start at a
    /// multiple of [`Gguf::alignment`] in the file, which in memory holds for mapped files only.
    ///
    /// `t` is one of [`Gguf::tensors`]; for a tensor that this file could not hold there are no bytes.
    pub fn tensor_bytes(&self, t: &TensorInfo) -> &[u8] {
        let range = self.start_of(t).zip(usize::try_from(t.bytes).ok());
        range.and_then(|(start, len)| self.bytes().get(start..start.checked_add(len)?)).unwrap_or_default()
    }

    /// Copies bytes of a tensor, from its byte `start` on, as many as `out` takes. Never faults, also where the
    /// file was cut after it was opened.
    ///
    /// # Errors
    /// [`Error::Range`] where the tensor is shorter, [`Error::Changed`] where the file is now, [`Error::Io`].
    pub fn read_tensor(&self, t: &TensorInfo, start: u64, out: &mut [u8]) -> Result<(), Error> {
        let len = out.len() as u64;
        let range = || Error::Range { tensor: t.name.clone(), start, len, bytes: t.bytes };
        if start.checked_add(len).is_none_or(|end| end > t.bytes) {
            return Err(range());
        }
        #[cfg(unix)]
        if let Data::Mapped { file, path, .. } = &self.data {
            use std::os::unix::fs::FileExt;
            let at = self.header.data_start.checked_add(t.offset).and_then(|at| at.checked_add(start));
            return file.read_exact_at(out, at.ok_or_else(range)?).map_err(|source| {
                let cut = source.kind() == io::ErrorKind::UnexpectedEof;
                let changed = if cut { self.check_len().err() } else { None };
                changed.unwrap_or_else(|| Error::Io { path: path.clone(), source })
            });
        }
        // Elsewhere a mapped file cannot be cut (Windows refuses it).
        let from = usize::try_from(start).map_err(|_| range())?;
        let bytes = self.tensor_bytes(t).get(from..).and_then(|rest| rest.get(..out.len()));
        out.copy_from_slice(bytes.ok_or_else(range)?);
        Ok(())
    }

    /// Checks that the file still has the length that it was opened with. Always so for bytes in memory.
    ///
    /// # Errors
    /// [`Error::Changed`] with both lengths; [`Error::Io`].
    pub fn check_len(&self) -> Result<(), Error> {
        let Data::Mapped { file, path, .. } = &self.data else { return Ok(()) };
        check_file_len(file, path, self.file_bytes())
    }

    /// Tells the system that a tensor's bytes are not needed for now: the whole pages inside it leave this
    /// program's memory, and come back from the file if they are touched again. Nothing happens for bytes in
    /// memory or where the system has no such call.
    pub fn release(&self, t: &TensorInfo) {
        #[cfg(unix)]
        if let Data::Mapped { map, .. } = &self.data {
            // The largest page in use anywhere: smaller ones divide it.
            const PAGE: usize = 64 << 10;
            let Some((start, len)) = self.start_of(t).zip(usize::try_from(t.bytes).ok()) else { return };
            let end = start.saturating_add(len).min(map.len()) / PAGE * PAGE;
            let Some(start) = start.checked_next_multiple_of(PAGE).filter(|start| *start < end) else {
                return;
            };
            // SAFETY: for a read-only mapping of a file MADV_DONTNEED drops nothing that the file does not have:
            // the bytes read the same afterwards, so slices that are still held stay true.
            let _ =
                unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
        }
        #[cfg(not(unix))]
        let _ = t;
    }

    /// The format's version: 2 or 3.
    pub fn version(&self) -> u32 {
        self.header.version
    }

    /// The alignment of tensor data, in bytes.
    pub fn alignment(&self) -> u64 {
        self.header.alignment
    }

    /// Where the data section starts, to which tensor offsets are relative.
    pub fn data_start(&self) -> u64 {
        self.header.data_start
    }

    /// The path that was opened; `None` for bytes in memory.
    pub fn path(&self) -> Option<&Path> {
        match &self.data {
            Data::Mapped { path, .. } => Some(path),
            Data::Owned(_) => None,
        }
    }

    /// Length of the file, in bytes, when it was opened.
    pub fn file_bytes(&self) -> u64 {
        self.bytes().len() as u64
    }

    fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::Mapped { map, .. } => map,
            Data::Owned(bytes) => bytes,
        }
    }

    /// Where a tensor starts in [`Gguf::bytes`].
    fn start_of(&self, t: &TensorInfo) -> Option<usize> {
        self.header.data_start.checked_add(t.offset).and_then(|start| usize::try_from(start).ok())
    }
}

fn check_file_len(file: &File, path: &Path, was: u64) -> Result<(), Error> {
    let now = file.metadata().map_err(|source| Error::Io { path: path.into(), source })?.len();
    if was == now { Ok(()) } else { Err(Error::Changed { path: path.into(), was, now }) }
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
