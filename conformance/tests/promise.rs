//! The promise: a request gets the tokens that it would have got alone, bit for bit, whatever it shares the model with.
//!
//! Requests of mixed lengths, half of them greedy and half sampled, come at random to a service: 64 of them, twenty times
//! over. Each one's tokens are compared with those that an engine which serves nobody else gives. Some prompts begin
//! alike, some answers are broken off, and the cache is so small that sequences lose their blocks and are computed again.

use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;

use cera::{Answer, Engine, Event, Options, Request, Sequence, Service, ServiceOptions};
use cera_conformance::Fixture;
use cera_cpu::{Cpu, Options as CpuOptions};
use cera_sample::Params;

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// The longest that a prompt and its answer are together.
const CONTEXT: usize = 256;
/// Requests at a time.
const COMPANY: usize = 64;
/// Different requests that these are drawn from.
const REQUESTS: usize = 120;
const SEEDS: u64 = 20;

/// How the cache is made.
#[derive(Clone, Copy, Debug)]
struct Cache {
    /// Tokens that it has room for.
    tokens: usize,
    /// Whether prompts that begin alike share it.
    prefixes: bool,
}

fn engine(family: &str, options: &Options<'_>) -> Engine {
    let fixture = Fixture::read(family).unwrap();
    let cpu = Cpu::new(CpuOptions { threads: Some(1), pin: false, ..CpuOptions::default() }).unwrap();
    let options = Options { context: Some(CONTEXT), text: false, ..options.clone() };
    Engine::load(&fixture.path, Box::new(cpu), &options).unwrap()
}

/// Requests whose prompts begin with one of three texts, cut anywhere.
fn requests(vocabulary: usize) -> Vec<(Vec<u32>, Request)> {
    let mut random = Random(vocabulary as u64);
    let texts: Vec<Vec<u32>> =
        (0..3).map(|_| (0..CONTEXT).map(|_| random.below(vocabulary) as u32).collect()).collect();
    let request = |i: usize| {
        let longest = if i.is_multiple_of(6) { 200 } else { 50 };
        let mut prompt = texts[random.below(3)][..random.below(longest)].to_vec();
        prompt.extend((0..1 + random.below(20)).map(|_| random.below(vocabulary) as u32));
        let sampled = Params {
            temperature: 1.5,
            top_k: 0,
            top_p: 0.99,
            min_p: 0.0,
            repeat_penalty: 1.1,
            seed: random.below(1000) as u64,
            ..Params::default()
        };
        let sampling = if i.is_multiple_of(2) { Params::greedy() } else { sampled };
        // Long answers to short prompts outgrow the room that was there when they began.
        let longest = if prompt.len() < 30 { 180 } else { 8 };
        (prompt, Request { sampling, max_tokens: Some(1 + random.below(longest)), ..Request::default() })
    };
    (0..REQUESTS).map(request).collect()
}

/// What a request gets of an engine that serves nobody else.
fn alone(engine: &mut Engine, prompt: &[u32], request: &Request) -> Vec<u32> {
    let mut sequence = engine.sequence();
    sequence.append(prompt).unwrap();
    engine.generate(&mut sequence, request, &mut |_| ControlFlow::Continue(())).unwrap();
    sequence.tokens()[prompt.len()..].to_vec()
}

fn tokens(answer: Answer) -> Vec<u32> {
    let events = answer.map(Result::unwrap);
    events.filter_map(|e| if let Event::Token(token) = e { Some(token.id) } else { None }).collect()
}

fn keeps_the_promise(family: &str, caches: &[Cache]) {
    let mut by_itself = engine(family, &Options::default());
    let requests = requests(by_itself.vocabulary());
    let expected: Vec<Vec<u32>> =
        requests.iter().map(|(prompt, request)| alone(&mut by_itself, prompt, request)).collect();
    for &cache in caches {
        let options =
            Options { sequences: 12, cache_tokens: Some(cache.tokens), max_rows: 96, ..Options::default() };
        let service = ServiceOptions { prefix_cache: cache.prefixes, ..ServiceOptions::default() };
        let service = Service::start(engine(family, &options), service).unwrap();
        for seed in 0..SEEDS {
            let mut random = Random(seed);
            let mut answers = Vec::new();
            for _ in 0..COMPANY {
                let i = random.below(REQUESTS);
                let (prompt, request) = &requests[i];
                let answer = service.submit(prompt.clone(), request.clone()).unwrap();
                // One of ten is broken off, at once or when others have come.
                answers.push((i, random.below(10) > 0, answer));
                if random.below(4) == 0 {
                    thread::sleep(Duration::from_micros(random.below(3000) as u64));
                }
                if random.below(20) == 0 {
                    answers.retain(|(_, wanted, _)| *wanted);
                }
            }
            answers.retain(|(_, wanted, _)| *wanted);
            for (i, _, answer) in answers {
                assert!(
                    tokens(answer) == expected[i],
                    "{family}, {cache:?}, seed {seed}: request {i} differs from itself alone"
                );
            }
        }
        service.drain().recv_blocking().unwrap();
        let stats = service.stats();
        println!("{family}, {cache:?}: {stats:?}");
        assert_eq!((stats.failed, stats.running, stats.blocks_used), (0, 0, 0));
        assert_eq!(stats.prefix_hits > 0, cache.prefixes, "{stats:?}");
        assert_eq!(stats.preemptions > 0, cache.tokens < 12 * CONTEXT, "{stats:?}");
    }
}

/// Timelines that grow, fork, go back, share beginnings and go on: at each place the answer is that of a sequence which was
/// made of the same tokens at once, in an engine of its own.
fn timelines(family: &str) {
    let options =
        Options { sequences: 6, cache_tokens: Some(4 * CONTEXT), max_rows: 80, ..Options::default() };
    let mut engine = engine(family, &options);
    let mut other = self::engine(family, &Options::default());
    let vocabulary = engine.vocabulary();
    let mut random = Random(7);
    let mut timelines: Vec<Sequence> = Vec::new();
    let (mut reused, mut forked) = (0, 0);
    for round in 0..250 {
        if timelines.len() < 2 || timelines.len() < 5 && random.below(8) == 0 {
            timelines.push(engine.sequence());
        }
        let (count, at) = (timelines.len(), random.below(timelines.len()));
        let timeline = &mut timelines[at];
        let length = timeline.tokens().len();
        match random.below(7) {
            0 if length > 0 => timeline.rewind(random.below(length)),
            1 if count < 5 => {
                let fork = engine.fork(timeline).unwrap();
                timelines.push(fork);
                forked += 1;
            }
            2 => drop(timelines.remove(at)),
            3 if length > 0 => {
                // Gone, kept, and begun anew.
                engine.keep(timeline).unwrap();
                let mut again = engine.sequence();
                again.append(timeline.tokens()).unwrap();
                *timeline = again;
                reused += engine.reuse(timeline).unwrap();
            }
            _ if length + 60 < CONTEXT => {
                let more = 1 + random.below(50);
                let more: Vec<u32> = (0..more).map(|_| random.below(vocabulary) as u32).collect();
                timeline.append(&more).unwrap();
                let prompt = timeline.tokens().to_vec();
                let sampling = Params { temperature: 1.0, seed: round, ..Params::default() };
                let request = Request { sampling, max_tokens: Some(4), ..Request::default() };
                engine.generate(timeline, &request, &mut |_| ControlFlow::Continue(())).unwrap();
                let expected = alone(&mut other, &prompt, &request);
                assert_eq!(timeline.tokens()[prompt.len()..], expected, "{family}, round {round}");
            }
            _ => {}
        }
    }
    assert!(reused > 100 && forked > 10, "{reused} tokens were reused, {forked} forks");
    drop(timelines);
    assert_eq!(engine.free_blocks(), engine.blocks());
}

#[test]
fn timelines_fork_and_go_back() {
    for family in ["llama", "gemma3", "lfm2", "mamba2", "qwen35"] {
        timelines(family);
    }
}

/// Plenty, and so little that sequences are preempted all the time; without and with shared beginnings.
const CACHES: [Cache; 4] = [
    Cache { tokens: 12 * CONTEXT, prefixes: false },
    Cache { tokens: CONTEXT + 128, prefixes: false },
    Cache { tokens: 12 * CONTEXT, prefixes: true },
    Cache { tokens: CONTEXT + 128, prefixes: true },
];

#[test]
fn full_attention() {
    keeps_the_promise("llama", &CACHES);
}

#[test]
fn sliding_windows() {
    keeps_the_promise("gemma3", &CACHES);
}

#[test]
fn experts() {
    keeps_the_promise("qwen3moe", &CACHES);
}

#[test]
fn short_convolutions() {
    keeps_the_promise("lfm2", &CACHES);
}

#[test]
fn a_delta_rule() {
    keeps_the_promise("qwen35", &CACHES);
}

#[test]
fn a_selective_scan_beside_attention() {
    keeps_the_promise("falcon-h1", &CACHES);
}
