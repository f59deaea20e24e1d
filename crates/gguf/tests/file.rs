//! Files on disk: mapping, what is no file, and files that change while they are open.

mod support;

use std::fs::{self, OpenOptions};
use std::path::PathBuf;

use cera_gguf::{Error, Gguf, Metadata, Place, Writer};
use cera_quant::Type;
use support::{Lie, kind};

const LEN: u64 = 1 << 20;

/// A file of two tensors of a megabyte each.
fn two(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("two.gguf");
    let mut writer = Writer::new(Metadata::new()).unwrap();
    writer.tensor("a", Type::I8, &[LEN]).unwrap();
    writer.tensor("b", Type::I8, &[1024, LEN / 1024]).unwrap();
    let mut body = writer.begin(fs::File::create(&path).unwrap()).unwrap();
    body.write(&vec![1; LEN as usize]).unwrap();
    body.write(&vec![2; LEN as usize]).unwrap();
    body.finish().unwrap();
    path
}

#[test]
fn a_file_is_mapped_as_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = two(&dir);
    let file = Gguf::open(&path).unwrap();
    assert_eq!(file.path(), Some(path.as_path()));
    assert_eq!(file.file_bytes(), fs::metadata(&path).unwrap().len());
    assert_eq!((file.version(), file.alignment()), (3, 32));
    let b = file.tensor("b").unwrap();
    assert_eq!((b.cols(), b.rows(), b.offset, b.bytes), (1024, LEN / 1024, LEN, LEN));
    assert_eq!(file.tensor_bytes(b), vec![2; LEN as usize]);
    assert_eq!(file.tensor_bytes(b).as_ptr() as usize % 32, 0);
    assert!(file.tensor("c").is_none());
    file.check_len().unwrap();

    let mut some = [0; 10];
    file.read_tensor(b, LEN - 10, &mut some).unwrap();
    assert_eq!(some, [2; 10]);
    let error = file.read_tensor(b, LEN - 9, &mut some).unwrap_err();
    assert!(matches!(&error, Error::Range { tensor, len: 10, bytes: LEN, .. } if tensor == "b"), "{error:?}");
}

/// Descriptions are public, so they can be made up: there are no bytes for them, and no panic.
#[test]
fn a_made_up_tensor_has_no_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = two(&dir);
    for file in [Gguf::open(&path).unwrap(), Gguf::from_bytes(fs::read(&path).unwrap()).unwrap()] {
        for (offset, bytes) in [(u64::MAX, 1), (0, u64::MAX), (u64::MAX, u64::MAX), (3 * LEN, 1)] {
            let mut t = file.tensors()[0].clone();
            (t.offset, t.bytes) = (offset, bytes);
            assert_eq!(file.tensor_bytes(&t), b"");
            file.release(&t);
            assert!(bytes == u64::MAX && offset == 0 || file.read_tensor(&t, 0, &mut [0]).is_err());
        }
    }
}

/// The system is told that the file is read from front to back, so that it reads ahead on slow disks.
#[cfg(target_os = "linux")]
#[test]
fn a_mapped_file_is_read_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let path = two(&dir);
    let _file = Gguf::open(&path).unwrap();
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let map = maps.split_once(path.to_str().unwrap()).unwrap().1;
    let flags = map.lines().find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
    assert!(flags.split_whitespace().any(|flag| flag == "sr"), "{flags}");
}

#[test]
fn released_bytes_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = two(&dir);
    let file = Gguf::open(&path).unwrap();
    let [a, b] = file.tensors() else { panic!("two tensors") };
    let sum = |t| file.tensor_bytes(t).iter().map(|&byte| u64::from(byte)).sum::<u64>();
    assert_eq!((sum(a), sum(b)), (LEN, 2 * LEN));
    #[cfg(target_os = "linux")]
    let before = resident(&path);
    file.release(a);
    #[cfg(target_os = "linux")]
    {
        let released = before - resident(&path);
        // All of the tensor's whole pages, at most two large ones less; nothing of its neighbour.
        assert!((LEN - (128 << 10)..=LEN).contains(&released), "{released} of {before}");
    }
    assert_eq!((sum(a), sum(b)), (LEN, 2 * LEN));
}

/// Bytes of the mapping of `path` that are in memory.
#[cfg(target_os = "linux")]
fn resident(path: &std::path::Path) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let map = maps.split_once(path.to_str().unwrap()).unwrap().1;
    let rss = map.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    rss.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

#[cfg(unix)]
#[test]
fn a_file_cut_while_open_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = two(&dir);
    let file = Gguf::open(&path).unwrap();
    let was = file.file_bytes();
    let now = was / 2 - 4096;
    OpenOptions::new().write(true).open(&path).unwrap().set_len(now).unwrap();

    let changed = |error: &Error| matches!(error, Error::Changed { path: p, was: w, now: n } if *p == path && *w == was && *n == now);
    let error = file.check_len().unwrap_err();
    assert!(changed(&error), "{error:?}");
    assert!(error.to_string().contains(&format!("{was} bytes before, {now} now")), "{error}");

    // What the mapping would fault on, an ordinary read reports; what is still there, it reads.
    let b = file.tensor("b").unwrap();
    let error = file.read_tensor(b, 0, &mut vec![0; LEN as usize]).unwrap_err();
    assert!(changed(&error), "{error:?}");
    let mut first = [0; 8];
    file.read_tensor(file.tensor("a").unwrap(), 0, &mut first).unwrap();
    assert_eq!(first, [1; 8]);
}

/// A file replaced by renaming, as a download ends, does not touch what is open.
#[cfg(unix)]
#[test]
fn a_file_replaced_while_open_stays_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = two(&dir);
    let file = Gguf::open(&path).unwrap();
    let other = dir.path().join("other");
    fs::write(&other, b"GGUF").unwrap();
    fs::rename(&other, &path).unwrap();
    file.check_len().unwrap();
    assert_eq!(file.tensor_bytes(&file.tensors()[1]), vec![2; LEN as usize]);
}

#[test]
fn a_directory_is_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let error = Gguf::open(dir.path()).unwrap_err();
    assert!(
        matches!(&error, Error::NotAFile { path, kind: "a directory" } if path == dir.path()),
        "{error:?}"
    );
}

#[cfg(unix)]
#[test]
fn a_socket_a_device_and_a_pipe_are_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let error = Gguf::open(&path).unwrap_err();
    assert!(matches!(&error, Error::NotAFile { kind: "a socket", .. }), "{error:?}");
    assert!(error.to_string().contains("socket\" is a socket, not a file"), "{error}");

    let error = Gguf::open("/dev/zero").unwrap_err();
    assert!(matches!(&error, Error::NotAFile { kind: "a device", .. }), "{error:?}");

    // To open a pipe without a writer would wait for ever.
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let error = Gguf::open(&pipe).unwrap_err();
    assert!(matches!(&error, Error::NotAFile { kind: "a pipe", .. }), "{error:?}");
}

/// Set for the child of the test below, which has another user's rights: the file that it may not read.
#[cfg(unix)]
const UNREADABLE: &str = "CERA_TEST_UNREADABLE";

/// To the system's own user no file is unreadable, so the test then starts itself as nobody.
#[cfg(unix)]
#[test]
fn a_file_without_read_permission_is_named() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let refused = |path: &std::path::Path| {
        let error = Gguf::open(path).unwrap_err();
        let denied = std::io::ErrorKind::PermissionDenied;
        assert!(
            matches!(&error, Error::Io { path: p, source } if p == path && source.kind() == denied),
            "{error:?}"
        );
    };
    if let Some(path) = std::env::var_os(UNREADABLE) {
        return refused(path.as_ref());
    }
    let dir = tempfile::tempdir().unwrap();
    let path = two(&dir);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&path).is_err() {
        return refused(&path);
    }
    // Others reach neither the folder of builds nor a new temporary one.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut child = std::process::Command::new(&program);
    child.args(["--exact", "a_file_without_read_permission_is_named"]).current_dir("/");
    let out = child.env(UNREADABLE, &path).uid(65_534).gid(65_534).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Gguf::open("no/such/model.gguf").unwrap_err();
    assert!(error.to_string().starts_with("\"no/such/model.gguf\": "), "{error}");
}

#[cfg(unix)]
#[test]
fn a_name_with_a_newline_stays_on_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("two\nlines.gguf");
    let error = Gguf::open(&path).unwrap_err();
    assert!(error.to_string().contains("two\\nlines.gguf"), "{error}");
    fs::write(&path, Lie::default().tensor("w", &[8], 0, 0).data(32).bytes()).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().tensors().len(), 1);
}

/// The header of a file on disk is read in pieces: a value longer than a piece arrives whole, and errors count
/// offsets in the file.
#[test]
fn long_values_and_offsets_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("long.gguf");
    let long = "x".repeat(300_000);
    let value = support::string(long.as_bytes());
    fs::write(&path, Lie::default().key("long", kind::STRING, &value).bytes()).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().metadata().str("long").unwrap(), Some(long.as_str()));

    fs::write(&path, Lie::default().key("long", kind::STRING, &value).key("k", kind::U32, &[0]).bytes())
        .unwrap();
    let error = Gguf::open(&path).unwrap_err();
    let expected = 24 + 8 + 4 + 4 + 8 + 300_000 + 8 + 1 + 4;
    let right = |error: &Error| matches!(error, Error::Truncated { place: Place::Value(key), offset, .. } if key == "k" && *offset == expected);
    assert!(right(&error), "{error:?}");
}
