//! The engine over a model whose answers are known, on the reference backend.

mod tiny;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use cera::{Engine, Error, Event, Finish, Options, Part, Report, Request, Sequence, Want};
use cera_backend::Reference;
use cera_sample::Params;
use tiny::{CONTEXT, END_OF_TURN, Text, VOCABULARY};

/// A folder that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("cera-engine-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn load(text: Text, options: &Options<'_>) -> Result<Engine, Error> {
    let folder = Folder::new();
    Engine::load(&tiny::write(&folder.0, text), Box::new(Reference), options)
}

fn engine(options: &Options<'_>) -> Engine {
    load(Text::Chat, options).unwrap()
}

fn greedy() -> Request {
    Request { sampling: Params::greedy(), ..Request::default() }
}

fn ids(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// The answer's text and report.
fn answer(engine: &mut Engine, sequence: &mut Sequence, request: &Request) -> (String, Report) {
    let mut text = String::new();
    let report = engine
        .generate(sequence, request, &mut |event| {
            if let Event::Token(token) = event {
                text.push_str(&token.text);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    (text, report)
}

#[test]
fn counts_to_the_end_of_its_turn() {
    let mut engine = engine(&Options::default());
    let mut sequence = engine.sequence();
    sequence.append(&ids("then W")).unwrap();
    let (text, report) = answer(&mut engine, &mut sequence, &greedy());
    assert_eq!(text, "XYZ");
    assert_eq!(report.finish, Finish::Eog);
    assert_eq!((report.reused_tokens, report.prompt_tokens, report.generated_tokens), (0, 6, 4));
    assert!(report.first_token.unwrap() <= report.prompt_time + report.generation_time);
    assert!(report.prompt_rate() > 0.0 && report.generation_rate() > 0.0);
    let mut all = ids("then WXYZ");
    all.push(END_OF_TURN);
    assert_eq!(sequence.tokens(), all);
    assert_eq!(sequence.pending(), [END_OF_TURN]);
}

#[test]
fn ends_where_it_is_told_to() {
    let mut engine = engine(&Options::default());
    let cases: [(Request, &str, Finish); 5] = [
        (Request { max_tokens: Some(3), ..greedy() }, "BCD", Finish::Length),
        (Request { max_tokens: Some(0), ..greedy() }, "", Finish::Length),
        (Request { stop: vec!["X".into(), "EFG".into()], ..greedy() }, "BCD", Finish::Stop),
        // Held back as the beginning of a stop string, then let out.
        (Request { stop: vec!["Z!".into()], ..greedy() }, "BCDEFGHIJKLMNOPQRSTUVWXYZ", Finish::Eog),
        (
            Request { ignore_eog: true, max_tokens: Some(29), ..greedy() },
            "BCDEFGHIJKLMNOPQRSTUVWXYZABC",
            Finish::Length,
        ),
    ];
    for (request, text, finish) in cases {
        let mut sequence = engine.sequence();
        sequence.append(&ids("A")).unwrap();
        let (got, report) = answer(&mut engine, &mut sequence, &request);
        assert_eq!((got.as_str(), report.finish), (text, finish), "{request:?}");
    }
}

#[test]
fn ends_with_the_context_and_refuses_what_is_longer() {
    let mut engine = engine(&Options { context: Some(40), ..Options::default() });
    let mut sequence = engine.sequence();
    let error = sequence.append(&[65; 41]).unwrap_err();
    assert_eq!(error.to_string(), "41 tokens do not fit the context of 40");
    sequence.append(&[65; 37]).unwrap();
    let (text, report) = answer(&mut engine, &mut sequence, &greedy());
    assert_eq!((text.as_str(), report.finish), ("BCD", Finish::Context));
    assert_eq!(sequence.tokens().len(), 40);

    let too_long = CONTEXT as usize + 1;
    let error = load(Text::None, &Options { context: Some(too_long), ..Options::default() }).err().unwrap();
    assert!(error.to_string().contains("4097") && error.to_string().contains("4096"), "{error}");
}

#[test]
fn breaks_off_at_any_step_and_goes_on_from_there() {
    let mut engine = engine(&Options { max_rows: 4, ..Options::default() });
    let mut sequence = engine.sequence();
    sequence.append(&ids("0123456789A")).unwrap();
    // In the prompt, ahead of its third step.
    let flow = |end: bool| if end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let at = Event::Prompt { done: 8, total: 11 };
    let report = engine.generate(&mut sequence, &greedy(), &mut |e| flow(e == at)).unwrap();
    assert_eq!((report.finish, report.prompt_tokens, report.generated_tokens), (Finish::Cancelled, 8, 0));
    assert_eq!((report.first_token, sequence.stored()), (None, 8));
    // In the answer, at its second token.
    let at = u32::from(b'C');
    let is_at = |e| matches!(e, Event::Token(token) if token.id == at);
    let report = engine.generate(&mut sequence, &greedy(), &mut |e| flow(is_at(e))).unwrap();
    assert_eq!((report.finish, report.reused_tokens, report.prompt_tokens), (Finish::Cancelled, 8, 3));
    assert_eq!(sequence.tokens(), ids("0123456789ABC"));
    let (text, report) = answer(&mut engine, &mut sequence, &Request { max_tokens: Some(2), ..greedy() });
    assert_eq!((text.as_str(), report.prompt_tokens), ("DE", 1));
}

#[test]
fn chunks_and_company_do_not_change_the_logits() {
    let tokens = ids("some text that is longer than a block of the cache, by a few letters");
    let logits_of = |max_rows: usize| {
        let mut engine = engine(&Options { max_rows, ..Options::default() });
        let mut sequence = engine.sequence();
        sequence.append(&tokens).unwrap();
        let mut all = Vec::new();
        while !sequence.pending().is_empty() {
            let rows = sequence.pending().len().min(max_rows);
            let part = Part { sequence: &mut sequence, rows, want: Want::AllLogits };
            all.extend_from_slice(&engine.step(&mut [part]).unwrap().logits);
        }
        all
    };
    let whole = logits_of(512);
    assert_eq!(whole.len(), tokens.len() * VOCABULARY);
    assert!(whole == logits_of(1) && whole == logits_of(7));

    // Three sequences in one step, each with another wish.
    let mut engine = engine(&Options { sequences: 3, ..Options::default() });
    let mut s: Vec<Sequence> = (0..3).map(|_| engine.sequence()).collect();
    s[0].append(&ids("K")).unwrap();
    s[1].append(&tokens).unwrap();
    s[2].append(&ids("aQ")).unwrap();
    let rows: Vec<usize> = s.iter().map(|s| s.pending().len()).collect();
    let wants = [Want::Token, Want::AllLogits, Want::Logits];
    let mut parts: Vec<Part<'_>> = s
        .iter_mut()
        .zip(rows)
        .zip(wants)
        .map(|((sequence, rows), want)| Part { sequence, rows, want })
        .collect();
    let out = engine.step(&mut parts).unwrap();
    let (own, last) = out.logits.split_at(tokens.len() * VOCABULARY);
    assert!(own == whole);
    assert_eq!(last.len(), VOCABULARY);
    assert_eq!(out.tokens.first(), Some(&u32::from(b'L')));
    assert_eq!(out.tokens.last(), Some(&u32::from(b'R')));
    assert_eq!(out.tokens.len(), 2 + tokens.len());
}

#[test]
fn sampling_with_a_seed_repeats() {
    let request = Request {
        sampling: Params {
            temperature: 40.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 7,
            ..Params::default()
        },
        max_tokens: Some(20),
        ignore_eog: true,
        ..Request::default()
    };
    let mut engine = engine(&Options::default());
    let mut draw = |request: &Request| {
        let mut sequence = engine.sequence();
        sequence.append(&ids("A")).unwrap();
        answer(&mut engine, &mut sequence, request);
        sequence.tokens().to_vec()
    };
    let first = draw(&request);
    assert_eq!(first, draw(&request));
    let other = Request { sampling: Params { seed: 8, ..request.sampling.clone() }, ..request };
    assert_ne!(first, draw(&other));
}

#[test]
fn a_file_without_a_vocabulary_takes_and_gives_ids() {
    let mut engine = load(Text::None, &Options::default()).unwrap();
    assert!(matches!(engine.tokenizer(), Err(Error::NoTokenizer)));
    let mut sequence = engine.sequence();
    sequence.append(&ids("X")).unwrap();
    let (text, report) = answer(&mut engine, &mut sequence, &Request { max_tokens: Some(4), ..greedy() });
    // Nothing says which token ends an answer, so it goes on.
    assert_eq!((text.as_str(), report.finish), ("", Finish::Length));
    assert_eq!(sequence.tokens(), [88, 89, 90, END_OF_TURN, 65]);
    let stop = Request { stop: vec!["Z".into()], ..greedy() };
    let error = engine.generate(&mut sequence, &stop, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(error, Error::NoTokenizer), "{error}");
}

#[test]
fn steps_that_make_no_sense_are_refused_and_change_nothing() {
    let (mut engine, other) = (engine(&Options::default()), engine(&Options::default()));
    let mut sequence = engine.sequence();
    sequence.append(&ids("AB")).unwrap();
    let free = engine.free_positions();
    for rows in [0, 3, 513] {
        let part = Part { sequence: &mut sequence, rows, want: Want::Token };
        assert!(matches!(engine.step(&mut [part]), Err(Error::Request(_))), "{rows}");
    }
    assert!(matches!(engine.step(&mut []), Err(Error::Request(_))));
    let mut stranger = other.sequence();
    stranger.append(&ids("A")).unwrap();
    let part = Part { sequence: &mut stranger, rows: 1, want: Want::Token };
    assert!(matches!(engine.step(&mut [part]), Err(Error::Request(_))));
    assert_eq!((sequence.stored(), engine.free_positions()), (0, free));

    let nothing = &mut engine.sequence();
    let error = engine.generate(nothing, &greedy(), &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(error, Error::Request(_)), "{error}");
}

#[test]
fn a_full_cache_is_an_error_and_a_dropped_sequence_frees_it() {
    let mut engine = engine(&Options { context: Some(64), ..Options::default() });
    assert_eq!(engine.free_positions(), 64);
    let mut first = engine.sequence();
    first.append(&[65; 40]).unwrap();
    let part = Part { sequence: &mut first, rows: 40, want: Want::Nothing };
    engine.step(&mut [part]).unwrap();
    assert_eq!(engine.free_positions(), 0);
    let mut second = engine.sequence();
    second.append(&[65; 5]).unwrap();
    let step = |engine: &mut Engine, sequence: &mut Sequence| {
        engine.step(&mut [Part { sequence, rows: 5, want: Want::Token }]).map(|out| out.tokens.clone())
    };
    let error = step(&mut engine, &mut second).unwrap_err();
    assert!(matches!(error, Error::Blocks { needed: 1, free: 0 }), "{error}");
    drop(first);
    assert_eq!(step(&mut engine, &mut second).unwrap(), [66]);
}

#[test]
fn the_load_tells_its_progress() {
    let most = AtomicU64::new(0);
    let told = |taken: u64, total: u64| {
        assert!(taken <= total);
        most.fetch_max(taken, Ordering::Relaxed);
    };
    let engine = engine(&Options { progress: Some(&told), ..Options::default() });
    assert_eq!(most.load(Ordering::Relaxed), engine.weight_bytes());
}
