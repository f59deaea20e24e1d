//! Files that must be refused, each with the error that names the thing, and odd ones that must load.

mod support;

use std::time::{Duration, Instant};

use cera_gguf::{Error, Gguf};
use cera_quant::Type;
use support::cases::refused;
use support::{Lie, array, kind, string};

/// Runs the cases of a fault; `count` guards against one that lost its cases.
fn all_refused(fault: &str, count: usize) {
    let cases: Vec<_> = refused().into_iter().filter(|case| case.fault == fault).collect();
    assert_eq!(cases.len(), count, "cases of {fault}");
    for case in cases {
        let start = Instant::now();
        let error = match Gguf::from_bytes(case.bytes) {
            Ok(_) => panic!("{}: loaded", case.what),
            Err(error) => error,
        };
        assert!((case.right)(&error), "{}: {error:?}", case.what);
        let message = error.to_string();
        assert!(message.contains(case.says), "{}: {message}", case.what);
        assert!(message.chars().all(|c| !c.is_control()), "{}: {message:?}", case.what);
        assert!(start.elapsed() < Duration::from_secs(1), "{}: {:?}", case.what, start.elapsed());
    }
}

#[test]
fn what_is_no_gguf_file_is_refused() {
    all_refused("magic", 10);
}

#[test]
fn other_versions_are_refused() {
    all_refused("version", 4);
}

#[test]
fn counts_that_the_file_cannot_hold_are_refused() {
    all_refused("counts", 6);
}

#[test]
fn strings_longer_than_the_file_are_refused() {
    all_refused("strings", 10);
}

#[test]
fn keys_without_a_good_name_or_given_twice_are_refused() {
    all_refused("keys", 4);
}

#[test]
fn values_that_are_none_are_refused() {
    all_refused("value types", 11);
}

#[test]
fn alignments_that_are_none_are_refused() {
    all_refused("alignment", 6);
}

#[test]
fn an_alignment_stored_as_u64_loads() {
    for alignment in [8usize, 16, 32, 64] {
        let lie = Lie { alignment, ..Lie::default() }
            .key("general.alignment", kind::U64, &(alignment as u64).to_le_bytes())
            .tensor("a", &[1], 0, 0)
            .tensor("b", &[1], 0, alignment as u64)
            .data(alignment + 4);
        let file = Gguf::from_bytes(lie.bytes()).unwrap();
        assert_eq!(file.alignment(), alignment as u64);
        assert_eq!(file.data_start() % alignment as u64, 0);
        let b = file.tensor("b").unwrap();
        assert_eq!(file.tensor_bytes(b), &lie.data[alignment..]);
    }
}

#[test]
fn dimensions_that_no_file_holds_are_refused() {
    all_refused("dimensions", 8);
}

#[test]
fn tensors_out_of_place_are_refused() {
    all_refused("offsets", 10);
}

#[test]
fn gaps_and_any_order_load() {
    let lie = Lie::default().tensor("late", &[8], 0, 96).tensor("early", &[2, 4], 0, 32).data(128);
    let file = Gguf::from_bytes(lie.bytes()).unwrap();
    assert_eq!(file.tensor_bytes(&file.tensors()[0]), &lie.data[96..128]);
    assert_eq!(file.tensor_bytes(&file.tensors()[1]), &lie.data[32..64]);
}

#[test]
fn tensor_types_that_are_unknown_are_named_by_number_and_dropped_ones_by_name() {
    all_refused("tensor types", 7);
}

/// Whether a type can be run is the loader's question: the reader lists all that have a name.
#[test]
fn all_types_that_have_a_name_are_listed() {
    for &ty in Type::ALL {
        let file = Lie::default().tensor("w", &[ty.block_len() as u64], ty.id(), 0).data(ty.block_bytes());
        let file = Gguf::from_bytes(file.bytes()).unwrap();
        assert_eq!(file.tensors()[0].ty, ty);
        assert_eq!(file.tensors()[0].bytes, ty.block_bytes() as u64);
    }
}

#[test]
fn rows_that_are_not_whole_blocks_are_refused() {
    all_refused("blocks", 2);
}

#[test]
fn integers_are_read_whatever_their_width_and_sign() {
    let file = Lie::default()
        .key("u8", kind::U8, &[7])
        .key("i8", kind::I8, &[7])
        .key("u16", kind::U16, &7u16.to_le_bytes())
        .key("i16", kind::I16, &7i16.to_le_bytes())
        .key("u32", kind::U32, &7u32.to_le_bytes())
        .key("i32", kind::I32, &7i32.to_le_bytes())
        .key("u64", kind::U64, &7u64.to_le_bytes())
        .key("i64", kind::I64, &7i64.to_le_bytes())
        .key("minus", kind::I32, &(-7i32).to_le_bytes())
        .key("large", kind::U64, &(1u64 << 32).to_le_bytes())
        .key("many", kind::ARRAY, &array(kind::I16, 2, &[7, 0, 8, 0]))
        .key("mixed", kind::ARRAY, &array(kind::I8, 2, &[7, 0xff]))
        .key("float", kind::F32, &7f32.to_le_bytes());
    let file = Gguf::from_bytes(file.bytes()).unwrap();
    let m = file.metadata();
    for key in ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"] {
        assert_eq!(m.u32(key).unwrap(), Some(7), "{key}");
        assert_eq!(m.u64(key).unwrap(), Some(7), "{key}");
        assert_eq!(m.i32(key).unwrap(), Some(7), "{key}");
        assert_eq!(m.need::<usize>(key).unwrap(), 7, "{key}");
    }
    assert_eq!(m.i32("minus").unwrap(), Some(-7));
    assert_eq!(m.u64("large").unwrap(), Some(1 << 32));
    assert_eq!(m.u32s("many").unwrap().unwrap()[..], [7, 8]);
    assert_eq!(m.i32s("mixed").unwrap().unwrap()[..], [7, -1]);

    let says = |error: Error| error.to_string();
    assert_eq!(says(m.u32("minus").unwrap_err()), "key \"minus\" is -7, which is out of range for u32");
    assert_eq!(
        says(m.u32("large").unwrap_err()),
        "key \"large\" is 4294967296, which is out of range for u32"
    );
    assert_eq!(says(m.u32s("mixed").unwrap_err()), "key \"mixed\" is -1, which is out of range for u32");
    assert_eq!(says(m.u32("float").unwrap_err()), "key \"float\" is f32, not u32");
    assert_eq!(says(m.u32("many").unwrap_err()), "key \"many\" is array of i16, not u32");
    assert_eq!(says(m.str("u8").unwrap_err()), "key \"u8\" is u8, not string");
    assert_eq!(says(m.need::<u32>("none").unwrap_err()), "key \"none\" is missing");
    assert_eq!(m.u32("none").unwrap(), None);
}

#[test]
fn a_hundred_thousand_unknown_keys_load_within_a_second() {
    let value = string(&[b'x'; 170]);
    let mut lie =
        (0..100_000).fold(Lie::default(), |lie, i| lie.key(&format!("unknown.{i:06}"), kind::STRING, &value));
    lie = lie.tensor("w", &[8], 0, 0).data(32);
    let bytes = lie.bytes();
    assert!(bytes.len() > 20_000_000);
    let start = Instant::now();
    let file = Gguf::from_bytes(bytes).unwrap();
    let took = start.elapsed();
    assert_eq!(file.metadata().len(), 100_000);
    assert_eq!(file.metadata().str("unknown.099999").unwrap().unwrap().len(), 170);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// A sparse file costs nothing to make; the header's bound keeps it from costing memory to read.
#[test]
fn a_sparse_file_of_a_terabyte_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse.gguf");
    let lie = Lie::default().key("k", kind::ARRAY, &array(kind::U8, 1 << 39, &[]));
    std::fs::write(&path, lie.bytes()).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    let start = Instant::now();
    let error = Gguf::open(&path).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(1));
    assert!(
        matches!(&error, Error::HeaderTooLarge { place: cera_gguf::Place::Value(key) } if key == "k"),
        "{error:?}"
    );
}

/// A long hostile name does not fill the screen.
#[test]
fn names_are_cut_in_messages() {
    let name = "\u{1b}[2J".repeat(5_000);
    let error = Gguf::from_bytes(Lie::default().key(&name, 13, &[0; 8]).bytes()).unwrap_err();
    let message = error.to_string();
    assert!(message.len() < 1_000, "{}", message.len());
    assert!(message.contains("(20000 bytes)") && !message.contains('\u{1b}'), "{message}");
}
