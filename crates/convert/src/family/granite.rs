//! Granite 3, dense and of experts.

use serde_json::json;

use super::llama::{llama_keys, rope_factors};
use super::{Family, Fate, Found, Keys, interleaved};
use crate::Error;
use crate::config::Config;

pub(super) static GRANITE: Family = Family {
    architecture: "granite",
    classes: &["GraniteForCausalLM"],
    defaults: || json!({ "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 2048 }),
    keys: granite_keys,
    tensor: |c, t| Ok(interleaved(c, t)?.into()),
    made: rope_factors,
};

pub(super) static GRANITEMOE: Family = Family {
    architecture: "granitemoe",
    classes: &["GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"],
    defaults: || json!({ "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 2048 }),
    keys: |c, keys| {
        granite_keys(c, keys)?;
        let shared = c.count(&["shared_intermediate_size"])?.filter(|&width| width > 0);
        keys.put("expert_shared_feed_forward_length", shared);
        Ok(())
    },
    tensor: experts,
    made: rope_factors,
};

fn granite_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    llama_keys(c, keys)?;
    for (name, key) in [
        ("attention.scale", "attention_multiplier"),
        ("embedding_scale", "embedding_multiplier"),
        ("residual_scale", "residual_multiplier"),
        ("logit_scale", "logits_scaling"),
    ] {
        keys.put(name, c.number(&[key])?.filter(|&scale| scale != 0.0));
    }
    Ok(())
}

/// Gates and ups of the experts are stored as one.
fn experts(c: &Config, t: &Found<'_>) -> Result<Fate, Error> {
    let halves = |gate: &str, up: &str| -> Result<Fate, Error> {
        Ok(Fate::Parts(vec![t.whole(gate).half(t, 0)?, t.whole(up).half(t, 1)?]))
    };
    Ok(match t.rest {
        "block_sparse_moe.input_linear.weight" => halves("ffn_gate_exps.weight", "ffn_up_exps.weight")?,
        "block_sparse_moe.output_linear.weight" => t.whole("ffn_down_exps.weight").into(),
        "block_sparse_moe.router.layer.weight" | "block_sparse_moe.router.weight" => {
            t.whole("ffn_gate_inp.weight").into()
        }
        "shared_mlp.input_linear.weight" => halves("ffn_gate_shexp.weight", "ffn_up_shexp.weight")?,
        "shared_mlp.output_linear.weight" => t.whole("ffn_down_shexp.weight").into(),
        _ => interleaved(c, t)?.into(),
    })
}
