"""Gemma 3n and 4: rows of the token for each block, shared keys and values, several streams, experts beside a dense unit."""
from tiny_family import SHAPE, TIED_EMBED_STD, TIED_FINAL_NORM, Family, rope

LAYERS = ["sliding_attention", "full_attention"] * 2


def ropes(local, glob):
    return dict(sliding_attention=rope(local), full_attention=glob)


def proportional(theta, part):
    return rope(theta, rope_type="proportional", partial_rotary_factor=part)


def draw(name, drawn):
    """Tables and routers large enough that what they say shows."""
    if "embed_tokens_per_layer" in name:
        return 0.3 * drawn
    if name.endswith("modality_router.weight"):
        return 6.0 * drawn
    if name.endswith("altup.prediction_coefs.weight"):
        return 0.3 * drawn
    if name.endswith(("correct_output_scale", "layer_scalar", "router.scale", "per_expert_scale")):
        return 1.0 + 0.25 * drawn
    if name.endswith("router.proj.weight"):
        return 12.0 * drawn / drawn.shape[1] ** 0.5
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        # Scores are not scaled.
        return 0.5 + 0.1 * drawn
    if drawn.ndim == 3:
        return drawn / drawn.shape[2] ** 0.5
    return None


SCALED = dict(
    embed_std=TIED_EMBED_STD / 8.0,  # Gemma multiplies by the root of the width, which is 8
    final_norm=TIED_FINAL_NORM * 8.0,
    draw=draw,
)
WINDOWS = dict(window_longer=dict(sliding_window=9), window_shorter=dict(sliding_window=7))
ROWS = dict(
    rows_of_tokens=("embed_tokens_per_layer", 0.0),
    rows_of_rows=("per_layer_model_projection", 0.0),
    rows_norm=("per_layer_projection_norm", 1.0),
    rows_added=("post_per_layer_input_norm", 0.0),
)
GEMMA4 = SHAPE | dict(
    num_hidden_layers=4,
    intermediate_size=48,
    head_dim=16,
    global_head_dim=32,
    sliding_window=8,
    layer_types=LAYERS,
    hidden_size_per_layer_input=8,
    vocab_size_per_layer_input=512,
    rope_parameters=ropes(10000.0, proportional(1000000.0, 0.25)),
)

FAMILIES = {
    # The first block keeps a fifth of its gates.
    "gemma3n": Family(
        "Gemma3n",
        SHAPE
        | dict(
            num_hidden_layers=4,
            intermediate_size=48,
            head_dim=16,
            sliding_window=8,
            layer_types=LAYERS,
            num_kv_shared_layers=2,
            hidden_size_per_layer_input=8,
            vocab_size_per_layer_input=512,
            laurel_rank=16,
            altup_num_inputs=4,
            altup_active_idx=0,
            activation_sparsity_pattern=[0.8, 0.0, 0.0, 0.0],
            final_logit_softcapping=8.0,
            rope_parameters=ropes(10000.0, rope(1000000.0)),
        ),
        WINDOWS
        | dict(
            gates_all_kept=dict(activation_sparsity_pattern=[0.0] * 4),
            gates_fewer=dict(activation_sparsity_pattern=[0.9, 0.0, 0.0, 0.0]),
            logits_not_capped=dict(final_logit_softcapping=1e9),
            rope_base=dict(rope_parameters=ropes(10000.0, rope(10000.0))),
            exact_gelu=dict(hidden_activation="gelu"),
        ),
        ROWS
        | dict(
            query_norm=("q_norm", 1.0),
            past_attention=("laurel.post_laurel_norm", 0.0),
            predictions=("prediction_coefs", 0.0),
            corrections=("correction_coefs", 0.0),
            output_scale=("correct_output_scale", 1.0),
            streams_in=("altup_projections", 1.0),
            streams_out=("altup_unembed_projections", 1.0),
        ),
        config_class="Gemma3nTextConfig",
        **SCALED,
    ),
    # Blocks that share keys and values are twice as wide.
    "gemma4": Family(
        "Gemma4",
        GEMMA4 | dict(num_kv_shared_layers=2, use_double_wide_mlp=True, final_logit_softcapping=8.0),
        WINDOWS
        | dict(
            rope_part=dict(rope_parameters=ropes(10000.0, proportional(1000000.0, 0.5))),
            rope_base=dict(rope_parameters=ropes(10000.0, proportional(10000.0, 0.25))),
            logits_not_capped=dict(final_logit_softcapping=None),
        ),
        ROWS | dict(query_norm=("q_norm", 1.0), block_scale=("layer_scalar", 1.0)),
        config_class="Gemma4TextConfig",
        **SCALED,
    ),
    # Values are keys in blocks without a window, which have one head of these; no rows of tokens.
    "gemma4-moe": Family(
        "Gemma4",
        GEMMA4
        | dict(
            num_hidden_layers=3,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"],
            hidden_size_per_layer_input=0,
            attention_k_eq_v=True,
            num_global_key_value_heads=1,
            enable_moe_block=True,
            num_experts=4,
            top_k_experts=2,
            moe_intermediate_size=24,
        ),
        WINDOWS | dict(one_expert_less=dict(top_k_experts=1), one_expert_more=dict(top_k_experts=3)),
        dict(
            router=("router.proj", 0.0),
            router_scale=("router.scale", 1.0),
            expert_scale=("per_expert_scale", 1.0),
            dense_norm=("post_feedforward_layernorm_1", 0.0),
            experts_norm=("pre_feedforward_layernorm_2", 1.0),
        ),
        config_class="Gemma4TextConfig",
        **SCALED,
    ),
}
