//! Beginnings of sequences on disk: what the cache held survives a restart, and what it had to give up is not lost.
//!
//! Blocks are written when the tree of prefixes takes them, by a thread of their own; steps do not wait for it. They are
//! read back before a sequence begins. The folder has a bound, and the entries that went unused for longest make room; several
//! programs may share it. An entry is good or it is not there: see `entry.rs`. Where the disk is full or fails, the cache
//! in memory goes on as if there were no disk, and the error can be asked for.

mod entry;
mod model;
mod store;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use cera_backend::{Image, SlotId};

use crate::Error;
use entry::{FRAME, Kind, Name};
use store::Store;

pub(crate) use model::fingerprint;

/// Where beginnings of sequences are kept between runs, and how much of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskOptions {
    /// A folder, made where it is not there. Different models may share it.
    pub folder: PathBuf,
    /// The most bytes of all files in it.
    pub bytes: u64,
}

/// What the disk tier did so far.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct DiskStats {
    /// Files in the folder.
    pub files: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// Files read: blocks of prompts that need not go through the model, and recurrent states.
    pub read: u64,
    /// Files written.
    pub written: u64,
    /// Files that were not what they should be, and were removed.
    pub damaged: u64,
    /// How often the disk failed.
    pub errors: u64,
    /// What it said the last time.
    pub last_error: Option<String>,
}

/// Bytes that may wait to be written. What comes on top is not written: the next time that it is kept it may be.
const WAITING: usize = 256 << 20;

/// The disk tier of one model.
pub(crate) struct Disk {
    model: [u8; 32],
    image: Image,
    shared: Arc<Mutex<Store>>,
    writes: Option<SyncSender<(Name, Vec<u8>)>>,
    writer: Option<JoinHandle<()>>,
}

/// What the disk has of a sequence, block by block.
pub(crate) struct OnDisk {
    /// How many blocks can be had from the start on, in memory or on disk.
    pub blocks: usize,
    /// The name of each block.
    names: Vec<[u8; 32]>,
}

/// What is to be written.
#[derive(Clone, Copy)]
pub(crate) enum Wanted {
    /// A sequence's block, by number.
    Block(usize),
    /// The states in a slot.
    States(SlotId),
}

impl Disk {
    /// Opens the folder for a model.
    ///
    /// # Errors
    /// [`Error::Disk`] where the folder cannot be made or listed.
    pub fn open(options: &DiskOptions, model: [u8; 32], image: Image) -> Result<Self, Error> {
        let store = Store::open(&options.folder, options.bytes)?;
        let shared = Arc::new(Mutex::new(store));
        let waiting = (WAITING / image.block_bytes.max(1)).clamp(1, 4096);
        let (writes, to_write) = sync_channel::<(Name, Vec<u8>)>(waiting);
        let (folder, for_writer) = (options.folder.clone(), Arc::clone(&shared));
        let writer = std::thread::Builder::new().name("cera-disk".into()).spawn(move || {
            for (name, content) in to_write {
                // The list is not locked while a file is written, so reading goes on.
                let doomed = lock(&for_writer).make_room((content.len() + FRAME) as u64);
                let result = doomed.and_then(|()| entry::write(&folder, &name, &content));
                lock(&for_writer).written(name, (content.len() + FRAME) as u64, result);
            }
        });
        let writer =
            writer.map_err(|e| Error::Disk { folder: options.folder.clone(), why: e.to_string() })?;
        Ok(Self { model, image, shared, writes: Some(writes), writer: Some(writer) })
    }

    /// What it did so far.
    pub fn stats(&self) -> DiskStats {
        lock(&self.shared).stats()
    }

    /// How far a sequence's beginning can be had, of whose blocks the memory has the first `known`. With `states` only
    /// as far as there are recurrent states to go on from.
    pub fn find(&self, tokens: &[u32], known: usize, states: bool) -> OnDisk {
        let names: Vec<[u8; 32]> = entry::chain(&self.model, tokens).collect();
        let mut store = lock(&self.shared);
        store.tick();
        let has = |i: usize, kind| names.get(i).is_some_and(|&hash| store.has(&name(kind, hash, i)));
        let mut blocks = known.min(names.len());
        while has(blocks, Kind::Block) {
            blocks += 1;
        }
        if states {
            blocks = (0..blocks).rfind(|&i| has(i, Kind::States)).map_or(0, |i| i + 1);
        }
        OnDisk { blocks, names }
    }

    /// The bytes of a block; `None` where they cannot be had after all.
    pub fn block(&self, found: &OnDisk, index: usize) -> Option<Vec<u8>> {
        self.read(name(Kind::Block, *found.names.get(index)?, index), self.image.block_bytes)
    }

    /// The bytes of the states behind a block.
    pub fn states(&self, found: &OnDisk, index: usize) -> Option<Vec<u8>> {
        self.read(name(Kind::States, *found.names.get(index)?, index), self.image.slot_bytes)
    }

    fn read(&self, name: Name, bytes: usize) -> Option<Vec<u8>> {
        let folder = lock(&self.shared).folder().to_owned();
        let content = entry::read(&folder, &name, bytes);
        lock(&self.shared).read(name, content)
    }

    /// Keeps the blocks of a sequence that are not on disk, and the states behind some of them, by number of blocks. `read`
    /// gives their bytes.
    pub fn keep<E>(
        &self,
        tokens: &[u32],
        states: &HashMap<usize, SlotId>,
        mut read: impl FnMut(Wanted) -> Result<Vec<u8>, E>,
    ) -> Result<(), E> {
        let Some(writes) = &self.writes else { return Ok(()) };
        lock(&self.shared).tick();
        for (i, hash) in entry::chain(&self.model, tokens).enumerate() {
            let block = Some((Kind::Block, Wanted::Block(i)));
            let states = states.get(&(i + 1)).map(|&slot| (Kind::States, Wanted::States(slot)));
            for (kind, wanted) in block.into_iter().chain(states) {
                let name = name(kind, hash, i);
                if lock(&self.shared).begin(name) && writes.try_send((name, read(wanted)?)).is_err() {
                    lock(&self.shared).give_up(&name);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl Drop for Disk {
    /// What was kept is written before the model goes.
    fn drop(&mut self) {
        self.writes = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

fn name(kind: Kind, hash: [u8; 32], index: usize) -> Name {
    Name { kind, hash, depth: u32::try_from(index).unwrap_or(u32::MAX) }
}

/// The list is consistent between any two of its calls.
fn lock(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}
