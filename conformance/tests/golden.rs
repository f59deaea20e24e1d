//! Greedy text of real models beside llama.cpp's: where the two part, it was a toss-up there, or the reference sides with us.
//!
//! `golden/MODEL.greedy.json` holds llama.cpp's continuations of five prompts, with the five best logits at each
//! token (`witness/README.md` says how it was made).

use std::path::Path;

use cera_backend::{KvType, Reference};
use cera_conformance::{Runner, best, model};
use cera_cpu::{Cpu, Options};
use serde::Deserialize;

/// How far ahead llama.cpp's choice may have been of ours, in llama.cpp's logits.
const TOSS_UP: f32 = 0.15;

#[derive(Deserialize)]
struct Golden {
    continuations: Vec<Continuation>,
}

/// One prompt and what llama.cpp made of it.
#[derive(Deserialize)]
struct Continuation {
    name: String,
    prompt_ids: Vec<u32>,
    greedy_ids: Vec<u32>,
    /// At each token: the best ids and their logits, best first.
    top: Vec<Vec<(u32, f32)>>,
}

fn check(name: &str) {
    let Some(path) = model(name) else { return };
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/{name}.greedy.json"));
    let golden: Golden = serde_json::from_slice(&std::fs::read(golden).unwrap()).unwrap();
    assert_eq!(golden.continuations.len(), 5);
    // Not pinned, since tests run side by side.
    let mut cpu = Cpu::new(Options { threads: Some(1), pin: false, ..Options::default() }).unwrap();
    let mut runner = Runner::open(&mut cpu, &path, KvType::F16, 512, 512).unwrap();
    let mut failures = Vec::new();
    for continuation in &golden.continuations {
        failures.extend(parting(&path, &mut runner, continuation).err());
    }
    assert!(failures.is_empty(), "{name}: {}", failures.join("; "));
}

/// Continues a prompt; an error where the first token that differs was no toss-up.
fn parting(path: &Path, runner: &mut Runner, continuation: &Continuation) -> Result<(), String> {
    let Continuation { name, prompt_ids, greedy_ids, top } = continuation;
    assert_eq!((greedy_ids.len(), top.len()), (64, 64));
    let ours = runner.greedy(prompt_ids, greedy_ids.len()).unwrap();
    let Some(at) = ours.iter().zip(greedy_ids).position(|(a, b)| a != b) else {
        println!("{name}: the same {} tokens", ours.len());
        return Ok(());
    };
    let (our, their) = (ours[at], greedy_ids[at]);
    let agreed = [prompt_ids, &greedy_ids[..at]].concat();
    let mut ours_now = Vec::new();
    let last = agreed.len() - 1;
    runner
        .each_row(&agreed, agreed.len(), &[], |position| position == last, |_, row| ours_now = row.to_vec())
        .unwrap();
    assert_eq!(best(&ours_now) as u32, our, "{name}: the prompt in one step chooses otherwise");
    let recorded = |id| top[at].iter().find(|(known, _)| *known == id).map(|&(_, logit)| logit);
    println!(
        "{name}: part at token {at}: {their} in llama.cpp ({:?} there, {} here), {our} here ({:?} there, {} here)",
        recorded(their),
        ours_now[their as usize],
        recorded(our),
        ours_now[our as usize]
    );
    let behind = recorded(their).zip(recorded(our)).map(|(their, our)| their - our);
    match behind {
        Some(behind) if behind < TOSS_UP => Ok(()),
        Some(behind) => {
            // llama.cpp rounds activations too: the reference, which does not, says whose token is the better one.
            let mut exact = Vec::new();
            Runner::open(&mut Reference::new(), path, KvType::F32, 512, 512)
                .unwrap()
                .each_row(&agreed, 64, &[], |position| position == last, |_, row| exact = row.to_vec())
                .unwrap();
            let ahead = exact[their as usize] - exact[our as usize];
            println!("{name}: the reference has {their} ahead by {ahead}");
            if ahead <= 0.0 {
                return Ok(());
            }
            Err(format!(
                "{name}: token {at}, {our} for {their}, is {behind} behind in llama.cpp, {ahead} in the reference"
            ))
        }
        None => Err(format!("{name}: token {at}, {our} for {their}, is not among llama.cpp's best")),
    }
}

#[test]
fn smollm2() {
    check("smollm2");
}

#[test]
fn gemma270m() {
    check("gemma270m");
}

#[test]
fn qwen05() {
    check("qwen0.5");
}
