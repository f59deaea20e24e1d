//! Gemma 3, text.

use serde_json::json;

use super::{Family, Fate, Found, Keys, none_made};
use crate::Error;
use crate::config::Config;
use crate::numbers::Each;

pub(super) static GEMMA3: Family = Family {
    architecture: "gemma3",
    classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
    defaults: || {
        json!({
            "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 131072, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
            "sliding_window": 4096, "vocab_size": 262208, "query_pre_attn_scalar": 256,
        })
    },
    keys: gemma_keys,
    tensor: gemma,
    made: none_made,
};

fn gemma_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    c.only("hidden_activation", &[json!("gelu_pytorch_tanh")])?;
    if c.get("attn_logit_softcapping").is_some() {
        return Err(c.fault("attn_logit_softcapping", "which is not supported"));
    }
    if c.flag("use_bidirectional_attention")? {
        return Err(c.fault("use_bidirectional_attention", "which is not supported"));
    }
    keys.usual(c)?;
    let windowed = windowed(c)?;
    keys.put("attention.scale", scale(c)?);
    keys.put("final_logit_softcapping", c.number(&["final_logit_softcapping"])?.filter(|&cap| cap != 0.0));
    if windowed.contains(&true) {
        keys.put("attention.sliding_window", c.count(&["sliding_window"])?);
    }
    // A GGUF file says so only where it is not every sixth block that sees everything.
    let usual = (1..=windowed.len()).map(|n| n % 6 != 0);
    if windowed.contains(&true) && !windowed.iter().copied().eq(usual) {
        keys.set("attention.sliding_window_pattern", windowed);
    }
    Ok(())
}

/// Which blocks have a window.
fn windowed(c: &Config) -> Result<Vec<bool>, Error> {
    let blocks = c.need("num_hidden_layers")?;
    if let Some(types) = c.get("layer_types") {
        let types = types.as_array().filter(|types| types.len() == blocks as usize);
        let types = types.ok_or_else(|| c.fault("layer_types", "not a list of one for each block"))?;
        let windowed = types.iter().map(|kind| match kind.as_str() {
            Some("sliding_attention") => Some(true),
            Some("full_attention") => Some(false),
            _ => None,
        });
        let windowed: Option<Vec<bool>> = windowed.collect();
        return windowed.ok_or_else(|| c.fault("layer_types", "with a kind that is not supported"));
    }
    let every = c.count(&["sliding_window_pattern", "_sliding_window_pattern"])?.unwrap_or(6);
    if every == 0 {
        return Err(c.fault("sliding_window_pattern", "not a number of blocks"));
    }
    // A list as long as any model: the tensors are compared with it later.
    Ok((1..=blocks.min(1 << 16)).map(|n| !n.is_multiple_of(every)).collect())
}

/// The attention's scale, where it is not what readers take it for: one over the root of the head's length, or of the
/// width's share in the model of 62 blocks.
fn scale(c: &Config) -> Result<Option<f32>, Error> {
    let Some(scalar) = c.number(&["query_pre_attn_scalar"])? else { return Ok(None) };
    let expected = match c.need("num_hidden_layers")? {
        62 => c.need("hidden_size")?.checked_div(c.need("num_attention_heads")?).unwrap_or(0),
        _ => c.need("head_dim")?,
    };
    if scalar <= 0.0 {
        return Err(c.fault("query_pre_attn_scalar", "not greater than 0"));
    }
    Ok((scalar != expected as f32).then(|| 1.0 / scalar.sqrt()))
}

const NORMS: &[(&str, &str)] = &[
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];

/// Norms are stored as distances from one.
fn gemma(_: &Config, t: &Found<'_>) -> Result<Fate, Error> {
    let Some(mut part) = t.named(NORMS).or_else(|| t.usual()) else { return Ok(Fate::Unknown) };
    if t.rest.ends_with("norm.weight") {
        part.each = Each::Plus(1.0);
    }
    Ok(part.into())
}
