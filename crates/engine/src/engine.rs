//! A loaded model, and the step that everything else is made of.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cera_arch::{Pooling, Purpose};
use cera_backend::{BLOCK, Backend, KvShape, KvTypes, Loaded, Rows, SampleRow, SeqRows, StepOutput, Weights};
use cera_convert::{Mix, Recipe, Source};
use cera_gguf::Metadata;
use cera_plan::Plan;
use cera_token::Tokenizer;

use crate::blocks::BlockPool;
use crate::disk::{Disk, DiskOptions, DiskStats, fingerprint};
use crate::grammar::Compiler;
use crate::prefix::PrefixTree;
use crate::states::SlotPool;
use crate::weights::FileWeights;
use crate::{Error, Progress, Sequence};

/// The context where none is asked for, in tokens, unless the model's own is shorter.
pub const DEFAULT_CONTEXT: usize = 4096;

/// The most rows of a step where no number is asked for.
pub const DEFAULT_MAX_ROWS: usize = 512;

/// How to load a model.
#[derive(Clone)]
pub struct Options<'a> {
    /// The most tokens that a sequence may have. `None`: the model's own context, at most [`DEFAULT_CONTEXT`].
    pub context: Option<usize>,
    /// The most rows of one step, which is how many tokens of a prompt go through the model at once. At least 1.
    pub max_rows: usize,
    /// How many sequences of full length the cache has room for. At least 1. Of a model with recurrent states, how many
    /// sequences there may be, however short.
    pub sequences: usize,
    /// How many tokens the cache has room for, of all sequences: at least those of one of full length, and rounded up to
    /// whole blocks. `None`: those of as many as [`sequences`](Self::sequences) says.
    pub cache_tokens: Option<usize>,
    /// How the cache keeps its numbers.
    pub cache: KvTypes,
    /// Whether to load the file's tokenizer. Without it the engine takes and gives token ids alone.
    pub text: bool,
    /// The pre-tokenizer's name, in place of the one that the file gives.
    pub pre: Option<&'a str>,
    /// Quantize the model's matrices while they are loaded. A model that is quantized already is refused then.
    pub quantize: Option<Mix>,
    /// Load for embeddings of this kind. `None`: for what the file says it is for.
    pub pooling: Option<Pooling>,
    /// Where to keep beginnings of sequences between runs; [`Engine::keep`] and [`Engine::reuse`] use it. Its check of the
    /// model reads all weights once.
    pub disk: Option<DiskOptions>,
    /// Told how the load gets on.
    pub progress: Option<Progress<'a>>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            context: None,
            max_rows: DEFAULT_MAX_ROWS,
            sequences: 1,
            cache_tokens: None,
            cache: KvTypes::default(),
            text: true,
            pre: None,
            quantize: None,
            pooling: None,
            disk: None,
            progress: None,
        }
    }
}

/// A loaded model.
pub struct Engine {
    source: Source,
    plan: Plan,
    backend: &'static str,
    pub(crate) loaded: Box<dyn Loaded>,
    tokenizer: Option<Tokenizer>,
    pub(crate) compiler: Compiler,
    pub(crate) pool: BlockPool,
    slots: SlotPool,
    pub(crate) prefixes: PrefixTree,
    pub(crate) disk: Option<Disk>,
    context: usize,
    max_rows: usize,
    vocabulary: usize,
    pooling: Option<Pooling>,
    pub(crate) out: StepOutput,
    load_time: Duration,
}

/// One sequence's share of a step.
pub struct Part<'a> {
    /// The sequence, of this engine.
    pub sequence: &'a mut Sequence,
    /// How many of its pending tokens go through the model: at least 1.
    pub rows: usize,
    /// What is wanted of them.
    pub want: Want,
}

/// What a step gives back of a sequence's rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// Nothing: the rows only fill the cache.
    Nothing,
    /// The most likely token after the last row.
    Token,
    /// The most likely token after the last row, and its logits.
    Logits,
    /// The same of every row.
    AllLogits,
}

impl Engine {
    /// Opens a GGUF file or a Hugging Face folder and loads it into a backend.
    ///
    /// # Errors
    /// Whatever is wrong with the file, its architecture, its tokenizer or the options, in one sentence that
    /// names it.
    pub fn load(path: &Path, backend: Box<dyn Backend>, options: &Options<'_>) -> Result<Self, Error> {
        let start = Instant::now();
        let mut engine = Self::from_source(Source::open(path)?, backend, options)?;
        engine.load_time = start.elapsed();
        Ok(engine)
    }

    /// Loads an open model into a backend.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_source(
        source: Source,
        mut backend: Box<dyn Backend>,
        options: &Options<'_>,
    ) -> Result<Self, Error> {
        let start = Instant::now();
        let source = match options.quantize {
            Some(mix) => source.quantized(Recipe::new(mix))?.0,
            None => source,
        };
        let positions = Some(options.context.unwrap_or(DEFAULT_CONTEXT));
        let purpose = Purpose { pooling: options.pooling, positions };
        let model = cera_arch::build_for(source.checkpoint(), &purpose)?;
        let pooling = model.pooling;
        let plan = cera_plan::fuse(model.plan, &|op| backend.takes(op));
        let context = context(options.context, model.context_length)?;
        let mut kv = kv_shape(context, options)?;
        if pooling.is_some() {
            // Any sequence is to fit one step.
            kv.max_rows = kv.max_rows.max(context);
        }
        // The tokenizer of a small model takes as long as its weights: one thread each.
        let (tokenizer, loaded) = thread::scope(|scope| {
            let tokenizer =
                scope.spawn(|| if options.text { source.tokenizer(options.pre) } else { Ok(None) });
            let weights = FileWeights::new(source.checkpoint(), &plan, options.progress);
            let loaded = backend.load(&weights, &plan, &kv);
            (tokenizer.join(), loaded)
        });
        let tokenizer = tokenizer.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let vocabulary = plan.vocabulary();
        if let Some(tokens) = tokenizer.as_ref().map(Tokenizer::len).filter(|&n| n > vocabulary) {
            return Err(Error::Option(format!(
                "the tokenizer has {tokens} tokens, but the model knows only {vocabulary}"
            )));
        }
        let loaded = loaded?;
        let disk = match &options.disk {
            Some(disk) => {
                let weights = FileWeights::new(source.checkpoint(), &plan, None);
                Some(open_disk(disk, &weights, &plan, backend.name(), &*loaded, options.cache)?)
            }
            None => None,
        };
        let pool = BlockPool::new(u32::try_from(kv.blocks).unwrap_or(u32::MAX));
        let slots = SlotPool::new(!plan.states.is_empty(), options.sequences);
        Ok(Self {
            backend: backend.name(),
            loaded,
            compiler: Compiler::new(tokenizer.as_ref()),
            tokenizer,
            prefixes: PrefixTree::new(&pool, slots.kept()),
            disk,
            pool,
            slots,
            context,
            max_rows: kv.max_rows,
            vocabulary,
            pooling,
            out: StepOutput::default(),
            load_time: start.elapsed(),
            source,
            plan,
        })
    }

    /// An empty sequence.
    pub fn sequence(&self) -> Sequence {
        Sequence::new(self.pool.table(), self.slots.states(), self.context, self.vocabulary)
    }

    /// Runs one step: the next pending tokens of one or more sequences, side by side. What a sequence gets does
    /// not depend on the others, nor on how its tokens are divided into steps.
    ///
    /// The output holds the parts' results in order: one token for [`Want::Token`] and [`Want::Logits`], one a
    /// row for [`Want::AllLogits`]; and as many times [`vocabulary`](Self::vocabulary) logits where logits are
    /// wanted. It is good until the next step, and may be written to.
    ///
    /// # Errors
    /// [`Error::Request`] for parts that make no step, [`Error::Blocks`] where the cache is full,
    /// [`Error::Slots`] where more sequences have begun than a model with recurrent states was loaded for,
    /// [`Error::Backend`]. The sequences' tokens stay pending then.
    pub fn step(&mut self, parts: &mut [Part<'_>]) -> Result<&mut StepOutput, Error> {
        self.check(parts)?;
        self.make_room(parts.iter().map(Part::missing).sum())?;
        for p in parts.iter_mut() {
            let (stored, end) = (p.sequence.stored(), p.end());
            p.sequence.table.grow(end)?;
            if p.sequence.table.shares_next(stored)
                && let Some(copy) = p.sequence.table.own_next(stored)?
            {
                self.loaded.copy_blocks(&[copy])?;
            }
            if let Some(copy) = p.sequence.states.prepare(p.sequence.stored())? {
                self.loaded.copy_slots(&[copy])?;
            }
        }
        let mut tokens = Vec::new();
        let mut seqs = Vec::with_capacity(parts.len());
        let mut sample = Vec::new();
        for p in parts.iter() {
            let first = tokens.len();
            tokens.extend(p.sequence.pending().iter().take(p.rows));
            let end = tokens.len();
            let first_pos = p.sequence.stored();
            let (blocks, slot) = (p.sequence.table.blocks(), p.sequence.states.slot());
            seqs.push(SeqRows { rows: first..end, first_pos, blocks, slot });
            let logits = matches!(p.want, Want::Logits | Want::AllLogits);
            let wanted = match p.want {
                Want::Nothing => end..end,
                Want::Token | Want::Logits => end.saturating_sub(1)..end,
                Want::AllLogits => first..end,
            };
            sample.extend(wanted.map(|row| SampleRow { row, logits }));
        }
        if let Err(error) = self.loaded.step(&Rows { tokens: &tokens, seqs: &seqs }, &sample, &mut self.out) {
            parts.iter_mut().for_each(|p| p.sequence.failed());
            return Err(error.into());
        }
        for p in parts.iter_mut() {
            p.sequence.advance(p.rows);
            if let Some(copy) = p.sequence.states.advance(p.sequence.stored()) {
                self.loaded.copy_slots(&[copy])?;
            }
        }
        Ok(&mut self.out)
    }

    /// Sees to it that so many blocks are free, at the cost of what only the tree of prefixes holds.
    pub(crate) fn make_room(&mut self, needed: usize) -> Result<(), Error> {
        let free = self.pool.free();
        if needed <= free {
            return Ok(());
        }
        if needed > self.free_blocks() {
            return Err(Error::Blocks { needed, free: self.free_blocks() });
        }
        self.prefixes.evict(needed - free);
        Ok(())
    }

    /// What the last step gave.
    pub fn output(&mut self) -> &mut StepOutput {
        &mut self.out
    }

    fn check(&self, parts: &[Part<'_>]) -> Result<(), Error> {
        if self.pooling.is_some() {
            let why = "the model is loaded for embeddings: it has no logits";
            return Err(Error::Request(why.into()));
        }
        let rows = parts.iter().fold(0usize, |sum, p| sum.saturating_add(p.rows));
        if rows > self.max_rows {
            return Err(Error::Request(format!("{rows} rows, but a step has at most {}", self.max_rows)));
        }
        if parts.is_empty() {
            return Err(Error::Request("a step needs a sequence".into()));
        }
        for p in parts {
            self.is_ours(p.sequence)?;
            let pending = p.sequence.pending().len();
            if p.rows == 0 || p.rows > pending {
                let rows = p.rows;
                return Err(Error::Request(format!(
                    "{rows} rows of a sequence with {pending} pending tokens"
                )));
            }
        }
        Ok(())
    }

    /// How rows are pooled, where the model is loaded for embeddings.
    pub fn pooling(&self) -> Option<Pooling> {
        self.pooling
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`] where the file has none, or it was not to be loaded.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.tokenizer.as_ref().ok_or(Error::NoTokenizer)
    }

    /// The file's keys and values.
    pub fn metadata(&self) -> &Metadata {
        self.source.checkpoint().metadata()
    }

    /// The plan as the backend runs it.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The backend's name.
    pub fn backend(&self) -> &'static str {
        self.backend
    }

    /// Number of token ids, and of logits in a row.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The most tokens of a sequence.
    pub fn context(&self) -> usize {
        self.context
    }

    /// The most rows of a step.
    pub fn max_rows(&self) -> usize {
        self.max_rows
    }

    /// Blocks of the cache, of [`BLOCK`] positions each.
    pub fn blocks(&self) -> usize {
        self.pool.size()
    }

    /// Blocks that no sequence holds. Some of them may hold beginnings of former ones; they give way.
    pub fn free_blocks(&self) -> usize {
        self.pool.free() + self.pool.idle()
    }

    /// What the disk tier did so far, where there is one.
    pub fn disk_stats(&self) -> Option<DiskStats> {
        self.disk.as_ref().map(Disk::stats)
    }

    /// Blocks that no sequence holds, but which hold beginnings of former ones.
    pub fn kept_blocks(&self) -> usize {
        self.pool.idle()
    }

    /// The most sequences that may have begun at a time: a model with recurrent states has room for so many. `None`: as
    /// many as there are blocks.
    pub fn max_sequences(&self) -> Option<usize> {
        self.slots.sequences()
    }

    /// Positions of the cache that no sequence holds.
    pub fn free_positions(&self) -> usize {
        self.free_blocks() * BLOCK
    }

    /// Bytes of the weights, as the file stores them.
    pub fn weight_bytes(&self) -> u64 {
        crate::weights::weight_bytes(&self.plan)
    }

    /// How long the load took.
    pub fn load_time(&self) -> Duration {
        self.load_time
    }
}

impl Part<'_> {
    /// Positions that the sequence takes in the cache once the step is done.
    fn end(&self) -> usize {
        self.sequence.stored().saturating_add(self.rows)
    }

    /// Blocks that the sequence lacks for the step.
    fn missing(&self) -> usize {
        let table = &self.sequence.table;
        table.missing(self.end()) + usize::from(table.shares_next(self.sequence.stored()))
    }
}

fn open_disk(
    options: &DiskOptions,
    weights: &dyn Weights,
    plan: &Plan,
    backend: &'static str,
    loaded: &dyn Loaded,
    ty: KvTypes,
) -> Result<Disk, Error> {
    let Some(image) = loaded.image() else {
        return Err(Error::Option(format!("the {backend} backend cannot keep its cache on disk")));
    };
    Disk::open(options, fingerprint(weights, plan, backend, ty, image)?, image)
}

/// The context to load for, given what is asked and what the model was trained for.
fn context(asked: Option<usize>, model: usize) -> Result<usize, Error> {
    match asked.unwrap_or(model.min(DEFAULT_CONTEXT)) {
        0 => Err(Error::Option("a context of 0 tokens holds nothing".into())),
        context if context > model => Err(Error::Option(format!(
            "a context of {context} tokens is asked for, but the model was trained for {model}"
        ))),
        context => Ok(context),
    }
}

fn kv_shape(context: usize, options: &Options<'_>) -> Result<KvShape, Error> {
    if options.max_rows == 0 || options.sequences == 0 {
        return Err(Error::Option("steps of 0 rows, or a cache for 0 sequences, are no use".into()));
    }
    let blocks = match options.cache_tokens {
        Some(tokens) if tokens < context => {
            let why = format!("a cache for {tokens} tokens has no room for a context of {context}");
            return Err(Error::Option(why));
        }
        Some(tokens) => Some(tokens.div_ceil(BLOCK)),
        None => context.div_ceil(BLOCK).checked_mul(options.sequences),
    };
    // Ids are 32 bits wide.
    let blocks = blocks.filter(|&b| u32::try_from(b).is_ok());
    let too_long = || match options.cache_tokens {
        Some(tokens) => Error::Option(format!("a cache of {tokens} tokens is too large")),
        None => Error::Option(format!("a cache of {} x {context} tokens is too large", options.sequences)),
    };
    let blocks = blocks.ok_or_else(too_long)?;
    // More rows than the cache has positions could never be used, and buffers are sized by them.
    Ok(KvShape {
        ty: options.cache,
        blocks,
        max_rows: options.max_rows.min(blocks.saturating_mul(BLOCK)),
        slots: SlotPool::slots(options.sequences),
    })
}

#[cfg(test)]
mod tests {
    use cera_backend::KvType;

    use super::*;

    #[test]
    fn the_context_is_what_is_asked_within_what_the_model_has() {
        assert_eq!(context(None, 131_072).unwrap(), DEFAULT_CONTEXT);
        assert_eq!(context(None, 512).unwrap(), 512);
        assert_eq!(context(Some(8192), 131_072).unwrap(), 8192);
        let error = context(Some(8193), 8192).unwrap_err().to_string();
        assert!(error.contains("8193") && error.contains("8192"), "{error}");
        assert!(context(Some(0), 512).is_err() && context(None, 0).is_err());
    }

    #[test]
    fn the_cache_has_whole_blocks_for_each_sequence() {
        let shape = |context, sequences| kv_shape(context, &Options { sequences, ..Options::default() });
        assert_eq!(
            shape(BLOCK, 1).unwrap(),
            KvShape { ty: KvType::F16.into(), blocks: 1, max_rows: BLOCK, slots: 6 }
        );
        assert_eq!(shape(BLOCK + 1, 3).unwrap().blocks, 6);
        assert!(shape(usize::MAX, 2).is_err());
        let shape = |tokens| {
            kv_shape(100, &Options { sequences: 9, cache_tokens: Some(tokens), ..Options::default() })
        };
        assert_eq!(shape(100).unwrap().blocks, 4);
        assert_eq!(shape(129).unwrap().blocks, 5);
        let error = shape(99).unwrap_err().to_string();
        assert!(error.contains("99") && error.contains("100"), "{error}");
        assert!(shape(usize::MAX).is_err());
    }
}
