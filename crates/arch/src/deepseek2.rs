//! DeepSeek V2 and V3 (arXiv:2405.04434, arXiv:2412.19437), and what shares their files.
//!
//! Latent attention: of each position the cache holds one short latent, from which every head's key and value follow by a
//! matrix of its own, and a part that turns with the position. A query takes the key's matrix upon itself (`attn_k_b`) and
//! then looks at latents as they are; what it gathers of them becomes a value behind attention (`attn_v_b`). So all heads
//! share one key of `kv_lora_rank + rope` elements, whose first are its value.

use cera_plan::{Act, Attention, Graph, GroupScore, Plan, RopeStyle, Scoring, Tensors};

use crate::feed_forward::{Choice, Experts, feed_forward};
use crate::{Error, config::Config};

/// The name in files.
pub(crate) const NAME: &str = "deepseek2";

/// Records the model.
pub(crate) fn build(c: &Config<'_>, tensors: &dyn Tensors) -> Result<Plan, Error> {
    c.refuse(&[("embedding_scale", 1.0), ("residual_scale", 1.0), ("logit_scale", 1.0)])?;
    c.refuse(&[
        ("attention.sliding_window", 0.0),
        ("final_logit_softcapping", 0.0),
        ("attention.scale", 0.0),
    ])?;
    let g = Graph::new(tensors, c.eps);
    if g.has("blk.0.attn_kv_b") {
        let why = "tensor `blk.0.attn_kv_b.weight` joins keys and values, as converters did until 2025: convert anew";
        g.fault(cera_plan::Error::Config(why.to_owned()));
    }
    let latent = c.count("attention.kv_lora_rank")?;
    let key = c.count("attention.key_length_mla")?;
    let rope = c.unscaled_rope(RopeStyle::Interleaved);
    let (turned, mut sharpened) = (rope.dims, 1.0);
    let rope = match &c.yarn {
        Some(y) if y.shared != 0.0 => {
            // The file's number is a tenth of `mscale_all_dim`. The published models' `mscale` is the same, so that
            // cosines do not grow, and the scores do in their place.
            sharpened = y.growth(10.0 * y.shared);
            y.apply(rope, true, 1.0)
        }
        Some(y) => y.apply(rope, true, y.growth(1.0)),
        None => c.rope(RopeStyle::Interleaved),
    };
    let Some(plain) = key.checked_sub(turned).filter(|&n| n > 0) else {
        return Err(c.value("attention.key_length_mla", key, format!("{turned} of its elements turn")));
    };
    if c.head_dim != latent + turned {
        let why = format!("with {turned} elements that turn that is no key of {}", c.head_dim);
        return Err(c.value("attention.kv_lora_rank", latent, why));
    }
    let scale = (sharpened * sharpened / (key as f64).sqrt()) as f32;
    // V3 judges by sigmoids and a group by its two best; V2, whose files may say neither, by softmax and its best.
    let sigmoid = c.count_or_none("expert_gating_func")? == Some(2);
    let groups_by = if sigmoid { GroupScore::BestTwo } else { GroupScore::Best };
    let experts = Experts::read(c, &Choice { scoring: Scoring::Softmax, normalised: false, groups_by })?;

    let mut x = g.embed("token_embd", c.width);
    for n in 0..c.blocks {
        let l = g.layer(n);
        let attention = c.attention(n, scale, None);
        let heads = attention.heads;
        let attention = Attention { kv_heads: 1, head_dim: latent + turned, value_dim: latent, ..attention };

        let h = l.rms_norm(x, "attn_norm");
        let q = match l.has("attn_q_a") {
            true => l.linear(l.rms_norm(l.linear(h, "attn_q_a"), "attn_q_a_norm"), "attn_q_b"),
            false => l.linear(h, "attn_q"),
        };
        let q = l.rope_last(l.head_linear(q, "attn_k_b", heads, plain), latent + turned, rope);
        let [v, k] = l.linear_parts(h, "attn_kv_a_mqa", [latent, turned]);
        let (v, k) = (l.rms_norm(v, "attn_kv_a_norm"), l.rope(k, turned, Some(rope)));
        let mut h = l.attend_latent(q, k, v, attention);
        if n + 1 == c.blocks {
            // No later position looks at the others from here on.
            (x, h) = (g.select_rows(x), g.select_rows(h));
        }
        let h = l.head_linear(h, "attn_v_b", heads, latent);
        let value = g.width(h) / heads;
        if c.count_or_none("attention.value_length_mla")?.is_some_and(|n| n != value) {
            let why =
                cera_plan::Error::Config(format!("block {n}: `attn_v_b` makes values of {value} elements"));
            return Err(why.into());
        }
        x = g.add(x, l.linear(h, "attn_output"));

        let h = l.rms_norm(x, "ffn_norm");
        x = g.add(x, feed_forward(&g, &l, n, h, Act::Silu, experts.as_ref()));
    }
    let x = g.rms_norm(x, "output_norm");
    let logits = g.linear(x, if g.has("output") { "output" } else { "token_embd" });
    Ok(g.finish(logits)?)
}
