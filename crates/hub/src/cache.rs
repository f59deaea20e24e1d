//! The cache folder: paths, locks, and the moves that put a checked file in its place.

use crate::digest::{Hashing, is_sha256};
use crate::{Entry, Error, Progress};
use std::fs::{self, File};
use std::path::{Component, Path, PathBuf};

/// One repository's folder in the cache.
pub(crate) struct Repo {
    folder: PathBuf,
    locks: PathBuf,
}

impl Repo {
    /// The folder of `org/repo`. Nothing is created.
    pub(crate) fn new(cache: &Path, repo: &str) -> Self {
        let name = format!("models--{}", repo.replace('/', "--"));
        Self { folder: cache.join(&name), locks: cache.join(".locks").join(name) }
    }

    /// The same, ready to be written to.
    pub(crate) fn open(cache: &Path, repo: &str) -> Result<Self, Error> {
        let repo = Self::new(cache, repo);
        for folder in [repo.folder.join("blobs"), repo.folder.join("snapshots"), repo.locks.clone()] {
            fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        }
        Ok(repo)
    }

    pub(crate) fn blob(&self, sha256: &str) -> PathBuf {
        self.folder.join("blobs").join(sha256)
    }

    pub(crate) fn incomplete(&self, sha256: &str) -> PathBuf {
        self.folder.join("blobs").join(format!("{sha256}.incomplete"))
    }

    pub(crate) fn has_blob(&self, sha256: &str) -> bool {
        self.blob(sha256).is_file()
    }

    /// Waits until no other process downloads this blob. The lock ends with the value, or with the process.
    pub(crate) fn lock(&self, sha256: &str, progress: &mut dyn Progress) -> Result<File, Error> {
        let path = self.locks.join(format!("{sha256}.lock"));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                progress.note("another process is downloading this file: waiting for it");
                file.lock().map_err(Error::io("lock", &path))?;
            }
            Err(fs::TryLockError::Error(cause)) => {
                return Err(Error::Io { action: "lock", path, cause });
            }
        }
        Ok(file)
    }

    /// Opens the unfinished download of a blob, to be gone on with; new if there is none.
    pub(crate) fn resume(&self, sha256: &str) -> Result<Hashing, Error> {
        let path = self.incomplete(sha256);
        let options = File::options().create(true).truncate(false).read(true).write(true).open(&path);
        options.and_then(Hashing::resume).map_err(Error::io("open", &path))
    }

    /// Checks a finished download and gives it its name: on disk first, then renamed, so that a blob is never
    /// partial. A file that is not what it should be is deleted. `file` and `origin` are for the message.
    pub(crate) fn keep(
        &self,
        out: Hashing,
        sha256: &str,
        bytes: u64,
        file: &str,
        origin: &str,
    ) -> Result<(), Error> {
        let (of, from) = (|| file.to_owned(), || origin.to_owned());
        if out.bytes() != bytes {
            let found = out.bytes();
            drop(out);
            self.discard(sha256)?;
            return Err(Error::WrongSize { file: of(), origin: from(), expected: bytes, found });
        }
        let (handle, found) = out.finish();
        if found != sha256 {
            drop(handle);
            self.discard(sha256)?;
            let expected = sha256.to_owned();
            return Err(Error::WrongHash { file: of(), origin: from(), expected, found });
        }
        let path = self.incomplete(sha256);
        handle.sync_all().map_err(Error::io("write", &path))?;
        drop(handle);
        fs::rename(&path, self.blob(sha256)).map_err(Error::io("rename", &path))
    }

    /// Deletes an unfinished download.
    pub(crate) fn discard(&self, sha256: &str) -> Result<(), Error> {
        let path = self.incomplete(sha256);
        fs::remove_file(&path).map_err(Error::io("delete", &path))
    }

    /// Makes `snapshots/<commit>/<file>` lead to the blob, and returns it.
    pub(crate) fn link(&self, commit: &str, file: &Path, sha256: &str) -> Result<PathBuf, Error> {
        let path = self.snapshot(commit).join(file);
        if path.is_file() && self.leads_to(&path, sha256) {
            return Ok(path);
        }
        let parent = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        // Under another name first: the rename replaces whatever stood there in one move.
        let temporary = parent.join(format!(".{sha256}.{}.link", std::process::id()));
        let depth = file.components().count() + 1;
        let target: PathBuf =
            std::iter::repeat_n("..", depth).collect::<PathBuf>().join("blobs").join(sha256);
        link_file(&target, &self.blob(sha256), &temporary).map_err(Error::io("link", &temporary))?;
        fs::rename(&temporary, &path).map_err(Error::io("rename", &temporary))?;
        Ok(path)
    }

    /// The commit that `revision` named when last asked: a ref's content, or the revision itself if it has a snapshot.
    pub(crate) fn commit(&self, revision: &str) -> Option<String> {
        let named = fs::read_to_string(self.folder.join("refs").join(revision)).ok();
        let commit = named.map_or_else(|| revision.to_owned(), |c| c.trim().to_owned());
        (is_plain_name(&commit) && self.snapshot(&commit).is_dir()).then_some(commit)
    }

    /// Remembers what `revision` names. A commit is its own name and needs no ref.
    pub(crate) fn set_commit(&self, revision: &str, commit: &str) -> Result<(), Error> {
        if revision == commit {
            return Ok(());
        }
        let path = self.folder.join("refs").join(revision);
        let parent = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        fs::write(&path, commit).map_err(Error::io("write", &path))
    }

    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// Names of the snapshots: commits, and packages.
    pub(crate) fn snapshots(&self) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        for entry in read_dir(&self.folder.join("snapshots"))? {
            names.extend(entry.file_name().into_string());
        }
        names.sort();
        Ok(names)
    }

    fn leads_to(&self, path: &Path, sha256: &str) -> bool {
        match (fs::canonicalize(path), fs::canonicalize(self.blob(sha256))) {
            // Where links cannot be made the snapshot holds the file itself, and its size must do.
            (Ok(a), Ok(b)) => a == b || (!path.is_symlink() && same_length(&a, &b)),
            _ => false,
        }
    }
}

/// The file of a catalogue entry, if its blob is here.
pub(crate) fn find_entry(cache: &Path, entry: &Entry) -> Result<Option<PathBuf>, Error> {
    let repo = Repo::new(cache, entry.repo);
    if !repo.has_blob(entry.sha256) {
        return Ok(None);
    }
    for name in repo.snapshots()? {
        let path = repo.snapshot(&name).join(entry.file);
        if path.is_file() && repo.leads_to(&path, entry.sha256) {
            return Ok(Some(path));
        }
    }
    // The process that downloaded it ended before it made the link. The blob is as good.
    Ok(Some(repo.blob(entry.sha256)))
}

/// The entries of a folder; none if it does not exist.
pub(crate) fn read_dir(folder: &Path) -> Result<Vec<fs::DirEntry>, Error> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.collect::<Result<_, _>>().map_err(Error::io("read", folder)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(Error::io("read", folder)(e)),
    }
}

/// Whether `text` can name a file or folder without leading anywhere else: used for whatever comes from outside.
pub(crate) fn is_plain_name(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
    !text.is_empty() && text.len() <= 200 && !text.starts_with('.') && text.chars().all(fine)
}

/// Whether a path of a repository stays below the snapshot that it is joined to.
pub(crate) fn is_inner_path(text: &str) -> bool {
    !text.contains('\\')
        && !text.is_empty()
        && Path::new(text).components().all(|c| matches!(c, Component::Normal(_)))
}

/// Whether the Hub's word for a file's hash is a SHA-256 (large files) and not a Git object's name (small ones).
pub(crate) fn sha256_of_etag(etag: &str) -> Option<String> {
    let bare = etag.trim().trim_start_matches("W/").trim_matches('"');
    is_sha256(bare).then(|| bare.to_owned())
}

fn same_length(a: &Path, b: &Path) -> bool {
    matches!((fs::metadata(a), fs::metadata(b)), (Ok(a), Ok(b)) if a.len() == b.len())
}

/// A relative link, so that the cache can be moved.
#[cfg(unix)]
fn link_file(target: &Path, _blob: &Path, at: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, at)
}

/// Where symbolic links need a privilege, a hard link serves.
#[cfg(not(unix))]
fn link_file(_target: &Path, blob: &Path, at: &Path) -> std::io::Result<()> {
    fs::hard_link(blob, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_outside_cannot_lead_out() {
        for bad in ["", "..", ".x", "a/b", "a\\b", "a b", "a\0"] {
            assert!(!is_plain_name(bad), "{bad:?}");
        }
        assert!(is_plain_name("SmolLM2-135M_Instruct.Q4"));
        for bad in ["", "/etc/passwd", "../x", "a/../b", "a\\b", "./a"] {
            assert!(!is_inner_path(bad), "{bad:?}");
        }
        assert!(is_inner_path("Q4_K_M/model-00001-of-00002.gguf"));
    }

    #[test]
    fn only_a_sha256_counts_as_a_hash() {
        let hash = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
        assert_eq!(sha256_of_etag(&format!("\"{hash}\"")).as_deref(), Some(hash));
        assert_eq!(sha256_of_etag("\"8baf2ac0a3a3f5c0e3f0d9d2ba8d09fd42e1b7a4\""), None);
        assert_eq!(sha256_of_etag(&"../".repeat(22)), None);
    }
}
