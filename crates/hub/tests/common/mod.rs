//! A Hub of a few lines on the loopback, and what the tests need around it.

#![allow(dead_code, reason = "each test program uses a part")]

use cera_hub::{Entry, Progress, Settings, Source};
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// The first byte of a `Range: bytes=N-`.
    pub fn range(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

#[derive(Clone, Default)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// Close the connection after so many bytes of the body.
    pub cut: Option<usize>,
}

impl Answer {
    pub fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }
}

pub struct Server {
    pub url: String,
    pub seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Answers every request with `handler`, one connection each, until the process ends.
    pub fn start(handler: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (log, handler) = (seen.clone(), Arc::new(handler));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, handler) = (log.clone(), handler.clone());
                std::thread::spawn(move || {
                    let mut stream = stream.expect("a connection");
                    let mut lines = BufReader::new(stream.try_clone().expect("a clone")).lines();
                    let Some(Ok(first)) = lines.next() else { return };
                    let mut words = first.split(' ').map(str::to_owned);
                    let (method, path) = (words.next().expect("method"), words.next().expect("path"));
                    let headers = lines
                        .map_while(Result::ok)
                        .take_while(|l| !l.is_empty())
                        .filter_map(|l| l.split_once(": ").map(|(n, v)| (n.to_owned(), v.to_owned())))
                        .collect();
                    let request = Request { method, path, headers };
                    let range = request.range().map_or(String::new(), |r| format!(" from {r}"));
                    log.lock().expect("log").push(format!("{} {}{range}", request.method, request.path));
                    let answer = handler(&request);
                    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", answer.status);
                    if !answer.headers.iter().any(|(n, _)| *n == "Content-Length") {
                        head += &format!("Content-Length: {}\r\n", answer.body.len());
                    }
                    for (name, value) in &answer.headers {
                        head += &format!("{name}: {value}\r\n");
                    }
                    let body = &answer.body[..answer.cut.unwrap_or(usize::MAX).min(answer.body.len())];
                    // The client may have gone: nothing to do about it.
                    let _ = stream.write_all((head + "\r\n").as_bytes());
                    if request.method != "HEAD" {
                        let _ = stream.write_all(body);
                    }
                });
            }
        });
        Self { url, seen }
    }

    pub fn count(&self, what: &str) -> usize {
        self.seen.lock().expect("log").iter().filter(|l| l.starts_with(what)).count()
    }
}

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// The usual answers for one file: HEAD as the Hub gives it, GET with ranges.
pub fn serve(request: &Request, content: &[u8]) -> Answer {
    let from = request.range().unwrap_or(0);
    let answer = Answer::status(if request.range().is_some() { 206 } else { 200 })
        .with("X-Repo-Commit", COMMIT)
        .with("X-Linked-Etag", format!("\"{}\"", sha256(content)))
        .with("X-Linked-Size", content.len());
    if request.method == "HEAD" {
        return answer.with("Content-Length", content.len());
    }
    let range = format!("bytes {from}-{}/{}", content.len() - 1, content.len());
    Answer { body: content[from..].to_vec(), ..answer }.with("Content-Range", range)
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Some bytes that no two of which are alike for long.
pub fn content(len: usize) -> Vec<u8> {
    (0..len as u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).take(len).collect()
}

/// A catalogue of one entry named `m`.
pub fn catalogue(content: &[u8], sources: &'static [Source]) -> &'static [Entry] {
    Vec::leak(vec![Entry {
        name: "m",
        about: "test",
        repo: "org/repo",
        file: "model.gguf",
        bytes: content.len() as u64,
        sha256: String::leak(sha256(content)),
        sources,
    }])
}

pub const FROM_HUB: &[Source] = &[Source::Hub { revision: "main" }];

pub fn settings(cache: &std::path::Path, endpoint: &str) -> Settings {
    Settings {
        endpoint: endpoint.to_owned(),
        retry_pause: Duration::from_millis(1),
        connect_timeout: Duration::from_secs(2),
        ..Settings::new(cache.to_owned())
    }
}

/// Remembers what it hears.
#[derive(Default)]
pub struct Ear {
    pub started: Vec<(String, Option<u64>)>,
    pub last: u64,
    pub finished: usize,
    pub notes: Vec<String>,
}

impl Progress for Ear {
    fn start(&mut self, what: &str, total: Option<u64>) {
        self.started.push((what.to_owned(), total));
    }
    fn at(&mut self, bytes: u64) {
        self.last = bytes;
    }
    fn finish(&mut self) {
        self.finished += 1;
    }
    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }
}
