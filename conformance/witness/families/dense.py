"""Llama's later kin: joined matrices, norms behind the halves, positions for two lengths of text."""
from tiny_family import SHAPE, TIED_EMBED_STD, TIED_FINAL_NORM, Family, rope

SHORT = SHAPE | dict(max_position_embeddings=512)
LAYERS = ["sliding_attention"] * 3 + ["full_attention"]
OLMO3_YARN = rope(
    10000.0, rope_type="yarn", factor=8.0, original_max_position_embeddings=64, beta_fast=4.0, beta_slow=1.0
)


def draw_joined(name, drawn):
    """Queries, keys and values in one matrix: attention sharp enough to see positions."""
    return drawn * 1.4 / drawn.shape[1] ** 0.5 if name.endswith("qkv_proj.weight") else None


def draw_layer_norms(centre):
    """Norms with biases, stored as a difference to `1 - centre`."""

    def draw(name, drawn):
        if name.endswith("bias"):
            return 0.3 * drawn
        return centre + 0.25 * drawn if name == "model.norm.weight" else None

    return draw


def long_rope(original, part, **more):
    return rope(
        10000.0,
        rope_type="longrope",
        partial_rotary_factor=part,
        original_max_position_embeddings=original,
        short_factor=[1.0, 1.05, 1.1, 1.3, 1.6, 2.0],
        long_factor=[1.1, 1.5, 2.5, 6.0, 12.0, 20.0],
        **more,
    )


def partial(part):
    return rope(10000.0, partial_rotary_factor=part)


FAMILIES = {
    "phi3": Family(
        "Phi3",
        SHORT | dict(original_max_position_embeddings=512, sliding_window=8, rope_parameters=partial(1.0)),
        dict(
            window_longer=dict(sliding_window=9),
            window_shorter=dict(sliding_window=7),
            rope_base=dict(rope_parameters=rope(20000.0, partial_rotary_factor=1.0)),
        ),
        draw=draw_joined,
    ),
    # As Phi 4 mini: longer than the texts it learned from first, which the prompt is too.
    "phi3-long": Family(
        "Phi3",
        SHORT
        | dict(original_max_position_embeddings=32, tie_word_embeddings=True, rope_parameters=long_rope(32, 0.75)),
        dict(
            short_factors=dict(
                original_max_position_embeddings=256,
                rope_parameters=long_rope(256, 0.75, attention_factor=1.3416407864998738),  # sqrt(1 + log(16) / log(32))
            ),
            magnitude=dict(rope_parameters=long_rope(32, 0.75, attention_factor=1.0)),
        ),
        embed_std=TIED_EMBED_STD,
        final_norm=TIED_FINAL_NORM,
        draw=draw_joined,
    ),
    "phi3-short": Family(
        "Phi3",
        SHORT
        | dict(
            max_position_embeddings=256, original_max_position_embeddings=256, rope_parameters=long_rope(256, 0.75)
        ),
        dict(long_factors=dict(original_max_position_embeddings=32, rope_parameters=long_rope(32, 0.75, attention_factor=1.0))),
        draw=draw_joined,
    ),
    "olmo2": Family(
        "Olmo2",
        SHORT | dict(rope_parameters=rope(500000.0)),
        dict(rope_base=dict(rope_parameters=rope(10000.0)), norm_epsilon=dict(rms_norm_eps=1e-2)),
        dict(
            query_norm=("q_norm", 1.0),
            key_norm=("k_norm", 1.0),
            attention_norm=("post_attention_layernorm", 1.0),
            unit_norm=("post_feedforward_layernorm", 1.0),
        ),
    ),
    "olmo3": Family(
        "Olmo3",
        SHORT
        | dict(
            num_hidden_layers=4,
            intermediate_size=64,
            sliding_window=8,
            layer_types=LAYERS,
            rope_parameters=dict(sliding_attention=rope(10000.0), full_attention=OLMO3_YARN),
        ),
        dict(
            window_longer=dict(sliding_window=9),
            window_shorter=dict(sliding_window=7),
            not_scaled=dict(rope_parameters=dict(sliding_attention=rope(10000.0), full_attention=rope(10000.0))),
            scaled_everywhere=dict(rope_parameters=dict(sliding_attention=OLMO3_YARN, full_attention=OLMO3_YARN)),
        ),
    ),
    "glm4": Family(
        "Glm4",
        SHORT | dict(head_dim=16, attention_bias=True, rope_parameters=partial(0.5)),
        dict(rope_of_whole_heads=dict(rope_parameters=partial(1.0)), norm_epsilon=dict(rms_norm_eps=1e-2)),
        dict(
            query_bias=("q_proj.bias", 0.0),
            before_attention=("input_layernorm", 1.0),
            behind_attention=("post_self_attn_layernorm", 1.0),
            before_unit=("post_attention_layernorm", 1.0),
            behind_unit=("post_mlp_layernorm", 1.0),
        ),
    ),
    "ernie4_5": Family(
        "Ernie4_5",
        SHORT | dict(head_dim=16, tie_word_embeddings=True, use_bias=False, rope_parameters=rope(500000.0)),
        dict(rope_base=dict(rope_parameters=rope(10000.0)), norm_epsilon=dict(rms_norm_eps=1e-2)),
        embed_std=TIED_EMBED_STD,
        final_norm=TIED_FINAL_NORM,
    ),
    # As the 32B model.
    "exaone4": Family(
        "Exaone4",
        SHORT
        | dict(
            num_hidden_layers=4,
            intermediate_size=64,
            head_dim=16,
            sliding_window=8,
            sliding_window_pattern=4,
            layer_types=LAYERS,
            rope_parameters=rope(10000.0),
        ),
        dict(
            window_longer=dict(sliding_window=9),
            window_shorter=dict(sliding_window=7),
            windows_everywhere=dict(layer_types=["sliding_attention"] * 4),
        ),
        dict(
            query_norm=("q_norm", 1.0),
            attention_norm=("post_attention_layernorm", 1.0),
            unit_norm=("post_feedforward_layernorm", 1.0),
        ),
    ),
    # As the small model: no windows, and rope everywhere.
    "exaone4-global": Family(
        "Exaone4",
        SHORT
        | dict(
            head_dim=16,
            sliding_window=None,
            tie_word_embeddings=True,
            layer_types=["full_attention"] * 2,
            rope_parameters=rope(10000.0),
        ),
        dict(rope_base=dict(rope_parameters=rope(20000.0))),
        dict(key_norm=("k_norm", 1.0)),
        embed_std=TIED_EMBED_STD,
        final_norm=TIED_FINAL_NORM,
    ),
    "arcee": Family(
        "Arcee",
        SHORT | dict(head_dim=16, rope_parameters=rope(10000.0)),
        dict(rectified=dict(hidden_act="relu"), silu=dict(hidden_act="silu")),
    ),
    "seed_oss": Family(
        "SeedOss",
        SHORT | dict(head_dim=32, attention_bias=True, attention_out_bias=False, rope_parameters=rope(10000000.0)),
        dict(rope_base=dict(rope_parameters=rope(10000.0))),
        dict(query_bias=("q_proj.bias", 0.0), second_norm=("post_attention_layernorm", 1.0)),
    ),
    # Norms of heads that have turned.
    "hunyuan-dense": Family(
        "HunYuanDenseV1",
        SHORT | dict(head_dim=16, tie_word_embeddings=True, rope_parameters=rope(10000.0)),
        dict(rope_base=dict(rope_parameters=rope(20000.0))),
        dict(query_norm=("query_layernorm", 1.0), key_norm=("key_layernorm", 1.0)),
        embed_std=TIED_EMBED_STD,
        final_norm=TIED_FINAL_NORM,
    ),
    "nemotron": Family(
        "Nemotron",
        SHORT | dict(head_dim=16, norm_eps=1e-4, rope_parameters=partial(0.5)),
        dict(
            rectified=dict(hidden_act="relu"),
            rope_of_whole_heads=dict(rope_parameters=partial(1.0)),
            norm_epsilon=dict(norm_eps=1e-2),
        ),
        dict(norm_bias=("input_layernorm.bias", 0.0), last_bias=("model.norm.bias", 0.0)),
        zero_centred_norms=True,
        draw=draw_layer_norms(0.0),
    ),
    "jais2": Family(
        "Jais2",
        SHORT | dict(head_dim=16, layer_norm_eps=1e-4, rope_parameters=rope(500000.0)),
        dict(rectified=dict(hidden_act="relu"), rope_base=dict(rope_parameters=rope(10000.0))),
        dict(up_bias=("up_proj.bias", 0.0), output_bias=("o_proj.bias", 0.0), norm_bias=("input_layernorm.bias", 0.0)),
        draw=draw_layer_norms(1.0),
    ),
    # Granite's factors by other names: transformers has no MiniCPM of the first kinds, and Granite is the same model.
    "minicpm": Family(
        "Granite",
        SHORT
        | dict(
            tie_word_embeddings=True,
            rope_parameters=rope(10000.0),
            embedding_multiplier=12.0,
            residual_multiplier=1.4 / 2**0.5,
            attention_multiplier=0.25,
            logits_scaling=2.0,
        ),
        dict(
            embedding_multiplier=dict(embedding_multiplier=1.0),
            residual_multiplier=dict(residual_multiplier=1.4),
            logits_scaling=dict(logits_scaling=1.0),
        ),
        embed_std=TIED_EMBED_STD / 12.0,
        final_norm=TIED_FINAL_NORM * 12.0,
        written=dict(architectures=["MiniCPMForCausalLM"], scale_emb=12.0, scale_depth=1.4, dim_model_base=32),
    ),
}
