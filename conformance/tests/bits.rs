//! The bits of the CPU's logits depend on the model and the tokens alone: not on how the prompt is cut, not on the
//! threads, not on the instructions, not on what else is in the step.

use std::path::Path;

use cera_backend::KvType;
use cera_conformance::{Fixture, MIXED, Runner, model, text_tokens};
use cera_cpu::{Cpu, Options, Tier};
use cera_gguf::Gguf;
use libtest_mimic::{Arguments, Trial};

/// Loads a file; threads are not pinned, since tests run side by side.
fn open(path: &Path, tier: Tier, threads: usize, cache: KvType, positions: usize, rows: usize) -> Runner {
    let options = Options { threads: Some(threads), tier: Some(tier), pin: false };
    let mut cpu = Cpu::new(options).expect("an available tier");
    Runner::open(&mut cpu, path, cache, positions, rows).unwrap()
}

/// Tokens of the prompt.
const PROMPT: usize = 300;

/// The logits that are kept and compared at most, in bytes.
const KEPT: usize = 64 << 20;

/// The rows of logits that are compared, as the first run gave them.
struct Expected {
    tokens: Vec<u32>,
    vocabulary: usize,
    /// The last position is compared, and each that is a multiple of this before it.
    stride: usize,
    /// The logits of the compared positions, one row after another.
    logits: Vec<f32>,
}

impl Expected {
    fn compared(&self, position: usize) -> bool {
        (PROMPT - 1 - position).is_multiple_of(self.stride)
    }

    /// Runs the prompt, and compares every `sparser`-th of the rows that were kept, from the last back.
    fn check(&self, runner: &mut Runner, chunk: usize, beside: &[&[u32]], sparser: usize, what: &str) {
        let first = (PROMPT - 1) % self.stride;
        let wanted = |position: usize| (PROMPT - 1 - position).is_multiple_of(self.stride * sparser);
        let mut rows = 0;
        let see = |position: usize, row: &[f32]| {
            rows += 1;
            let kept = (position - first) / self.stride;
            let expected = &self.logits[kept * self.vocabulary..][..self.vocabulary];
            let differs = row.iter().zip(expected).position(|(a, b)| a.to_bits() != b.to_bits());
            if let Some(token) = differs {
                let (got, expected) = (row[token], expected[token]);
                panic!(
                    "{what}: the logit of token {token} after position {position} is {got}, not {expected}"
                );
            }
        };
        let start = std::time::Instant::now();
        runner.each_row(&self.tokens, chunk, beside, wanted, see).unwrap();
        assert_eq!(rows, (self.logits.len() / self.vocabulary).div_ceil(sparser));
        println!("{what}: the same bits in {rows} rows ({:.1} s)", start.elapsed().as_secs_f32());
    }
}

/// Varies one thing at a time: 300 tokens of text, in chunks of 64, by one thread, with the best instructions, alone.
fn real(name: &str) {
    let Some(path) = model(name) else { return };
    let tier = Tier::best();
    let load = |tier, threads| open(&path, tier, threads, KvType::F16, 3 * PROMPT, 3 * PROMPT);
    let mut runner = load(tier, 1);
    let vocabulary = runner.vocabulary();
    let stride = (PROMPT * vocabulary * size_of::<f32>()).div_ceil(KEPT);
    let tokens = text_tokens(&path, MIXED, PROMPT).unwrap();
    let mut expected = Expected { tokens, vocabulary, stride, logits: Vec::new() };
    let mut logits = Vec::new();
    let wanted = |position| expected.compared(position);
    runner.each_row(&expected.tokens, 64, &[], wanted, |_, row| logits.extend_from_slice(row)).unwrap();
    assert!(logits.iter().all(|l| l.is_finite()), "{name}: logits that are no numbers");
    expected.logits = logits;

    for chunk in [1, 7, PROMPT] {
        expected.check(&mut runner, chunk, &[], 1, &format!("{name}, chunks of {chunk}"));
    }
    let others = [&expected.tokens[40..], &expected.tokens[3..150]];
    expected.check(&mut runner, 64, &others, 1, &format!("{name}, two others in each step"));
    expected.check(&mut load(tier, 2), 64, &[], 1, &format!("{name}, two threads"));
    for tier in Tier::available().into_iter().filter(|&other| other != tier) {
        // Logits are most of the work of a large vocabulary, and scalar code is slow at it.
        let sparser = if tier == Tier::Scalar { 8 } else { 1 };
        expected.check(&mut load(tier, 1), 64, &[], sparser, &format!("{name}, {tier}"));
    }
}

/// Whether a cache of bytes or nibbles takes the model's heads: whole groups of 32.
fn groups_take_heads(path: &Path) -> bool {
    let model = cera_arch::build(&Gguf::open(path).unwrap()).unwrap();
    model.plan.kv.iter().all(|layer| layer.head_dim.is_multiple_of(32))
}

/// Everything with everything, on a tiny model of each family.
fn tiny(family: &str) {
    let fixture = Fixture::read(family).unwrap();
    let ids = &fixture.record.prompt_ids;
    let others = [&ids[5..], &ids[..9]];
    let caches: &[KvType] = match groups_take_heads(&fixture.path) {
        true => &[KvType::F32, KvType::F16, KvType::Q8_0, KvType::Q4_0],
        false => &[KvType::F32, KvType::F16],
    };
    for &cache in caches {
        let mut expected: Option<Vec<u32>> = None;
        for tier in Tier::available() {
            for threads in [1, 2] {
                let mut runner = open(&fixture.path, tier, threads, cache, 4 * ids.len(), 4 * ids.len());
                let cut = if runner.whole() { &[][..] } else { &[1, 7, 16] };
                for &chunk in cut.iter().chain([&ids.len()]) {
                    for beside in [&[][..], &others] {
                        let logits = runner.logits(ids, chunk, beside).unwrap();
                        let bits: Vec<u32> = logits.iter().map(|l| l.to_bits()).collect();
                        let same = *expected.get_or_insert_with(|| bits.clone()) == bits;
                        let others = beside.len();
                        assert!(
                            same,
                            "{family}: {cache:?}, {tier}, {threads} threads, chunks of {chunk} and {others} \
                             others show"
                        );
                    }
                }
            }
        }
    }
}

/// Far into a text threads share the attention of one row among them, span by span: that must not show either.
fn many_threads_on_one_row_far_into_the_text() {
    for family in ["llama", "gemma3", "mistral"] {
        let fixture = Fixture::read(family).unwrap();
        let tokens: Vec<u32> = fixture.record.prompt_ids.iter().copied().cycle().take(700).collect();
        let logits = |threads, chunk| {
            let mut runner =
                open(&fixture.path, Tier::best(), threads, KvType::F16, 2 * tokens.len(), tokens.len());
            let mut logits = Vec::new();
            let see = |_, row: &[f32]| logits.extend(row.iter().map(|l| l.to_bits()));
            runner.each_row(&tokens, chunk, &[], |position| position >= 400, see).unwrap();
            logits
        };
        let expected = logits(1, 256);
        for (threads, chunk) in [(3, 1), (4, 3)] {
            assert!(
                logits(threads, chunk) == expected,
                "{family}: {threads} threads, chunks of {chunk} show"
            );
        }
    }
}

/// A test for each real model and for each fixture, and one far into a text.
fn main() {
    let arguments = Arguments::from_args();
    let trial = |name: String, run: Box<dyn FnOnce() + Send>| {
        Trial::test(name, move || {
            run();
            Ok(())
        })
    };
    let mut trials = vec![trial(
        "many_threads_on_one_row_far_into_the_text".into(),
        Box::new(many_threads_on_one_row_far_into_the_text),
    )];
    for (name, model) in [("smollm2", "smollm2"), ("gemma270m", "gemma270m"), ("qwen05", "qwen0.5")] {
        trials.push(trial(name.into(), Box::new(|| real(model))));
    }
    for family in Fixture::families().expect("the folder of fixtures") {
        trials.push(trial(format!("tiny_{family}"), Box::new(move || tiny(&family))));
    }
    libtest_mimic::run(&arguments, trials).exit();
}
