//! Files with a fault that shows only behind the header, or with an oddity that is none: the engine over the model that
//! counts, on the reference and on the CPU.

#[path = "../../crates/engine/tests/tiny/mod.rs"]
mod tiny;

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use cera::{Engine, Error, Event, Finish, Options, Part, Report, Request, Want};
use cera_backend::{Backend, Reference};
use cera_cpu::{Cpu, Options as CpuOptions};
use cera_gguf::Metadata;
use cera_sample::Params;
use tiny::{END_OF_TEXT, END_OF_TURN, Tensor, Text, VOCABULARY};

fn backends() -> [Box<dyn Backend>; 2] {
    let cpu = CpuOptions { threads: Some(2), pin: false, ..CpuOptions::default() };
    [Box::new(Reference), Box::new(Cpu::new(cpu).unwrap())]
}

/// The model after `change`, in a folder of its own.
fn changed(change: impl FnOnce(&mut Metadata, &mut Vec<Tensor>)) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = tiny::changed(&tiny::write(folder.path(), Text::Chat), change);
    (folder, path)
}

fn load(path: &Path, backend: Box<dyn Backend>) -> Result<Engine, Error> {
    Engine::load(path, backend, &Options::default())
}

/// The greedy answer that follows a text.
fn answer(engine: &mut Engine, prompt: &str) -> Result<(String, Report), Error> {
    let mut sequence = engine.sequence();
    sequence.append(&prompt.bytes().map(u32::from).collect::<Vec<_>>())?;
    let request = Request { sampling: Params::greedy(), max_tokens: Some(40), ..Request::default() };
    let mut text = String::new();
    let report = engine.generate(&mut sequence, &request, &mut |event| {
        if let Event::Token(token) = event {
            text.push_str(&token.text);
        }
        ControlFlow::Continue(())
    })?;
    Ok((text, report))
}

fn numbers<'a>(tensors: &'a mut [Tensor], name: &str) -> &'a mut Tensor {
    tensors.iter_mut().find(|t| t.0 == name).unwrap()
}

#[test]
fn a_model_may_know_more_tokens_than_the_vocabulary_but_not_fewer() {
    let rows = |rows: usize| {
        changed(|_, tensors| {
            for name in ["token_embd.weight", "output.weight"] {
                let (_, dims, numbers) = numbers(tensors, name);
                let width = dims[0] as usize;
                dims[1] = rows as u64;
                numbers.resize(rows * width, 0.0);
            }
        })
    };
    for backend in backends() {
        let (_folder, path) = rows(VOCABULARY + 28);
        let mut engine = load(&path, backend).unwrap();
        assert_eq!(engine.vocabulary(), VOCABULARY + 28);
        assert_eq!(answer(&mut engine, "W").unwrap().0, "XYZ");
    }
    for backend in backends() {
        let (_folder, path) = rows(VOCABULARY - 1);
        let error = load(&path, backend).err().unwrap().to_string();
        assert!(error.contains("260 tokens") && error.contains("259"), "{error}");
    }
}

#[test]
fn numbers_that_are_none_are_reported_with_the_first_op_that_made_them() {
    // Where it is, what is there, and the ops that may be the first to show it, fused or not.
    let cases: [(&str, usize, f32, &[&str]); 6] = [
        ("token_embd.weight", 65 * 288, f32::NAN, &["embed"]),
        ("blk.0.attn_norm.weight", 7, f32::INFINITY, &["rms_norm", "norm_linear"]),
        ("blk.0.attn_v.weight", 3, f32::NAN, &["linear", "norm_linear"]),
        ("blk.0.ffn_down.weight", 9, f32::NEG_INFINITY, &["linear", "linear_add"]),
        ("output_norm.weight", 0, f32::NAN, &["rms_norm", "add_rms_norm", "norm_linear"]),
        ("output.weight", 5, f32::NAN, &["linear", "norm_linear"]),
    ];
    for (name, at, value, ops) in cases {
        let (_folder, path) = changed(|_, tensors| numbers(tensors, name).2[at] = value);
        for backend in backends() {
            // It loads: nothing reads all numbers for that.
            let mut engine = load(&path, backend).unwrap();
            let error = answer(&mut engine, "xA").unwrap_err();
            let Error::Backend(cera_backend::Error::NotFinite { name: op, .. }) = &error else {
                panic!("{name}: {error}");
            };
            assert!(ops.contains(op), "{name} on {}: {error}", engine.backend());
            assert!(error.to_string().contains("not finite"), "{error}");
        }
    }
    // A row of the table that no token of the text takes does no harm.
    let (_folder, path) = changed(|_, tensors| numbers(tensors, "token_embd.weight").2[200 * 288] = f32::NAN);
    for backend in backends() {
        assert_eq!(answer(&mut load(&path, backend).unwrap(), "W").unwrap().0, "XYZ");
    }
}

#[test]
fn every_token_that_the_file_says_ends_an_answer_ends_it() {
    let finish = |change: &dyn Fn(&mut Metadata)| {
        let (_folder, path) = changed(|metadata, _| change(metadata));
        let mut engine = load(&path, Box::new(Reference)).unwrap();
        let (text, report) = answer(&mut engine, "W").unwrap();
        assert!(text.starts_with("XYZ"), "{text}");
        report.finish
    };
    let renamed = |m: &mut Metadata| {
        let mut tokens = m.strings("tokenizer.ggml.tokens").unwrap().unwrap().to_vec();
        tokens[END_OF_TURN as usize] = "<|unheard|>".into();
        m.insert("tokenizer.ggml.tokens", tokens);
        m.insert("tokenizer.ggml.eos_token_id", END_OF_TEXT);
    };
    assert_eq!(finish(&|_| {}), Finish::Eog);
    // By its text alone.
    assert_eq!(finish(&|m| drop(m.insert("tokenizer.ggml.eos_token_id", END_OF_TEXT))), Finish::Eog);
    // By each of the other keys alone.
    for key in ["eos_token_id", "eot_token_id", "eom_token_id", "fim_pad_token_id", "fim_rep_token_id"] {
        let ends = |m: &mut Metadata| {
            renamed(m);
            m.insert(format!("tokenizer.ggml.{key}"), END_OF_TURN);
        };
        assert_eq!(finish(&ends), Finish::Eog, "{key}");
    }
    assert_eq!(finish(&renamed), Finish::Length);
}

#[test]
fn a_broken_template_does_not_keep_a_model_from_loading_and_completing() {
    for template in
        ["{% for %}", "", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"]
    {
        let (_folder, path) = changed(|m, _| drop(m.insert("tokenizer.chat_template", template)));
        let mut engine = load(&path, Box::new(Reference)).unwrap();
        assert_eq!(answer(&mut engine, "W").unwrap().0, "XYZ");
    }
}

#[test]
fn the_same_prompt_again_gives_the_same_bits_with_and_without_what_was_kept() {
    for backend in backends() {
        let folder = tempfile::tempdir().unwrap();
        let mut engine = load(&tiny::write(folder.path(), Text::Chat), backend).unwrap();
        let tokens: Vec<u32> = (0..100).map(|i| 97 + i % 26).collect();
        let mut ask = || {
            let mut sequence = engine.sequence();
            sequence.append(&tokens).unwrap();
            let rows = tokens.len();
            let part = Part { sequence: &mut sequence, rows, want: Want::AllLogits };
            engine.step(&mut [part]).unwrap().logits.clone()
        };
        let first = ask();
        assert!((0..3).all(|_| ask() == first));
    }
}

#[test]
fn a_file_cut_between_its_opening_and_its_loading_is_an_error() {
    for backend in backends() {
        let folder = tempfile::tempdir().unwrap();
        let path = tiny::write(folder.path(), Text::Chat);
        let source = cera::Source::open(&path).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(file.metadata().unwrap().len() / 3).unwrap();
        let start = Instant::now();
        let error = Engine::from_source(source, backend, &Options::default()).err().unwrap().to_string();
        assert!(error.contains("counts.gguf") && error.contains("changed while it was open"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(1));
    }
}
