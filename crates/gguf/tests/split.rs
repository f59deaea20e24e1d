//! Models that are split over several files, as llama.cpp's `gguf-split` does it.

use std::fs;
use std::path::{Path, PathBuf};

use cera_gguf::{Checkpoint, Error, Gguf, Metadata, Writer};
use cera_quant::Type;

/// What a part is, which may be a lie.
#[derive(Clone, Copy)]
struct Part {
    no: u16,
    count: u64,
    tensors: i32,
}

fn name(no: usize, count: usize) -> String {
    format!("model-{:05}-of-{count:05}.gguf", no + 1)
}

/// A part that holds one tensor, `t{no}`, whose bytes are all `no`. The first has a key of the model's.
fn write(path: &Path, tensor: &str, part: Part) {
    let mut metadata = Metadata::new();
    if part.no == 0 {
        metadata.insert("general.architecture", "llama");
    }
    metadata.insert("split.no", part.no);
    metadata.insert("split.count", part.count);
    metadata.insert("split.tensors.count", part.tensors);
    let mut writer = Writer::new(metadata).unwrap();
    writer.tensor(tensor, Type::I8, &[4, 8]).unwrap();
    let mut body = writer.begin(fs::File::create(path).unwrap()).unwrap();
    body.write(&[part.no as u8; 32]).unwrap();
    body.finish().unwrap();
}

/// Three parts that belong together.
fn three(dir: &Path) -> [PathBuf; 3] {
    [0, 1, 2].map(|no: u16| {
        let path = dir.join(name(no.into(), 3));
        write(&path, &format!("t{no}"), Part { no, count: 3, tensors: 3 });
        path
    })
}

#[test]
fn any_part_opens_the_whole() {
    let dir = tempfile::tempdir().unwrap();
    let paths = three(dir.path());
    for path in &paths {
        let file = Gguf::open(path).unwrap();
        assert_eq!(file.parts(), 3);
        assert_eq!(file.path(), Some(paths[0].as_path()));
        let bytes: u64 = paths.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert_eq!(file.file_bytes(), bytes);
        // The model's keys alone: whoever copies them writes no part.
        assert_eq!(file.metadata().iter().map(|(key, _)| key).collect::<Vec<_>>(), ["general.architecture"]);
        let names: Vec<_> = file.tensors().iter().map(|t| (t.name.as_str(), t.part)).collect();
        assert_eq!(names, [("t0", 0), ("t1", 1), ("t2", 2)]);
        for (no, t) in file.tensors().iter().enumerate() {
            let no = no as u8;
            assert_eq!(file.tensor_bytes(file.tensor(&t.name).unwrap()), [no; 32]);
            let mut some = [9; 3];
            file.read_tensor(t, 29, &mut some).unwrap();
            assert_eq!(some, [no; 3]);
            assert_eq!(Checkpoint::rows(&file, t, 7, 1).unwrap().as_ref(), [no; 4]);
            let error = Checkpoint::rows(&file, t, 7, 2).unwrap_err();
            assert!(matches!(error, Error::Rows { first: 7, count: 2, rows: 8, .. }), "{error}");
            file.release(t);
        }
    }
}

#[test]
fn a_missing_part_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let paths = three(dir.path());
    fs::remove_file(&paths[1]).unwrap();
    for path in [&paths[0], &paths[2]] {
        let error = Gguf::open(path).unwrap_err();
        assert!(matches!(&error, Error::Io { path, .. } if *path == paths[1]), "{error}");
    }
}

#[test]
fn a_part_in_anothers_place_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let paths = three(dir.path());
    // Part 3 is a copy of part 1.
    fs::copy(&paths[0], &paths[2]).unwrap();
    for path in &paths {
        let error = Gguf::open(path).unwrap_err();
        // Opened by itself it is part 1 with part 3's name.
        assert!(error.to_string().contains("00003-of-00003"), "{error}");
        assert!(matches!(error, Error::SplitPart { .. } | Error::SplitName { part: 1, .. }), "{error}");
    }
    // A whole model in the place of a part.
    let mut body = Writer::new(Metadata::new()).unwrap().begin(fs::File::create(&paths[2]).unwrap()).unwrap();
    body.write(&[]).unwrap();
    body.finish().unwrap();
    let error = Gguf::open(&paths[0]).unwrap_err();
    assert!(matches!(&error, Error::SplitPart { path, .. } if *path == paths[2]), "{error}");
}

#[test]
fn counts_that_disagree_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let paths = three(dir.path());
    write(&paths[1], "t1", Part { no: 1, count: 4, tensors: 3 });
    let error = Gguf::open(&paths[0]).unwrap_err().to_string();
    assert!(error.contains("part 2 of 4") && error.contains("part 2 of 3"), "{error}");

    for (no, path) in paths.iter().enumerate() {
        write(path, &format!("t{no}"), Part { no: no as u16, count: 3, tensors: 5 });
    }
    let error = Gguf::open(&paths[1]).unwrap_err();
    assert!(matches!(error, Error::SplitTensors { claimed: 5, found: 3, parts: 3 }), "{error}");
}

#[test]
fn a_tensor_in_two_parts_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let paths = three(dir.path());
    write(&paths[2], "t0", Part { no: 2, count: 3, tensors: 3 });
    let error = Gguf::open(&paths[1]).unwrap_err();
    assert!(matches!(&error, Error::DuplicateTensor { tensor } if tensor == "t0"), "{error}");
}

#[test]
fn a_part_by_another_name_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let paths = three(dir.path());
    let other = dir.path().join("model.gguf");
    fs::copy(&paths[1], &other).unwrap();
    let error = Gguf::open(&other).unwrap_err().to_string();
    assert!(error.contains("part 2 of 3") && error.contains("-00002-of-00003.gguf"), "{error}");
    let error = Gguf::from_bytes(fs::read(&paths[1]).unwrap()).unwrap_err();
    assert!(matches!(error, Error::SplitName { part: 2, parts: 3, .. }), "{error}");
}

#[test]
fn parts_that_nobody_could_count_are_not_listed() {
    let dir = tempfile::tempdir().unwrap();
    for count in [1 << 32, u64::MAX] {
        let path = |no: u64| dir.path().join(format!("model-{no:05}-of-{count}.gguf"));
        write(&path(1), "t", Part { no: 0, count, tensors: -1 });
        let start = std::time::Instant::now();
        let error = Gguf::open(path(1)).unwrap_err();
        assert!(matches!(&error, Error::OutOfRange { key, .. } if key == "split.tensors.count"), "{error}");
        write(&path(1), "t", Part { no: 0, count, tensors: 1 });
        let error = Gguf::open(path(1)).unwrap_err();
        assert!(matches!(&error, Error::Io { path: p, .. } if *p == path(2)), "{error}");
        assert!(start.elapsed() < std::time::Duration::from_secs(1), "{:?}", start.elapsed());
    }
}

#[test]
fn numbers_of_parts_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name(5, 3));
    write(&path, "t", Part { no: 5, count: 3, tensors: 1 });
    let error = Gguf::open(&path).unwrap_err();
    assert!(matches!(&error, Error::OutOfRange { key, .. } if key == "split.no"), "{error}");

    // One part is no split, whatever its name.
    let whole = dir.path().join("whole.gguf");
    write(&whole, "t", Part { no: 0, count: 1, tensors: 1 });
    assert_eq!(Gguf::open(&whole).unwrap().parts(), 1);
}
