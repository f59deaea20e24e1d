//! What is in the cache.

use crate::cache::{Repo, read_dir};
use crate::remote::files_below;
use crate::source::split_of;
use crate::{Entry, Error};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A model on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalModel {
    /// What to give to `-m`: a short name, or a Hub reference.
    pub name: String,
    /// The file, or the first of a split model's.
    pub path: PathBuf,
    /// Size in bytes, all parts together.
    pub bytes: u64,
}

/// Every GGUF model of the cache, by name. A file that several snapshots share is listed once, under `main` if there.
pub(crate) fn list(cache: &Path, catalogue: &[Entry]) -> Result<Vec<LocalModel>, Error> {
    let mut models = BTreeMap::<PathBuf, LocalModel>::new();
    for folder in read_dir(cache)? {
        let Ok(folder) = folder.file_name().into_string() else { continue };
        let Some((org, name)) = folder.strip_prefix("models--").and_then(|n| n.split_once("--")) else {
            continue;
        };
        let id = format!("{org}/{name}");
        let repo = Repo::new(cache, &id);
        let main = repo.commit("main");
        let mut snapshots = repo.snapshots()?;
        snapshots.sort_by_key(|s| main.as_ref() != Some(s));
        for commit in snapshots {
            let revision = if main.as_ref() == Some(&commit) { String::new() } else { format!("@{commit}") };
            let snapshot = repo.snapshot(&commit);
            let files = files_below(&snapshot)?;
            for file in files.iter().filter(|f| f.ends_with(".gguf")) {
                if split_of(file).is_some_and(|s| s.part > 1) {
                    continue;
                }
                let path = snapshot.join(file);
                // The target may be deleted at any time: such a file is no longer there to be listed.
                let (Ok(blob), Some(bytes)) = (fs::canonicalize(&path), total_bytes(&snapshot, file, &files))
                else {
                    continue;
                };
                let known = catalogue.iter().find(|e| e.repo == id && blob == real(&repo.blob(e.sha256)));
                let name = known.map_or_else(|| format!("hf:{id}{revision}:{file}"), |e| e.name.to_owned());
                models.entry(blob).or_insert(LocalModel { name, path, bytes });
            }
        }
    }
    let mut models: Vec<LocalModel> = models.into_values().collect();
    models.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(models)
}

fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Size of a file, or of all parts of the split model that it begins.
fn total_bytes(snapshot: &Path, file: &str, files: &[String]) -> Option<u64> {
    let size = |name: &str| fs::metadata(snapshot.join(name)).map(|m| m.len()).ok();
    let Some(first) = split_of(file) else { return size(file) };
    let same = |n: &&String| split_of(n).is_some_and(|s| s.stem == first.stem && s.parts == first.parts);
    files.iter().filter(same).map(|n| size(n)).sum()
}
