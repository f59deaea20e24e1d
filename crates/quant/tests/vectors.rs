//! Decoding to the bit, and encoding to the bit or better, against ggml. `make_vectors.py` describes the fixtures.

use std::fs;
use std::path::PathBuf;

use cera_quant::{Type, decode, encode};

const QUANTIZED: [Type; 13] = [
    Type::Q4_0,
    Type::Q4_1,
    Type::Q5_0,
    Type::Q5_1,
    Type::Q8_0,
    Type::Q2_K,
    Type::Q3_K,
    Type::Q4_K,
    Type::Q5_K,
    Type::Q6_K,
    Type::IQ4_NL,
    Type::IQ4_XS,
    Type::MXFP4,
];
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const RANDOM_BLOCKS: usize = 1000;

fn data(name: &str) -> Vec<u8> {
    fs::read(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

/// The values of the lines of `vectors.txt` that start with these words.
fn facts(words: &[&str]) -> Vec<(Vec<String>, String)> {
    let text = String::from_utf8(data("vectors.txt")).unwrap();
    text.lines()
        .map(|line| line.split(' ').map(String::from).collect::<Vec<_>>())
        .filter(|fields| fields.iter().zip(words).all(|(a, b)| a == b))
        .map(|mut fields| {
            let value = fields.pop().unwrap();
            (fields, value)
        })
        .collect()
}

fn fact(words: &[&str]) -> String {
    let mut found = facts(words);
    assert_eq!(found.len(), 1, "{words:?}");
    found.pop().unwrap().1
}

fn xorshift(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
}

fn fnv(words: impl IntoIterator<Item = u32>) -> String {
    let step = |h: u64, word| (h ^ u64::from(word)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", words.into_iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// The bits of a weight; which NaN a NaN is does not count.
fn bits(v: &f32) -> u32 {
    if v.is_nan() { 0x7fc0_0000 } else { v.to_bits() }
}

fn decoded(ty: Type, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; bytes.len() / ty.block_bytes() * ty.block_len()];
    decode(ty, bytes, &mut out).unwrap();
    out
}

fn weight_set(name: &str) -> Vec<f32> {
    let bell = xorshift(SEED).take(16384).map(|word| {
        let total: i32 = [0, 16, 32, 48].map(|shift| (word >> shift & 0xffff) as i32).iter().sum();
        (total - 131_070) as f32 / 65536.0
    });
    match name {
        "bell" => bell.collect(),
        "tails" => bell.map(|v| v * v * v).collect(),
        "aside" => bell.map(|v| v + 1.5).collect(),
        _ => panic!("no weights are called {name}"),
    }
}

#[test]
fn every_half_decodes_to_ggmls_bits() {
    let every: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for ty in [Type::F16, Type::BF16] {
        let hash = fnv(decoded(ty, &every).iter().map(bits));
        assert_eq!(hash, fact(&["decode", ty.name()]), "{ty}");
    }
}

#[test]
fn random_blocks_decode_to_ggmls_bits() {
    for ty in QUANTIZED {
        let len = RANDOM_BLOCKS * ty.block_bytes();
        let mut bytes: Vec<u8> =
            xorshift(SEED + u64::from(ty.id())).take(len.div_ceil(8)).flat_map(u64::to_le_bytes).collect();
        bytes.truncate(len);
        let hash = fnv(decoded(ty, &bytes).iter().map(bits));
        assert_eq!(hash, fact(&["decode", ty.name()]), "{ty}");
    }
}

#[test]
fn adversarial_blocks_decode_to_ggmls_bits() {
    for ty in QUANTIZED {
        let file = data(&format!("{}.bin", ty.name().to_lowercase()));
        let record = ty.block_bytes() + 4 * ty.block_len();
        assert!(file.len() >= 12 * record && file.len().is_multiple_of(record), "{ty}");
        for (i, record) in file.chunks(record).enumerate() {
            let (block, want) = record.split_at(ty.block_bytes());
            let want = decoded(Type::F32, want);
            for (j, (got, want)) in decoded(ty, block).iter().zip(&want).enumerate() {
                assert_eq!(bits(got), bits(want), "{ty} block {i} weight {j}: {got} for {want}");
            }
        }
    }
}

#[test]
fn formats_without_a_search_encode_to_ggmls_bytes() {
    let cases = facts(&["encode"]);
    assert_eq!(cases.len(), 15);
    for (words, hash) in cases {
        let ty = Type::from_name(&words[1]).unwrap();
        let bytes = encode(ty, &weight_set(&words[2])).unwrap();
        assert_eq!(fnv(bytes.into_iter().map(u32::from)), hash, "{words:?}");
    }
}

#[test]
fn encoding_loses_no_more_than_ggmls() {
    let cases = facts(&["rms"]);
    assert_eq!(cases.len(), 39);
    for (words, theirs) in cases {
        let ty = Type::from_name(&words[1]).unwrap();
        let x = weight_set(&words[2]);
        let back = decoded(ty, &encode(ty, &x).unwrap());
        let squares: f64 = x.iter().zip(&back).map(|(x, b)| (f64::from(*x) - f64::from(*b)).powi(2)).sum();
        let ours = (squares / x.len() as f64).sqrt();
        let theirs: f64 = theirs.parse().unwrap();
        println!("{ty:6} {:6} ours {ours:.6} ggml {theirs:.6} ratio {:.4}", words[2], ours / theirs);
        assert!(ours <= theirs * (1.0 + 1e-8), "{words:?}: {ours} above {theirs}");
    }
}
