//! Tiny models of every family with their matrices in bytes and in nibbles: the CPU's logits diverge from those of the f32
//! weights no more than llama.cpp's do on the same file: of each model up to chance, and of all taken together.
//!
//! `witness/encoded.py` recorded llama.cpp's divergences, in `fixtures/FAMILY.peer.json`.

use std::sync::Mutex;

use cera_backend::KvType;
use cera_conformance::{Fixture, Runner, encoded, is_matrix, mean_kl_divergence};
use cera_cpu::{Cpu, Options};
use cera_gguf::Gguf;
use cera_quant::Type;
use libtest_mimic::{Arguments, Trial};

/// Either engine rounds activations, and chance favours one here and the other there: by up to 8 percent with models so
/// small.
const CHANCE: f64 = 1.1;

/// Our divergences as parts of llama.cpp's.
static PARTS: Mutex<Vec<f64>> = Mutex::new(Vec::new());

fn check(family: &str) {
    let fixture = Fixture::read(family).unwrap();
    let file = Gguf::open(&fixture.path).unwrap();
    let record = &fixture.record;
    let [positions, vocabulary] = record.logits_shape;
    for (name, &peer) in &fixture.peer {
        let ty = Type::ALL.iter().copied().find(|ty| ty.name() == name).expect("a type's name");
        let file = encoded(&file, |t| Some(ty).filter(|_| is_matrix(t, ty.block_len()))).unwrap();
        let mut cpu = Cpu::new(Options { threads: Some(1), tier: None, pin: false }).unwrap();
        let mut runner = Runner::load(&mut cpu, &file, KvType::F16, positions, positions).unwrap();
        let logits = runner.logits(&record.prompt_ids, positions, &[]).unwrap();
        let ours = mean_kl_divergence(&fixture.logits, &logits, vocabulary);
        println!("{family} in {name}: {ours:.3e} nats, llama.cpp {peer:.3e}");
        PARTS.lock().unwrap().push(ours / peer);
        assert!(ours <= peer * CHANCE, "{family} in {name}: {ours:.3e} nats, llama.cpp {peer:.3e}");
    }
}

/// One test a fixture that has a record, by the family's name.
fn main() {
    let arguments = Arguments::from_args();
    let mut names = Fixture::families().expect("the folder of fixtures");
    names.retain(|name| Fixture::read(name).is_ok_and(|f| !f.peer.is_empty()));
    assert!(!names.is_empty(), "no fixture has a record of llama.cpp's");
    let family = |name: String| {
        Trial::test(name.clone(), move || {
            check(&name);
            Ok(())
        })
    };
    let done = libtest_mimic::run(&arguments, names.into_iter().map(family).collect());
    let mut parts = PARTS.lock().unwrap();
    parts.sort_by(f64::total_cmp);
    if let (0, Some(median)) = (done.num_filtered_out, parts.get(parts.len() / 2)) {
        assert!(*median <= 1.0, "of llama.cpp's divergence the median is {median:.3}");
    }
    drop(parts);
    done.exit();
}
