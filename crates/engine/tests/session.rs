//! Timelines over a service, and a long run of requests that leaves nothing behind.

mod tiny;

use cera::{Engine, Error, Event, Options, Request, Service, ServiceOptions, Session};
use cera_backend::{BLOCK, Reference};
use cera_sample::Params;
use serde_json::json;
use tiny::{END_OF_TURN, Text};

const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

fn service(text: Text, options: &Options<'_>) -> Service {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::load(&tiny::write(folder.path(), text), Box::new(Reference), options).unwrap();
    Service::start(engine, ServiceOptions::default()).unwrap()
}

fn greedy() -> Request {
    Request { sampling: Params::greedy(), ..Request::default() }
}

fn few(tokens: usize) -> Request {
    Request { max_tokens: Some(tokens), ..greedy() }
}

fn answer(session: &mut Session, request: Request) -> String {
    session.answer(request).unwrap().0
}

#[test]
fn a_timeline_of_text_grows_forks_and_goes_back() {
    let service = service(Text::Plain, &Options::default());
    let mut session = service.session();
    session.append_text("count: ").unwrap();
    session.append_text("W").unwrap();
    let before = session.tokens().len();
    assert_eq!(answer(&mut session, few(2)), "XY");
    let mut fork = session.fork();
    assert_eq!(answer(&mut session, greedy()), "Z");
    fork.append_text("B").unwrap();
    assert_eq!(answer(&mut fork, few(3)), "CDE");
    assert_eq!(fork.text().unwrap(), "count: WXYBCDE");
    session.rewind(before);
    assert_eq!((session.text().unwrap(), answer(&mut session, few(1))), ("count: W".into(), "X".into()));
    session.append_tokens(&[u32::from(b'K')]).unwrap();
    assert_eq!(answer(&mut session, few(1)), "L");
    assert!(matches!(session.append_tokens(&[9999]), Err(Error::Vocabulary { .. })));
    assert!(matches!(session.append_tokens(&[65; 5000]), Err(Error::Context { .. })));
    assert!(matches!(session.append_messages(&[]), Err(Error::Token(_) | Error::Request(_))));
    assert!(matches!(session.generate(Request { choices: 2, ..greedy() }), Err(Error::Request(_))));
    assert!(matches!(service.session().generate(greedy()), Err(Error::Request(_))));
}

#[test]
fn a_conversation_reads_only_what_is_new() {
    let service = service(Text::Chat, &Options::default());
    let mut session = service.session();
    let system = json!({ "role": "system", "content": "s".repeat(3 * BLOCK) });
    session.append_messages(&[system, json!({ "role": "user", "content": "hello" })]).unwrap();
    let (text, first) = session.answer(greedy()).unwrap();
    assert_eq!((text.as_str(), first.reused_tokens), (ALPHABET, 0));
    assert_eq!(session.tokens().last(), Some(&END_OF_TURN));
    assert_eq!(session.messages()[2], json!({ "role": "assistant", "content": ALPHABET }));
    let after_first = session.tokens().len();

    session.append_messages(&[json!({ "role": "user", "content": "again" })]).unwrap();
    let (_, second) = session.answer(greedy()).unwrap();
    let whole = second.reused_tokens + second.prompt_tokens;
    assert!(second.prompt_tokens < whole - first.prompt_tokens + BLOCK, "{second:?}");
    // A reply that is broken off was said as far as it came.
    session.append_messages(&[json!({ "role": "user", "content": "more" })]).unwrap();
    let mut generation = session.generate(greedy()).unwrap();
    let mut seen = 0;
    while let Some(event) = generation.recv_blocking() {
        seen += usize::from(matches!(event.unwrap(), Event::Token(_)));
        if seen == 3 {
            break;
        }
    }
    drop(generation);
    assert_eq!(session.messages().last(), Some(&json!({ "role": "assistant", "content": "ABC" })));
    // Back to where the first answer had ended, and on from there.
    session.rewind(after_first);
    assert_eq!(session.messages().len(), 3);
    session.append_messages(&[json!({ "role": "user", "content": "again" })]).unwrap();
    assert_eq!(answer(&mut session, greedy()), ALPHABET);
    // Not within a message.
    session.rewind(session.tokens().len() - 3);
    session.rewind(after_first - 3);
    assert_eq!(session.messages().len(), 2);
    session.rewind(0);
    session.append_text("W").unwrap();
    assert_eq!(answer(&mut session, few(3)), "XYZ");
    assert!(matches!(session.append_messages(&[]), Err(Error::Request(_))));
}

#[test]
fn a_session_is_saved_and_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talk.json");
    let first = service(Text::Chat, &Options::default());
    let mut session = first.session();
    session.append_messages(&[json!({ "role": "user", "content": "hello" })]).unwrap();
    answer(&mut session, greedy());
    session.save(&file).unwrap();
    let (tokens, messages) = (session.tokens().to_vec(), session.messages().to_vec());
    drop((session, first));

    let second = service(Text::Chat, &Options::default());
    let mut session = Session::restore(&second, &file).unwrap();
    assert_eq!((session.tokens(), session.messages()), (&tokens[..], &messages[..]));
    session.append_messages(&[json!({ "role": "user", "content": "again" })]).unwrap();
    assert!(session.tokens().len() > tokens.len());
    assert_eq!(answer(&mut session, greedy()), ALPHABET);
    session.save(&file).unwrap();

    let refused = |service: &Service, word: &str| {
        let error = Session::restore(service, &file).err().unwrap().to_string();
        assert!(error.contains("talk.json") && error.contains(word), "{error}");
    };
    refused(&service(Text::None, &Options::default()), "vocabulary");
    let short = Options { context: Some(BLOCK), ..Options::default() };
    assert!(matches!(Session::restore(&service(Text::Chat, &short), &file), Err(Error::Context { .. })));
    let text = std::fs::read_to_string(&file).unwrap();
    for (from, to, word) in [
        ("cera session 1", "cera session 9", "format"),
        ("\"marks\":[[", "\"marks\":[[9999,1],[", "marks"),
        ("{\"format\"", "{\"formal\"", "formal"),
    ] {
        std::fs::write(&file, text.replace(from, to)).unwrap();
        refused(&second, word);
    }
    std::fs::write(&file, &text[..text.len() / 2]).unwrap();
    refused(&second, "");
    std::fs::remove_file(&file).unwrap();
    refused(&second, "");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Memory of this process that is in use, where the system tells.
fn resident() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    text.split_whitespace().nth(1)?.parse::<usize>().ok().map(|pages| pages * 4096)
}

#[test]
fn ten_thousand_requests_leave_nothing_behind() {
    let options = Options { context: Some(4 * BLOCK), sequences: 8, ..Options::default() };
    let service = service(Text::Chat, &options);
    let total = service.stats().blocks_total;
    let mut after_some = None;
    for round in 0..200u32 {
        let answers: Vec<_> = (0..50u32)
            .map(|i| {
                let length = 1 + (round * 7 + i * 13) % 70;
                let prompt = (0..length).map(|p| 97 + (p + i * round) % 23).collect();
                service.submit(prompt, few(1 + i as usize % 4)).unwrap()
            })
            .collect();
        for (i, answer) in answers.into_iter().enumerate() {
            // Some are read, some dropped halfway, some at once.
            match i % 5 {
                0 => drop(answer),
                1 => drop(answer.take(1).collect::<Vec<_>>()),
                _ => assert!(answer.last().is_some_and(|e| matches!(e, Ok(Event::Done(_))))),
            }
        }
        if round == 40 {
            after_some = resident();
        }
    }
    service.drain().recv_blocking().unwrap();
    let stats = service.stats();
    assert_eq!((stats.queued, stats.running, stats.blocks_used), (0, 0, 0), "{stats:?}");
    assert_eq!((stats.finished + stats.cancelled, stats.failed), (10_000, 0), "{stats:?}");
    assert!(stats.blocks_kept <= total);
    if let (Some(before), Some(after)) = (after_some, resident()) {
        assert!(after < before + (8 << 20), "{before} bytes after some, {after} after all");
    }
}
