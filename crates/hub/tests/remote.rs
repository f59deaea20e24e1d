//! Downloads from a Hub on the loopback: what is kept, what goes on, what is refused, and what is said.

mod common;

use cera_hub::{Error, Hub, LocalModel, Settings, Silent, Source};
use common::*;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

/// Files in `blobs`, by name.
fn blobs(cache: &Path) -> Vec<String> {
    let folder = cache.join("models--org--repo/blobs");
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|e| e.expect("entry").file_name().into_string().expect("utf-8")).collect();
    names.sort();
    names
}

fn fails(hub: &Hub, model: &str) -> Error {
    hub.fetch(model, &mut Silent).expect_err("must fail")
}

#[test]
fn a_file_lands_in_the_layout_of_the_official_client() {
    let cache = tempfile::tempdir().expect("a folder");
    let bytes = content(300_000);
    let served = bytes.clone();
    let server = Server::start(move |r| serve(r, &served));
    let hub = Hub::new(settings(cache.path(), &server.url), catalogue(&bytes, FROM_HUB));
    assert_eq!(hub.find("m").expect("readable"), None);
    let mut ear = Ear::default();
    let path = hub.fetch("m", &mut ear).expect("fetched");

    let repo = cache.path().join("models--org--repo");
    assert_eq!(path, repo.join("snapshots").join(COMMIT).join("model.gguf"));
    assert_eq!(fs::read(&path).expect("readable"), bytes);
    assert_eq!(fs::read_to_string(repo.join("refs/main")).expect("a ref"), COMMIT);
    assert_eq!(blobs(cache.path()), [sha256(&bytes)]);
    let link = fs::read_link(&path).expect("a link");
    assert_eq!(link, Path::new("../../blobs").join(sha256(&bytes)), "relative, so that the cache can move");
    assert_eq!(ear.started, [("model.gguf".to_owned(), Some(300_000))]);
    assert_eq!((ear.last, ear.finished, ear.notes.len()), (300_000, 1, 0));

    // The second time asks nobody.
    let asked = server.count("");
    assert_eq!(hub.fetch("m", &mut Silent).expect("local"), path);
    assert_eq!(hub.find("m").expect("readable"), Some(path.clone()));
    assert_eq!(server.count(""), asked);
    assert_eq!(hub.list().expect("listed"), [LocalModel { name: "m".to_owned(), path, bytes: 300_000 }]);
}

#[test]
fn a_cut_connection_goes_on_where_it_broke() {
    let cache = tempfile::tempdir().expect("a folder");
    let bytes = content(200_000);
    let served = bytes.clone();
    let server = Server::start(move |r| {
        let answer = serve(r, &served);
        let cut = answer.body.len().min(70_000);
        Answer { cut: Some(cut), ..answer }
    });
    let hub = Hub::new(settings(cache.path(), &server.url), catalogue(&bytes, FROM_HUB));
    let path = hub.fetch("m", &mut Silent).expect("fetched");
    assert_eq!(fs::read(path).expect("readable"), bytes);
    assert_eq!(server.count("GET /org/repo/resolve/main/model.gguf from 70000"), 1);
    assert_eq!(server.count("GET /org/repo/resolve/main/model.gguf from 140000"), 1);
}

#[test]
fn a_later_process_goes_on_and_checks_the_whole() {
    let cache = tempfile::tempdir().expect("a folder");
    let bytes = content(50_000);
    let blobs_folder = cache.path().join("models--org--repo/blobs");
    fs::create_dir_all(&blobs_folder).expect("folder");
    let incomplete = blobs_folder.join(format!("{}.incomplete", sha256(&bytes)));
    let served = bytes.clone();
    let server = Server::start(move |r| serve(r, &served));
    let hub = Hub::new(settings(cache.path(), &server.url), catalogue(&bytes, FROM_HUB));

    // A beginning that is not this file's is found out at the end, and not kept.
    fs::write(&incomplete, vec![0; 20_000]).expect("written");
    assert!(matches!(fails(&hub, "m"), Error::WrongHash { .. }));
    assert_eq!(blobs(cache.path()), [""; 0]);

    fs::write(&incomplete, &bytes[..20_000]).expect("written");
    hub.fetch("m", &mut Silent).expect("fetched");
    assert_eq!(server.count("GET /org/repo/resolve/main/model.gguf from 20000"), 2);
}

#[test]
fn a_download_longer_than_the_file_is_begun_anew() {
    let cache = tempfile::tempdir().expect("a folder");
    let bytes = content(1000);
    let blobs_folder = cache.path().join("models--org--repo/blobs");
    fs::create_dir_all(&blobs_folder).expect("folder");
    fs::write(blobs_folder.join(format!("{}.incomplete", sha256(&bytes))), content(2000)).expect("written");
    let served = bytes.clone();
    let server = Server::start(move |r| serve(r, &served));
    let hub = Hub::new(settings(cache.path(), &server.url), catalogue(&bytes, FROM_HUB));
    assert_eq!(fs::read(hub.fetch("m", &mut Silent).expect("fetched")).expect("readable"), bytes);
}

#[test]
fn a_server_without_ranges_is_asked_anew_and_not_for_ever() {
    let cache = tempfile::tempdir().expect("a folder");
    let bytes = content(100_000);
    let (served, gets) = (bytes.clone(), AtomicUsize::new(0));
    let server = Server::start(move |r| {
        let whole = Request { method: r.method.clone(), path: r.path.clone(), headers: Vec::new() };
        let answer = serve(&whole, &served);
        let get = r.method == "GET" && gets.fetch_add(1, Ordering::SeqCst) < 2;
        Answer { cut: get.then_some(40_000), ..answer }
    });
    let hub = Hub::new(settings(cache.path(), &server.url), catalogue(&bytes, FROM_HUB));
    assert_eq!(fs::read(hub.fetch("m", &mut Silent).expect("fetched")).expect("readable"), bytes);
    assert_eq!(server.count("GET"), 3);

    let cache = tempfile::tempdir().expect("a folder");
    let served = bytes.clone();
    let server = Server::start(move |r| {
        let answer = serve(r, &served);
        let cut = if r.range().is_some() { 0 } else { 40_000 };
        Answer { cut: Some(cut), ..answer }
    });
    let hub = Hub::new(settings(cache.path(), &server.url), catalogue(&bytes, FROM_HUB));
    let error = fails(&hub, "m");
    assert!(matches!(error, Error::Interrupted { got: 40_000, total: 100_000, tries: 5, .. }), "{error}");
    assert_eq!(blobs(cache.path()), [format!("{}.incomplete", sha256(&bytes))], "kept for the next time");
}

#[test]
fn wrong_bytes_are_refused_and_not_kept() {
    let cache = tempfile::tempdir().expect("a folder");
    let bytes = content(10_000);
    let served = bytes.clone();
    let server = Server::start(move |r| {
        let mut answer = serve(r, &served);
        answer.body.iter_mut().skip(5000).take(1).for_each(|b| *b ^= 1);
        answer
    });
    let hub = Hub::new(settings(cache.path(), &server.url), catalogue(&bytes, FROM_HUB));
    let error = fails(&hub, "m");
    assert!(matches!(&error, Error::WrongHash { expected, .. } if *expected == sha256(&bytes)), "{error}");
    assert_eq!(blobs(cache.path()), [""; 0]);
    assert_eq!(hub.find("m").expect("readable"), None);
}

#[test]
fn more_bytes_than_promised_are_not_taken() {
    let cache = tempfile::tempdir().expect("a folder");
    let bytes = content(10_000);
    let served = bytes.clone();
    let server = Server::start(move |r| {
        let mut answer = serve(r, &served);
        answer.body.extend([0; 100_000]);
        answer
    });
    let hub = Hub::new(settings(cache.path(), &server.url), catalogue(&bytes, FROM_HUB));
    let error = fails(&hub, "m");
    assert!(matches!(error, Error::WrongSize { expected: 10_000, .. }), "{error}");
    assert_eq!(blobs(cache.path()), [""; 0]);
}

#[test]
fn a_hub_with_another_file_than_the_pinned_one_is_refused_before_the_download() {
    let cache = tempfile::tempdir().expect("a folder");
    let server = Server::start(|r| serve(r, &content(999)));
    let hub = Hub::new(settings(cache.path(), &server.url), catalogue(&content(1000), FROM_HUB));
    assert!(matches!(fails(&hub, "m"), Error::WrongHash { .. }));
    assert_eq!(server.count("GET"), 0);
}

#[test]
fn redirects_are_followed_and_the_token_stays_behind() {
    let cache = tempfile::tempdir().expect("a folder");
    let bytes = content(30_000);
    let served = bytes.clone();
    let elsewhere = Server::start(move |r| {
        assert_eq!(r.header("authorization"), None, "the token must not leave the Hub");
        serve(r, &served)
    });
    let (there, served) = (elsewhere.url.clone(), bytes.clone());
    let server = Server::start(move |r| {
        assert_eq!(r.header("authorization"), Some("Bearer secret"));
        if r.path.starts_with("/org/repo/") {
            // A renamed repository.
            return Answer::status(307).with("Location", r.path.replace("/org/repo/", "/org/new/"));
        }
        let meta = serve(r, &served);
        let meta = Answer { body: Vec::new(), ..meta }.with("Location", format!("{there}/blob"));
        Answer {
            status: 302,
            headers: meta.headers.into_iter().filter(|(n, _)| *n != "Content-Range").collect(),
            ..Answer::default()
        }
    });
    let settings = Settings { token: Some("secret".to_owned()), ..settings(cache.path(), &server.url) };
    let hub = Hub::new(settings, catalogue(&bytes, FROM_HUB));
    let path = hub.fetch("m", &mut Silent).expect("fetched");
    assert_eq!(fs::read(path).expect("readable"), bytes);
    assert_eq!(elsewhere.count("GET /blob"), 1);
    assert_eq!(elsewhere.count("HEAD"), 0, "the Hub's own answer holds the hash");
}

#[test]
fn refusals_say_what_to_do() {
    let bytes = content(10);
    let says = |status, token: Option<&str>, words: &[&str]| {
        let cache = tempfile::tempdir().expect("a folder");
        let server = Server::start(move |_| Answer::status(status));
        let settings = Settings { token: token.map(str::to_owned), ..settings(cache.path(), &server.url) };
        let text = fails(&Hub::new(settings, catalogue(&bytes, FROM_HUB)), "m").to_string();
        assert!(words.iter().all(|w| text.contains(w)), "{text}");
        server.count("")
    };
    assert_eq!(says(401, None, &["org/repo", "401", "Set HF_TOKEN"]), 1);
    assert_eq!(says(403, Some("t"), &["org/repo", "403", "accept the model's terms"]), 1);
    assert_eq!(says(404, None, &["org/repo@main/model.gguf", "404", "spelling"]), 1);
    assert_eq!(says(503, None, &["503", "try again later"]), 5);
    assert_eq!(says(429, None, &["429", "HF_TOKEN"]), 5);
    assert_eq!(says(418, None, &["418", "HF_ENDPOINT"]), 1);
}

#[test]
fn trouble_that_passes_is_not_an_error() {
    let cache = tempfile::tempdir().expect("a folder");
    let bytes = content(5000);
    let (served, asked) = (bytes.clone(), AtomicUsize::new(0));
    let server = Server::start(move |r| match asked.fetch_add(1, Ordering::SeqCst) % 3 {
        2 => serve(r, &served),
        _ => Answer::status(503),
    });
    let hub = Hub::new(settings(cache.path(), &server.url), catalogue(&bytes, FROM_HUB));
    assert!(hub.fetch("m", &mut Silent).is_ok());
}

#[test]
fn answers_that_make_no_sense_are_named() {
    let bytes = content(10);
    type Change = fn(Answer) -> Answer;
    let without = |name: &'static str| {
        move |mut a: Answer| {
            a.headers.retain(|(n, _)| *n != name);
            a
        }
    };
    let outcome = |change: Box<dyn Fn(Answer) -> Answer + Send + Sync>| {
        let cache = tempfile::tempdir().expect("a folder");
        let served = content(10);
        let server = Server::start(move |r| change(serve(r, &served)));
        fails(&Hub::new(settings(cache.path(), &server.url), catalogue(&bytes, FROM_HUB)), "m")
    };
    assert!(matches!(outcome(Box::new(without("X-Linked-Etag"))), Error::NoHash { .. }));
    assert!(matches!(outcome(Box::new(without("X-Repo-Commit"))), Error::BadAnswer { .. }));
    let climbs: Change = |mut a| {
        a.headers.retain(|(n, _)| *n != "X-Repo-Commit");
        a.with("X-Repo-Commit", "../../x")
    };
    assert!(matches!(outcome(Box::new(climbs)), Error::BadAnswer { .. }));
    let circle: Change = |_| Answer::status(307).with("Location", "/again");
    assert!(matches!(outcome(Box::new(circle)), Error::BadAnswer { .. }));
}

#[test]
fn two_pulls_at_once_download_once() {
    let cache = tempfile::tempdir().expect("a folder");
    let bytes = content(2_000_000);
    let served = bytes.clone();
    let server = Server::start(move |r| {
        if r.method == "GET" {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        serve(r, &served)
    });
    let entries = catalogue(&bytes, FROM_HUB);
    let start = Arc::new(Barrier::new(2));
    let pulls: Vec<_> = (0..2)
        .map(|_| {
            let (settings, start) = (settings(cache.path(), &server.url), start.clone());
            std::thread::spawn(move || {
                let mut ear = Ear::default();
                start.wait();
                let path = Hub::new(settings, entries).fetch("m", &mut ear).expect("fetched");
                (path, ear.notes)
            })
        })
        .collect();
    let results: Vec<_> = pulls.into_iter().map(|p| p.join().expect("no panic")).collect();
    assert_eq!(results[0].0, results[1].0);
    assert_eq!(server.count("GET"), 1, "the second waits for the first");
    let notes: Vec<&String> = results.iter().flat_map(|r| &r.1).collect();
    assert!(matches!(notes.as_slice(), [one] if one.contains("waiting")), "{notes:?}");
    assert_eq!(fs::read(&results[0].0).expect("readable"), bytes);
}

#[test]
fn offline_opens_no_connection() {
    let cache = tempfile::tempdir().expect("a folder");
    let bytes = content(100);
    let served = bytes.clone();
    let server = Server::start(move |r| serve(r, &served));
    let offline = || Settings { offline: true, ..settings(cache.path(), &server.url) };
    let entries = catalogue(&bytes, FROM_HUB);
    for model in ["m", "hf:org/repo"] {
        let error = fails(&Hub::new(offline(), entries), model).to_string();
        assert!(error.contains(model) && error.contains("HF_HUB_OFFLINE"), "{error}");
    }
    assert_eq!(server.count(""), 0);
    let path =
        Hub::new(settings(cache.path(), &server.url), entries).fetch("m", &mut Silent).expect("fetched");
    let asked = server.count("");
    for model in ["m", "hf:org/repo", "hf:org/repo:model.gguf"] {
        assert_eq!(Hub::new(offline(), entries).fetch(model, &mut Silent).expect("local"), path, "{model}");
    }
    assert_eq!(server.count(""), asked);
}

#[test]
fn nobody_listening_is_said_in_the_endpoint_s_name() {
    let cache = tempfile::tempdir().expect("a folder");
    // A port that was free a moment ago, and is closed.
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let endpoint = format!("http://{port}");
    let hub = Hub::new(settings(cache.path(), &endpoint), catalogue(&content(1), FROM_HUB));
    let error = fails(&hub, "m");
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&endpoint), "{error}");
}

/// A repository with a listing: two quantizations and a split model in a folder.
fn repository() -> Server {
    Server::start(|r| {
        if r.path.starts_with("/api/models/org/repo/revision/main") {
            let names = [
                "README.md",
                "m-Q8_0.gguf",
                "m-Q4_K_M.gguf",
                "f/m-f16-00001-of-00002.gguf",
                "f/m-f16-00002-of-00002.gguf",
            ];
            let files: Vec<String> = names.iter().map(|n| format!(r#"{{"rfilename": "{n}"}}"#)).collect();
            let body =
                format!(r#"{{"id": "org/repo", "sha": "{COMMIT}", "siblings": [{}]}}"#, files.join(","));
            return Answer { body: body.into_bytes(), ..Answer::status(200) };
        }
        // Each file holds its own path.
        match r.path.strip_prefix(&format!("/org/repo/resolve/{COMMIT}/")) {
            Some(file) => serve(r, file.as_bytes()),
            None => Answer::status(404),
        }
    })
}

#[test]
fn a_quantization_of_a_repository() {
    let cache = tempfile::tempdir().expect("a folder");
    let server = repository();
    let hub = Hub::new(settings(cache.path(), &server.url), &[]);
    let path = hub.fetch("hf:org/repo:q8_0", &mut Silent).expect("fetched");
    assert!(path.ends_with(format!("snapshots/{COMMIT}/m-Q8_0.gguf")), "{}", path.display());
    assert_eq!(hub.find("hf:org/repo:Q8_0").expect("readable"), Some(path.clone()));
    // Not asked for by name, another quantization in the cache is no answer.
    assert_eq!(hub.find("hf:org/repo").expect("readable"), None);
    let usual = hub.fetch("hf:org/repo", &mut Silent).expect("fetched");
    assert!(usual.ends_with("m-Q4_K_M.gguf"));
    assert_eq!(hub.find("hf:org/repo").expect("readable"), Some(usual));
    let error = fails(&hub, "hf:org/repo:Q2_K");
    assert!(error.to_string().contains("m-Q8_0.gguf"), "{error}");
    assert!(matches!(fails(&hub, "hf:org/repo@v2"), Error::NotFound { what, .. } if what == "org/repo@v2"));
}

#[test]
fn all_parts_of_a_split_model() {
    let cache = tempfile::tempdir().expect("a folder");
    let server = repository();
    let hub = Hub::new(settings(cache.path(), &server.url), &[]);
    let path = hub.fetch("hf:org/repo:f16", &mut Silent).expect("fetched");
    assert!(path.ends_with("f/m-f16-00001-of-00002.gguf"), "{}", path.display());
    let second = path.with_file_name("m-f16-00002-of-00002.gguf");
    assert_eq!(fs::read(&second).expect("readable"), b"f/m-f16-00002-of-00002.gguf");
    let listed = hub.list().expect("listed");
    let name = "hf:org/repo:f/m-f16-00001-of-00002.gguf".to_owned();
    assert_eq!(listed, [LocalModel { name: name.clone(), path: path.clone(), bytes: 2 * 27 }]);
    assert_eq!(hub.find(&name).expect("what is listed can be found"), Some(path.clone()));
    fs::remove_file(&second).expect("removed");
    assert_eq!(hub.find("hf:org/repo:f16").expect("readable"), None, "half a model is none");
}

#[test]
fn a_listing_cannot_lead_out_of_the_cache() {
    let cache = tempfile::tempdir().expect("a folder");
    let server = Server::start(|r| {
        if r.path.starts_with("/api/") {
            let body = format!(r#"{{"sha": "{COMMIT}", "siblings": [{{"rfilename": "../../../x.gguf"}}]}}"#);
            return Answer { body: body.into_bytes(), ..Answer::status(200) };
        }
        serve(r, b"x")
    });
    let hub = Hub::new(settings(cache.path(), &server.url), &[]);
    assert!(matches!(fails(&hub, "hf:org/repo"), Error::BadReference { .. }));
    assert_eq!(server.count("HEAD"), 0);
}

#[test]
fn sources_are_tried_in_order_and_failures_told() {
    let cache = tempfile::tempdir().expect("a folder");
    let bytes = content(100);
    let served = bytes.clone();
    let server = Server::start(move |r| match r.path.contains("/good/") {
        true => serve(r, &served),
        false => Answer::status(404),
    });
    const BOTH: &[Source] = &[Source::Hub { revision: "bad" }, Source::Hub { revision: "good" }];
    const NEITHER: &[Source] = &[Source::Hub { revision: "bad" }, Source::Hub { revision: "worse" }];
    let mut ear = Ear::default();
    let hub = Hub::new(settings(cache.path(), &server.url), catalogue(&bytes, BOTH));
    hub.fetch("m", &mut ear).expect("the second source");
    assert!(matches!(ear.notes.as_slice(), [one] if one.contains("404")), "{:?}", ear.notes);
    let hub = Hub::new(settings(cache.path(), &server.url), catalogue(&content(50), NEITHER));
    let error = fails(&hub, "m").to_string();
    assert!(error.contains("@bad/") && error.contains("@worse/"), "{error}");
}
