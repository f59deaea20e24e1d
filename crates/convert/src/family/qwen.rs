//! Qwen 2 and 3, dense.

use serde_json::json;

use super::llama::usual;
use super::{Family, Keys, none_made};
use crate::Error;
use crate::config::Config;

pub(super) static QWEN2: Family = Family {
    architecture: "qwen2",
    classes: &["Qwen2ForCausalLM"],
    defaults: || json!({ "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 32768 }),
    keys: qwen_keys,
    tensor: usual,
    made: none_made,
};

pub(super) static QWEN3: Family = Family {
    architecture: "qwen3",
    classes: &["Qwen3ForCausalLM"],
    defaults: || json!({ "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 32768, "head_dim": 128 }),
    keys: qwen_keys,
    tensor: usual,
    made: none_made,
};

/// The keys of models without windows. They may name one that no block has.
pub(super) fn qwen_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    c.only("hidden_act", &[json!("silu"), json!("swish")])?;
    let with_window = c.count(&["max_window_layers"])?.unwrap_or(0) < c.need("num_hidden_layers")?;
    if c.flag("use_sliding_window")? && with_window && c.count(&["sliding_window"])?.is_some() {
        return Err(
            c.fault("use_sliding_window", "and windows in some blocks are not supported for this kind")
        );
    }
    keys.usual(c)
}
