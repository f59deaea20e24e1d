"""YaRN, attention sinks, latent attention: Llama with YaRN, and who has the others."""
from tiny_family import SHAPE, TIED_EMBED_STD, TIED_FINAL_NORM, Family, rope

# Of a 32-wide head's sixteen pairs 0 and 1 are kept, those from 6 on are scaled, and the ramp lies between.
YARN = rope(
    10000.0, rope_type="yarn", factor=8.0, original_max_position_embeddings=64, beta_fast=4.0, beta_slow=0.5
)


GPT_OSS = SHAPE | dict(
    intermediate_size=32,
    head_dim=32,
    num_local_experts=4,
    num_experts_per_tok=2,
    sliding_window=8,
    layer_types=["sliding_attention", "full_attention"],
    max_position_embeddings=512,
    tie_word_embeddings=True,
    rope_parameters=YARN | dict(truncate=False),
)
DEEPSEEK = SHAPE | dict(
    num_hidden_layers=3,
    intermediate_size=64,
    num_key_value_heads=4,
    q_lora_rank=32,
    kv_lora_rank=32,
    qk_rope_head_dim=16,
    qk_nope_head_dim=32,
    v_head_dim=16,
    n_routed_experts=8,
    n_shared_experts=1,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    first_k_dense_replace=1,
    tie_word_embeddings=True,
    max_position_embeddings=512,
    rope_parameters=YARN | dict(mscale=0.7, mscale_all_dim=0.7),
)
YARN_OF_LATENTS = dict(
    yarn_unscaled=dict(rope_parameters=rope(10000.0)),
    yarn_scores=dict(rope_parameters=YARN | dict(attention_factor=1.0)),
)


def draw(name, drawn):
    """Experts, routers so steep that weights differ, and a bias of the choice that turns it."""
    if drawn.ndim == 3:
        return drawn / drawn.shape[2] ** 0.5
    if name.endswith("gate.weight"):
        return drawn * 1.5 / drawn.shape[1] ** 0.5
    if name.endswith("e_score_correction_bias"):
        return 0.2 * drawn
    return None


def draw_gpt_oss(name, drawn):
    """The same, experts being stored the other way round; sinks, and gates of which some are clamped."""
    if drawn.ndim == 3:
        return drawn / drawn.shape[1] ** 0.5
    if name.endswith("router.weight"):
        return drawn * 1.5 / drawn.shape[1] ** 0.5
    if name.endswith("sinks"):
        return drawn
    if name.endswith("gate_up_proj_bias"):
        return drawn * 4.0
    return None


FAMILIES = {
    "llama-yarn": Family(
        "Llama",
        SHAPE
        | dict(
            head_dim=32,
            intermediate_size=64,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            rope_parameters=YARN,
        ),
        dict(
            yarn_unscaled=dict(rope_parameters=rope(10000.0)),
            yarn_factor=dict(rope_parameters=YARN | dict(factor=4.0)),
            yarn_original=dict(rope_parameters=YARN | dict(original_max_position_embeddings=128)),
            yarn_fast=dict(rope_parameters=YARN | dict(beta_fast=8.0)),
            yarn_slow=dict(rope_parameters=YARN | dict(beta_slow=1.0)),
            yarn_not_rounded=dict(rope_parameters=YARN | dict(truncate=False)),
            yarn_magnitude=dict(rope_parameters=YARN | dict(attention_factor=1.0)),
        ),
        embed_std=TIED_EMBED_STD,
        final_norm=TIED_FINAL_NORM,
    ),
    "gpt-oss": Family(
        "GptOss",
        GPT_OSS,
        dict(
            yarn_rounded=dict(rope_parameters=YARN),
            yarn_unscaled=dict(rope_parameters=rope(10000.0)),
            window_longer=dict(sliding_window=9),
            window_shorter=dict(sliding_window=7),
            windows_swapped=dict(layer_types=["full_attention", "sliding_attention"]),
            clamp=dict(swiglu_limit=6.5),
        ),
        dict(
            sinks=("sinks", -30.0),
            router_bias=("router.bias", 0.0),
            gate_up_bias=("gate_up_proj_bias", 0.0),
            down_bias=("down_proj_bias", 0.0),
            output_bias=("o_proj.bias", 0.0),
        ),
        embed_std=TIED_EMBED_STD,
        final_norm=TIED_FINAL_NORM,
        draw=draw_gpt_oss,
    ),
    "deepseek2": Family(
        "DeepseekV2",
        DEEPSEEK
        | dict(
            num_experts_per_tok=3,  # more than groups: else the best are always in the best groups
            n_group=4,
            topk_group=2,
            topk_method="group_limited_greedy",
            routed_scaling_factor=1.5,
        ),
        YARN_OF_LATENTS
        | dict(
            groups_ignored=dict(topk_method="greedy"),
            weights_scaled=dict(routed_scaling_factor=1.0),
        ),
        dict(query_norm=("q_a_layernorm", 1.0), latent_norm=("kv_a_layernorm", 1.0)),
        embed_std=TIED_EMBED_STD,
        final_norm=TIED_FINAL_NORM,
        draw=draw,
    ),
    # As V2-Lite: queries from one matrix, experts without groups.
    "deepseek2-lite": Family(
        "DeepseekV2",
        DEEPSEEK | dict(q_lora_rank=None, n_group=1, topk_group=1, topk_method="greedy", routed_scaling_factor=1.0),
        YARN_OF_LATENTS,
        dict(latent_norm=("kv_a_layernorm", 1.0)),
        embed_std=TIED_EMBED_STD,
        final_norm=TIED_FINAL_NORM,
        draw=draw,
    ),
    "deepseek3": Family(
        "DeepseekV3",
        # The converter reads `scoring_func`, which transformers takes for granted.
        DEEPSEEK
        | dict(n_group=2, topk_group=1, routed_scaling_factor=2.5, norm_topk_prob=True, scoring_func="sigmoid"),
        YARN_OF_LATENTS
        | dict(
            groups_ignored=dict(topk_group=2),
            weights_scaled=dict(routed_scaling_factor=1.0),
            weights_not_normalised=dict(norm_topk_prob=False),
        ),
        dict(choice_bias=("e_score_correction_bias", 0.0)),
        embed_std=TIED_EMBED_STD,
        final_norm=TIED_FINAL_NORM,
        draw=draw,
    ),
}
