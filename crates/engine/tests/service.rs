//! Many requests at once, over a model whose answers are known.

mod tiny;

use std::time::Duration;

use cera::{
    Answer, Engine, Error, Event, Finish, Logprobs, Options, Report, Request, Service, ServiceOptions, Token,
};
use cera_backend::{BLOCK, Reference};
use cera_sample::Params;
use tiny::{Text, VOCABULARY};

fn engine(options: &Options<'_>) -> Engine {
    let folder = tempfile::tempdir().unwrap();
    Engine::load(&tiny::write(folder.path(), Text::Chat), Box::new(Reference), options).unwrap()
}

fn start(options: &Options<'_>, service: ServiceOptions) -> Service {
    Service::start(engine(options), service).unwrap()
}

fn greedy() -> Request {
    Request { sampling: Params::greedy(), ..Request::default() }
}

/// Goes on for `tokens` tokens, whatever they are.
fn endless(tokens: usize) -> Request {
    Request { max_tokens: Some(tokens), ignore_eog: true, ..greedy() }
}

fn ids(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// All tokens, their text, and the last report of an answer.
fn read(answer: Answer) -> (Vec<Token>, String, Report) {
    let (mut tokens, mut text, mut report) = (Vec::new(), String::new(), None);
    for event in answer {
        match event.unwrap() {
            Event::Prompt { done, total } => assert!(done < total),
            Event::Token(token) => {
                text.push_str(&token.text);
                tokens.push(token);
            }
            Event::Done(r) => report = Some(r),
        }
    }
    (tokens, text, report.unwrap())
}

/// Waits until the statistics are as wanted.
fn wait(service: &Service, what: &str, done: impl Fn(&cera::Stats) -> bool) {
    for _ in 0..1000 {
        if done(&service.stats()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{what}: {:?}", service.stats());
}

#[test]
fn answers_several_requests_and_says_how_it_went() {
    let service = start(&Options { sequences: 4, ..Options::default() }, ServiceOptions::default());
    let answers: Vec<Answer> =
        ["then W", "A", "long ago it was K"].map(|p| service.submit(ids(p), greedy()).unwrap()).into();
    let texts: Vec<String> = answers.into_iter().map(|a| read(a).1).collect();
    assert_eq!(texts, ["XYZ", "BCDEFGHIJKLMNOPQRSTUVWXYZ", "LMNOPQRSTUVWXYZ"]);

    let (tokens, text, report) =
        read(service.submit(ids("W"), Request { max_tokens: Some(2), ..greedy() }).unwrap());
    assert_eq!((text.as_str(), tokens.len(), report.finish), ("XY", 2, Finish::Length));
    assert_eq!((report.prompt_tokens + report.reused_tokens, report.generated_tokens), (1, 2));
    assert!(report.first_token.unwrap() >= report.queue_time);
    let stats = service.stats();
    assert_eq!((stats.finished, stats.failed, stats.cancelled), (4, 0, 0));
    assert_eq!(stats.generated_tokens, 4 + 26 + 16 + 2);
}

#[test]
fn an_answer_can_be_awaited() {
    let service = start(&Options::default(), ServiceOptions::default());
    let mut answer = service.submit(ids("W"), greedy()).unwrap();
    let mut text = String::new();
    pollster::block_on(async {
        while let Some(event) = answer.next().await {
            if let Event::Token(token) = event.unwrap() {
                text.push_str(&token.text);
            }
        }
    });
    assert_eq!(text, "XYZ");
}

#[test]
fn what_cannot_be_served_is_refused_with_the_numbers() {
    let service = start(&Options { context: Some(64), ..Options::default() }, ServiceOptions::default());
    let refuse = |prompt: &[u32], request: Request| service.submit(prompt.to_vec(), request).unwrap_err();
    assert_eq!(refuse(&[65; 70], greedy()).to_string(), "70 tokens do not fit the context of 64");
    assert!(matches!(refuse(&[], greedy()), Error::Request(_)));
    let token = VOCABULARY as u32;
    assert!(matches!(refuse(&[token], greedy()), Error::Vocabulary { token: t, .. } if t == token));
    assert!(matches!(refuse(&[65], Request { stop: vec![String::new()], ..greedy() }), Error::Request(_)));
    assert!(matches!(refuse(&[65], Request { choices: 0, ..greedy() }), Error::Request(_)));
    assert!(matches!(service.embed(vec![vec![65]], cera::Norm::L2), Err(Error::Request(_))));
    // What just fits has no room for an answer.
    let (tokens, _, report) = read(service.submit(vec![65; 64], greedy()).unwrap());
    assert_eq!((tokens.len(), report.finish), (0, Finish::Context));
}

#[test]
fn a_full_queue_is_busy_and_says_so() {
    let options = ServiceOptions { queue: 2, running: 1, ..ServiceOptions::default() };
    let service = start(&Options::default(), options);
    let first = service.submit(ids("A"), endless(4000)).unwrap();
    wait(&service, "the first runs", |s| s.running == 1 && s.queued == 0);
    let waiting = [service.submit(ids("B"), greedy()).unwrap(), service.submit(ids("C"), greedy()).unwrap()];
    let error = service.submit(ids("D"), greedy()).unwrap_err();
    assert!(matches!(error, Error::Busy { queued: 2, limit: 2 }), "{error}");
    let error = service.submit(ids("D"), Request { choices: 3, ..greedy() }).unwrap_err();
    assert!(matches!(error, Error::Request(_)), "{error}");
    // Whoever stops waiting makes room.
    let [second, third] = waiting;
    drop(second);
    wait(&service, "one place is free", |s| s.queued == 1);
    let fourth = service.submit(ids("Y"), greedy()).unwrap();
    drop(first);
    assert_eq!(read(third).1, "DEFGHIJKLMNOPQRSTUVWXYZ");
    assert_eq!(read(fourth).1, "Z");
}

#[test]
fn a_dropped_answer_frees_its_blocks() {
    let service = start(&Options { sequences: 2, ..Options::default() }, ServiceOptions::default());
    let answers: Vec<Answer> =
        (0..3).map(|_| service.submit(vec![65; 5 * BLOCK], endless(2000)).unwrap()).collect();
    wait(&service, "they run", |s| s.generated_tokens > 5);
    let steps = service.stats().steps;
    drop(answers);
    wait(&service, "nothing is left", |s| s.blocks_used == 0 && s.running == 0);
    assert!(service.stats().steps <= steps + 20, "they went on");
    assert_eq!(service.stats().cancelled, 3);
}

#[test]
fn a_small_cache_preempts_and_the_answers_stay_what_they_are() {
    let options = Options { context: Some(8 * BLOCK), ..Options::default() };
    let service = start(&options, ServiceOptions::default());
    let answers: Vec<Answer> =
        (0..4).map(|i| service.submit(vec![65 + i; BLOCK], endless(4 * BLOCK)).unwrap()).collect();
    for (i, answer) in answers.into_iter().enumerate() {
        let (tokens, _, report) = read(answer);
        // The alphabet, the end of the turn, and the alphabet again.
        let alphabet: Vec<u32> =
            ids("ABCDEFGHIJKLMNOPQRSTUVWXYZ").into_iter().chain([tiny::END_OF_TURN]).collect();
        let expected: Vec<u32> = alphabet.into_iter().cycle().skip(i + 1).take(4 * BLOCK).collect();
        assert_eq!(tokens.iter().map(|t| t.id).collect::<Vec<_>>(), expected);
        assert_eq!((report.prompt_tokens, report.generated_tokens), (BLOCK, 4 * BLOCK));
    }
    assert!(service.stats().preemptions > 0, "{:?}", service.stats());
    assert_eq!(service.stats().blocks_used, 0);
}

#[test]
fn several_choices_are_those_of_single_requests_with_the_next_seeds() {
    let service = start(&Options { sequences: 4, ..Options::default() }, ServiceOptions::default());
    let hot =
        |seed| Params { temperature: 40.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed, ..Params::default() };
    let request = |seed| Request { sampling: hot(seed), ..endless(20) };
    let several = service.submit(ids("A"), Request { choices: 3, ..request(7) }).unwrap();
    let (mut tokens, mut ended) = (vec![Vec::new(); 3], Vec::new());
    for event in several {
        match event.unwrap() {
            Event::Token(token) => tokens[token.choice].push(token.id),
            Event::Done(report) => ended.push(report.choice),
            Event::Prompt { .. } => {}
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, [0, 1, 2]);
    for (i, got) in tokens.iter().enumerate() {
        let alone = read(service.submit(ids("A"), request(7 + i as u64)).unwrap()).0;
        assert_eq!(*got, alone.iter().map(|t| t.id).collect::<Vec<_>>());
    }
    assert_ne!(tokens[0], tokens[1]);
}

#[test]
fn a_prompt_that_begins_like_a_former_one_goes_on_from_there() {
    let service = start(&Options { sequences: 2, ..Options::default() }, ServiceOptions::default());
    let shared = vec![97; 5 * BLOCK];
    let ask = |end: &str| {
        let prompt = [&shared[..], &ids(end)].concat();
        read(service.submit(prompt, greedy()).unwrap())
    };
    let (_, text, report) = ask("W");
    assert_eq!((text.as_str(), report.reused_tokens, report.prompt_tokens), ("XYZ", 0, 5 * BLOCK + 1));
    let (_, text, report) = ask("xU");
    assert_eq!((text.as_str(), report.reused_tokens, report.prompt_tokens), ("VWXYZ", 5 * BLOCK, 2));
    let stats = service.stats();
    assert_eq!((stats.prefix_hits, stats.reused_tokens), (1, 5 * BLOCK as u64));
    // Several answers read their prompt once.
    let before = service.stats().prompt_tokens;
    let prompt = vec![98; 3 * BLOCK + 1];
    let answer = service.submit(prompt, Request { choices: 4, max_tokens: Some(2), ..greedy() }).unwrap();
    let reports =
        answer.filter_map(|e| if let Event::Done(r) = e.unwrap() { Some(r.reused_tokens) } else { None });
    let mut reused: Vec<usize> = reports.collect();
    reused.sort_unstable();
    assert_eq!(reused, [0, 3 * BLOCK, 3 * BLOCK, 3 * BLOCK]);
    assert_eq!(service.stats().prompt_tokens - before, 3 * BLOCK as u64 + 4);
    service.drain().recv_blocking().unwrap();
    let stats = service.stats();
    assert!(stats.blocks_used == 0 && stats.blocks_kept >= 8, "{stats:?}");
}

#[test]
fn without_the_cache_of_prefixes_nothing_is_kept() {
    let options = ServiceOptions { prefix_cache: false, ..ServiceOptions::default() };
    let service = start(&Options::default(), options);
    for _ in 0..2 {
        let (_, _, report) = read(service.submit(vec![97; 3 * BLOCK], endless(3)).unwrap());
        assert_eq!((report.reused_tokens, report.prompt_tokens), (0, 3 * BLOCK));
    }
    assert_eq!((service.stats().blocks_kept, service.stats().prefix_hits), (0, 0));
}

#[test]
fn least_tokens_stop_strings_and_probabilities() {
    let service = start(&Options::default(), ServiceOptions::default());
    // The token that ends the turn is ruled out for so long, and what comes in its place is the next best.
    let request = Request { min_tokens: 5, max_tokens: Some(6), ..greedy() };
    let (tokens, _, report) = read(service.submit(ids("X"), request).unwrap());
    assert!(tokens[..5].iter().all(|t| t.id != tiny::END_OF_TURN));
    assert!(report.generated_tokens >= 5);
    // A stop string does not count before then either.
    let request = Request { stop: vec!["D".into(), "H".into()], min_tokens: 4, ..greedy() };
    assert_eq!(read(service.submit(ids("B"), request).unwrap()).1, "CDEFG");

    let request = Request { logprobs: Some(2), max_tokens: Some(1), ..greedy() };
    let (tokens, _, _) = read(service.submit(ids("B"), request).unwrap());
    let Some(Logprobs { chosen, top }) = &tokens[0].logprobs else { panic!("no probabilities") };
    assert_eq!((top.len(), top[0]), (2, (u32::from(b'C'), *chosen)));
    assert!(*chosen < 0.0 && top[1].1 < *chosen);
}

#[test]
fn draining_finishes_what_was_taken_and_takes_nothing_new() {
    let service = start(&Options::default(), ServiceOptions { running: 1, ..ServiceOptions::default() });
    let answers = [service.submit(ids("A"), greedy()).unwrap(), service.submit(ids("W"), greedy()).unwrap()];
    let drained = service.drain();
    assert!(matches!(service.submit(ids("A"), greedy()), Err(Error::Draining)));
    drained.recv_blocking().unwrap();
    assert_eq!(service.stats().finished, 2);
    assert_eq!(answers.map(|a| read(a).1), ["BCDEFGHIJKLMNOPQRSTUVWXYZ", "XYZ"]);
    service.drain().recv_blocking().unwrap();
}

#[test]
fn answers_outlive_the_handles() {
    let service = start(&Options::default(), ServiceOptions::default());
    let answer = service.submit(ids("A"), greedy()).unwrap();
    drop(service);
    assert_eq!(read(answer).1, "BCDEFGHIJKLMNOPQRSTUVWXYZ");
}

#[test]
fn a_short_request_is_not_kept_waiting_by_a_long_prompt() {
    let options = Options { context: Some(4096), max_rows: 64, sequences: 2, ..Options::default() };
    let service = start(&options, ServiceOptions::default());
    let mut long = service.submit(vec![97; 600], endless(1)).unwrap();
    // Its first step is under way.
    assert!(matches!(long.recv_blocking(), Some(Ok(Event::Prompt { done: 0, total: 600 }))));
    let short = service.submit(ids("Y"), greedy()).unwrap();
    assert_eq!(read(short).1, "Z");
    let mut done = 0;
    let mut after = 0;
    for event in long {
        match event.unwrap() {
            Event::Prompt { done: d, .. } => done = d,
            Event::Token(_) => after += 1,
            Event::Done(_) => {}
        }
    }
    assert!(done > 0 && after == 1);
    // The short one ended while the prompt was still being read, so the steps are those of the prompt alone.
    assert!(service.stats().steps <= 600u64.div_ceil(32) + 2, "{:?}", service.stats());
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for options in [
        ServiceOptions { queue: 0, ..ServiceOptions::default() },
        ServiceOptions { running: 0, ..ServiceOptions::default() },
        ServiceOptions { rows: Some(0), ..ServiceOptions::default() },
    ] {
        assert!(matches!(Service::start(engine(&Options::default()), options), Err(Error::Option(_))));
    }
}
