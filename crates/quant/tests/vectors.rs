//! Decoding to the bit, and encoding to the bit or better, against ggml. `make_vectors.py` describes the fixtures.

use std::fs;
use std::path::PathBuf;

use cera_quant::{Type, decode, encode, encode_with_importance};

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const RANDOM_BLOCKS: usize = 1000;
/// Zeros, ends of the subnormals, the smallest normal, ones, the largest, infinities, NaN.
const EDGES: [u16; 12] =
    [0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e01];
const BYTE_EDGES: [u8; 12] = [0, 1, 2, 7, 8, 56, 126, 127, 128, 253, 254, 255];
const FILLS: [u8; 6] = [0x00, 0xff, 0x0f, 0xf0, 0x7f, 0x80];

/// Every type of blocks that can be run.
fn quantized() -> impl Iterator<Item = Type> {
    Type::ALL.iter().copied().filter(|ty| ty.block_len() > 1 && ty.codec().is_some())
}

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

fn random_blocks(ty: Type) -> Vec<u8> {
    let len = RANDOM_BLOCKS * ty.block_bytes();
    let words = xorshift(SEED + u64::from(ty.id())).take(len.div_ceil(8));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(len);
    bytes
}

/// Where a block has scales: the offsets of those in f16, and of those of one byte.
fn scale_fields(ty: Type) -> (&'static [usize], &'static [usize]) {
    match ty {
        Type::Q4_1 | Type::Q5_1 | Type::Q4_K | Type::Q5_K => (&[0, 2], &[]),
        Type::Q2_K => (&[80, 82], &[]),
        Type::Q3_K => (&[108], &[]),
        Type::Q6_K => (&[208], &[]),
        Type::TQ1_0 => (&[52], &[]),
        Type::TQ2_0 => (&[64], &[]),
        Type::MXFP4 => (&[], &[0]),
        Type::NVFP4 => (&[], &[0, 1, 2, 3]),
        Type::IQ1_M => (&[], &[]),
        _ => (&[0], &[]),
    }
}

/// The random blocks with edges for scales, in all combinations of two; every fourth is filled with one byte.
fn edge_blocks(ty: Type) -> Vec<u8> {
    let mut bytes = random_blocks(ty);
    let (halves, single) = scale_fields(ty);
    for (i, block) in bytes.chunks_mut(ty.block_bytes()).enumerate() {
        if i % 4 == 0 {
            block.fill(FILLS[i / 4 % FILLS.len()]);
        }
        let place = |field: usize| i / 12usize.pow(field as u32) % 12;
        for (field, &at) in halves.iter().enumerate() {
            block[at..at + 2].copy_from_slice(&EDGES[place(field)].to_le_bytes());
        }
        for (field, &at) in single.iter().enumerate() {
            block[at] = BYTE_EDGES[place(field)];
        }
        if ty == Type::IQ1_M {
            // A nibble each on top of four words.
            for word in 0..4 {
                let nibble = (EDGES[place(0)] >> (4 * word)) as u8 & 15;
                block[49 + 2 * word] = block[49 + 2 * word] & 15 | nibble << 4;
            }
        }
    }
    bytes
}

#[test]
fn random_blocks_decode_to_ggmls_bits() {
    for ty in quantized() {
        let hash = fnv(decoded(ty, &random_blocks(ty)).iter().map(bits));
        assert_eq!(hash, fact(&["decode", ty.name()]), "{ty}");
    }
}

#[test]
fn extreme_blocks_decode_to_ggmls_bits() {
    for ty in quantized() {
        let hash = fnv(decoded(ty, &edge_blocks(ty)).iter().map(bits));
        assert_eq!(hash, fact(&["edges", ty.name()]), "{ty}");
    }
}

#[test]
fn formats_without_a_search_encode_to_ggmls_bytes() {
    let cases = facts(&["encode"]);
    assert_eq!(cases.len(), 18);
    for (words, hash) in cases {
        let ty = Type::from_name(&words[1]).unwrap();
        let bytes = encode(ty, &weight_set(&words[2])).unwrap();
        assert_eq!(fnv(bytes.into_iter().map(u32::from)), hash, "{words:?}");
    }
}

/// The root of the mean squared error that an encoding leaves, by importance.
fn loss(ty: Type, x: &[f32], encoded: &[u8], importance: &[f32]) -> f64 {
    let (mut sum, mut weight) = (0.0, 0.0);
    for ((x, back), w) in x.iter().zip(decoded(ty, encoded)).zip(importance.iter().cycle()) {
        sum += f64::from(*w) * (f64::from(*x) - f64::from(back)).powi(2);
        weight += f64::from(*w);
    }
    (sum / weight).sqrt()
}

fn no_more_than_ggmls(kind: &str, importance: Option<&[f32]>) {
    let cases = facts(&[kind]);
    assert_eq!(cases.len(), 3 * quantized().count());
    for (words, theirs) in cases {
        let ty = Type::from_name(&words[1]).unwrap();
        let x = weight_set(&words[2]);
        let encoded = match importance {
            None => encode(ty, &x),
            Some(importance) => encode_with_importance(ty, &x, importance),
        };
        let ours = loss(ty, &x, &encoded.unwrap(), importance.unwrap_or(&[1.0]));
        let theirs: f64 = theirs.parse().unwrap();
        println!("{ty:7} {:6} ours {ours:.6} ggml {theirs:.6} ratio {:.4}", words[2], ours / theirs);
        assert!(ours <= theirs * (1.0 + 1e-8), "{words:?}: {ours} above {theirs}");
    }
}

#[test]
fn encoding_loses_no_more_than_ggmls() {
    no_more_than_ggmls("rms", None);
}

#[test]
fn encoding_by_importance_loses_no_more_than_ggmls() {
    let tails = &weight_set("tails")[..1024];
    let importance: Vec<f32> = tails.iter().map(|v| v * v).collect();
    no_more_than_ggmls("weighted", Some(&importance));
}
