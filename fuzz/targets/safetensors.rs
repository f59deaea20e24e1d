//! Any bytes as `config.json`, a NUL, and a safetensors file: a folder that opens gives every row that it says it has.
#![no_main]

use std::sync::LazyLock;

use cera_convert::{Floats, Folder};
use cera_gguf::Checkpoint;
use libfuzzer_sys::fuzz_target;

static PLACE: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

fuzz_target!(|bytes: &[u8]| {
    let Some(end) = bytes.iter().position(|&b| b == 0) else { return };
    let folder = PLACE.path();
    std::fs::write(folder.join("config.json"), &bytes[..end]).expect("written");
    std::fs::write(folder.join("model.safetensors"), &bytes[end + 1..]).expect("written");
    let Ok(folder) = Folder::open(folder, Floats::Stored) else { return };
    for t in folder.tensors() {
        let rows = folder.rows(t, 0, t.rows()).expect("rows that it has");
        assert_eq!(rows.len() as u64, t.bytes);
        folder.release(t);
    }
    let _ = cera_arch::build(&folder);
});
