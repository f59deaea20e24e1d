//! Files that must be refused, by what is wrong with them.

use cera_gguf::{Error, Place};

use super::{Lie, array, claimed, kind, string};

/// A file that must be refused.
pub struct Case {
    /// What is wrong with it, and with others like it.
    pub fault: &'static str,
    pub what: &'static str,
    pub bytes: Vec<u8>,
    /// Whether the error is the right one, and names the right thing.
    pub right: fn(&Error) -> bool,
    /// What the message must say.
    pub says: &'static str,
}

const F32: u32 = 0;
const Q4_0: u32 = 2;
const Q4_K: u32 = 12;

/// Every case.
pub fn refused() -> Vec<Case> {
    let mut cases = Vec::new();
    macro_rules! rows {
        ($($fault:literal { $($what:literal, $bytes:expr, $pattern:pat $(if $guard:expr)?, $says:literal;)* })*) => {$(
            $(cases.push(Case {
                fault: $fault,
                what: $what,
                bytes: $bytes,
                right: |error| matches!(error, $pattern $(if $guard)?),
                says: $says,
            });)*
        )*};
    }
    let file = Lie::default;
    // One tensor of 8 floats, and the data for it.
    let tensor = |dims: &[u64], ty, offset| Lie::default().tensor("w", dims, ty, offset).data(32).bytes();
    let key = |kind, value: &[u8]| Lie::default().key("k", kind, value).bytes();
    let align = |kind, value: &[u8]| Lie::default().key("general.alignment", kind, value).bytes();
    let counts = |tensors, keys| Lie { tensor_count: tensors, key_count: keys, ..file() }.bytes();
    let raw_key = |name: Vec<u8>| {
        let value = [&kind::U8.to_le_bytes()[..], &[1]].concat();
        Lie { keys: vec![[name, value].concat()], ..file() }.bytes()
    };
    rows! {
        "magic" {
            "empty", vec![], Error::TooShort { len: 0 }, "not a GGUF file: 0 bytes";
            "3 bytes", b"GGU".to_vec(), Error::TooShort { len: 3 }, "not a GGUF file: 3 bytes";
            "magic only", b"GGUF".to_vec(), Error::TooShort { len: 4 }, "not a GGUF file: 4 bytes";
            "magic and version only", file().bytes()[..8].to_vec(), Error::TooShort { len: 8 }, "8 bytes";
            "cut in the counts", file().bytes()[..23].to_vec(), Error::TooShort { len: 23 }, "23 bytes";
            "another magic", Lie { magic: *b"ggml", ..file() }.bytes(),
                Error::NotGguf { magic } if magic == b"ggml", "not a GGUF file: it starts with \"ggml\"";
            "magic that cannot be printed", Lie { magic: *b"PK\x03\n", ..file() }.bytes(),
                Error::NotGguf { .. }, r#"starts with "PK\x03\n""#;
            "magic swapped", Lie { magic: *b"FUGG", ..file() }.bytes(),
                Error::BigEndian, "big-endian GGUF is not supported";
            "version 3 swapped", Lie { version: 3u32.to_be_bytes(), ..file() }.bytes(),
                Error::BigEndian, "big-endian GGUF is not supported";
            "version 2 swapped", Lie { version: 2u32.to_be_bytes(), ..file() }.bytes(),
                Error::BigEndian, "big-endian GGUF is not supported";
        }
        "version" {
            "version 0", file().version(0).bytes(), Error::Version { version: 0 }, "version 0";
            "version 1", file().version(1).bytes(), Error::Version { version: 1 }, "version 1";
            "version 4", file().version(4).bytes(), Error::Version { version: 4 }, "version 4";
            "version 2^31", file().version(1 << 31).bytes(),
                Error::Version { version: 0x8000_0000 }, "version 2147483648";
        }
        "counts" {
            "2^63 tensors", counts(Some(1 << 63), None),
                Error::Count { what: "tensors", count: 0x8000_0000_0000_0000, .. }, "9223372036854775808 tensors";
            "2^63 keys", counts(None, Some(1 << 63)),
                Error::Count { what: "keys", count: 0x8000_0000_0000_0000, .. }, "9223372036854775808 keys";
            "2^32 tensors", counts(Some(1 << 32), None),
                Error::Count { what: "tensors", count: 0x1_0000_0000, .. }, "4294967296 tensors";
            "2^32 keys", counts(None, Some(1 << 32)),
                Error::Count { what: "keys", count: 0x1_0000_0000, .. }, "4294967296 keys";
            // 33 bytes are left: the second count, then a description of 25, the smallest there is.
            "one tensor more than fit", Lie { tensor_count: Some(2), ..file().tensor("w", &[], F32, 0) }.bytes(),
                Error::Count { what: "tensors", count: 2, left: 33, limit: 1 }, "at most 1";
            "one key more than fit", Lie { key_count: Some(2), ..file().key("k", kind::U8, &[1]) }.bytes(),
                Error::Count { what: "keys", count: 2, left: 14, limit: 1 }, "at most 1";
        }
        "strings" {
            "value string of 2^64-1 bytes", key(kind::STRING, &claimed(u64::MAX, b"abc")),
                Error::StringLength { place: Place::Value(key), offset: 37, len: u64::MAX, left: 3 } if key == "k",
                "the value of key \"k\", at offset 37, is a string of 18446744073709551615 bytes";
            "value string of 2^63 bytes", key(kind::STRING, &claimed(1 << 63, b"abc")),
                Error::StringLength { place: Place::Value(key), offset: 37, .. } if key == "k", "key \"k\"";
            "value string one past the end", key(kind::STRING, &claimed(4, b"abc")),
                Error::StringLength { place: Place::Value(key), offset: 37, len: 4, left: 3 } if key == "k",
                "only 3 are left";
            "key of 2^64-1 bytes", raw_key(claimed(u64::MAX, b"k")),
                Error::StringLength { place: Place::Key(0), offset: 24, .. }, "the name of key 0, at offset 24";
            "key of 2^63 bytes", raw_key(claimed(1 << 63, b"k")),
                Error::StringLength { place: Place::Key(0), offset: 24, .. }, "the name of key 0, at offset 24";
            "key one past the end", raw_key(claimed(7, b"k")),
                Error::StringLength { place: Place::Key(0), offset: 24, len: 7, left: 6 }, "only 6 are left";
            "array item of 2^64-1 bytes",
                key(kind::ARRAY, &array(kind::STRING, 2, &[string(b"a"), claimed(u64::MAX, b"")].concat())),
                Error::StringLength { place: Place::Element(key, 1), offset: 58, .. } if key == "k",
                "item 1 of key \"k\", at offset 58";
            "tensor name one past the end", Lie { tensors: vec![claimed(18, &[b'w'; 17])], ..file() }.bytes(),
                Error::StringLength { place: Place::TensorName(0), offset: 24, .. }, "the name of tensor 0";
            "value string that is not UTF-8", key(kind::STRING, &string(b"a\xff")),
                Error::NotUtf8 { place: Place::Value(key), offset: 37 } if key == "k", "key \"k\", at offset 37";
            "file cut in a number", key(kind::U32, &[1, 2, 3]),
                Error::Truncated { place: Place::Value(key), offset: 37, need: 4, left: 3 } if key == "k",
                "the value of key \"k\", at offset 37";
        }
        "keys" {
            "empty key", raw_key([string(b""), vec![0]].concat()),
                Error::NameLength { place: Place::Key(0), offset: 24, len: 0 }, "the name of key 0";
            "key not UTF-8", raw_key(string(b"\xc3\x28")),
                Error::NotUtf8 { place: Place::Key(0), offset: 24 }, "the name of key 0, at offset 24, is not UTF-8";
            "key of 70,000 bytes", raw_key(string(&[b'k'; 70_000])),
                Error::NameLength { place: Place::Key(0), len: 70_000, .. }, "70000 bytes";
            "key given twice",
                file().key("a", kind::U8, &[1]).key("two\nlines", kind::U8, &[1]).key("two\nlines", kind::I8, &[2]).bytes(),
                Error::DuplicateKey { key } if key == "two\nlines", r#"key "two\nlines" is given twice"#;
        }
        "value types" {
            "value type 13", key(13, &[0; 8]),
                Error::ValueType { key, offset: 33, id: 13 } if key == "k", "key \"k\", at offset 33, has value type 13";
            "value type 255", key(255, &[0; 8]),
                Error::ValueType { key, id: 255, .. } if key == "k", "value type 255";
            "item type 13", key(kind::ARRAY, &array(13, 1, &[0; 8])),
                Error::ValueType { key, offset: 37, id: 13 } if key == "k", "value type 13";
            "array of arrays", key(kind::ARRAY, &array(kind::ARRAY, 1, &array(kind::U8, 1, &[1]))),
                Error::NestedArray { key, offset: 37 } if key == "k", "key \"k\", at offset 37, is an array of arrays";
            "array of 2^61 bytes", key(kind::ARRAY, &array(kind::U8, 1 << 61, &[1])),
                Error::ArrayLength { key, offset: 41, count: 0x2000_0000_0000_0000, left: 1 } if key == "k",
                "array of 2305843009213693952 items, but only 1 bytes";
            "array of 2^61 numbers of 8 bytes, which wraps to 0", key(kind::ARRAY, &array(kind::U64, 1 << 61, &[1])),
                Error::ArrayLength { key, .. } if key == "k", "only 1 bytes";
            "array of 2^61 truth values", key(kind::ARRAY, &array(kind::BOOL, 1 << 61, &[1])),
                Error::ArrayLength { key, .. } if key == "k", "only 1 bytes";
            "array of 2^61 strings, which wraps to 0", key(kind::ARRAY, &array(kind::STRING, 1 << 61, &[1])),
                Error::ArrayLength { key, .. } if key == "k", "only 1 bytes";
            "array of strings cut in the middle",
                key(kind::ARRAY, &array(kind::STRING, 2, &[string(b"whole"), claimed(5, b"cu")].concat())),
                Error::StringLength { place: Place::Element(key, 1), len: 5, left: 2, .. } if key == "k",
                "item 1 of key \"k\"";
            "truth value 2", key(kind::BOOL, &[2]),
                Error::Bool { place: Place::Value(key), offset: 37, value: 2 } if key == "k", "key \"k\"";
            "truth value 2 in an array", key(kind::ARRAY, &array(kind::BOOL, 3, &[0, 1, 2])),
                Error::Bool { place: Place::Element(key, 2), offset: 51, value: 2 } if key == "k", "item 2 of key \"k\"";
        }
        "alignment" {
            "alignment 0", align(kind::U32, &0u32.to_le_bytes()),
                Error::Alignment { alignment: 0 }, "general.alignment is 0";
            "alignment 3", align(kind::U32, &3u32.to_le_bytes()),
                Error::Alignment { alignment: 3 }, "general.alignment is 3";
            "alignment 2^31", align(kind::U32, &(1u32 << 31).to_le_bytes()),
                Error::Alignment { alignment: 0x8000_0000 }, "general.alignment is 2147483648";
            "alignment 2^63", align(kind::U64, &(1u64 << 63).to_le_bytes()),
                Error::Alignment { alignment: 0x8000_0000_0000_0000 }, "general.alignment is 9223372036854775808";
            "alignment -32", align(kind::I32, &(-32i32).to_le_bytes()),
                Error::OutOfRange { key, value, .. } if key == "general.alignment" && value == "-32",
                "general.alignment\" is -32";
            "alignment as a string", align(kind::STRING, &string(b"32")),
                Error::WrongType { key, wanted: "u64", found: "string" } if key == "general.alignment",
                "key \"general.alignment\" is string, not u64";
        }
        "dimensions" {
            "5 dimensions", tensor(&[1, 1, 1, 1, 1], F32, 0),
                Error::Dimensions { tensor, count: 5 } if tensor == "w", "tensor \"w\" has 5 dimensions";
            "2^32-1 dimensions",
                Lie { tensors: vec![[string(b"w"), vec![0xff; 40]].concat()], ..file() }.bytes(),
                Error::Dimensions { tensor, count: 0xffff_ffff } if tensor == "w", "tensor \"w\" has 4294967295";
            "a dimension of 0", tensor(&[8, 0], F32, 0),
                Error::ZeroDimension { tensor, dims } if tensor == "w" && *dims == [8, 0], "tensor \"w\"";
            "row of 0", tensor(&[0], Q4_0, 0),
                Error::ZeroDimension { tensor, .. } if tensor == "w", "tensor \"w\"";
            "product that wraps to 0", tensor(&[1 << 32, 1 << 32], F32, 0),
                Error::TensorSize { tensor, .. } if tensor == "w", "tensor \"w\"";
            // (2^63 + 1) * 2 = 2 in 64 bits.
            "product that wraps to 2", tensor(&[(1 << 63) + 1, 2], F32, 0),
                Error::TensorSize { tensor, dims } if tensor == "w" && dims[1] == 2, "tensor \"w\"";
            "bytes that wrap to 4", tensor(&[(1 << 62) + 1], F32, 0),
                Error::TensorSize { tensor, .. } if tensor == "w", "tensor \"w\"";
            "product past the file", tensor(&[8, 2], F32, 0),
                Error::PastEnd { tensor, offset: 0, bytes: 64, available: 32 } if tensor == "w",
                "tensor \"w\" takes 64 bytes at 0 of the data, which has only 32";
        }
        "offsets" {
            "offset unaligned", file().tensor("w", &[1], F32, 4).data(32).bytes(),
                Error::Unaligned { tensor, offset: 4, alignment: 32 } if tensor == "w",
                "tensor \"w\" starts at 4 of the data, not a multiple of 32";
            "offset past the end", tensor(&[8], F32, 32),
                Error::PastEnd { tensor, offset: 32, .. } if tensor == "w", "tensor \"w\"";
            "offset that wraps", tensor(&[8], F32, u64::MAX - 31),
                Error::PastEnd { tensor, .. } if tensor == "w", "tensor \"w\"";
            "no data at all", file().tensor("w", &[1], F32, 0).bytes(),
                Error::PastEnd { tensor, available: 0, .. } if tensor == "w", "tensor \"w\"";
            "two tensors at one place",
                file().tensor("a", &[8], F32, 0).tensor("b", &[8], F32, 0).data(64).bytes(),
                Error::Overlap { first, second, offset: 0 } if first == "a" && second == "b",
                "tensors \"a\" and \"b\" overlap at 0";
            "a tensor in the middle of one listed later",
                file().tensor("in", &[8], F32, 64).tensor("x", &[8], F32, 0).tensor("out", &[32], F32, 32).data(160).bytes(),
                Error::Overlap { first, second, offset: 64 } if first == "out" && second == "in",
                "tensors \"out\" and \"in\" overlap at 64";
            "last tensor cut by one byte", file().tensor("a", &[8], F32, 0).tensor("b", &[8], F32, 32).data(63).bytes(),
                Error::PastEnd { tensor, offset: 32, bytes: 32, available: 63 } if tensor == "b", "tensor \"b\"";
            "a tensor given twice", file().tensor("a", &[8], F32, 0).tensor("a", &[8], F32, 32).data(64).bytes(),
                Error::DuplicateTensor { tensor } if tensor == "a", "tensor \"a\" is given twice";
            "a tensor without a name", file().tensor("", &[8], F32, 0).data(64).bytes(),
                Error::NameLength { place: Place::TensorName(0), len: 0, .. }, "the name of tensor 0";
            "a tensor's description cut", {
                let mut bytes = file().tensor("w", &[8], F32, 0).bytes();
                bytes.pop();
                bytes
            }, Error::Truncated { place: Place::Tensor(tensor), need: 8, left: 7, .. } if tensor == "w", "tensor \"w\"";
        }
        "tensor types" {
            "tensor type 4", tensor(&[32], 4, 0),
                Error::TensorType { tensor, id: 4 } if tensor == "w", "tensor \"w\" has type 4, Q4_2, which ggml dropped";
            "tensor type 5", tensor(&[32], 5, 0),
                Error::TensorType { tensor, id: 5 } if tensor == "w", "tensor \"w\" has type 5, Q4_3, which ggml dropped";
            "tensor type 31", tensor(&[32], 31, 0),
                Error::TensorType { tensor, id: 31 } if tensor == "w", "type 31, Q4_0_4_4, which ggml dropped";
            "tensor type 33", tensor(&[32], 33, 0),
                Error::TensorType { tensor, id: 33 } if tensor == "w", "type 33, Q4_0_8_8, which ggml dropped";
            "tensor type 37", tensor(&[32], 37, 0),
                Error::TensorType { tensor, id: 37 } if tensor == "w", "type 37, IQ4_NL_4_8, which ggml dropped";
            "tensor type 200", tensor(&[32], 200, 0),
                Error::TensorType { tensor, id: 200 } if tensor == "w", "tensor \"w\" has type 200, which is unknown";
            "tensor type 2^32-1", tensor(&[32], u32::MAX, 0),
                Error::TensorType { tensor, id: u32::MAX } if tensor == "w", "tensor \"w\" has type 4294967295";
        }
        "blocks" {
            "33 weights of Q4_0", tensor(&[33], Q4_0, 0),
                Error::RowBlocks { tensor, ty: "Q4_0", cols: 33, block: 32 } if tensor == "w",
                "tensor \"w\" is Q4_0 with rows of 33, not a multiple of its block of 32";
            // 2 x 128 is a whole block, but no row is.
            "rows of half a block of Q4_K", tensor(&[128, 2], Q4_K, 0),
                Error::RowBlocks { tensor, ty: "Q4_K", cols: 128, block: 256 } if tensor == "w", "block of 256";
        }
    }
    cases
}
