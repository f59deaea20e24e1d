//! Writes version 3 files: header first, then tensor data as it comes.

use std::io::Write;

use indexmap::IndexMap;
use indexmap::map::Entry;

use cera_quant::Type;

use crate::error::{Error, Place};
use crate::read::alignment;
use crate::tensor::{TensorInfo, byte_len};
use crate::value::{Array, Value, with_numbers};
use crate::{MAX_HEADER, MAX_NAME, Metadata};

/// Collects what goes before the data: metadata, and the tensors in the order in which their data will follow.
///
/// ```
/// use cera_gguf::{Gguf, Metadata, Writer};
/// use cera_quant::Type;
///
/// let mut metadata = Metadata::new();
/// metadata.insert("general.architecture", "llama");
/// let mut writer = Writer::new(metadata)?;
/// writer.tensor("token_embd.weight", Type::F32, &[2, 3])?;
/// let mut body = writer.begin(Vec::new())?;
/// body.write(&[0; 24])?;
/// let file = Gguf::from_bytes(body.finish()?)?;
/// assert_eq!(file.tensors()[0].dims, [2, 3]);
/// # Ok::<(), cera_gguf::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Writer {
    metadata: Metadata,
    alignment: u64,
    tensors: IndexMap<String, TensorInfo>,
    data_len: u64,
}

impl Writer {
    /// A file of these keys. Data is aligned as [`crate::ALIGNMENT_KEY`] says, or else to
    /// [`crate::DEFAULT_ALIGNMENT`].
    ///
    /// # Errors
    /// [`Error::NameLength`] for a key, or what is wrong with the alignment.
    pub fn new(metadata: Metadata) -> Result<Self, Error> {
        for (index, (key, _)) in metadata.iter().enumerate() {
            check_name(key, Place::Key(index as u64))?;
        }
        let alignment = alignment(&metadata)?;
        Ok(Self { metadata, alignment, tensors: IndexMap::new(), data_len: 0 })
    }

    /// Adds a tensor behind the others. `dims[0]` varies fastest. Gives back its description.
    ///
    /// # Errors
    /// [`Error::NameLength`], [`Error::DuplicateTensor`], or what the reader would say of such dimensions.
    pub fn tensor(&mut self, name: &str, ty: Type, dims: &[u64]) -> Result<&TensorInfo, Error> {
        check_name(name, Place::TensorName(self.tensors.len() as u64))?;
        let bytes = byte_len(name, ty, dims)?;
        let entry = match self.tensors.entry(name.into()) {
            Entry::Occupied(_) => return Err(Error::DuplicateTensor { tensor: name.into() }),
            Entry::Vacant(entry) => entry,
        };
        let offset = self.data_len;
        self.data_len = offset
            .checked_add(bytes)
            .and_then(|end| end.checked_next_multiple_of(self.alignment))
            .ok_or_else(|| Error::TensorSize { tensor: name.into(), dims: dims.into() })?;
        Ok(entry.insert(TensorInfo { name: name.into(), ty, dims: dims.into(), part: 0, offset, bytes }))
    }

    /// Writes the header to `out`; the data follows through the [`Body`].
    ///
    /// # Errors
    /// [`Error::HeaderTooLarge`] where no reader of ours would take it, [`Error::Write`].
    pub fn begin<W: Write>(self, mut out: W) -> Result<Body<W>, Error> {
        let mut head = Vec::new();
        head.extend(b"GGUF");
        head.extend(3u32.to_le_bytes());
        put_len(&mut head, self.tensors.len());
        put_len(&mut head, self.metadata.len());
        for (key, value) in self.metadata.iter() {
            put_str(&mut head, key);
            head.extend(value.id().to_le_bytes());
            put_value(&mut head, value);
        }
        for t in self.tensors.values() {
            put_str(&mut head, &t.name);
            head.extend((t.dims.len() as u32).to_le_bytes());
            t.dims.iter().for_each(|dim| head.extend(dim.to_le_bytes()));
            head.extend(t.ty.id().to_le_bytes());
            head.extend(t.offset.to_le_bytes());
        }
        if head.len() as u64 > MAX_HEADER {
            return Err(Error::HeaderTooLarge { place: Place::Header });
        }
        out.write_all(&head).map_err(Error::Write)?;
        let head_len = head.len() as u64;
        let tensors = self.tensors.into_values().collect();
        let mut body = Body { out, tensors, alignment: self.alignment, next: 0, done: 0 };
        body.pad(head_len)?;
        Ok(body)
    }
}

/// Takes the data of the tensors, one after another, and pads it.
#[derive(Debug)]
pub struct Body<W> {
    out: W,
    tensors: Vec<TensorInfo>,
    alignment: u64,
    next: usize,
    /// Bytes of the next tensor that are written.
    done: u64,
}

impl<W: Write> Body<W> {
    /// The tensor whose data is to come; `None` after the last.
    pub fn pending(&self) -> Option<&TensorInfo> {
        self.tensors.get(self.next)
    }

    /// Writes data of the pending tensor, all that is left of it or a part.
    ///
    /// # Errors
    /// [`Error::Surplus`] where it is more than that tensor takes, and then nothing is written; [`Error::Write`].
    pub fn write(&mut self, data: &[u8]) -> Result<(), Error> {
        let len = data.len() as u64;
        let Some(t) = self.tensors.get(self.next) else {
            return if len == 0 { Ok(()) } else { Err(Error::Surplus { tensor: None, extra: len }) };
        };
        let (bytes, left) = (t.bytes, t.bytes.saturating_sub(self.done));
        if len > left {
            return Err(Error::Surplus { tensor: Some(t.name.clone()), extra: len - left });
        }
        self.out.write_all(data).map_err(Error::Write)?;
        self.done += len;
        if self.done == bytes {
            (self.next, self.done) = (self.next + 1, 0);
            self.pad(bytes)?;
        }
        Ok(())
    }

    /// Ends the file and gives back what it was written to.
    ///
    /// # Errors
    /// [`Error::Unfinished`] where a tensor's data is missing; [`Error::Write`].
    pub fn finish(mut self) -> Result<W, Error> {
        if let Some(t) = self.pending() {
            let left = t.bytes.saturating_sub(self.done);
            return Err(Error::Unfinished { tensor: t.name.clone(), left });
        }
        self.out.flush().map_err(Error::Write)?;
        Ok(self.out)
    }

    /// Zeros from `len` to the next multiple of the alignment.
    fn pad(&mut self, len: u64) -> Result<(), Error> {
        let zeros = vec![0; ((self.alignment - len % self.alignment) % self.alignment) as usize];
        self.out.write_all(&zeros).map_err(Error::Write)
    }
}

fn check_name(name: &str, place: Place) -> Result<(), Error> {
    let len = name.len() as u64;
    if !(1..=MAX_NAME).contains(&len) {
        return Err(Error::NameLength { place, offset: 0, len });
    }
    Ok(())
}

fn put_len(out: &mut Vec<u8>, len: usize) {
    out.extend((len as u64).to_le_bytes());
}

fn put_str(out: &mut Vec<u8>, text: &str) {
    put_len(out, text.len());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    macro_rules! put {
        ($($variant:ident $rust:ident $id:literal $name:literal $array:literal,)*) => {
            match value {
                $(Value::$variant(v) => out.extend(v.to_le_bytes()),)*
                Value::Bool(v) => out.push((*v).into()),
                Value::String(v) => put_str(out, v),
                Value::Array(array) => {
                    out.extend(array.id().to_le_bytes());
                    put_len(out, array.len());
                    match array {
                        $(Array::$variant(items) => items.iter().for_each(|v| out.extend(v.to_le_bytes())),)*
                        Array::Bool(items) => out.extend(items.iter().map(|&v| u8::from(v))),
                        Array::String(items) => items.iter().for_each(|v| put_str(out, v)),
                    }
                }
            }
        };
    }
    with_numbers!(put)
}
