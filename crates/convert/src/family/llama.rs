//! Llama, Mistral, Mixtral, SmolLM 3, Ministral 3.

use serde_json::json;

use super::{Computed, Family, Fate, Found, Keys, interleaved, none_made};
use crate::Error;
use crate::config::Config;

pub(super) static LLAMA: Family = Family {
    architecture: "llama",
    classes: &["LlamaForCausalLM", "LLaMAForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"],
    defaults: || json!({ "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 2048 }),
    keys: |c, keys| {
        llama_keys(c, keys)?;
        keys.put("attention.sliding_window", c.count(&["sliding_window"])?);
        Ok(())
    },
    tensor: |c, t| super::moe::experts_or(c, t, interleaved),
    made: rope_factors,
};

pub(super) static MISTRAL3: Family = Family {
    architecture: "mistral3",
    classes: &["Mistral3ForConditionalGeneration", "Ministral3ForCausalLM"],
    defaults: || json!({ "rms_norm_eps": 1e-6, "max_position_embeddings": 131072 }),
    keys: |c, keys| {
        llama_keys(c, keys)?;
        let rope = c.rope();
        keys.put("rope.scaling.yarn_log_multiplier", rope.number("mscale_all_dim")?);
        keys.put("attention.temperature_scale", rope.number("llama_4_scaling_beta")?);
        keys.put("attention.sliding_window", c.count(&["sliding_window"])?);
        Ok(())
    },
    tensor: |c, t| Ok(interleaved(c, t)?.into()),
    made: none_made,
};

pub(super) static SMOLLM3: Family = Family {
    architecture: "smollm3",
    classes: &["SmolLM3ForCausalLM"],
    defaults: || json!({ "rms_norm_eps": 1e-6, "rope_theta": 2000000.0, "max_position_embeddings": 32768 }),
    keys: |c, keys| {
        c.only("no_rope_layer_interval", &[json!(4)])?;
        if c.flag("use_sliding_window")? {
            return Err(c.fault("use_sliding_window", "which is not supported"));
        }
        llama_keys(c, keys)
    },
    tensor: |c, t| Ok(interleaved(c, t)?.into()),
    made: rope_factors,
};

/// The keys of Llama and those derived from it.
pub(super) fn llama_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    c.only("hidden_act", &[json!("silu"), json!("swish")])?;
    keys.usual(c)?;
    keys.set("vocab_size", c.need("vocab_size")?);
    keys.set("rope.dimension_count", head_dim(c)?);
    Ok(())
}

/// Elements of a head.
pub(super) fn head_dim(c: &Config) -> Result<u32, Error> {
    // Tables are made of it, whatever the tensors say.
    const MOST: u32 = 1 << 16;
    if let Some(dim) = c.count(&["head_dim"])? {
        let fits = (1..=MOST).contains(&dim);
        return if fits { Ok(dim) } else { Err(c.fault("head_dim", "not the length of a head")) };
    }
    let (width, heads) = (c.need("hidden_size")?, c.need("num_attention_heads")?);
    let dim = width.checked_div(heads).filter(|dim| (1..=MOST).contains(dim));
    dim.ok_or_else(|| c.fault("num_attention_heads", "not a number of heads of that width"))
}

/// The divisors of the rope's frequencies that Llama 3.1 came with.
pub(super) fn rope_factors(c: &Config) -> Result<Vec<Computed>, Error> {
    let rope = c.rope();
    if rope.kind()? != "llama3" {
        return Ok(vec![]);
    }
    let dim = head_dim(c)?;
    let base = rope.number("rope_theta")?.unwrap_or(10_000.0);
    let factor = rope.number("factor")?.unwrap_or(8.0);
    let low = rope.number("low_freq_factor")?.unwrap_or(1.0);
    let high = rope.number("high_freq_factor")?.unwrap_or(4.0);
    let length = rope.number("original_max_position_embeddings")?.unwrap_or(8192.0);
    let divisor = |i: u32| {
        let frequency = 1.0 / f64::from(base).powf(f64::from(2 * i) / f64::from(dim)) as f32;
        let wave = std::f32::consts::TAU / frequency;
        if wave < length / high {
            return 1.0;
        }
        if wave > length / low {
            return factor;
        }
        let smooth = (length / wave - low) / (high - low);
        1.0 / ((1.0 - smooth) / factor + smooth)
    };
    Ok(vec![("rope_freqs.weight", (0..dim / 2).map(divisor).collect())])
}

/// Tensors under usual names, rows in the order of the folder.
pub(super) fn usual(_: &Config, t: &Found<'_>) -> Result<Fate, Error> {
    Ok(t.usual().into())
}
