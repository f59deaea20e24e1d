//! The numbers of a model, read from its file and checked.
//!
//! Keys are those of llama.cpp's GGUF files (`gguf-py/gguf/constants.py`), each behind `ARCHITECTURE.`.

use std::cell::RefCell;
use std::collections::BTreeSet;

use cera_gguf::{Checkpoint, Metadata, Value};
use cera_plan::{Attention, Rope, RopeStyle};

use crate::yarn::Scaling;
use crate::{Error, Pooling, deepseek2, gemma4};

/// What every transformer of this crate has. Lengths are in elements, and positive.
pub(crate) struct Config<'a> {
    metadata: &'a Metadata,
    architecture: &'static str,
    /// The keys that were read, without the architecture.
    read: RefCell<BTreeSet<String>>,
    /// Tensors that nothing reads, and that are known to change nothing.
    left_out: RefCell<BTreeSet<String>>,
    /// Blocks that the plan is made of, each of which has tensors in the file.
    pub blocks: usize,
    /// Blocks behind them that predict further tokens, and that nothing here reads (DeepSeek V3, arXiv:2412.19437).
    pub predicting: usize,
    /// Elements of a row between blocks.
    pub width: usize,
    /// Positions that the model was trained for.
    pub context_length: usize,
    /// Added to the mean square in every norm.
    pub eps: f32,
    /// Elements of one head.
    pub head_dim: usize,
    /// The same in blocks with a window; only Gemma 4's differs.
    pub local_head_dim: usize,
    /// Query heads of each block.
    heads: Vec<usize>,
    /// Key and value heads of each block; each divides its query heads. 0 where a block does not attend.
    kv_heads: Vec<usize>,
    /// Elements of each head that turn; even, at most `head_dim`.
    rope_dims: usize,
    /// The same in blocks with a window, at most `local_head_dim`.
    pub local_rope_dims: usize,
    rope_base: f32,
    rope_scale: f32,
    /// What cosines and sines are multiplied with, but by YaRN.
    rope_magnitude: f32,
    /// `rope.scaling.type` is `longrope`, which not every family has.
    pub long_rope: bool,
    /// Positions that it is built for, of those that it was trained for.
    positions: usize,
    /// Where the file scales positions by YaRN.
    pub yarn: Option<Scaling>,
}

/// Keys that would change what a model computes, and what they are where they do not.
const NOT_SUPPORTED: &[(&str, f32)] = &[
    ("adapters.count", 0.0),
    ("attention.clamp_kqv", 0.0),
    ("attention.indexer.head_count", 0.0),
    ("attention.output_scale", 0.0),
    ("attention.rope_pattern", 0.0),
    ("attention.temperature_length", 0.0),
    ("attention.temperature_scale", 0.0),
    ("attention.value_scale", 0.0),
    ("hyper_connection.count", 0.0),
    ("num_loops", 0.0),
    ("rescale_every_n_layers", 0.0),
    ("rope.scaling.alpha", 0.0),
    ("router_logit_softcapping", 0.0),
    ("swiglu_clamp_exp", 0.0),
    ("swin_norm", 0.0),
];

/// The same for keys that some families read. Sections of the rope are for pictures: in text all have one position.
const OF_SOME: &[(&str, f32)] = &[
    ("activation_sparsity_scale", 0.0),
    ("altup.num_inputs", 0.0),
    ("attention.max_alibi_bias", 0.0),
    ("attention.recurrent_layers", 0.0),
    ("attention.shared_kv_layers", 0.0),
    ("attn_logit_softcapping", 0.0),
    ("embedding_length_per_layer_input", 0.0),
    ("expert_count", 0.0),
    ("expert_used_count", 0.0),
    ("full_attention_interval", 0.0),
    ("hidden_activation", 0.0),
    ("leading_dense_block_count", 0.0),
    ("rope.dimension_sections", 0.0),
    ("use_parallel_residual", 0.0),
];

const ORIGINAL_LENGTH: &str = "rope.scaling.original_context_length";

/// The names of divisors for texts of the length that a model learned from first, and for longer ones.
pub(crate) const LONG_FACTORS: [&str; 2] = ["rope_factors_short", "rope_factors_long"];

impl<'a> Config<'a> {
    /// Reads and checks what all families share.
    pub fn read(
        file: &'a dyn Checkpoint,
        architecture: &'static str,
        encoder: bool,
        positions: Option<usize>,
    ) -> Result<Self, Error> {
        let mut c = Config {
            metadata: file.metadata(),
            architecture,
            read: RefCell::default(),
            left_out: RefCell::default(),
            blocks: 0,
            predicting: 0,
            width: 0,
            context_length: 0,
            eps: 0.0,
            head_dim: 0,
            local_head_dim: 0,
            heads: Vec::new(),
            kv_heads: Vec::new(),
            rope_dims: 0,
            local_rope_dims: 0,
            rope_base: 0.0,
            rope_scale: 1.0,
            rope_magnitude: 1.0,
            long_rope: false,
            positions: 0,
            yarn: None,
        };
        let all = c.count("block_count")?;
        c.predicting = c.count_or_none("nextn_predict_layers")?.unwrap_or(0);
        c.blocks = match all.checked_sub(c.predicting) {
            Some(blocks) if blocks > 0 => blocks,
            _ => return Err(c.value("nextn_predict_layers", c.predicting, format!("of {all} blocks"))),
        };
        let present = blocks_present(file);
        if c.blocks > present {
            return Err(c.value(
                "block_count",
                c.blocks,
                format!("the file has tensors of {present} blocks"),
            ));
        }
        c.width = c.count("embedding_length")?;
        c.context_length = c.count("context_length")?;
        c.positions = positions.unwrap_or(c.context_length).min(c.context_length);
        c.eps = match (
            c.positive("attention.layer_norm_rms_epsilon")?,
            c.positive("attention.layer_norm_epsilon")?,
        ) {
            (Some(eps), _) | (None, Some(eps)) => eps,
            (None, None) => c.need_positive("attention.layer_norm_rms_epsilon")?,
        };
        c.read_heads()?;
        c.read_rope()?;
        c.refuse(NOT_SUPPORTED)?;
        if architecture != deepseek2::NAME {
            c.refuse(&[("attention.kv_lora_rank", 0.0), ("attention.q_lora_rank", 0.0)])?;
        }
        if c.metadata.bool(&c.key("attention.causal"))?.is_some_and(|causal| causal == encoder) {
            return Err(c.unsupported("attention.causal"));
        }
        Ok(c)
    }

    fn read_heads(&mut self) -> Result<(), Error> {
        self.heads = match self.per_block("attention.head_count")? {
            Some(heads) => heads,
            None => return Err(cera_gguf::Error::Missing { key: self.key("attention.head_count") }.into()),
        };
        self.kv_heads = match self.per_block("attention.head_count_kv")? {
            Some(kv_heads) => kv_heads,
            None => self.heads.clone(),
        };
        for (&heads, &kv_heads) in self.heads.iter().zip(&self.kv_heads) {
            if kv_heads > 0 && !heads.is_multiple_of(kv_heads) {
                let why = format!("it does not divide {heads}, the query heads");
                return Err(self.value("attention.head_count_kv", kv_heads, why));
            }
        }
        let heads = self.heads.first().copied().unwrap_or(1);
        self.head_dim = match self.find_count("attention.key_length")? {
            Some(length) => length,
            None if heads == 0 => 0,
            None if self.width.is_multiple_of(heads) => self.width / heads,
            None => {
                let why = format!("it does not divide {}, the embedding length", self.width);
                return Err(self.value("attention.head_count", heads, why));
            }
        };
        if self.architecture == deepseek2::NAME {
            // Its lengths are those of the cache, and its own to check.
            return Ok(());
        }
        self.same("attention.value_length", self.head_dim, "the length of a key")?;
        self.local_head_dim = self.find_count("attention.key_length_swa")?.unwrap_or(self.head_dim);
        self.same("attention.value_length_swa", self.local_head_dim, "the length of a key")?;
        if self.architecture != gemma4::NAME {
            self.same("attention.key_length_swa", self.head_dim, "the length of a key")?;
        }
        Ok(())
    }

    fn read_rope(&mut self) -> Result<(), Error> {
        self.rope_dims = self.find_count("rope.dimension_count")?.unwrap_or(self.head_dim);
        if self.rope_dims > self.head_dim || !self.rope_dims.is_multiple_of(2) {
            let why = format!("it is to be even, and at most {}, the length of a head", self.head_dim);
            return Err(self.value("rope.dimension_count", self.rope_dims, why));
        }
        self.local_rope_dims = match self.find_count("rope.dimension_count_swa")? {
            Some(dims) => dims,
            None => self.rope_dims.min(self.local_head_dim),
        };
        if self.architecture != gemma4::NAME {
            self.same("rope.dimension_count_swa", self.rope_dims, "the dimensions of other blocks")?;
        } else if self.local_rope_dims > self.local_head_dim || !self.local_rope_dims.is_multiple_of(2) {
            let why = format!("it is to be even, and at most {}, the length of a head", self.local_head_dim);
            return Err(self.value("rope.dimension_count_swa", self.local_rope_dims, why));
        }
        self.rope_base = self.positive("rope.freq_base")?.unwrap_or(10_000.0);
        let factor = match self.positive("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            // The name in files of 2023.
            None => self.positive("rope.scale_linear")?,
        };
        match self.metadata.str(&self.key("rope.scaling.type"))? {
            Some("none") => {}
            Some("linear") | None => self.rope_scale = 1.0 / factor.unwrap_or(1.0),
            Some("yarn") => return self.read_yarn(factor.unwrap_or(1.0)),
            Some("longrope") => self.long_rope = true,
            Some(_) => return Err(self.unsupported("rope.scaling.type")),
        }
        self.rope_magnitude = self.positive("rope.scaling.attn_factor")?.unwrap_or(1.0);
        self.refuse(&[
            ("rope.scaling.yarn_attn_factor", 1.0),
            ("rope.scaling.yarn_ext_factor", 0.0),
            ("rope.scaling.yarn_log_multiplier", 0.0),
        ])
    }

    fn read_yarn(&mut self, factor: f32) -> Result<(), Error> {
        // Another value would leave a part of the ramp out.
        self.refuse(&[("rope.scaling.yarn_ext_factor", 1.0)])?;
        let original = self.find_count(ORIGINAL_LENGTH)?;
        let scaling = Scaling {
            factor,
            original: original.unwrap_or(self.context_length),
            fast: self.positive("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
            slow: self.positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
            magnitude: self.positive("rope.scaling.yarn_attn_factor")?,
            extra: self.positive("rope.scaling.attn_factor")?.unwrap_or(1.0),
            shared: self.positive_or_none("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0),
        };
        if scaling.fast < scaling.slow {
            let why = format!("it is to be at least {}, yarn_beta_slow", scaling.slow);
            return Err(self.value("rope.scaling.yarn_beta_fast", scaling.fast, why));
        }
        if self.rope_base <= 1.0 {
            return Err(self.value(
                "rope.freq_base",
                self.rope_base,
                "it is to be greater than 1 for yarn".into(),
            ));
        }
        self.yarn = Some(scaling);
        Ok(())
    }

    /// The attention of a block.
    pub fn attention(&self, block: usize, scale: f32, window: Option<usize>) -> Attention {
        let heads = |of: &[usize]| of.get(block).copied().unwrap_or(1);
        Attention {
            heads: heads(&self.heads),
            kv_heads: heads(&self.kv_heads),
            head_dim: self.head_dim,
            value_dim: self.head_dim,
            scale,
            causal: true,
            window,
            softcap: None,
            sinks: None,
            alibi: None,
        }
    }

    /// What the file says of pooling, where its rows are to be pooled.
    pub fn pooling(&self) -> Result<Option<Pooling>, Error> {
        match self.metadata.find::<u32>(&self.key("pooling_type"))?.map(Pooling::of_number) {
            Some(None) => Err(self.unsupported("pooling_type")),
            Some(pooling) => Ok(pooling.filter(|&p| p != Pooling::None)),
            None => Ok(None),
        }
    }

    /// Whether the head that scores pairs of texts reads the mean of a sequence's rows.
    pub fn scores_mean(&self) -> Result<bool, Error> {
        match self.metadata.find::<u32>(&self.key("classifier.pooling_type"))? {
            None | Some(2) => Ok(false),
            Some(1) => Ok(true),
            Some(_) => Err(self.unsupported("classifier.pooling_type")),
        }
    }

    /// Whether a tensor may be in the file though nothing reads it: it belongs to a block that predicts further tokens, or
    /// the family left it out.
    pub fn may_be_unused(&self, tensor: &str) -> bool {
        block_of(tensor).is_some_and(|n| (self.blocks..self.blocks + self.predicting).contains(&n))
            || self.left_out.borrow().contains(tensor)
    }

    /// Whether a block attends: those with a recurrent state in its place have no key heads.
    pub fn attends(&self, block: usize) -> bool {
        self.kv_heads.get(block).is_some_and(|&heads| heads > 0)
    }

    /// The rope that the file describes, without divisors.
    pub fn rope(&self, style: RopeStyle) -> Rope {
        let rope = self.unscaled_rope(style);
        match &self.yarn {
            Some(y) => y.apply(rope, true, y.growth(1.0) / y.growth(y.shared)),
            None => Rope { scale: self.rope_scale, magnitude: self.rope_magnitude, ..rope },
        }
    }

    /// The name of the divisors that the positions call for, of a model that has two sets of them (LongRoPE, Ding et al.
    /// 2024, arXiv:2402.13753): as llama.cpp and vLLM do, one set for all that this plan computes.
    pub fn long_factors(&self) -> Result<&'static str, Error> {
        let original = self.find_count(ORIGINAL_LENGTH)?.unwrap_or(self.context_length);
        let [short, long] = LONG_FACTORS;
        Ok(if self.positions > original { long } else { short })
    }

    /// The rope that the file describes, without divisors and whatever scales positions.
    pub fn unscaled_rope(&self, style: RopeStyle) -> Rope {
        Rope {
            style,
            dims: self.rope_dims,
            base: self.rope_base,
            scale: 1.0,
            yarn: None,
            magnitude: 1.0,
            factors: None,
        }
    }

    /// Query heads of the first block.
    pub fn first_heads(&self) -> usize {
        self.heads.first().copied().unwrap_or(1)
    }

    /// A number that is finite and greater than 0, where the file has it.
    pub fn positive(&self, name: &str) -> Result<Option<f32>, Error> {
        let found = self.metadata.f32(&self.key(name))?;
        match found {
            Some(v) if !(v.is_finite() && v > 0.0) => {
                Err(self.value(name, v, "it is to be finite and greater than 0".into()))
            }
            found => Ok(found),
        }
    }

    /// The same, where 0 says that there is none.
    pub fn positive_or_none(&self, name: &str) -> Result<Option<f32>, Error> {
        match self.metadata.f32(&self.key(name))? {
            Some(0.0) => Ok(None),
            _ => self.positive(name),
        }
    }

    /// A count, where 0 says that there is none.
    pub fn count_or_none(&self, name: &str) -> Result<Option<usize>, Error> {
        Ok(self.metadata.find::<usize>(&self.key(name))?.filter(|&n| n > 0))
    }

    /// A truth value.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, Error> {
        Ok(self.metadata.bool(&self.key(name))?)
    }

    /// One number for each block, where the file has them.
    pub fn floats_per_block(&self, name: &str) -> Result<Option<Vec<f32>>, Error> {
        let Some(numbers) = self.metadata.f32s(&self.key(name))? else { return Ok(None) };
        self.whole_length(name, numbers.len())?;
        Ok(Some(numbers.iter().take(self.blocks).copied().collect()))
    }

    /// A fault of a block.
    pub fn of_block(&self, n: usize, why: &str) -> cera_plan::Error {
        cera_plan::Error::Config(format!("block {n}: {why}"))
    }

    /// Notes that a tensor may be in the file and is not to be read.
    pub fn leave_out(&self, tensor: String) {
        self.left_out.borrow_mut().insert(tensor);
    }

    /// Which blocks have a window: the file's array of truth values, or every block but each `n`th, `n` being
    /// the file's number or `default`.
    pub fn windowed(&self, name: &str, default: usize) -> Result<Vec<bool>, Error> {
        let key = self.key(name);
        if let Some(Value::Array(_)) = self.metadata.get(&key) {
            let windowed = self.metadata.bools(&key)?.unwrap_or_default();
            self.whole_length(name, windowed.len())?;
            return Ok(windowed.iter().take(self.blocks).copied().collect());
        }
        let every = self.find_count(name)?.unwrap_or(default);
        Ok((1..=self.blocks).map(|n| !n.is_multiple_of(every)).collect())
    }

    /// The same, blocks without a window being the first, and each `n`th behind it.
    pub fn windowed_behind(&self, name: &str, default: usize) -> Result<Vec<bool>, Error> {
        let key = self.key(name);
        if let Some(Value::Array(_)) = self.metadata.get(&key) {
            return self.windowed(name, default);
        }
        let every = self.find_count(name)?.unwrap_or(default);
        Ok((0..self.blocks).map(|n| !n.is_multiple_of(every)).collect())
    }

    /// A text.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>, Error> {
        Ok(self.metadata.str(&self.key(name))?)
    }

    /// Refuses those of these keys that the file has with another value than the one beside them.
    pub fn refuse(&self, keys: &[(&str, f32)]) -> Result<(), Error> {
        for &(name, neutral) in keys {
            let key = self.full(name);
            if self.metadata.get(&key).is_none() {
                continue;
            }
            let number = self.metadata.f32(&key).ok().flatten();
            let number = number.or_else(|| self.metadata.i32(&key).ok().flatten().map(|n| n as f32));
            let number =
                number.or_else(|| self.metadata.bool(&key).ok().flatten().map(|b| f32::from(u8::from(b))));
            if number != Some(neutral) {
                return Err(self.unsupported(name));
            }
        }
        Ok(())
    }

    /// Which blocks attend in a hybrid with delta nets: the file's array of those that do not, or each `n`th.
    pub fn attending(&self) -> Result<Vec<bool>, Error> {
        self.heed("rope.dimension_sections");
        let name = "attention.recurrent_layers";
        let key = self.key(name);
        if let Some(Value::Array(_)) = self.metadata.get(&key) {
            self.heed("full_attention_interval");
            let recurrent = self.metadata.bools(&key)?.unwrap_or_default();
            self.whole_length(name, recurrent.len())?;
            return Ok(recurrent.iter().take(self.blocks).map(|recurrent| !recurrent).collect());
        }
        let every = self.find_count("full_attention_interval")?.unwrap_or(4);
        Ok((1..=self.blocks).map(|n| n.is_multiple_of(every)).collect())
    }

    /// Notes that the family heeds a key that has nothing to say of texts.
    pub fn heed(&self, name: &str) {
        self.key(name);
    }

    /// Refuses keys of some families that this one did not read.
    pub fn refuse_unread(&self) -> Result<(), Error> {
        let read = self.read.borrow().clone();
        if self.long_rope && !read.contains(ORIGINAL_LENGTH) {
            return Err(self.unsupported("rope.scaling.type"));
        }
        OF_SOME.iter().filter(|(name, _)| !read.contains(*name)).try_for_each(|&key| self.refuse(&[key]))
    }

    /// The key of that name, which counts as read from here on.
    fn key(&self, name: &str) -> String {
        self.read.borrow_mut().insert(name.to_owned());
        self.full(name)
    }

    fn full(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    /// The error that refuses a key for what its value is beside others.
    pub fn value(&self, name: &str, value: impl ToString, why: String) -> Error {
        Error::Value { key: self.key(name), value: value.to_string(), why }
    }

    /// The error that refuses a key for its value.
    pub fn unsupported(&self, name: &str) -> Error {
        let key = self.key(name);
        let value = match self.metadata.get(&key) {
            Some(Value::Array(array)) => array.type_name().to_owned(),
            Some(value) => value.to_string(),
            None => "missing".to_owned(),
        };
        Error::Unsupported { key, value }
    }

    /// The same, which the file must have.
    pub fn need_positive(&self, name: &str) -> Result<f32, Error> {
        match self.positive(name)? {
            Some(v) => Ok(v),
            None => Err(cera_gguf::Error::Missing { key: self.key(name) }.into()),
        }
    }

    /// A positive count, which the file must have.
    pub fn count(&self, name: &str) -> Result<usize, Error> {
        match self.find_count(name)? {
            Some(n) => Ok(n),
            None => Err(cera_gguf::Error::Missing { key: self.key(name) }.into()),
        }
    }

    fn find_count(&self, name: &str) -> Result<Option<usize>, Error> {
        match self.metadata.find(&self.key(name))? {
            Some(0) => Err(self.value(name, 0, "it is to be greater than 0".into())),
            // Rows beyond this could not be addressed; it keeps sums and products of two lengths exact.
            Some(n) if u32::try_from(n).is_err() => {
                Err(self.value(name, n, "it is to fit in 32 bits".into()))
            }
            found => Ok(found),
        }
    }

    /// Whether the file describes recurrent states, which blocks may have in place of attention.
    fn has_states(&self) -> bool {
        ["ssm.conv_kernel", "shortconv.l_cache"].iter().any(|key| self.metadata.get(&self.key(key)).is_some())
    }

    /// One number for each block, from an array or from one number for all. Where there are recurrent states, 0 says that
    /// the block has none; else each is positive.
    fn per_block(&self, name: &str) -> Result<Option<Vec<usize>>, Error> {
        let key = self.key(name);
        let Some(Value::Array(_)) = self.metadata.get(&key) else {
            let none = self.has_states() && self.metadata.find::<usize>(&key)? == Some(0);
            let one = if none { Some(0) } else { self.find_count(name)? };
            return Ok(one.map(|n| vec![n; self.blocks]));
        };
        let numbers = self.metadata.u32s(&key)?.unwrap_or_default();
        self.whole_length(name, numbers.len())?;
        if let Some(block) =
            numbers.iter().take(self.blocks).position(|&n| n == 0).filter(|_| !self.has_states())
        {
            return Err(self.value(name, 0, format!("that is of block {block}; it is to be greater than 0")));
        }
        Ok(Some(numbers.iter().take(self.blocks).map(|&n| n as usize).collect()))
    }

    fn whole_length(&self, name: &str, len: usize) -> Result<(), Error> {
        let all = self.blocks + self.predicting;
        if len == all {
            return Ok(());
        }
        let why = format!("it is to have one for each of {all} blocks");
        Err(self.value(name, format!("an array of {len}"), why))
    }

    /// Refuses a length that differs from another, where the file has it.
    fn same(&self, name: &str, expected: usize, what: &str) -> Result<(), Error> {
        match self.find_count(name)? {
            Some(n) if n != expected => Err(self.value(name, n, format!("it is to be {expected}, {what}"))),
            _ => Ok(()),
        }
    }
}

/// The number of the block that a tensor belongs to.
fn block_of(tensor: &str) -> Option<usize> {
    tensor.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// How many different `blk.N.` the file's tensors name.
fn blocks_present(file: &dyn Checkpoint) -> usize {
    file.tensors().iter().filter_map(|t| block_of(&t.name)).collect::<BTreeSet<_>>().len()
}
