//! The list of what is in the folder, and what goes when it is full.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::DiskStats;
use super::entry::{Name, is_part, path};
use crate::Error;

/// The folder's files as this program knows them. Another one may remove or add some at any time: a file that is gone is
/// one that is not there, and one that was added is found at the next start.
pub(super) struct Store {
    folder: PathBuf,
    limit: u64,
    entries: HashMap<Name, Entry>,
    /// The order in which entries go: by the time of their use, the deeper first among those of one time.
    order: BTreeSet<(u64, Reverse<u32>, Name)>,
    /// Files that somebody left half written.
    parts: Vec<(PathBuf, u64)>,
    /// Entries that are on their way to the disk.
    pending: HashSet<Name>,
    bytes: u64,
    clock: u64,
    stats: DiskStats,
}

struct Entry {
    bytes: u64,
    used: u64,
}

impl Store {
    /// Lists the folder, which is made where it is not there. What is above the limit goes.
    pub fn open(folder: &Path, limit: u64) -> Result<Self, Error> {
        let failed = |e: io::Error| Error::Disk { folder: folder.to_owned(), why: e.to_string() };
        fs::create_dir_all(folder).map_err(failed)?;
        let mut store = Self {
            folder: folder.to_owned(),
            limit,
            entries: HashMap::new(),
            order: BTreeSet::new(),
            parts: Vec::new(),
            pending: HashSet::new(),
            bytes: 0,
            clock: 0,
            stats: DiskStats::default(),
        };
        let mut found: Vec<(u64, Reverse<u32>, Name, u64)> = Vec::new();
        for file in fs::read_dir(folder).map_err(failed)? {
            // A file that goes meanwhile, or that nobody may look at, is not there.
            let Ok(file) = file else { continue };
            let Ok(metadata) = file.metadata() else { continue };
            let name = file.file_name();
            let Some(name) = name.to_str().filter(|_| metadata.is_file()) else { continue };
            if let Some(name) = Name::of_file(name) {
                found.push((minute(&metadata), Reverse(name.depth), name, metadata.len()));
            } else if is_part(name) {
                store.bytes += metadata.len();
                store.parts.push((file.path(), metadata.len()));
            }
        }
        found.sort_unstable();
        for (_, _, name, bytes) in found {
            store.clock += 1;
            store.add(name, bytes);
        }
        store.make_room(0).map_err(failed)?;
        Ok(store)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn stats(&self) -> DiskStats {
        DiskStats { files: self.entries.len(), bytes: self.bytes, ..self.stats.clone() }
    }

    /// Whether there is an entry that can be read.
    pub fn has(&self, name: &Name) -> bool {
        self.entries.contains_key(name)
    }

    /// From here on entries count as used later than those before.
    pub fn tick(&mut self) {
        self.clock += 1;
    }

    /// Whether an entry is to be written: it is neither there, where it counts as used, nor on its way.
    pub fn begin(&mut self, name: Name) -> bool {
        if self.entries.contains_key(&name) {
            self.use_now(name);
            return false;
        }
        self.pending.insert(name)
    }

    /// It will not be written after all.
    pub fn give_up(&mut self, name: &Name) {
        self.pending.remove(name);
    }

    /// Removes files until `bytes` more are within the limit: what somebody left half written, then the entries that went
    /// unused for longest.
    pub fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        if bytes > self.limit {
            let limit = self.limit;
            return Err(io::Error::other(format!(
                "a file of {bytes} bytes is more than the limit of {limit}"
            )));
        }
        while self.bytes > self.limit - bytes {
            if let Some((path, bytes)) = self.parts.pop() {
                let _ = fs::remove_file(path);
                self.bytes -= bytes;
                continue;
            }
            let Some(&(_, _, name)) = self.order.first() else { break };
            self.remove(&name);
        }
        Ok(())
    }

    /// How the writing of an entry went.
    pub fn written(&mut self, name: Name, bytes: u64, result: io::Result<()>) {
        self.pending.remove(&name);
        match result {
            Ok(()) => {
                self.stats.written += 1;
                self.add(name, bytes);
            }
            Err(error) => self.failed(&error),
        }
    }

    /// What the reading of an entry gave: its content, where it is good. What is not good is removed.
    pub fn read(&mut self, name: Name, content: io::Result<Option<Vec<u8>>>) -> Option<Vec<u8>> {
        match content {
            Ok(Some(content)) => {
                self.use_now(name);
                // For the next start; that it may be old by then is no harm.
                if let Ok(file) = fs::File::options().append(true).open(path(&self.folder, &name)) {
                    let _ = file.set_modified(SystemTime::now());
                }
                self.stats.read += 1;
                Some(content)
            }
            Ok(None) => {
                self.stats.damaged += 1;
                self.remove(&name);
                None
            }
            Err(error) => {
                // Another program may have needed the room.
                if error.kind() != io::ErrorKind::NotFound {
                    self.failed(&error);
                }
                self.remove(&name);
                None
            }
        }
    }

    fn failed(&mut self, error: &io::Error) {
        self.stats.errors += 1;
        self.stats.last_error = Some(format!("{}: {error}", self.folder.display()));
    }

    fn add(&mut self, name: Name, bytes: u64) {
        self.forget(&name);
        self.entries.insert(name, Entry { bytes, used: self.clock });
        self.order.insert((self.clock, Reverse(name.depth), name));
        self.bytes += bytes;
    }

    fn use_now(&mut self, name: Name) {
        if let Some(bytes) = self.forget(&name) {
            self.add(name, bytes);
        }
    }

    /// Takes an entry off the list; gives its bytes.
    fn forget(&mut self, name: &Name) -> Option<u64> {
        let entry = self.entries.remove(name)?;
        self.order.remove(&(entry.used, Reverse(name.depth), *name));
        self.bytes -= entry.bytes;
        Some(entry.bytes)
    }

    fn remove(&mut self, name: &Name) {
        if self.forget(name).is_some() {
            let _ = fs::remove_file(path(&self.folder, name));
        }
    }
}

/// When a file was used, in minutes: those of one sequence are from one of them, or two.
fn minute(metadata: &fs::Metadata) -> u64 {
    let since = metadata.modified().ok().and_then(|t| t.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_secs() / 60)
}

#[cfg(test)]
mod tests {
    use super::super::entry::{self, FRAME, Kind};
    use super::*;

    fn name(i: u8) -> Name {
        Name { kind: Kind::Block, hash: [i; 32], depth: u32::from(i) }
    }

    fn put(store: &mut Store, i: u8, bytes: usize) {
        store.tick();
        assert!(store.begin(name(i)));
        let whole = (bytes + FRAME) as u64;
        let result =
            store.make_room(whole).and_then(|()| entry::write(store.folder(), &name(i), &vec![i; bytes]));
        store.written(name(i), whole, result);
    }

    fn get(store: &mut Store, i: u8, bytes: usize) -> Option<Vec<u8>> {
        store.tick();
        let content = entry::read(store.folder(), &name(i), bytes);
        store.read(name(i), content)
    }

    fn on_disk(folder: &Path) -> u64 {
        fs::read_dir(folder).unwrap().map(|f| f.unwrap().metadata().unwrap().len()).sum()
    }

    #[test]
    fn stays_within_its_limit_and_drops_what_was_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let limit = 3 * (1000 + FRAME) as u64;
        let mut store = Store::open(folder.path(), limit).unwrap();
        for i in 1..=3 {
            put(&mut store, i, 1000);
        }
        assert_eq!(get(&mut store, 1, 1000), Some(vec![1; 1000]));
        put(&mut store, 4, 1000);
        assert_eq!([1, 2, 3, 4].map(|i| store.has(&name(i))), [true, false, true, true]);
        assert!(on_disk(folder.path()) <= limit);
        // Too large in any case: an error, and nothing is lost for it.
        put(&mut store, 5, 4000);
        let stats = store.stats();
        assert_eq!((stats.files, stats.errors, stats.written), (3, 1, 4));
        assert!(stats.last_error.unwrap().contains("limit"));
        // The next start finds the rest, and a smaller limit holds at once.
        fs::write(folder.path().join("12-3.part"), [0; 500]).unwrap();
        fs::write(folder.path().join("notes.txt"), "not ours").unwrap();
        let store = Store::open(folder.path(), limit).unwrap();
        assert_eq!(store.stats().files, 3);
        assert!(!folder.path().join("12-3.part").exists());
        let store = Store::open(folder.path(), limit - 1).unwrap();
        assert_eq!(store.stats().files, 2);
        assert!(folder.path().join("notes.txt").exists());
    }

    #[test]
    fn of_what_was_used_together_the_deepest_goes_first() {
        let folder = tempfile::tempdir().unwrap();
        let limit = 3 * (100 + FRAME) as u64;
        let mut store = Store::open(folder.path(), limit).unwrap();
        for i in 1..=3 {
            put(&mut store, i, 100);
        }
        store.tick();
        (1..=3).for_each(|i| assert!(!store.begin(name(i))));
        put(&mut store, 9, 100);
        assert_eq!([1, 2, 3, 9].map(|i| store.has(&name(i))), [true, true, false, true]);
        // Also at the next start, where the files' times are all there is.
        for file in fs::read_dir(folder.path()).unwrap() {
            let file = fs::File::options().append(true).open(file.unwrap().path()).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(86_400)).unwrap();
        }
        let mut store = Store::open(folder.path(), limit).unwrap();
        put(&mut store, 4, 100);
        assert_eq!([1, 2, 4, 9].map(|i| store.has(&name(i))), [true, true, true, false]);
    }

    #[test]
    fn what_is_damaged_or_gone_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path(), 1 << 20).unwrap();
        put(&mut store, 1, 10);
        put(&mut store, 2, 10);
        fs::write(path(folder.path(), &name(1)), "something else").unwrap();
        fs::remove_file(path(folder.path(), &name(2))).unwrap();
        assert_eq!((get(&mut store, 1, 10), get(&mut store, 2, 10)), (None, None));
        let stats = store.stats();
        assert_eq!((stats.files, stats.bytes, stats.damaged, stats.errors), (0, 0, 1, 0));
        // And may be written again.
        put(&mut store, 1, 10);
        assert!(get(&mut store, 1, 10).is_some());
    }

    #[test]
    fn a_folder_that_cannot_be_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Store::open(&file.join("below"), 1).err().unwrap().to_string();
        assert!(error.contains("below"), "{error}");
    }
}
