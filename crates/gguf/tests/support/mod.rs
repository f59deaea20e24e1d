//! A writer that can lie, and the files that must be refused.
#![allow(dead_code, reason = "each test program uses its part")]

pub mod cases;

/// Type numbers of metadata values, from the specification.
pub mod kind {
    pub const U8: u32 = 0;
    pub const I8: u32 = 1;
    pub const U16: u32 = 2;
    pub const I16: u32 = 3;
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const STRING: u32 = 8;
    pub const ARRAY: u32 = 9;
    pub const U64: u32 = 10;
    pub const I64: u32 = 11;
}

/// A file in pieces. Each piece goes out as it is, true or not.
#[derive(Clone)]
pub struct Lie {
    pub magic: [u8; 4],
    pub version: [u8; 4],
    /// The counts claimed; the true ones where `None`.
    pub tensor_count: Option<u64>,
    pub key_count: Option<u64>,
    pub keys: Vec<Vec<u8>>,
    pub tensors: Vec<Vec<u8>>,
    pub alignment: usize,
    pub data: Vec<u8>,
}

impl Default for Lie {
    fn default() -> Self {
        Self {
            magic: *b"GGUF",
            version: 3u32.to_le_bytes(),
            tensor_count: None,
            key_count: None,
            keys: Vec::new(),
            tensors: Vec::new(),
            alignment: 32,
            data: Vec::new(),
        }
    }
}

impl Lie {
    pub fn version(mut self, version: u32) -> Self {
        self.version = version.to_le_bytes();
        self
    }

    /// A key of a type number and the bytes of its value.
    pub fn key(mut self, name: &str, kind: u32, value: &[u8]) -> Self {
        self.keys.push([&string(name.as_bytes()), &kind.to_le_bytes()[..], value].concat());
        self
    }

    pub fn tensor(mut self, name: &str, dims: &[u64], ty: u32, offset: u64) -> Self {
        let mut t = string(name.as_bytes());
        t.extend((dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|d| t.extend(d.to_le_bytes()));
        t.extend(ty.to_le_bytes());
        t.extend(offset.to_le_bytes());
        self.tensors.push(t);
        self
    }

    /// Bytes of tensor data.
    pub fn data(mut self, len: usize) -> Self {
        self.data = (0..len).map(|i| i as u8).collect();
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.magic);
        out.extend(self.version);
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.key_count.unwrap_or(self.keys.len() as u64).to_le_bytes());
        out.extend(self.keys.concat());
        out.extend(self.tensors.concat());
        if !self.data.is_empty() {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            out.extend(&self.data);
        }
        out
    }
}

/// A string with its true length.
pub fn string(bytes: &[u8]) -> Vec<u8> {
    claimed(bytes.len() as u64, bytes)
}

/// A string with the length that it claims.
pub fn claimed(len: u64, bytes: &[u8]) -> Vec<u8> {
    [&len.to_le_bytes()[..], bytes].concat()
}

/// An array with the item count that it claims.
pub fn array(kind: u32, count: u64, items: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &count.to_le_bytes()[..], items].concat()
}
