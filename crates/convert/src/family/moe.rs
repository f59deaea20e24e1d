//! Mixtures of experts: Qwen 2 and 3 MoE, OLMoE, ERNIE 4.5, and what Mixtral adds to Llama.

use serde_json::json;

use super::qwen::qwen_keys;
use super::{Family, Fate, Found, Part, none_made};
use crate::Error;
use crate::config::Config;

pub(super) static QWEN2MOE: Family = Family {
    architecture: "qwen2moe",
    classes: &["Qwen2MoeForCausalLM"],
    defaults: || json!({ "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 32768 }),
    keys: |c, keys| {
        // The weights of the chosen are left as they are, whatever these keys say in a GGUF file.
        c.only("norm_topk_prob", &[json!(false)])?;
        every_block(c)?;
        qwen_keys(c, keys)?;
        keys.put("expert_feed_forward_length", c.count(&["moe_intermediate_size"])?);
        keys.put("expert_shared_feed_forward_length", c.count(&["shared_expert_intermediate_size"])?);
        Ok(())
    },
    tensor: |c, t| experts_or(c, t, |_, t| Ok(t.usual())),
    made: none_made,
};

pub(super) static QWEN3MOE: Family = Family {
    architecture: "qwen3moe",
    classes: &["Qwen3MoeForCausalLM"],
    defaults: || json!({ "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 32768, "norm_topk_prob": false }),
    keys: |c, keys| {
        c.only("norm_topk_prob", &[json!(true)])?;
        every_block(c)?;
        qwen_keys(c, keys)?;
        keys.put("expert_feed_forward_length", c.count(&["moe_intermediate_size"])?);
        Ok(())
    },
    tensor: |c, t| experts_or(c, t, |_, t| Ok(t.usual())),
    made: none_made,
};

pub(super) static OLMOE: Family = Family {
    architecture: "olmoe",
    classes: &["OlmoeForCausalLM"],
    defaults: || json!({ "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 4096 }),
    keys: |c, keys| {
        c.only("norm_topk_prob", &[json!(false)])?;
        if c.get("clip_qkv").is_some() {
            return Err(c.fault("clip_qkv", "which is not supported"));
        }
        qwen_keys(c, keys)
    },
    tensor: |c, t| experts_or(c, t, |_, t| Ok(t.usual())),
    made: none_made,
};

pub(super) static ERNIE: Family = Family {
    architecture: "ernie4_5-moe",
    classes: &["Ernie4_5_MoeForCausalLM"],
    defaults: || {
        json!({ "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "max_position_embeddings": 131072,
            "moe_layer_interval": 1, "moe_layer_start_index": 1, "moe_num_shared_experts": 2 })
    },
    keys: |c, keys| {
        qwen_keys(c, keys)?;
        keys.set("expert_count", c.need("moe_num_experts")?);
        keys.set("expert_used_count", c.need("moe_k")?);
        c.only("moe_layer_interval", &[json!(1)])?;
        keys.put("interleave_moe_layer_step", c.count(&["moe_layer_interval"])?);
        keys.put("leading_dense_block_count", c.count(&["moe_layer_start_index"])?);
        keys.put("expert_feed_forward_length", c.count(&["moe_intermediate_size"])?);
        let shared = c.count(&["moe_num_shared_experts"])?;
        keys.put("expert_shared_count", shared);
        if let (Some(1..), Some(width)) = (shared, c.count(&["intermediate_size"])?) {
            // What llama.cpp's converter writes; the tensors say the true width, and nothing reads this.
            let share = c.count(&["num_key_value_heads"])?.and_then(|heads| width.checked_div(heads));
            keys.put("expert_shared_feed_forward_length", share);
        }
        Ok(())
    },
    tensor: |c, t| {
        if t.name.starts_with("mtp_") {
            return Ok(Fate::Drop);
        }
        experts_or(c, t, |_, t| Ok(t.usual()))
    },
    made: none_made,
};

/// Refuses models with experts in some of their blocks only.
fn every_block(c: &Config) -> Result<(), Error> {
    c.only("decoder_sparse_step", &[json!(1)])?;
    c.only("mlp_only_layers", &[json!([])])
}

/// Beside the experts.
const SHARED: &[(&str, &str)] = &[
    ("mlp.gate", "ffn_gate_inp"),
    ("block_sparse_moe.gate", "ffn_gate_inp"),
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
    ("mlp.shared_experts.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_experts.up_proj", "ffn_up_shexp"),
    ("mlp.shared_experts.down_proj", "ffn_down_shexp"),
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
];

/// What becomes of a tensor of a mixture; `others` knows what is neither expert nor beside them.
pub(super) fn experts_or(
    c: &Config,
    t: &Found<'_>,
    others: fn(&Config, &Found<'_>) -> Result<Option<Part>, Error>,
) -> Result<Fate, Error> {
    if let Some(part) = t.named(SHARED) {
        return Ok(part.into());
    }
    let inside =
        t.rest.strip_prefix("mlp.experts.").or_else(|| t.rest.strip_prefix("block_sparse_moe.experts."));
    let Some(inside) = inside else {
        if t.rest == "mlp.moe_statics.e_score_correction_bias" {
            return Ok(t.whole("exp_probs_b.bias").into());
        }
        return Ok(others(c, t)?.into());
    };
    let inside = inside.strip_suffix(".weight").unwrap_or(inside);
    Ok(match inside {
        "gate_up_proj" => Fate::Parts(vec![
            t.whole("ffn_gate_exps.weight").half(t, 0)?,
            t.whole("ffn_up_exps.weight").half(t, 1)?,
        ]),
        "down_proj" => t.whole("ffn_down_exps.weight").into(),
        _ => one_expert(t, inside).into(),
    })
}

/// A matrix of one expert.
fn one_expert(t: &Found<'_>, inside: &str) -> Option<Part> {
    let (number, matrix) = inside.split_once('.')?;
    let name = match matrix {
        "gate_proj" | "w1" => "ffn_gate_exps.weight",
        "down_proj" | "w2" => "ffn_down_exps.weight",
        "up_proj" | "w3" => "ffn_up_exps.weight",
        _ => return None,
    };
    Some(t.whole(name).of_expert(number.parse().ok()?))
}
