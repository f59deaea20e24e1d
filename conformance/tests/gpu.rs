//! The GPU backend's kernels and its runner of plans, against transformers in f32: tiny models of the families that it
//! takes, on the CPU that executes the kernels' source, and on an NVIDIA GPU where `CERA_TEST_CUDA` is set. A family that
//! it does not take must be refused by the name of what is missing.

use cera_backend::{Backend, Error, KvType};
use cera_conformance::{Fixture, Runner};
use cera_gpu::Gpu;
use cera_msl_cpu::{Compiler, MslCpu};
use libtest_mimic::{Arguments, Trial};

/// How far a logit may be from transformers'.
const TOLERANCE: f32 = 2e-3;

/// Families with an op, a format or a cache that has no kernel yet.
const NOT_YET: &[&str] = &[
    "deepseek2",
    "deepseek2-lite",
    "deepseek3",
    "ernie4_5-moe",
    "falcon-h1",
    "gemma3n",
    "gemma4-moe",
    "glm4moe",
    "gpt-oss",
    "granitehybrid",
    "granitehybrid-moe",
    "granitemoe",
    "granitemoeshared",
    "lfm2",
    "lfm2moe",
    "mamba",
    "mamba2",
    "mixtral",
    "olmoe",
    "qwen2moe",
    "qwen35",
    "qwen35moe",
    "qwen3moe",
    "qwen3next",
];

/// The order of threads by this seed, for families by turns.
const SEEDS: [u64; 3] = [0, 1, 0x5eed];

fn backends(seed: u64) -> Vec<Gpu> {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("msl");
    let mut backends = Vec::new();
    match Compiler::find(folder) {
        Ok(compiler) => {
            let open = move || -> Result<Box<dyn cera_gpu::Device>, cera_gpu::Error> {
                Ok(Box::new(MslCpu::new(compiler.clone(), seed)))
            };
            backends.push(Gpu::new("msl-cpu", open));
        }
        Err(e) => {
            assert!(std::env::var_os("CERA_TEST_MODELS").is_none(), "{e}");
            println!("skipped on msl-cpu: {e}");
        }
    }
    if std::env::var_os("CERA_TEST_CUDA").is_some() {
        backends.push(cera_cuda::backend(0));
    }
    backends
}

fn check(family: &str, seed: u64) {
    let fixture = Fixture::read(family).unwrap();
    for mut backend in backends(seed) {
        let opened = Runner::open(&mut backend, &fixture.path, KvType::F32, 512, 256);
        match opened {
            Ok(runner) => {
                assert!(!NOT_YET.contains(&family), "{family} runs: take it off the list");
                check_bits(runner, family, backend.name(), &fixture);
            }
            Err(e) => {
                let unsupported = matches!(e.downcast_ref(), Some(Error::Unsupported { .. }));
                assert!(unsupported && NOT_YET.contains(&family), "{family}: {e}");
                println!("{family}: {e}");
            }
        }
    }
}

/// The prompt's logits are within the tolerance, and have the same bits however it is cut and whatever else is in the step;
/// greedy choices are the same up to the first that the tolerance could turn.
fn check_bits(mut runner: Runner, family: &str, name: &str, fixture: &Fixture) {
    let record = &fixture.record;
    let [positions, vocabulary] = record.logits_shape;
    let whole = runner.logits(&record.prompt_ids, positions, &[]).unwrap();
    assert_eq!(whole.len(), fixture.logits.len());
    let differences = whole.iter().zip(&fixture.logits).map(|(a, b)| (a - b).abs());
    // NaN compares with nothing: look for what is not within.
    let worst = differences.enumerate().fold((0, 0.0), |w, d| if d.1 <= w.1 { w } else { d });
    println!("{family} on {name}: greatest difference {:.2e}", worst.1);
    let at = (worst.0 / vocabulary, worst.0 % vocabulary);
    assert!(worst.1 <= TOLERANCE, "{family} on {name}: position and logit {at:?} are off by {}", worst.1);

    let others = [&record.prompt_ids[5..], &record.prompt_ids[..9]];
    if runner.whole() {
        let shared = runner.logits(&record.prompt_ids, positions, &others).unwrap();
        assert!(shared == whole, "{family} on {name}: other sequences show");
        return;
    }
    let cut = runner.logits(&record.prompt_ids, 7, &others).unwrap();
    assert!(cut == whole, "{family} on {name}: chunks of 7 beside other sequences show");
    let single = runner.logits(&record.prompt_ids[..12.min(positions)], 1, &[]).unwrap();
    assert!(single == whole[..single.len()], "{family} on {name}: single rows show");

    let sure = record.greedy_margins.iter().take_while(|&&m| m > 2.0 * TOLERANCE).count().min(4);
    let greedy = runner.greedy(&record.prompt_ids, sure).unwrap();
    assert_eq!(greedy, record.greedy_ids[..sure], "{family} on {name}");
}

/// One test a fixture, by the family's name.
fn main() {
    let arguments = Arguments::from_args();
    let family = |(i, name): (usize, String)| {
        Trial::test(name.clone(), move || {
            check(&name, SEEDS[i % SEEDS.len()]);
            Ok(())
        })
    };
    let trials = Fixture::families().expect("the folder of fixtures").into_iter().enumerate().map(family);
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
