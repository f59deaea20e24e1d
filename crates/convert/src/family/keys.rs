//! The keys of a GGUF file, written from a configuration.

use cera_gguf::{Metadata, Value};

use crate::Error;
use crate::config::Config;

/// The keys of one architecture.
pub(crate) struct Keys {
    architecture: &'static str,
    pub metadata: Metadata,
}

impl Keys {
    pub fn new(architecture: &'static str) -> Self {
        let mut metadata = Metadata::new();
        metadata.insert("general.architecture", architecture);
        metadata.insert("general.type", "model");
        Self { architecture, metadata }
    }

    /// Sets a key of the architecture.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.metadata.insert(format!("{}.{name}", self.architecture), value);
    }

    /// Sets a key of the architecture, where there is a value.
    pub fn put(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    /// The keys that most models have (`TextModel.set_gguf_parameters` of llama.cpp's converter).
    pub fn usual(&mut self, c: &Config) -> Result<(), Error> {
        self.set("block_count", c.need("num_hidden_layers")?);
        self.put("context_length", c.count(&["max_position_embeddings", "n_positions"])?);
        self.set("embedding_length", c.need("hidden_size")?);
        self.put("feed_forward_length", c.count(&["intermediate_size"])?);
        self.set("attention.head_count", c.need("num_attention_heads")?);
        self.put("attention.head_count_kv", c.count(&["num_key_value_heads"])?);
        self.rope(c)?;
        self.put("attention.layer_norm_rms_epsilon", c.number(&["rms_norm_eps", "norm_eps"])?);
        self.put("expert_count", c.count(&["num_local_experts", "num_experts"])?);
        self.put("expert_used_count", c.count(&["num_experts_per_tok"])?);
        let head = c.count(&["head_dim"])?;
        self.put("attention.key_length", head);
        self.put("attention.value_length", head);
        Ok(())
    }

    fn rope(&mut self, c: &Config) -> Result<(), Error> {
        let rope = c.rope();
        let factor = rope.number("factor")?;
        match (rope.kind()?, factor) {
            // Llama 3's divisors are a tensor.
            ("default" | "none" | "llama3", _) => {}
            ("linear", Some(factor)) => {
                self.set("rope.scaling.type", "linear");
                self.set("rope.scaling.factor", factor);
            }
            ("yarn", Some(factor)) => {
                self.set("rope.scaling.type", "yarn");
                self.set("rope.scaling.factor", factor);
                let original = rope.count("original_max_position_embeddings")?;
                self.put("rope.scaling.original_context_length", original);
                self.put("rope.scaling.yarn_ext_factor", rope.number("extrapolation_factor")?);
                let magnitude = rope.number("attention_factor")?;
                let magnitude =
                    magnitude.map_or_else(|| rope.number("attn_factor"), |found| Ok(Some(found)))?;
                self.put("rope.scaling.yarn_attn_factor", magnitude);
                self.put("rope.scaling.yarn_beta_fast", rope.number("beta_fast")?);
                self.put("rope.scaling.yarn_beta_slow", rope.number("beta_slow")?);
            }
            _ => return Err(rope.unsupported()),
        }
        self.put("rope.freq_base", rope.number("rope_theta")?);
        if let Some(local) = c.local_rope() {
            self.put("rope.freq_base_swa", local.number("rope_theta")?);
        }
        Ok(())
    }
}
