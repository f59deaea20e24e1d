//! Bytes to header: everything before the tensor data.
//!
//! The header is read through ordinary reads, not through the mapping, so that a file which is cut meanwhile
//! gives an error here and not a signal.

use std::io::Read;
use std::path::{Path, PathBuf};

use cera_quant::Type;

use crate::error::{Error, Place};
use crate::tensor::{TensorInfo, byte_len, check_layout};
use crate::value::{self, Array, Value, with_numbers};
use crate::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAX_ALIGNMENT, MAX_DIMS, MAX_HEADER, MAX_NAME, Metadata};

/// Bytes of the smallest key: a name of one byte with its length, a type, a value of one byte.
const MIN_KEY: u64 = 8 + 1 + 4 + 1;
/// Bytes of the smallest tensor description: name, number of dimensions (none), type, offset.
const MIN_TENSOR: u64 = 8 + 1 + 4 + 4 + 8;
/// Items that a list claimed to be longer starts with room for; then it grows with what is really there.
const FIRST_ROOM: usize = 1024;

/// Everything that a file says before its tensor data.
#[derive(Debug)]
pub(crate) struct Header {
    pub version: u32,
    pub alignment: u64,
    pub metadata: Metadata,
    pub tensors: Vec<TensorInfo>,
    /// Indices of `tensors`, sorted by name.
    pub by_name: Vec<usize>,
    /// Where the data section starts.
    pub data_start: u64,
}

impl Header {
    /// Makes `by_name` anew.
    pub fn sort(&mut self) -> Result<(), Error> {
        let name = |&index: &usize| self.tensors.get(index).map(|t| t.name.as_str());
        let mut by_name: Vec<usize> = (0..self.tensors.len()).collect();
        by_name.sort_by(|a, b| name(a).cmp(&name(b)));
        if let Some(twice) = by_name.windows(2).find_map(|pair| match pair {
            [a, b] if name(a) == name(b) => name(a),
            _ => None,
        }) {
            return Err(Error::DuplicateTensor { tensor: twice.into() });
        }
        self.by_name = by_name;
        Ok(())
    }
}

/// A number as the file stores it.
trait Number: Sized + Copy {
    const BYTES: usize;
    fn from_le(bytes: &[u8]) -> Option<Self>;
}

macro_rules! numbers {
    ($($variant:ident $rust:ident $id:literal $name:literal $array:literal,)*) => {$(
        impl Number for $rust {
            const BYTES: usize = size_of::<$rust>();
            fn from_le(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map($rust::from_le_bytes)
            }
        }
    )*};
}
with_numbers!(numbers);

/// A reader that knows how much is left, of the file and of what a header may take.
struct Source<'a, R> {
    inner: R,
    path: Option<&'a Path>,
    at: u64,
    len: u64,
}

impl<R: Read> Source<'_, R> {
    /// Checks that `need` bytes are left, where `None` is more than can be counted. `place` says what they are
    /// for, `fault` what it means that the file does not have them.
    fn room(
        &self,
        need: Option<u64>,
        place: impl FnOnce() -> Place,
        fault: impl FnOnce(u64) -> Error,
    ) -> Result<(), Error> {
        let left = self.len.saturating_sub(self.at);
        match need.filter(|&need| need <= left) {
            None => Err(fault(left)),
            Some(need) if need > MAX_HEADER.saturating_sub(self.at) => {
                Err(Error::HeaderTooLarge { place: place() })
            }
            Some(_) => Ok(()),
        }
    }

    /// Fills `out`, whose room has been checked.
    fn fill(&mut self, out: &mut [u8]) -> Result<(), Error> {
        self.inner.read_exact(out).map_err(|source| {
            let path = self.path.map(PathBuf::from).unwrap_or_default();
            Error::Io { path, source }
        })?;
        self.at = self.at.saturating_add(out.len() as u64);
        Ok(())
    }

    fn take<const N: usize>(&mut self, place: impl Fn() -> Place) -> Result<[u8; N], Error> {
        let (need, offset) = (N as u64, self.at);
        self.room(Some(need), &place, |left| Error::Truncated { place: place(), offset, need, left })?;
        let mut out = [0; N];
        self.fill(&mut out)?;
        Ok(out)
    }

    fn u32(&mut self, place: impl Fn() -> Place) -> Result<u32, Error> {
        self.take(place).map(u32::from_le_bytes)
    }

    fn u64(&mut self, place: impl Fn() -> Place) -> Result<u64, Error> {
        self.take(place).map(u64::from_le_bytes)
    }

    /// A count of things of at least `smallest` bytes each.
    fn count(&mut self, what: &'static str, smallest: u64) -> Result<u64, Error> {
        let count = self.u64(|| Place::Header)?;
        self.room(
            count.checked_mul(smallest),
            || Place::Header,
            |left| Error::Count { what, count, left, limit: left / smallest },
        )?;
        Ok(count)
    }

    fn string(&mut self, place: impl Fn() -> Place) -> Result<String, Error> {
        let offset = self.at;
        let len = self.u64(&place)?;
        self.string_bytes(len, offset, place)
    }

    fn string_bytes(&mut self, len: u64, offset: u64, place: impl Fn() -> Place) -> Result<String, Error> {
        let fault = |left| Error::StringLength { place: place(), offset, len, left };
        self.room(Some(len), &place, fault)?;
        // MAX_HEADER bounds it, so it fits in a usize.
        let mut bytes = vec![0; len as usize];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| Error::NotUtf8 { place: place(), offset })
    }

    /// The name of a key or tensor.
    fn name(&mut self, place: impl Fn() -> Place) -> Result<String, Error> {
        let offset = self.at;
        let len = self.u64(&place)?;
        let left = self.len.saturating_sub(self.at);
        if len <= left && !(1..=MAX_NAME).contains(&len) {
            return Err(Error::NameLength { place: place(), offset, len });
        }
        self.string_bytes(len, offset, place)
    }

    fn bool(&mut self, place: impl Fn() -> Place) -> Result<bool, Error> {
        let offset = self.at;
        match self.take::<1>(&place)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [value] => Err(Error::Bool { place: place(), offset, value }),
        }
    }

    /// `count` numbers. They are all there, so the room for them is no more than the file's own bytes.
    fn numbers<T: Number>(&mut self, count: u64) -> Result<Vec<T>, Error> {
        const CHUNK: usize = 16 << 10;
        let mut buffer = [0; CHUNK];
        let count = count as usize;
        let mut out = Vec::with_capacity(count);
        while out.len() < count {
            let some = (count - out.len()).min(CHUNK / T::BYTES);
            let bytes = buffer.get_mut(..some * T::BYTES).unwrap_or_default();
            self.fill(bytes)?;
            out.extend(bytes.chunks_exact(T::BYTES).filter_map(T::from_le));
        }
        Ok(out)
    }

    fn array(&mut self, key: &str) -> Result<Array, Error> {
        let place = || Place::Value(key.into());
        let type_offset = self.at;
        let id = self.u32(place)?;
        let offset = self.at;
        let count = self.u64(place)?;
        let item_bytes = |bytes: usize| count.checked_mul(bytes as u64);
        let fault = |left| Error::ArrayLength { key: key.into(), offset, count, left };
        macro_rules! read {
            ($($variant:ident $rust:ident $id:literal $name:literal $array:literal,)*) => {
                match id {
                    $($id => {
                        self.room(item_bytes($rust::BYTES), place, fault)?;
                        Ok(Array::$variant(self.numbers(count)?))
                    })*
                    value::BOOL => {
                        self.room(item_bytes(1), place, fault)?;
                        self.list(count, |source, index| source.bool(|| Place::Element(key.into(), index)))
                            .map(Array::Bool)
                    }
                    value::STRING => {
                        self.room(item_bytes(8), place, fault)?;
                        self.list(count, |source, index| source.string(|| Place::Element(key.into(), index)))
                            .map(Array::String)
                    }
                    value::ARRAY => Err(Error::NestedArray { key: key.into(), offset: type_offset }),
                    _ => Err(Error::ValueType { key: key.into(), offset: type_offset, id }),
                }
            };
        }
        with_numbers!(read)
    }

    fn list<T>(
        &mut self,
        count: u64,
        mut read: impl FnMut(&mut Self, u64) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let mut out = Vec::with_capacity((count as usize).min(FIRST_ROOM));
        for index in 0..count {
            out.push(read(self, index)?);
        }
        Ok(out)
    }

    fn value(&mut self, key: &str) -> Result<Value, Error> {
        let place = || Place::Value(key.into());
        let offset = self.at;
        let id = self.u32(place)?;
        macro_rules! read {
            ($($variant:ident $rust:ident $id:literal $name:literal $array:literal,)*) => {
                match id {
                    $($id => self.take(place).map($rust::from_le_bytes).map(Value::$variant),)*
                    value::BOOL => self.bool(place).map(Value::Bool),
                    value::STRING => self.string(place).map(Value::String),
                    value::ARRAY => self.array(key).map(Value::Array),
                    _ => Err(Error::ValueType { key: key.into(), offset, id }),
                }
            };
        }
        with_numbers!(read)
    }

    fn metadata(&mut self, count: u64) -> Result<Metadata, Error> {
        let mut metadata = Metadata::new();
        for index in 0..count {
            let key = self.name(|| Place::Key(index))?;
            if metadata.get(&key).is_some() {
                return Err(Error::DuplicateKey { key });
            }
            let value = self.value(&key)?;
            metadata.insert(key, value);
        }
        Ok(metadata)
    }

    fn tensor(&mut self, index: u64) -> Result<TensorInfo, Error> {
        let name = self.name(|| Place::TensorName(index))?;
        let place = || Place::Tensor(name.clone());
        let count = self.u32(place)?;
        if count as usize > MAX_DIMS {
            return Err(Error::Dimensions { tensor: name, count: count.into() });
        }
        let dims = self.list(count.into(), |source, _| source.u64(place))?;
        let id = self.u32(place)?;
        let offset = self.u64(place)?;
        let Some(ty) = Type::from_id(id) else {
            return Err(Error::TensorType { tensor: name, id });
        };
        let bytes = byte_len(&name, ty, &dims)?;
        Ok(TensorInfo { name, ty, dims, part: 0, offset, bytes })
    }

    fn version(&mut self) -> Result<u32, Error> {
        let len = self.len;
        let short = |_| Error::TooShort { len };
        if len < 4 {
            return Err(Error::TooShort { len });
        }
        let magic: [u8; 4] = self.take(|| Place::Header).map_err(short)?;
        match &magic {
            b"GGUF" => {}
            b"FUGG" => return Err(Error::BigEndian),
            _ => return Err(Error::NotGguf { magic }),
        }
        if len < 8 {
            return Err(Error::TooShort { len });
        }
        let version = self.u32(|| Place::Header)?;
        if !(2..=3).contains(&version) {
            // A big-endian file keeps the magic readable and swaps every number.
            let swapped = (1..=3).contains(&version.swap_bytes());
            return Err(if swapped { Error::BigEndian } else { Error::Version { version } });
        }
        if len < 24 {
            return Err(Error::TooShort { len });
        }
        Ok(version)
    }
}

/// The alignment that the metadata ask for.
pub(crate) fn alignment(metadata: &Metadata) -> Result<u64, Error> {
    let alignment = metadata.u64(ALIGNMENT_KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() || !(8..=MAX_ALIGNMENT).contains(&alignment) {
        return Err(Error::Alignment { alignment });
    }
    Ok(alignment)
}

/// Reads and checks the header of a file of `len` bytes; `path` is for errors.
pub(crate) fn header(inner: impl Read, len: u64, path: Option<&Path>) -> Result<Header, Error> {
    let mut source = Source { inner, path, at: 0, len };
    let version = source.version()?;
    let tensor_count = source.count("tensors", MIN_TENSOR)?;
    let key_count = source.count("keys", MIN_KEY)?;
    let metadata = source.metadata(key_count)?;
    let alignment = alignment(&metadata)?;
    let tensors = source.list(tensor_count, |source, index| source.tensor(index))?;

    // Both are bounded by MAX_HEADER and MAX_ALIGNMENT.
    let data_start = source.at.next_multiple_of(alignment);
    let mut header = Header { version, alignment, metadata, tensors, by_name: Vec::new(), data_start };
    header.sort()?;
    check_layout(&header.tensors, alignment, len.saturating_sub(data_start))?;
    Ok(header)
}
