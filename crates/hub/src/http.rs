//! HTTP to the Hub: questions with a bounded number of tries, and downloads that go on where they broke off.

use crate::cache::{Repo, is_plain_name, sha256_of_etag};
use crate::digest::Hashing;
use crate::{Error, Progress, Settings};
use std::io::Read;
use std::time::Duration;
use ureq::http::{Response, StatusCode, header};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};

/// Tries in a row that may bring nothing before a question or a download is given up.
const TRIES: u32 = 5;
/// A try that brought this many bytes counts as progress, and the count of tries begins anew.
const PROGRESS: u64 = 1 << 20;
/// The longest pause between tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Silence after which a connection counts as broken.
const SILENCE: Duration = Duration::from_secs(30);
/// The Hub's own redirects (a renamed repository) followed while asking about a file.
const REDIRECTS: usize = 5;
/// The largest answer to a question; a repository of thousands of files stays far below.
const LARGEST_ANSWER: u64 = 16 << 20;

/// What the Hub says about a file.
#[derive(Debug)]
pub(crate) struct Meta {
    /// Where the file is asked for: the address given, or the Hub's own newer one for it.
    pub(crate) url: String,
    /// The commit that the revision stands for.
    pub(crate) commit: String,
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
}

/// A file to download.
pub(crate) struct Download<'a> {
    /// `org/repo`, for messages.
    pub(crate) repo: &'a str,
    /// File name, for messages.
    pub(crate) file: &'a str,
    pub(crate) meta: &'a Meta,
}

/// An agent and what goes with each request.
pub(crate) struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    retry_pause: Duration,
}

/// Why one try of a download ended.
enum Broken {
    /// Worth another try.
    Again(String),
    /// Another try would end the same way.
    Final(Error),
}

impl Client {
    pub(crate) fn new(settings: &Settings) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("cera/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .timeout_resolve(Some(settings.connect_timeout))
            .timeout_connect(Some(settings.connect_timeout))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build())
            .build()
            .into();
        Self {
            agent,
            endpoint: settings.endpoint.clone(),
            token: settings.token.clone(),
            retry_pause: settings.retry_pause,
        }
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// A JSON document of the Hub's API, as text.
    pub(crate) fn text(&self, url: &str, repo: &str, what: &str) -> Result<String, Error> {
        let mut answer = self.ask(|| self.signed(self.agent.get(url)).call(), url, repo, what)?;
        let read = answer.body_mut().with_config().limit(LARGEST_ANSWER).read_to_string();
        read.map_err(|e| Error::BadAnswer { url: url.to_owned(), reason: e.to_string() })
    }

    /// Asks about a file without fetching it.
    ///
    /// The Hub sends large files elsewhere; the hash and the size stand in the answer that says so, which is
    /// therefore read and not followed.
    pub(crate) fn meta(&self, url: &str, repo: &str, what: &str) -> Result<Meta, Error> {
        let bad = |reason: &str| Error::BadAnswer { url: url.to_owned(), reason: reason.to_owned() };
        let mut at = url.to_owned();
        let mut commit = None;
        for _ in 0..=REDIRECTS {
            let head = || self.signed(self.agent.head(&at)).config().max_redirects(0).build().call();
            let answer = self.ask(head, &at, repo, what)?;
            let text = |name: &str| answer.headers().get(name).and_then(|v| v.to_str().ok());
            commit = commit.or_else(|| text("x-repo-commit").map(str::to_owned));
            if answer.status().is_redirection()
                && text("x-linked-etag").is_none()
                && let Some(next) = text("location").and_then(|to| self.own(to))
            {
                at = next;
                continue;
            }
            let etag = text("x-linked-etag").or_else(|| text("etag"));
            let sha256 =
                etag.and_then(sha256_of_etag).ok_or_else(|| Error::NoHash { url: url.to_owned() })?;
            let size = text("x-linked-size").or_else(|| text("content-length"));
            let bytes =
                size.and_then(|s| s.parse().ok()).ok_or_else(|| bad("it does not give the file's size"))?;
            let commit = commit.filter(|c| is_plain_name(c));
            let commit = commit.ok_or_else(|| bad("it does not name the repository's commit"))?;
            return Ok(Meta { url: at, commit, sha256, bytes });
        }
        Err(bad("too many redirects"))
    }

    /// Downloads into the cache's `blobs`. The caller holds the blob's lock.
    pub(crate) fn download(
        &self,
        job: &Download<'_>,
        repo: &Repo,
        progress: &mut dyn Progress,
    ) -> Result<(), Error> {
        progress.start(job.file, Some(job.meta.bytes));
        let done = self.download_all(job, repo, progress);
        progress.finish();
        done
    }

    fn download_all(
        &self,
        job: &Download<'_>,
        repo: &Repo,
        progress: &mut dyn Progress,
    ) -> Result<(), Error> {
        let total = job.meta.bytes;
        let mut out = repo.resume(&job.meta.sha256)?;
        if out.bytes() > total {
            out.restart().map_err(Error::io("truncate", &repo.incomplete(&job.meta.sha256)))?;
        }
        let (mut best, mut tries) = (out.bytes(), 0);
        while out.bytes() < total {
            let cause = match self.try_once(job, repo, &mut out, progress) {
                Ok(()) if out.bytes() == total => break,
                Ok(()) => "the connection closed early".to_owned(),
                Err(Broken::Again(cause)) => cause,
                Err(Broken::Final(error)) => return Err(error),
            };
            // Measured from the best so far: a server that cannot resume must not be asked for ever.
            if out.bytes() >= best.saturating_add(PROGRESS) {
                (best, tries) = (out.bytes(), 0);
            }
            tries += 1;
            if tries >= TRIES {
                let (file, got) = (job.file.to_owned(), out.bytes());
                return Err(Error::Interrupted { file, got, total, tries, cause });
            }
            self.pause(tries);
        }
        repo.keep(out, &job.meta.sha256, total, job.file, &job.meta.url)
    }

    /// One request for the bytes that are missing; what came is in `out` even if it breaks.
    fn try_once(
        &self,
        job: &Download<'_>,
        repo: &Repo,
        out: &mut Hashing,
        progress: &mut dyn Progress,
    ) -> Result<(), Broken> {
        let path = repo.incomplete(&job.meta.sha256);
        let disk = |action| {
            let path = path.clone();
            move |cause| Broken::Final(Error::Io { action, path, cause })
        };
        let mut request = self.signed(self.agent.get(&job.meta.url));
        if out.bytes() > 0 {
            request = request.header(header::RANGE, format!("bytes={}-", out.bytes()));
        }
        let mut answer = request.call().map_err(|e| Broken::Again(e.to_string()))?;
        let status = answer.status();
        match status {
            StatusCode::PARTIAL_CONTENT => {
                if range_start(&answer) != Some(out.bytes()) {
                    let reason = format!("it does not go on at byte {}", out.bytes());
                    return Err(Broken::Final(Error::BadAnswer { url: job.meta.url.clone(), reason }));
                }
            }
            // The server sends all of it, or says that what is here is no beginning of what is there.
            StatusCode::OK | StatusCode::RANGE_NOT_SATISFIABLE => {
                out.restart().map_err(disk("truncate"))?;
                if status == StatusCode::RANGE_NOT_SATISFIABLE {
                    return Err(Broken::Again("the server refused to go on".to_owned()));
                }
            }
            _ if worth_another_try(status) => return Err(Broken::Again(format!("HTTP {status}"))),
            _ => return Err(Broken::Final(self.refusal(status, &job.meta.url, job.repo, job.file))),
        }
        let mut body = answer.body_mut().as_reader();
        let mut buffer = vec![0; 1 << 16];
        loop {
            progress.at(out.bytes());
            let n = body.read(&mut buffer).map_err(|e| Broken::Again(e.to_string()))?;
            if n == 0 {
                return Ok(());
            }
            let chunk = buffer.get(..n).unwrap_or_default();
            let found = out.bytes() + chunk.len() as u64;
            if found > job.meta.bytes {
                repo.discard(&job.meta.sha256).map_err(Broken::Final)?;
                let (file, origin) = (job.file.to_owned(), job.meta.url.clone());
                let expected = job.meta.bytes;
                return Err(Broken::Final(Error::WrongSize { file, origin, expected, found }));
            }
            out.append(chunk).map_err(disk("write"))?;
        }
    }

    /// Sends a request until the answer is final. A transport that fails is not tried again: the caller may know
    /// another source, and the user should not wait to hear of a missing network.
    fn ask(
        &self,
        send: impl Fn() -> Result<Response<Body>, ureq::Error>,
        url: &str,
        repo: &str,
        what: &str,
    ) -> Result<Response<Body>, Error> {
        let mut tries = 1;
        loop {
            let answer = send()
                .map_err(|e| Error::Unreachable { endpoint: self.endpoint.clone(), cause: e.to_string() })?;
            let status = answer.status();
            if status.is_success() || status.is_redirection() {
                return Ok(answer);
            }
            if tries == TRIES || !worth_another_try(status) {
                return Err(self.refusal(status, url, repo, what));
            }
            self.pause(tries);
            tries += 1;
        }
    }

    /// The token goes to the Hub and, since redirects never carry it on, nowhere else.
    fn signed<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }

    /// `location` as an address of the Hub itself; `None` if it leads elsewhere.
    fn own(&self, location: &str) -> Option<String> {
        if location.starts_with('/') && !location.starts_with("//") {
            return Some(format!("{}{location}", self.endpoint));
        }
        location.strip_prefix(&self.endpoint).is_some_and(|l| l.starts_with('/')).then(|| location.to_owned())
    }

    fn refusal(&self, status: StatusCode, url: &str, repo: &str, what: &str) -> Error {
        let endpoint = self.endpoint.clone();
        match status.as_u16() {
            status @ (401 | 403) => {
                Error::Denied { endpoint, repo: repo.to_owned(), status, with_token: self.token.is_some() }
            }
            404 => Error::NotFound { endpoint, what: what.to_owned() },
            status => {
                let advice = match status {
                    429 => "too many requests; wait a while, or set HF_TOKEN to be counted on your own",
                    500.. => "the server is in trouble; try again later",
                    _ => "this is not what a Hub answers; check HF_ENDPOINT and the proxy",
                };
                Error::Status { url: url.to_owned(), status, advice }
            }
        }
    }

    fn pause(&self, tries: u32) {
        let pause = self.retry_pause.saturating_mul(1 << (tries - 1).min(16));
        std::thread::sleep(pause.min(LONGEST_PAUSE));
    }
}

fn worth_another_try(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status.as_u16(), 408 | 429)
}

/// The first byte that a partial answer holds: `Content-Range: bytes 100-199/200`.
fn range_start(answer: &Response<Body>) -> Option<u64> {
    let range = answer.headers().get(header::CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}
