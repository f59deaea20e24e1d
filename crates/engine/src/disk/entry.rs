//! A file of the disk tier: what it is called, what is in it, and how it is read without trusting it.
//!
//! A name is the SHA-256 of all that the content depends on: the model, and the tokens up to its end. A file repeats its name,
//! and ends with the SHA-256 of all before, so one that is cut short, damaged or of another model is never taken for good.
//! Files are written beside their place and renamed into it: whoever dies while writing leaves a file that nobody looks for.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use cera_backend::BLOCK;
use sha2::{Digest, Sha256};

/// The first bytes of a file, with the version of what follows.
const MAGIC: &[u8; 8] = b"ceraKV01";
const NAME: usize = 32;
/// Bytes of a file beside its content: magic, name, length, checksum.
pub(super) const FRAME: usize = MAGIC.len() + NAME + 8 + 32;

/// What an entry holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    /// A block of keys and values.
    Block,
    /// The recurrent states behind a block.
    States,
}

/// An entry's name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Name {
    pub kind: Kind,
    pub hash: [u8; NAME],
    /// Blocks before it. Nothing needs it to find an entry; but without those before it one is of no use, so of several that
    /// were used together the deepest goes first.
    pub depth: u32,
}

impl Kind {
    fn ending(self) -> &'static str {
        match self {
            Kind::Block => "block",
            Kind::States => "states",
        }
    }
}

impl Name {
    /// The name as a file's.
    pub fn file(&self) -> String {
        let hex: String = self.hash.iter().map(|b| format!("{b:02x}")).collect();
        format!("{hex}-{}.{}", self.depth, self.kind.ending())
    }

    /// The name that a file has.
    pub fn of_file(file: &str) -> Option<Name> {
        let (hex, rest) = file.split_once('-')?;
        let (depth, ending) = rest.split_once('.')?;
        let kind = [Kind::Block, Kind::States].into_iter().find(|kind| kind.ending() == ending)?;
        let mut hash = [0; NAME];
        if hex.len() != 2 * NAME || !hex.is_ascii() {
            return None;
        }
        for (i, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok()?;
        }
        Some(Name { kind, hash, depth: depth.parse().ok()? })
    }
}

/// For each whole block of `tokens` the hash that stands for the model and all tokens up to its end.
pub(super) fn chain(model: &[u8; 32], tokens: &[u32]) -> impl Iterator<Item = [u8; NAME]> {
    tokens.chunks_exact(BLOCK).scan(*model, |before, tokens| {
        let mut hash = Sha256::new();
        hash.update(*before);
        tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
        *before = hash.finalize().into();
        Some(*before)
    })
}

/// Writes an entry, whole or not at all.
pub(super) fn write(folder: &Path, name: &Name, content: &[u8]) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let beside = folder.join(format!("{}-{number}.{PART}", std::process::id()));
    let written = write_file(&beside, name, content).and_then(|()| fs::rename(&beside, path(folder, name)));
    if written.is_err() {
        // Whatever there is of it is of no use, and takes room where there may be none.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// The ending of a file that is being written.
const PART: &str = "part";

/// Whether a file is one that somebody was or is writing.
pub(super) fn is_part(file: &str) -> bool {
    file.ends_with(PART)
}

pub(super) fn path(folder: &Path, name: &Name) -> PathBuf {
    folder.join(name.file())
}

fn write_file(path: &Path, name: &Name, content: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let head = [&MAGIC[..], &name.hash, &(content.len() as u64).to_le_bytes()].concat();
    let sum = Sha256::new().chain_update(&head).chain_update(content).finalize();
    file.write_all(&head)?;
    file.write_all(content)?;
    file.write_all(&sum)
}

/// Reads an entry of so many bytes; `None` where the file is not what it should be.
pub(super) fn read(folder: &Path, name: &Name, bytes: usize) -> io::Result<Option<Vec<u8>>> {
    let file = File::open(path(folder, name))?;
    if file.metadata()?.len() != (bytes + FRAME) as u64 {
        return Ok(None);
    }
    let mut all = Vec::with_capacity(bytes + FRAME);
    // A file that grows meanwhile is not read any further.
    file.take((bytes + FRAME) as u64).read_to_end(&mut all)?;
    let head = [&MAGIC[..], &name.hash, &(bytes as u64).to_le_bytes()].concat();
    let Some((rest, sum)) = all.split_last_chunk::<32>() else { return Ok(None) };
    let good =
        rest.len() == head.len() + bytes && rest.starts_with(&head) && Sha256::digest(rest).as_slice() == sum;
    if !good {
        return Ok(None);
    }
    all.truncate(head.len() + bytes);
    all.drain(..head.len());
    Ok(Some(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(kind: Kind) -> Name {
        Name { kind, hash: std::array::from_fn(|i| i as u8 * 7), depth: 12 }
    }

    #[test]
    fn names_come_back_from_files() {
        for kind in [Kind::Block, Kind::States] {
            assert_eq!(Name::of_file(&name(kind).file()), Some(name(kind)));
        }
        for file in ["x.block", "12-3.part", "", &"é".repeat(32), &format!("{}-1.block", "g".repeat(64))] {
            assert_eq!(Name::of_file(file), None, "{file}");
        }
    }

    #[test]
    fn the_chain_depends_on_the_model_and_all_tokens_before() {
        let tokens: Vec<u32> = (0..100).collect();
        let all: Vec<_> = chain(&[1; 32], &tokens).collect();
        assert_eq!(all.len(), 3);
        let mut other = tokens.clone();
        other[40] = 7;
        let others: Vec<_> = chain(&[1; 32], &other).collect();
        assert!(all[0] == others[0] && all[1] != others[1] && all[2] != others[2]);
        assert_ne!(chain(&[2; 32], &tokens).next(), Some(all[0]));
        // Worked out with Python: sha256(bytes([1]) * 32 + struct.pack("<32I", *range(32))).
        let hex: String = all[0].iter().take(4).map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "643ce2a4");
    }

    #[test]
    fn any_damage_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let (name, content) = (name(Kind::Block), vec![5; 100]);
        write(folder.path(), &name, &content).unwrap();
        let get = |bytes| read(folder.path(), &name, bytes).unwrap();
        assert_eq!(get(100).as_deref(), Some(&content[..]));
        assert_eq!((get(99), get(101)), (None, None));
        let file = path(folder.path(), &name);
        let whole = fs::read(&file).unwrap();
        assert_eq!(whole.len(), 100 + FRAME);
        for i in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[i] ^= 1;
            fs::write(&file, &damaged).unwrap();
            assert_eq!(get(100), None, "byte {i}");
            fs::write(&file, &whole[..i]).unwrap();
            assert_eq!(get(100), None, "{i} bytes");
        }
        fs::write(&file, [&whole[..], &[0]].concat()).unwrap();
        assert_eq!(get(100), None);
        let files = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 1, "something was left beside it");
    }
}
