//! The disk tier: what was kept gives the same tokens after a restart, whoever dies when.

use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cera::{DiskOptions, Engine, Options, Request};
use cera_conformance::Fixture;
use cera_cpu::{Cpu, Options as CpuOptions};
use cera_sample::Params;

const CONTEXT: usize = 512;
/// The folder of the child's disk tier; its presence makes this program the child.
const FOLDER: &str = "CERA_TEST_DISK_FOLDER";
const FAMILY: &str = "CERA_TEST_DISK_FAMILY";
const SEED: &str = "CERA_TEST_DISK_SEED";

fn engine(family: &str, folder: Option<&Path>, bytes: u64) -> Engine {
    let fixture = Fixture::read(family).unwrap();
    let cpu = Cpu::new(CpuOptions { threads: Some(1), pin: false, ..CpuOptions::default() }).unwrap();
    let disk = folder.map(|folder| DiskOptions { folder: folder.to_owned(), bytes });
    let options = Options { context: Some(CONTEXT), text: false, sequences: 2, disk, ..Options::default() };
    Engine::load(&fixture.path, Box::new(cpu), &options).unwrap()
}

/// Prompts of several lengths, some with a common beginning.
fn prompt(i: usize, vocabulary: usize) -> Vec<u32> {
    let length = 70 + 61 * i % 300;
    (0..length).map(|p| ((p * 7 + p * p * (1 + (i % 3) * (p / 100))) % vocabulary) as u32).collect()
}

/// The answer, and how much of the prompt did not go through the model for it.
fn answer(engine: &mut Engine, prompt: &[u32]) -> (Vec<u32>, usize) {
    let mut sequence = engine.sequence();
    sequence.append(prompt).unwrap();
    let reused = engine.reuse(&mut sequence).unwrap();
    let request = Request { sampling: Params::greedy(), max_tokens: Some(6), ..Request::default() };
    engine.generate(&mut sequence, &request, &mut |_| ControlFlow::Continue(())).unwrap();
    engine.keep(&mut sequence).unwrap();
    (sequence.tokens()[prompt.len()..].to_vec(), reused)
}

/// What an engine without a disk tier answers.
fn expected(family: &str, prompts: usize) -> Vec<(Vec<u32>, Vec<u32>)> {
    let mut engine = engine(family, None, 0);
    let vocabulary = engine.vocabulary();
    let one = |i| {
        let prompt = prompt(i, vocabulary);
        let mut sequence = engine.sequence();
        sequence.append(&prompt).unwrap();
        let request = Request { sampling: Params::greedy(), max_tokens: Some(6), ..Request::default() };
        engine.generate(&mut sequence, &request, &mut |_| ControlFlow::Continue(())).unwrap();
        (prompt.clone(), sequence.tokens()[prompt.len()..].to_vec())
    };
    (0..prompts).map(one).collect()
}

#[test]
fn a_restart_goes_on_from_the_disk_with_the_same_tokens() {
    for family in ["llama", "gemma3", "qwen35", "lfm2", "mamba2", "deepseek2"] {
        let folder = tempfile::tempdir().unwrap();
        let expected = expected(family, 4);
        for round in 0..3 {
            let mut engine = engine(family, Some(folder.path()), 1 << 30);
            for (i, (prompt, tokens)) in expected.iter().enumerate() {
                let (got, reused) = answer(&mut engine, prompt);
                assert_eq!(got, *tokens, "{family}, round {round}, prompt {i}");
                // All whole blocks but for the last token, which something must be asked about.
                let most = (prompt.len() - 1) / 32 * 32;
                assert!(round == 0 || reused == most, "{family}: {reused} of {most} tokens");
            }
            let stats = engine.disk_stats().unwrap();
            assert_eq!((stats.errors, stats.damaged), (0, 0), "{stats:?}");
            assert!(round == 0 || stats.read > 0, "{stats:?}");
        }
        // Nothing of it is taken for another model's.
        let other = if family == "llama" { "llama3rope" } else { "llama" };
        let mut other = engine(other, Some(folder.path()), 1 << 30);
        let prompt = prompt(0, other.vocabulary());
        assert_eq!(answer(&mut other, &prompt).1, 0);
    }
}

#[test]
fn damaged_files_are_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let expected = expected("llama", 3);
    for (prompt, _) in &expected {
        answer(&mut engine("llama", Some(folder.path()), 1 << 30), prompt);
    }
    for (i, file) in std::fs::read_dir(folder.path()).unwrap().enumerate() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let at = i * 97 % bytes.len();
        bytes[at] ^= 0x10;
        std::fs::write(&path, bytes).unwrap();
    }
    let mut engine = engine("llama", Some(folder.path()), 1 << 30);
    for (prompt, tokens) in &expected {
        assert_eq!(answer(&mut engine, prompt).0, *tokens);
    }
    assert!(engine.disk_stats().unwrap().damaged > 0);
}

/// What the child does: answers prompts as fast as it can, until it is killed. A wrong answer ends it with an error.
#[test]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let (family, seed) =
        (std::env::var(FAMILY).unwrap(), std::env::var(SEED).unwrap().parse::<usize>().unwrap());
    let expected = expected(&family, 12);
    // So little room that files come and go.
    let mut engine = engine(&family, Some(folder.as_ref()), 120_000);
    println!("ready");
    for i in seed.. {
        let (prompt, tokens) = &expected[i * 5 % expected.len()];
        assert_eq!(answer(&mut engine, prompt).0, *tokens, "a wrong answer");
        if i > seed + 200 {
            break;
        }
    }
}

fn start(folder: &Path, family: &str, seed: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(FAMILY, family)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn killed_at_any_moment_it_starts_again_and_never_answers_wrongly() {
    for (family, rounds) in [("llama", 140), ("qwen35", 60)] {
        let folder = tempfile::tempdir().unwrap();
        let mut killed = 0;
        for round in 0..rounds {
            let mut child = start(folder.path(), family, round);
            // Most in the middle of their work, some while they start.
            let life = Duration::from_micros((round as u64 * 7919) % 90_000);
            let end = Instant::now() + life;
            while Instant::now() < end && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_micros(500));
            }
            killed += usize::from(child.try_wait().unwrap().is_none());
            let _ = child.kill();
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(!text.contains("panicked") && !told.contains("panicked"), "{text}{told}");
        }
        assert!(killed > rounds / 2, "only {killed} of {rounds} were killed");
        let mut engine = engine(family, Some(folder.path()), 120_000);
        let mut reused = 0;
        for (prompt, tokens) in expected(family, 12) {
            let (got, from_disk) = answer(&mut engine, &prompt);
            assert_eq!(got, tokens);
            reused += from_disk;
        }
        let stats = engine.disk_stats().unwrap();
        println!("{family}: {killed} of {rounds} killed, {reused} tokens reused, {stats:?}");
        assert!(stats.read > 0 && stats.errors == 0, "{stats:?}");
    }
}

/// A limit on the size of files stands in for a full disk: a write fails in the middle.
#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error_and_the_answers_go_on() {
    if std::env::var(FOLDER).is_ok() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    let script = format!(
        "trap '' XFSZ; ulimit -f 8; exec '{}' full_disk_child --exact --nocapture --test-threads=1",
        exe.display()
    );
    let output =
        Command::new("sh").args(["-c", &script]).env("CERA_TEST_FULL_DISK", folder.path()).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("the disk failed"), "{text}");
    // Nothing half written is left.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn full_disk_child() {
    let Ok(folder) = std::env::var("CERA_TEST_FULL_DISK") else { return };
    let mut engine = engine("llama", Some(folder.as_ref()), 1 << 30);
    for (prompt, tokens) in expected("llama", 3) {
        assert_eq!(answer(&mut engine, &prompt).0, tokens);
        // Again, from memory.
        let (again, reused) = answer(&mut engine, &prompt);
        assert!(again == tokens && reused > 0);
    }
    for _ in 0..1000 {
        if engine.disk_stats().unwrap().errors > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let stats = engine.disk_stats().unwrap();
    assert!(stats.errors > 0 && stats.written == 0 && stats.last_error.is_some(), "{stats:?}");
    println!("the disk failed: {}", stats.last_error.unwrap());
}
