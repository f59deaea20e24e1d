//! Safetensors files: where each tensor's numbers lie.
//!
//! The layout is that of the `safetensors` format (its `README`, "Format"): eight bytes with the header's length, a JSON
//! object from tensor names to type, shape and bytes, then the bytes, which the tensors cover without holes. A tensor's
//! range is checked against the file before anything is read of it, so no number in a header makes us allocate.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use cera_gguf::{Mapped, shown};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::Error;

/// Longest header, as the format's own reader has it.
const MAX_HEADER: u64 = 100_000_000;
/// Most dimensions of a tensor: no model has more than five.
const MAX_DIMS: usize = 8;

/// How numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dtype {
    F64,
    F32,
    F16,
    Bf16,
    /// Four bits of exponent, three of mantissa, no infinity.
    F8E4M3,
    /// Five bits of exponent, two of mantissa.
    F8E5M2,
    U8,
    /// What is no weight: integers, truth values, exponents. Bytes of one.
    Other(u64),
}

impl Dtype {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "F64" => Self::F64,
            "F32" => Self::F32,
            "F16" => Self::F16,
            "BF16" => Self::Bf16,
            "F8_E4M3" => Self::F8E4M3,
            "F8_E5M2" => Self::F8E5M2,
            "U8" => Self::U8,
            "BOOL" | "I8" | "F8_E8M0" => Self::Other(1),
            "I16" | "U16" => Self::Other(2),
            "I32" | "U32" => Self::Other(4),
            "I64" | "U64" | "C64" => Self::Other(8),
            _ => return None,
        })
    }

    pub fn bytes(self) -> u64 {
        match self {
            Self::F64 => 8,
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::F8E4M3 | Self::F8E5M2 | Self::U8 => 1,
            Self::Other(bytes) => bytes,
        }
    }
}

/// One tensor of a file.
#[derive(Debug)]
pub(crate) struct Stored {
    pub name: String,
    pub dtype: Dtype,
    /// Sizes, the one that varies fastest last.
    pub dims: Vec<u64>,
    /// Its bytes in the file.
    range: Range<usize>,
}

impl Stored {
    /// How many numbers it has.
    pub fn elements(&self) -> u64 {
        (self.range.len() as u64) / self.dtype.bytes()
    }
}

/// One file, open.
#[derive(Debug)]
pub(crate) struct Shard {
    file: Mapped,
    /// In the order of the header.
    pub tensors: Vec<Stored>,
}

/// What the header says of a tensor.
#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    dtype: Cow<'a, str>,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The header's entries, in order.
struct Entries<'a>(Vec<(String, Entry<'a>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<'de>, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<serde::de::IgnoredAny>()?;
                        continue;
                    }
                    let entry = map
                        .next_value()
                        .map_err(|e| serde::de::Error::custom(format!("tensor {}: {e}", shown(&name))))?;
                    entries.push((name, entry));
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Visit)
    }
}

impl Shard {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// [`Error::File`] where it cannot be read, [`Error::Header`], and [`Error::Tensor`] for a tensor whose description
    /// cannot be true.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = Mapped::open(path)?;
        let len = file.bytes().len() as u64;
        let fault = |what: String| Error::Header { path: path.into(), what };
        let mut first = [0; 8];
        if len < 8 {
            return Err(fault(format!("{len} bytes, too few for a safetensors file")));
        }
        file.read_at(0, &mut first)?;
        let header = u64::from_le_bytes(first);
        if header > MAX_HEADER {
            return Err(fault(format!(
                "a header of {header} bytes is claimed, more than any safetensors file has: it is none, or damaged"
            )));
        }
        if header > len - 8 {
            return Err(fault(format!("a header of {header} bytes is claimed, but only {} follow", len - 8)));
        }
        // Both bounded by the file's length.
        let (data_start, data_len) = (8 + header, len - 8 - header);
        let mut text = vec![0; header as usize];
        file.read_at(8, &mut text)?;
        let text = std::str::from_utf8(&text).map_err(|_| fault("the header is not UTF-8".into()))?;
        let Entries(entries) = serde_json::from_str(text).map_err(|e| fault(format!("the header: {e}")))?;
        let mut tensors = Vec::with_capacity(entries.len());
        let mut names = HashSet::new();
        for (name, entry) in &entries {
            if !names.insert(name.as_str()) {
                return Err(Error::tensor(name, format!("{path:?} has it twice")));
            }
            tensors.push(stored(name, entry, data_start, data_len)?);
        }
        check_cover(&tensors, data_start as usize, len as usize, path)?;
        Ok(Self { file, tensors })
    }

    /// The numbers of a tensor of this file, as stored; [`Mapped`] says what may happen to them.
    ///
    /// # Errors
    /// [`cera_gguf::Error::Changed`] where the file is shorter now.
    pub fn bytes(&self, t: &Stored) -> Result<&[u8], cera_gguf::Error> {
        // A file cut since it was opened would end the program where its pages are touched.
        self.file.check_len()?;
        Ok(self.file.bytes().get(t.range.clone()).unwrap_or_default())
    }

    /// The tensor's pages may leave memory.
    pub fn release(&self, t: &Stored) {
        self.file.release(t.range.clone());
    }
}

fn stored(name: &str, entry: &Entry<'_>, data_start: u64, data_len: u64) -> Result<Stored, Error> {
    let fault = |what: String| Error::tensor(name, what);
    let dtype = Dtype::of(&entry.dtype)
        .ok_or_else(|| fault(format!("type {} is not supported", shown(&entry.dtype))))?;
    if entry.shape.len() > MAX_DIMS {
        return Err(fault(format!("{} dimensions, more than {MAX_DIMS}", entry.shape.len())));
    }
    let (from, to) = entry.data_offsets;
    if from > to || to > data_len {
        return Err(fault(format!("bytes {from} to {to} of the data, which has {data_len}")));
    }
    let elements = entry.shape.iter().try_fold(1u64, |n, &dim| n.checked_mul(dim));
    let bytes = elements.and_then(|n| n.checked_mul(dtype.bytes()));
    if bytes != Some(to - from) {
        let shape = &entry.shape;
        return Err(fault(format!("{shape:?} of {} do not take {} bytes", entry.dtype, to - from)));
    }
    let place = |at: u64| (data_start + at) as usize;
    Ok(Stored { name: name.into(), dtype, dims: entry.shape.clone(), range: place(from)..place(to) })
}

/// Checks that tensors cover the data without a hole and without sharing a byte.
fn check_cover(tensors: &[Stored], start: usize, end: usize, path: &Path) -> Result<(), Error> {
    let mut order: Vec<&Stored> = tensors.iter().collect();
    order.sort_by_key(|t| (t.range.start, t.range.end));
    let mut at = start;
    for t in order {
        if t.range.start != at {
            let what =
                if t.range.start < at { "shares bytes with another" } else { "leaves a hole before it" };
            return Err(Error::tensor(&t.name, format!("{what}, at {} of {path:?}", t.range.start - start)));
        }
        at = t.range.end;
    }
    if at != end {
        return Err(Error::Header {
            path: path.into(),
            what: format!("{} bytes behind the last tensor", end - at),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(header: &str, data: &[u8]) -> Result<Shard, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat();
        std::fs::write(&path, bytes).unwrap();
        Shard::open(&path)
    }

    fn fault(header: &str, data: &[u8]) -> String {
        open(header, data).unwrap_err().to_string()
    }

    #[test]
    fn tensors_are_their_bytes() {
        let header = r#"{"__metadata__":{"format":"pt"},
            "b":{"dtype":"F16","shape":[2],"data_offsets":[4,8]},"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}}"#;
        let shard = open(header, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        let names: Vec<&str> = shard.tensors.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["b", "a"]);
        assert_eq!(shard.bytes(&shard.tensors[0]).unwrap(), [5, 6, 7, 8]);
        assert_eq!((shard.tensors[0].elements(), shard.tensors[1].dims.as_slice()), (2, [1, 1].as_slice()));
    }

    #[test]
    fn what_cannot_be_true_is_refused_by_name() {
        let one = |rest: &str| format!(r#"{{"the one":{{{rest}}}}}"#);
        for (rest, what) in [
            (r#""dtype":"F32","shape":[2],"data_offsets":[0,4]"#, "do not take 4 bytes"),
            (r#""dtype":"F32","shape":[1],"data_offsets":[4,8]"#, "which has 4"),
            (r#""dtype":"F32","shape":[1],"data_offsets":[4,0]"#, "bytes 4 to 0"),
            (r#""dtype":"F4","shape":[1],"data_offsets":[0,4]"#, "type \"F4\" is not supported"),
            (r#""dtype":"F32","shape":[4294967296,4294967296,16],"data_offsets":[0,4]"#, "do not take"),
            (r#""dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]"#, "9 dimensions"),
            (r#""dtype":"F32","shape":[-1],"data_offsets":[0,4]"#, "invalid value"),
            (r#""dtype":"F32","shape":[1]"#, "missing field"),
        ] {
            let said = fault(&one(rest), &[0; 4]);
            assert!(said.contains("the one") && said.contains(what), "{rest}: {said}");
        }
        let twice = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
        assert!(fault(twice, &[0; 2]).contains("\"a\""));
        let shared = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}"#;
        assert!(fault(shared, &[0; 3]).contains("\"b\": shares bytes"));
        let hole = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
        assert!(fault(hole, &[0; 2]).contains("hole"));
        assert!(fault(r#"{}"#, &[0]).contains("1 bytes behind"));
        assert!(fault("[]", &[]).contains("tensors by name"));
    }

    #[test]
    fn lengths_are_compared_with_the_file_before_anything_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        for (bytes, what) in [
            (vec![1, 2], "2 bytes, too few"),
            (u64::MAX.to_le_bytes().to_vec(), "a header of 18446744073709551615 bytes"),
            ([&9u64.to_le_bytes()[..], b"{}"].concat(), "only 2 follow"),
            ([&2u64.to_le_bytes()[..], &[0xff, 0xfe]].concat(), "not UTF-8"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let said = Shard::open(&path).unwrap_err().to_string();
            assert!(said.contains(what), "{said}");
        }
    }
}
