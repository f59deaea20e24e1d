//! Models of Hub repositories: in the cache, or fetched into it.

use crate::cache::{Repo, is_inner_path, is_plain_name, read_dir};
use crate::http::{Client, Download};
use crate::source::{HubReference, choose, split_of};
use crate::{Entry, Error, Progress, Settings};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Folders within a repository are followed this deep.
const DEEPEST: usize = 8;

/// The part of the API's description of a repository that is used here.
#[derive(Deserialize)]
struct Listing {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

/// The model in the cache, if all its parts are.
///
/// Without a selector only a file that [`choose`] would take from any repository counts, since what else the
/// repository has is not known here; offline, the only model in the cache does.
pub(crate) fn find(settings: &Settings, wanted: &HubReference) -> Result<Option<PathBuf>, Error> {
    let repo = Repo::new(&settings.cache, &wanted.repo);
    let Some(commit) = repo.commit(&wanted.revision) else { return Ok(None) };
    let snapshot = repo.snapshot(&commit);
    let names = files_below(&snapshot)?;
    let selector = match &wanted.selector {
        Some(s) => Some(s.as_str()),
        None if settings.offline => None,
        None => Some("Q4_K_M"),
    };
    // Whether no file fits or several do, the Hub has the last word.
    let Ok(files) = choose(&wanted.repo, selector, &names) else { return Ok(None) };
    let Some(first) = files.first() else { return Ok(None) };
    let parts = split_of(first).map_or(1, |s| u64::from(s.parts));
    Ok((files.len() as u64 == parts).then(|| snapshot.join(first)))
}

/// Downloads the model that `wanted` means, all parts, and returns its first file.
pub(crate) fn fetch(
    http: &Client,
    settings: &Settings,
    wanted: &HubReference,
    progress: &mut dyn Progress,
) -> Result<PathBuf, Error> {
    let HubReference { repo, revision, selector } = wanted;
    let url = format!("{}/api/models/{repo}/revision/{}", http.endpoint(), encode(revision, ""));
    let text = http.text(&url, repo, &format!("{repo}@{revision}"))?;
    let listing: Listing = serde_json::from_str(&text)
        .map_err(|e| Error::BadAnswer { url: url.clone(), reason: e.to_string() })?;
    if !is_plain_name(&listing.sha) {
        return Err(Error::BadReference { text: listing.sha, reason: "it does not name a commit" });
    }
    let names: Vec<String> = listing.siblings.into_iter().map(|s| s.rfilename).collect();
    let files = choose(repo, selector.as_deref(), &names)?;
    if let Some(bad) = files.iter().find(|f| !is_inner_path(f)) {
        return Err(Error::BadReference {
            text: bad.clone(),
            reason: "a file must stay inside its repository",
        });
    }
    let mut first = None;
    for file in &files {
        let path = fetch_file(http, settings, repo, &listing.sha, file, None, progress)?;
        first.get_or_insert(path);
    }
    Repo::new(&settings.cache, repo).set_commit(revision, &listing.sha)?;
    first.ok_or_else(|| Error::NoMatch { repo: repo.clone(), selector: String::new(), available: names })
}

/// Downloads a catalogue entry from its repository. What the Hub has must be what the entry pins.
pub(crate) fn fetch_entry(
    http: &Client,
    settings: &Settings,
    entry: &Entry,
    revision: &str,
    progress: &mut dyn Progress,
) -> Result<PathBuf, Error> {
    fetch_file(http, settings, entry.repo, revision, entry.file, Some(entry), progress)
}

/// One file of a repository: asked about, downloaded unless here, linked into the snapshot of its commit.
fn fetch_file(
    http: &Client,
    settings: &Settings,
    repo: &str,
    revision: &str,
    file: &str,
    pinned: Option<&Entry>,
    progress: &mut dyn Progress,
) -> Result<PathBuf, Error> {
    let url = format!("{}/{repo}/resolve/{}/{}", http.endpoint(), encode(revision, ""), encode(file, "/"));
    let meta = http.meta(&url, repo, &format!("{repo}@{revision}/{file}"))?;
    if let Some(entry) = pinned {
        let (file, origin) = (file.to_owned(), url.clone());
        if meta.sha256 != entry.sha256 {
            let expected = entry.sha256.to_owned();
            return Err(Error::WrongHash { file, origin, expected, found: meta.sha256 });
        }
        if meta.bytes != entry.bytes {
            return Err(Error::WrongSize { file, origin, expected: entry.bytes, found: meta.bytes });
        }
    }
    let folder = Repo::open(&settings.cache, repo)?;
    let lock = folder.lock(&meta.sha256, progress)?;
    if !folder.has_blob(&meta.sha256) {
        http.download(&Download { repo, file, meta: &meta }, &folder, progress)?;
    }
    let path = folder.link(&meta.commit, Path::new(file), &meta.sha256)?;
    folder.set_commit(revision, &meta.commit)?;
    drop(lock);
    Ok(path)
}

/// Paths of the files below a snapshot, relative, with `/` between folders, in order.
pub(crate) fn files_below(snapshot: &Path) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    let mut open = vec![(snapshot.to_owned(), String::new(), 0)];
    while let Some((folder, prefix, depth)) = open.pop() {
        for entry in read_dir(&folder)? {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = entry.path();
            // A link to a folder is not followed: it could lead in circles.
            let is_folder = entry.file_type().is_ok_and(|t| t.is_dir());
            if is_folder && depth < DEEPEST {
                open.push((path, format!("{prefix}{name}/"), depth + 1));
            } else if !is_folder && path.is_file() && !name.starts_with('.') {
                names.push(format!("{prefix}{name}"));
            }
        }
    }
    names.sort();
    Ok(names)
}

/// Percent-encodes what a path of an address cannot hold, and leaves the characters of `keep`.
fn encode(text: &str, keep: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || "-._~".contains(c) || (c.is_ascii() && keep.contains(c)) {
            out.push(c);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn addresses_hold_any_file_name() {
        assert_eq!(encode("a b/ü?#%.gguf", "/"), "a%20b/%C3%BC%3F%23%25.gguf");
        assert_eq!(encode("refs/pr/1", ""), "refs%2Fpr%2F1");
    }
}
