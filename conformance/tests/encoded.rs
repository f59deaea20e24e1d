//! Tiny models of every family with their matrices in bytes and in nibbles: the CPU's logits diverge from those of the f32
//! weights no more than llama.cpp's do on the same file.
//!
//! `witness/encoded.py` recorded llama.cpp's divergences, in `fixtures/FAMILY.peer.json`.

use cera_backend::KvType;
use cera_conformance::{Fixture, Runner, encoded, is_matrix, mean_kl_divergence};
use cera_cpu::{Cpu, Options};
use cera_gguf::Gguf;
use cera_quant::Type;
use libtest_mimic::{Arguments, Trial};

/// Either engine rounds activations; chance favours one here and the other there.
const CHANCE: f64 = 1.03;

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
    libtest_mimic::run(&arguments, names.into_iter().map(family).collect()).exit();
}
