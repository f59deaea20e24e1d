//! What the writer writes, the reader reads; what anything else writes never makes the reader panic.

mod support;

use cera_gguf::{Array, Error, Gguf, Metadata, Value, Writer};
use cera_quant::Type;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use support::{Lie, kind};

/// Names and texts with what breaks parsers: quotes, newlines, zeros, long and non-Latin ones.
fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 1..40).prop_map(String::from_iter)
}

/// Numbers that equal themselves, so that values can be compared.
fn f32s() -> impl Strategy<Value = f32> {
    any::<f32>().prop_filter("a number", |v| !v.is_nan())
}

fn f64s() -> impl Strategy<Value = f64> {
    any::<f64>().prop_filter("a number", |v| !v.is_nan())
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        f32s().prop_map(Value::F32),
        f64s().prop_map(Value::F64),
        any::<bool>().prop_map(Value::Bool),
        text().prop_map(Value::String),
    ]
}

fn array() -> impl Strategy<Value = Value> {
    prop_oneof![
        vec(any::<u8>(), 0..9).prop_map(Array::U8),
        vec(any::<i8>(), 0..9).prop_map(Array::I8),
        vec(any::<u16>(), 0..9).prop_map(Array::U16),
        vec(any::<i16>(), 0..9).prop_map(Array::I16),
        // Longer than one piece of the reader's buffer.
        vec(any::<u32>(), 0..9000).prop_map(Array::U32),
        vec(any::<i32>(), 0..9).prop_map(Array::I32),
        vec(any::<u64>(), 0..9).prop_map(Array::U64),
        vec(any::<i64>(), 0..9).prop_map(Array::I64),
        vec(f32s(), 0..9).prop_map(Array::F32),
        vec(f64s(), 0..9).prop_map(Array::F64),
        vec(any::<bool>(), 0..9).prop_map(Array::Bool),
        vec(text(), 0..9).prop_map(Array::String),
    ]
    .prop_map(Value::Array)
}

/// A tensor's type and dimensions: whole blocks, one to four dimensions.
fn shape() -> impl Strategy<Value = (Type, Vec<u64>)> {
    (select(Type::ALL), 1..4u64, vec(1..4u64, 0..4)).prop_map(|(ty, blocks, more)| {
        let row = blocks * ty.block_len() as u64;
        (ty, [row].into_iter().chain(more).collect())
    })
}

proptest! {
    #[test]
    fn written_files_read_back(
        entries in vec((text(), prop_oneof![scalar(), array()]), 0..12),
        tensors in vec((text(), shape()), 0..6),
        alignment in select(vec![None, Some(8u32), Some(64), Some(4096)]),
        chunk in 1..500usize,
    ) {
        let mut metadata = Metadata::new();
        for (key, value) in entries {
            metadata.insert(key, value);
        }
        if let Some(alignment) = alignment {
            metadata.insert("general.alignment", alignment);
        }
        let mut writer = Writer::new(metadata.clone()).unwrap();
        let mut written = Vec::new();
        for (name, (ty, dims)) in tensors {
            match writer.tensor(&name, ty, &dims) {
                Ok(info) => written.push(info.clone()),
                Err(Error::DuplicateTensor { tensor }) => prop_assert_eq!(tensor, name),
                Err(error) => panic!("{error}"),
            }
        }
        let data: Vec<Vec<u8>> = written.iter().enumerate().map(|(i, t)| vec![i as u8 + 1; t.bytes as usize]).collect();
        let mut body = writer.begin(Vec::new()).unwrap();
        for data in &data {
            data.chunks(chunk).for_each(|chunk| body.write(chunk).unwrap());
        }
        let bytes = body.finish().unwrap();

        let file = Gguf::from_bytes(bytes).unwrap();
        prop_assert_eq!(file.version(), 3);
        prop_assert_eq!(file.alignment(), u64::from(alignment.unwrap_or(32)));
        prop_assert_eq!(file.file_bytes() % file.alignment(), 0);
        prop_assert!(file.metadata().iter().eq(metadata.iter()));
        prop_assert_eq!(file.tensors(), &written[..]);
        for (t, data) in written.iter().zip(&data) {
            prop_assert_eq!(file.tensor(&t.name), Some(t));
            prop_assert_eq!(file.tensor_bytes(t), &data[..]);
            prop_assert_eq!(t.cols() * t.rows(), t.dims.iter().product::<u64>());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn mutated_files_never_panic(
        changes in vec((any::<Index>(), prop_oneof![
            any::<u8>(), Just(0), Just(1), Just(0x7f), Just(0x80), Just(0xff),
        ]), 1..6),
        cut in prop_oneof![3 => Just(None), 1 => any::<Index>().prop_map(Some)],
    ) {
        let mut bytes = whole();
        // Most changes in the header, where they matter.
        let header = bytes.len() - 96;
        for (at, byte) in changes {
            bytes[at.index(header)] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        match Gguf::from_bytes(bytes) {
            Ok(file) => {
                for t in file.tensors() {
                    prop_assert_eq!(file.tensor_bytes(t).len() as u64, t.bytes);
                    prop_assert_eq!(file.tensor(&t.name), Some(t));
                    file.release(t);
                }
                for (key, value) in file.metadata().iter() {
                    prop_assert!(!value.to_string().chars().any(char::is_control));
                    let m = file.metadata();
                    let _ = (m.u32(key), m.i32s(key), m.f32s(key), m.strings(key), m.bool(key));
                }
            }
            Err(error) => prop_assert!(!error.to_string().chars().any(char::is_control)),
        }
    }

    #[test]
    fn noise_behind_a_good_start_never_panics(noise in vec(any::<u8>(), 0..300)) {
        let bytes = [&b"GGUF\x03\0\0\0"[..], &[2, 0, 0, 0, 0, 0, 0, 0], &[3, 0, 0, 0, 0, 0, 0, 0], &noise].concat();
        let _ = Gguf::from_bytes(bytes);
    }
}

/// A file with one of everything.
fn whole() -> Vec<u8> {
    Lie::default()
        .key("general.alignment", kind::U32, &32u32.to_le_bytes())
        .key("name", kind::STRING, &support::string(b"text"))
        .key("flag", kind::BOOL, &[1])
        .key("eps", kind::F32, &1e-5f32.to_le_bytes())
        .key(
            "tokens",
            kind::ARRAY,
            &support::array(
                kind::STRING,
                3,
                &[support::string(b"a"), support::string(b""), support::string(b"ccc")].concat(),
            ),
        )
        .key("types", kind::ARRAY, &support::array(kind::I32, 2, &[1, 0, 0, 0, 3, 0, 0, 0]))
        .key("flags", kind::ARRAY, &support::array(kind::BOOL, 2, &[0, 1]))
        .tensor("a", &[4, 2], 0, 0)
        .tensor("b", &[32, 1, 2], 2, 32)
        .data(96)
        .bytes()
}

/// The file that mutations start from is a good one, of either version.
#[test]
fn versions_2_and_3_load() {
    for version in [2, 3] {
        let mut bytes = whole();
        bytes[4] = version;
        let file = Gguf::from_bytes(bytes).unwrap();
        assert_eq!(file.version(), u32::from(version));
        assert_eq!((file.metadata().len(), file.tensors().len()), (7, 2));
        assert_eq!(file.tensors()[1].bytes, 2 * 18);
        assert_eq!(file.metadata().strings("tokens").unwrap().unwrap(), ["a", "", "ccc"]);
        assert_eq!(file.metadata().bools("flags").unwrap().unwrap(), [false, true]);
    }
}

/// Zero dimensions are a single number, as in ggml.
#[test]
fn a_single_number() {
    let file = Gguf::from_bytes(Lie::default().tensor("scale", &[], 0, 0).data(4).bytes()).unwrap();
    let t = &file.tensors()[0];
    assert_eq!((t.cols(), t.rows(), t.bytes), (1, 1, 4));
}

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let metadata = |key: &str, value: Value| {
        let mut metadata = Metadata::new();
        metadata.insert(key, value);
        metadata
    };
    let error = Writer::new(metadata("", Value::U8(1))).unwrap_err();
    assert!(matches!(error, Error::NameLength { len: 0, .. }), "{error:?}");
    let error = Writer::new(metadata("general.alignment", Value::U32(12))).unwrap_err();
    assert!(matches!(error, Error::Alignment { alignment: 12 }), "{error:?}");

    let mut writer = Writer::new(Metadata::new()).unwrap();
    writer.tensor("w", Type::F32, &[8]).unwrap();
    let error = writer.tensor("w", Type::F32, &[8]).unwrap_err();
    assert!(matches!(&error, Error::DuplicateTensor { tensor } if tensor == "w"), "{error:?}");
    let error = writer.tensor("x", Type::Q8_0, &[8]).unwrap_err();
    assert!(matches!(&error, Error::RowBlocks { tensor, block: 32, .. } if tensor == "x"), "{error:?}");
    let error = writer.tensor("y", Type::F32, &[1, 1, 1, 1, 1]).unwrap_err();
    assert!(matches!(&error, Error::Dimensions { tensor, count: 5 } if tensor == "y"), "{error:?}");
    let error = writer.tensor("", Type::F32, &[1]).unwrap_err();
    assert!(matches!(&error, Error::NameLength { len: 0, .. }), "{error:?}");
    // Each fits, both together do not.
    writer.tensor("large", Type::I8, &[i64::MAX as u64]).unwrap();
    let error = writer.tensor("larger", Type::I8, &[i64::MAX as u64]).unwrap_err();
    assert!(matches!(&error, Error::TensorSize { tensor, .. } if tensor == "larger"), "{error:?}");
}

#[test]
fn the_writer_counts_the_data() {
    let mut writer = Writer::new(Metadata::new()).unwrap();
    writer.tensor("w", Type::F32, &[8]).unwrap();
    let begin = || writer.clone().begin(Vec::new()).unwrap();

    let mut body = begin();
    body.write(&[0; 20]).unwrap();
    let error = body.write(&[0; 13]).unwrap_err();
    assert!(matches!(&error, Error::Surplus { tensor: Some(t), extra: 1 } if t == "w"), "{error:?}");
    assert_eq!(body.pending().map(|t| t.name.as_str()), Some("w"));
    let error = body.finish().unwrap_err();
    assert!(matches!(&error, Error::Unfinished { tensor, left: 12 } if tensor == "w"), "{error:?}");

    let mut body = begin();
    body.write(&[0; 32]).unwrap();
    assert!(body.pending().is_none());
    body.write(&[]).unwrap();
    let error = body.write(&[0]).unwrap_err();
    assert!(matches!(&error, Error::Surplus { tensor: None, extra: 1 }), "{error:?}");
    body.finish().unwrap();
}

#[test]
fn values_are_shown_on_one_line() {
    let show = |value: Value| value.to_string();
    assert_eq!(show(1e-5f32.into()), "0.00001");
    assert_eq!(show("two\nlines".into()), r#""two\nlines""#);
    assert_eq!(show(vec![1u8, 2].into()), "[1, 2]");
    assert_eq!(show(vec![String::from("a\t")].into()), r#"["a\t"]"#);
    assert_eq!(show(vec![0u32; 1000].into()), "[0, 0, 0, 0, 0, 0, 0, 0, … 1000 items]");
}
