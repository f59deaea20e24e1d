//! What the conformance tests share: a model run by itself over any backend, fixtures, and measures of difference.
//!
//! This is deliberately not the engine: a block table of a few lines and no scheduler, so that a test of a backend
//! tests the backend.
#![forbid(unsafe_code)]

mod drawn;
mod encoded;
mod folders;
mod measure;
mod support;

pub use encoded::{encoded, is_matrix};
pub use folders::{Converted, ConvertedTensor, DrawnTensor, FolderFixture};
pub use measure::{best, kl_divergence, mean_kl_divergence, perplexity};
pub use support::support;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use cera_backend::{
    BLOCK, Backend, BlockId, KvShape, KvTypes, Loaded, Rows, SampleRow, SeqRows, SlotId, StepOutput, Weights,
};
use cera_gguf::{Checkpoint, Gguf};
use cera_plan::{Plan, Wt, fuse};
use cera_token::Special;
use serde::Deserialize;

/// Any failure of a test's preparation.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A plan's weights as rows of a checkpoint's tensors.
pub struct FileWeights<'a> {
    /// The checkpoint.
    pub file: &'a dyn Checkpoint,
    /// The plan, made of that checkpoint.
    pub plan: &'a Plan,
}

impl Weights for FileWeights<'_> {
    fn bytes(&self, w: Wt) -> std::result::Result<Cow<'_, [u8]>, cera_backend::Error> {
        let weight = &self.plan.weights[w.index()];
        let row = weight.ty.row_bytes(weight.cols).unwrap_or(0);
        let fault = |what: String| cera_backend::Error::Weights(format!("tensor `{}`: {what}", weight.name));
        let t = self.file.tensor(&weight.name).ok_or_else(|| fault("not there".into()))?;
        let all = self.file.rows(t, 0, t.rows()).map_err(|e| fault(e.to_string()))?;
        let range = weight.first_row * row..(weight.first_row + weight.rows) * row;
        let short = || fault("too short".into());
        Ok(match all {
            Cow::Borrowed(all) => Cow::Borrowed(all.get(range).ok_or_else(short)?),
            Cow::Owned(all) => Cow::Owned(all.get(range).ok_or_else(short)?.to_vec()),
        })
    }
}

/// The most sequences of a step.
const SLOTS: usize = 4;

/// A model loaded into a backend, and the block table of one step.
pub struct Runner {
    loaded: Box<dyn Loaded>,
    vocabulary: usize,
    width: usize,
    whole: bool,
    blocks: usize,
}

impl Runner {
    /// Opens and loads a file; [`load`](Self::load) says the rest.
    ///
    /// # Errors
    /// Whatever opening, planning and loading say.
    pub fn open(
        backend: &mut dyn Backend,
        path: &Path,
        cache: impl Into<KvTypes>,
        positions: usize,
        max_rows: usize,
    ) -> Result<Self> {
        Self::load(backend, &Gguf::open(path)?, cache, positions, max_rows)
    }

    /// Loads a file, fused as the backend likes it, with room for `positions` in all in a cache of type `cache`, and
    /// for `max_rows` rows a step.
    ///
    /// # Errors
    /// Whatever planning and loading say.
    pub fn load(
        backend: &mut dyn Backend,
        file: &dyn Checkpoint,
        cache: impl Into<KvTypes>,
        positions: usize,
        max_rows: usize,
    ) -> Result<Self> {
        Self::load_plan(backend, file, cera_arch::build(file)?.plan, cache, positions, max_rows)
    }

    /// As [`load`](Self::load), for a plan made of the file.
    ///
    /// # Errors
    /// Whatever loading says.
    pub fn load_plan(
        backend: &mut dyn Backend,
        file: &dyn Checkpoint,
        plan: Plan,
        cache: impl Into<KvTypes>,
        positions: usize,
        max_rows: usize,
    ) -> Result<Self> {
        let plan = fuse(plan, &|op| backend.takes(op));
        // One block more for each sequence that ends within a block.
        let blocks = positions.div_ceil(BLOCK) + 8;
        let shape = KvShape { ty: cache.into(), blocks, max_rows, slots: SLOTS };
        let whole = plan.whole();
        let loaded = backend.load(&FileWeights { file, plan: &plan }, &plan, &shape)?;
        Ok(Runner {
            loaded,
            vocabulary: plan.vocabulary(),
            width: plan.values[plan.logits.index()].width,
            whole,
            blocks,
        })
    }

    /// Numbers of a row of the result: logits, or those of an embedding.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Whether all of a sequence has to come in one step.
    pub fn whole(&self) -> bool {
        self.whole
    }

    /// Tokens that the model knows.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The logits `[tokens, vocabulary]` after each of `tokens`, taken `chunk` at a time from an empty sequence, in
    /// steps shared with the sequences `beside`, which are cut into chunks of the same size.
    ///
    /// # Errors
    /// What the backend says.
    pub fn logits(&mut self, tokens: &[u32], chunk: usize, beside: &[&[u32]]) -> Result<Vec<f32>> {
        let mut logits = Vec::new();
        self.each_row(tokens, chunk, beside, |_| true, |_, row| logits.extend_from_slice(row))?;
        Ok(logits)
    }

    /// As [`logits`](Self::logits), for the positions that are `wanted`, shown one after another: a position and its
    /// row of logits. For vocabularies so large that not every row should be kept, or computed.
    ///
    /// # Errors
    /// What the backend says.
    pub fn each_row(
        &mut self,
        tokens: &[u32],
        chunk: usize,
        beside: &[&[u32]],
        wanted: impl Fn(usize) -> bool,
        mut see: impl FnMut(usize, &[f32]),
    ) -> Result<()> {
        let chunk = chunk.max(1);
        // Half of the others stand before, half behind.
        let (before, behind) = beside.split_at(beside.len() / 2);
        let sequences: Vec<&[u32]> = before.iter().chain([&tokens]).chain(behind).copied().collect();
        let tables = self.tables(&sequences)?;
        let mut out = StepOutput::default();
        for start in (0..tokens.len()).step_by(chunk) {
            let mut step_tokens = Vec::new();
            let mut seqs = Vec::new();
            let mut sample = Vec::new();
            let mut positions = Vec::new();
            for (i, (sequence, blocks)) in sequences.iter().zip(&tables).enumerate() {
                let Some(rest) = sequence.get(start..).filter(|rest| !rest.is_empty()) else { continue };
                let rows = step_tokens.len()..step_tokens.len() + rest.len().min(chunk);
                step_tokens.extend(&rest[..rows.len()]);
                if i == before.len() {
                    positions = (start..start + rows.len()).filter(|&p| wanted(p)).collect();
                    let row = |p: &usize| SampleRow { row: rows.start + p - start, logits: true };
                    sample = positions.iter().map(row).collect();
                }
                // From the last back, as the blocks.
                let slot = SLOTS.checked_sub(1 + i).ok_or("too many sequences for this test")?;
                seqs.push(SeqRows { rows, first_pos: start, blocks, slot: Some(SlotId(slot as u32)) });
            }
            self.loaded.step(&Rows { tokens: &step_tokens, seqs: &seqs }, &sample, &mut out)?;
            let rows = out.logits.chunks_exact(self.width);
            positions.iter().zip(rows).for_each(|(&position, row)| see(position, row));
        }
        Ok(())
    }

    /// The `count` likeliest continuations of `prompt`, one token after another.
    ///
    /// # Errors
    /// What the backend says.
    pub fn greedy(&mut self, prompt: &[u32], count: usize) -> Result<Vec<u32>> {
        let mut tokens = prompt.to_vec();
        let room = vec![0; prompt.len() + count];
        let table = self.tables(&[&room])?.remove(0);
        let mut out = StepOutput::default();
        let mut done = 0;
        while tokens.len() < prompt.len() + count {
            let rows = &tokens[done..];
            let seqs =
                [SeqRows { rows: 0..rows.len(), first_pos: done, blocks: &table, slot: Some(SlotId(0)) }];
            let sample = [SampleRow { row: rows.len() - 1, logits: false }];
            self.loaded.step(&Rows { tokens: rows, seqs: &seqs }, &sample, &mut out)?;
            done = tokens.len();
            tokens.extend(&out.tokens);
        }
        Ok(tokens.split_off(prompt.len()))
    }

    /// Blocks for each sequence, handed out in turns from the end, so that none has its own side by side.
    fn tables(&self, sequences: &[&[u32]]) -> Result<Vec<Vec<BlockId>>> {
        let mut tables = vec![Vec::new(); sequences.len()];
        let mut next = self.blocks;
        let longest = sequences.iter().map(|s| s.len().div_ceil(BLOCK)).max().unwrap_or(0);
        for n in 0..longest {
            for (table, _) in tables.iter_mut().zip(sequences).filter(|(_, s)| n * BLOCK < s.len()) {
                next = next.checked_sub(1).ok_or("the cache has too few blocks for this test")?;
                table.push(BlockId(next as u32));
            }
        }
        Ok(tables)
    }
}

/// The models that `cargo xtask test` fetches.
const FETCHED: [&str; 3] = ["smollm2", "gemma270m", "qwen0.5"];

/// A real model's file, `NAME.gguf` in the folder that `CERA_TEST_MODELS` names. Says so where it is not there, for
/// the test to return.
///
/// # Panics
/// The folder is named, but lacks a model that is fetched: its tests would pass without having run.
pub fn model(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("CERA_TEST_MODELS");
    let path = folder.as_ref().map(|folder| Path::new(folder).join(format!("{name}.gguf")));
    let found = path.filter(|p| p.is_file());
    if found.is_none() {
        assert!(folder.is_none() || !FETCHED.contains(&name), "CERA_TEST_MODELS has no {name}.gguf");
        println!("skipped: {name} not fetched");
    }
    found
}

/// A text of ours of every kind: prose, numbers, a program, three scripts.
pub const MIXED: &str = include_str!("../text/harbour.txt");

/// A text of ours, plain prose of about 600 tokens.
pub const PROSE: &str = include_str!("../text/river.txt");

/// The first `count` tokens of a text, as the model of the file has them.
///
/// # Errors
/// The file or its vocabulary cannot be used, or the text has fewer tokens.
pub fn text_tokens(path: &Path, text: &str, count: usize) -> Result<Vec<u32>> {
    let file = Gguf::open(path)?;
    let tokenizer = cera::tokenizer(file.metadata(), None)?.ok_or("the file has no tokenizer")?;
    let mut tokens = tokenizer.encode_whole(text, Special::AsText)?;
    if tokens.len() < count {
        return Err(format!("the text has {} tokens, not {count}", tokens.len()).into());
    }
    tokens.truncate(count);
    Ok(tokens)
}

/// A tiny model with random weights, and what transformers computes with it.
pub struct Fixture {
    /// The model's file.
    pub path: PathBuf,
    /// Prompt, continuation and margins.
    pub record: Record,
    /// `[prompt tokens, vocabulary]`; of an encoder its rows.
    pub logits: Vec<f32>,
    /// By type, the mean KL divergence of llama.cpp's logits from these with the matrices so encoded, in nats. Empty where
    /// it was not measured.
    pub peer: BTreeMap<String, f64>,
    /// What the logits of the CPU come to; `tests/digest.rs` says how. Empty where none are recorded yet.
    pub digests: String,
}

/// What a fixture's JSON holds of use to a test.
#[derive(Deserialize, Debug)]
pub struct Record {
    /// The prompt's tokens.
    pub prompt_ids: Vec<u32>,
    /// The greedy continuation; empty where the model gives rows and no logits.
    pub greedy_ids: Vec<u32>,
    /// How far each of its choices was ahead of the next best, in logits.
    pub greedy_margins: Vec<f32>,
    /// Rows and columns of the logits.
    pub logits_shape: [usize; 2],
}

impl Fixture {
    /// The families that have one, in order.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn families() -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(Self::folder())? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "gguf") {
                names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
            }
        }
        names.sort();
        Ok(names)
    }

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
    }

    /// Reads a family's fixture.
    ///
    /// # Errors
    /// A file is missing or holds something else.
    pub fn read(family: &str) -> Result<Self> {
        let folder = Self::folder();
        let file = |extension: &str| folder.join(format!("{family}.{extension}"));
        let record: Record = serde_json::from_slice(&std::fs::read(file("json"))?)?;
        let bytes = std::fs::read(file("logits"))?;
        let logits: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let [rows, columns] = record.logits_shape;
        if logits.len() != rows * columns || rows != record.prompt_ids.len() {
            return Err(format!("{family}: {} logits are not {rows} x {columns}", logits.len()).into());
        }
        let digests = std::fs::read_to_string(file("digest")).unwrap_or_default();
        let peer = match std::fs::read(file("peer.json")) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(_) => BTreeMap::new(),
        };
        Ok(Fixture { path: file("gguf"), record, logits, digests, peer })
    }
}
