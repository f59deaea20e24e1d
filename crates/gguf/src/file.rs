//! An open file: its header, and its tensor data as slices of a mapping.

use std::borrow::Cow;
use std::io::BufReader;
use std::ops::Range;
use std::path::Path;

use crate::read::{Header, header};
use crate::{Checkpoint, Error, Mapped, Metadata, TensorInfo, split};

/// A GGUF file, checked as a whole: every tensor's bytes lie inside it and overlap no other's. A model that is split
/// over several files is one of these, whichever part was opened.
///
/// The header is read once, at opening, by ordinary reads. Tensor data is mapped; [`Mapped`] says what it means that a
/// file changes meanwhile. [`Gguf::read_tensor`] never faults.
#[derive(Debug)]
pub struct Gguf {
    header: Header,
    /// The file, or all parts of it in order.
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    data: Data,
    /// Where the data section starts.
    data_start: u64,
}

#[derive(Debug)]
enum Data {
    Owned(Vec<u8>),
    Mapped(Mapped),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::Mapped(file) => file.bytes(),
            Data::Owned(bytes) => bytes,
        }
    }

    fn check_len(&self) -> Result<(), Error> {
        match &self.data {
            Data::Mapped(file) => file.check_len(),
            Data::Owned(_) => Ok(()),
        }
    }

    /// Where a tensor of this part starts and ends in its bytes.
    fn range(&self, t: &TensorInfo) -> Option<Range<usize>> {
        let start = usize::try_from(self.data_start.checked_add(t.offset)?).ok()?;
        Some(start..start.checked_add(usize::try_from(t.bytes).ok()?)?)
    }
}

impl Gguf {
    /// Opens and maps a file, with the other parts where it is part of a split model.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::NotAFile`] name the path; the rest say what is wrong inside.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let (header, part) = open_part(path)?;
        let Some(split) = split::Part::read(&header.metadata)? else {
            return Ok(Self { header, parts: vec![part] });
        };
        let mut opened = Some((header, part));
        let mut whole: Option<Self> = None;
        let place = split.places(path)?;
        for no in 0..split.count {
            let path = place(no);
            let (header, part) = match opened.take_if(|_| no == split.no) {
                Some(opened) => opened,
                None => open_part(&path)?,
            };
            split.check(&path, no, split::Part::read(&header.metadata)?)?;
            match &mut whole {
                None => whole = Some(Self { header, parts: vec![part] }),
                Some(whole) => whole.append(header, part),
            }
        }
        let mut whole = whole.ok_or(Error::TooShort { len: 0 })?;
        whole.header.sort()?;
        let found = whole.header.tensors.len() as u64;
        if let Some(claimed) = split.tensors.filter(|&claimed| claimed != found) {
            return Err(Error::SplitTensors { claimed, found, parts: split.count });
        }
        whole.header.metadata = split::joined(whole.header.metadata);
        Ok(whole)
    }

    fn append(&mut self, header: Header, part: Part) {
        let number = self.parts.len();
        self.header.tensors.extend(header.tensors.into_iter().map(|t| TensorInfo { part: number, ..t }));
        self.parts.push(part);
    }

    /// Reads a file that is in memory.
    ///
    /// # Errors
    /// What is wrong inside; [`Error::SplitName`] for a part of a split model.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        let header = header(bytes.as_slice(), bytes.len() as u64, None)?;
        if let Some(part) = split::Part::read(&header.metadata)? {
            drop(part.places(Path::new("what is in memory"))?);
        }
        let data_start = header.data_start;
        Ok(Self { header, parts: vec![Part { data: Data::Owned(bytes), data_start }] })
    }

    /// The keys and values. Those that say how a model is split are left out.
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

    /// The bytes of a tensor, without copying; [`Mapped`] says what may happen to them. They start at a
    /// multiple of [`Gguf::alignment`] in the file, which in memory holds for mapped files only.
    ///
    /// `t` is one of [`Gguf::tensors`]; for a tensor that this file could not hold there are no bytes.
    pub fn tensor_bytes(&self, t: &TensorInfo) -> &[u8] {
        let bytes = || {
            let part = self.parts.get(t.part)?;
            part.bytes().get(part.range(t)?)
        };
        bytes().unwrap_or_default()
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
        if let Some(Part { data: Data::Mapped(file), data_start }) = self.parts.get(t.part) {
            let at = data_start.checked_add(t.offset).and_then(|at| at.checked_add(start));
            return file.read_at(at.ok_or_else(range)?, out);
        }
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
        self.parts.iter().try_for_each(Part::check_len)
    }

    /// Tells the system that a tensor's bytes are not needed for now, as [`Mapped::release`] does.
    pub fn release(&self, t: &TensorInfo) {
        if let Some(part) = self.parts.get(t.part)
            && let (Data::Mapped(file), Some(range)) = (&part.data, part.range(t))
        {
            file.release(range);
        }
    }

    /// The format's version: 2 or 3.
    pub fn version(&self) -> u32 {
        self.header.version
    }

    /// The alignment of tensor data, in bytes.
    pub fn alignment(&self) -> u64 {
        self.header.alignment
    }

    /// Where the data section of the (first) file starts, to which its tensors' offsets are relative.
    pub fn data_start(&self) -> u64 {
        self.header.data_start
    }

    /// How many files the model is split over; 1 for a file that is whole.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The path of the file, of the first part of a split model; `None` for bytes in memory.
    pub fn path(&self) -> Option<&Path> {
        match self.parts.first().map(|part| &part.data) {
            Some(Data::Mapped(file)) => Some(file.path()),
            _ => None,
        }
    }

    /// Length of the file, of all parts together, in bytes, when it was opened.
    pub fn file_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes().len() as u64).sum()
    }
}

impl Checkpoint for Gguf {
    fn metadata(&self) -> &Metadata {
        self.metadata()
    }

    fn tensors(&self) -> &[TensorInfo] {
        self.tensors()
    }

    fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensor(name)
    }

    fn rows(&self, t: &TensorInfo, first: u64, count: u64) -> Result<Cow<'_, [u8]>, Error> {
        // A file cut since it was opened would end the program where its pages are touched.
        self.parts.get(t.part).map_or(Ok(()), Part::check_len)?;
        let rows = || {
            let row = t.bytes / t.rows();
            let start = usize::try_from(first.checked_mul(row)?).ok()?;
            let len = usize::try_from(count.checked_mul(row)?).ok()?;
            self.tensor_bytes(t).get(start..start.checked_add(len)?)
        };
        let missing = || Error::Rows { tensor: t.name.clone(), first, count, rows: t.rows() };
        rows().map(Cow::Borrowed).ok_or_else(missing)
    }

    fn release(&self, t: &TensorInfo) {
        self.release(t);
    }
}

/// One file: its header, and its data mapped.
fn open_part(path: &Path) -> Result<(Header, Part), Error> {
    let file = Mapped::open(path)?;
    let len = file.bytes().len() as u64;
    let header =
        header(BufReader::with_capacity(64 << 10, file.file()), len, Some(path)).map_err(|fault| {
            // Cut or still being written: that is the news, not the nonsense which it leads to.
            file.check_len().err().unwrap_or(fault)
        })?;
    let data_start = header.data_start;
    Ok((header, Part { data: Data::Mapped(file), data_start }))
}
