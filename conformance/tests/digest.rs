//! The CPU's logits have the same bits on every processor. A digest of them is recorded here for every tiny model, and
//! the tests of every machine must come to it; that nothing else shows in the bits is what `bits.rs` tests.
//!
//! A family's digests stand in `fixtures/FAMILY.digest`: of its fixture as it is (in f32), and mixed. Where the contract
//! or a fixture changes on purpose, the failures say what to record instead.

use cera_backend::KvType;
use cera_conformance::{Fixture, Result, Runner, encoded};
use cera_cpu::{Cpu, Options, Tier};
use cera_gguf::Gguf;
use cera_quant::Type;
use libtest_mimic::{Arguments, Trial};

/// What the matrices of a mixed model are encoded as, by turns. The fixtures are too narrow for longer blocks.
const TYPES: [Type; 7] = [Type::Q4_0, Type::Q8_0, Type::Q5_1, Type::F16, Type::Q4_1, Type::Q5_0, Type::BF16];

/// A machine that is there to test certain tiers names them in `CERA_TEST_TIERS`, since one that it turned out not to run
/// would pass without a test.
fn the_tiers_that_are_meant_run() {
    let found = Tier::available().iter().map(|t| t.name()).collect::<Vec<_>>().join(" ");
    println!("tiers: {found}");
    if let Ok(meant) = std::env::var("CERA_TEST_TIERS") {
        assert_eq!(found, meant);
    }
}

/// The model with its matrices encoded in several types.
fn mixed(file: &Gguf) -> Result<Gguf> {
    let mut types = TYPES.into_iter().cycle();
    encoded(file, |t| {
        // Matrices and stacks of them, whose rows are whole blocks.
        let matrix = t.dims.get(1).is_some_and(|&rows| rows > 1);
        let fits = |ty: &Type| matrix && usize::try_from(t.dims[0]).is_ok_and(|n| ty.row_bytes(n).is_some());
        types.next().filter(fits)
    })
}

/// The digest of the logits at every position of the prompt.
fn digest(file: &Gguf, prompt: &[u32], tier: Tier) -> Result<u64> {
    let mut cpu = Cpu::new(Options { threads: Some(1), tier: Some(tier), pin: false })?;
    let mut runner = Runner::load(&mut cpu, file, KvType::F16, prompt.len(), prompt.len())?;
    let chunk = if runner.whole() { prompt.len() } else { 16 };
    Ok(fnv1a(runner.logits(prompt, chunk, &[])?.iter().flat_map(|l| l.to_le_bytes())))
}

/// FNV-1a of 64 bits (draft-eastlake-fnv).
fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

fn the_digest_is_fnv1a() {
    // The draft's own vectors.
    assert_eq!(fnv1a(std::iter::empty()), 0xcbf2_9ce4_8422_2325);
    assert_eq!(fnv1a(b"foobar".iter().copied()), 0x8594_4171_f739_67e8);
}

fn check(family: &str) {
    let fixture = Fixture::read(family).unwrap();
    let plain = Gguf::open(&fixture.path).unwrap();
    let mixed = mixed(&plain).unwrap();
    for tier in Tier::available() {
        let got = [&plain, &mixed].map(|file| digest(file, &fixture.record.prompt_ids, tier).unwrap());
        let got = got.map(|d| format!("{d:016x}\n")).concat();
        assert!(got == fixture.digests, "on {tier}, {family}.digest is not:\n{got}");
        println!("{family} on {tier}: as recorded");
    }
}

/// One test a fixture, by the family's name.
fn main() {
    let arguments = Arguments::from_args();
    let family = |name: String| {
        Trial::test(name.clone(), move || {
            check(&name);
            Ok(())
        })
    };
    let mut trials: Vec<_> =
        Fixture::families().expect("the folder of fixtures").into_iter().map(family).collect();
    trials.push(Trial::test("the_tiers_that_are_meant_run", || {
        the_tiers_that_are_meant_run();
        Ok(())
    }));
    trials.push(Trial::test("the_digest_is_fnv1a", || {
        the_digest_is_fnv1a();
        Ok(())
    }));
    libtest_mimic::run(&arguments, trials).exit();
}
