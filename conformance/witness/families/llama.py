"""Llama and its kin, and Gemma 3."""
from tiny_family import SHAPE, TIED_EMBED_STD, TIED_FINAL_NORM, Family, rope

LLAMA3_ROPE = rope(
    500000.0,
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    # So short that of a 16-wide head's eight wavelengths (6, 32, 167, ...) one is kept, one blended, the rest stretched.
    original_max_position_embeddings=64,
)
GEMMA_LAYERS = ["sliding_attention"] * 5 + ["full_attention"]


def gemma_rope(local, glob):
    return dict(sliding_attention=rope(local), full_attention=rope(glob))


GRANITE = dict(embedding_multiplier=6.0, residual_multiplier=0.45, attention_multiplier=0.4, logits_scaling=1.5)

FAMILIES = {
    "llama": Family(
        "Llama",
        SHAPE | dict(head_dim=16, rope_parameters=rope(10000.0)),
        dict(rope_base=dict(rope_parameters=rope(20000.0)), norm_epsilon=dict(rms_norm_eps=1e-2)),
    ),
    "llama3rope": Family(
        "Llama",
        SHAPE | dict(head_dim=16, rope_parameters=LLAMA3_ROPE),
        dict(
            rope_unscaled=dict(rope_parameters=rope(500000.0)),
            rope_factor=dict(rope_parameters=LLAMA3_ROPE | dict(factor=4.0)),
            rope_blend=dict(rope_parameters=LLAMA3_ROPE | dict(high_freq_factor=2.1)),
        ),
    ),
    # Heads wider than hidden / heads, as in Mistral Nemo. No window: the GGUF of the llama architecture does not carry it.
    "mistral": Family(
        "Mistral",
        SHAPE | dict(head_dim=32, sliding_window=None, rope_parameters=rope(1000000.0)),
        dict(rope_base=dict(rope_parameters=rope(10000.0))),
    ),
    "qwen2": Family(
        "Qwen2",
        SHAPE | dict(tie_word_embeddings=True, rope_parameters=rope(1000000.0)),
        dict(rope_base=dict(rope_parameters=rope(10000.0))),
        dict(query_bias=("q_proj.bias", 0.0), key_bias=("k_proj.bias", 0.0), value_bias=("v_proj.bias", 0.0)),
        embed_std=TIED_EMBED_STD,
        final_norm=TIED_FINAL_NORM,
    ),
    "qwen3": Family(
        "Qwen3",
        SHAPE | dict(head_dim=32, tie_word_embeddings=True, rope_parameters=rope(1000000.0)),
        dict(rope_base=dict(rope_parameters=rope(10000.0))),
        dict(query_norm=("q_norm", 1.0), key_norm=("k_norm", 1.0)),
        embed_std=TIED_EMBED_STD,
        final_norm=TIED_FINAL_NORM,
    ),
    # Every fourth layer has no rope; there are five, so that one with rope follows the one without.
    "smollm3": Family(
        "SmolLM3",
        SHAPE
        | dict(
            num_hidden_layers=5,
            intermediate_size=96,
            tie_word_embeddings=True,
            no_rope_layer_interval=4,
            rope_parameters=rope(2000000.0),
        ),
        dict(
            rope_everywhere=dict(no_rope_layers=[1] * 5),
            rope_wrong_layer=dict(no_rope_layers=[0, 1, 1, 1, 0]),
            rope_base=dict(rope_parameters=rope(10000.0)),
        ),
        embed_std=TIED_EMBED_STD,
        final_norm=TIED_FINAL_NORM,
    ),
    "granite": Family(
        "Granite",
        SHAPE | GRANITE | dict(tie_word_embeddings=True, rope_parameters=rope(10000.0)),
        {name: {name: 1.0 if name != "attention_multiplier" else 16**-0.5} for name in GRANITE},
        embed_std=TIED_EMBED_STD / 6.0,  # the embedding multiplier gives it back
        final_norm=TIED_FINAL_NORM * 6.0,
    ),
    "gemma3": Family(
        "Gemma3",
        SHAPE
        | dict(
            num_hidden_layers=6,
            intermediate_size=64,
            head_dim=16,
            query_pre_attn_scalar=16,
            sliding_window=8,
            layer_types=GEMMA_LAYERS,
            rope_parameters=gemma_rope(10000.0, 1000000.0),
        ),
        dict(
            window_longer=dict(sliding_window=9),
            window_shorter=dict(sliding_window=7),
            rope_all_local=dict(rope_parameters=gemma_rope(10000.0, 10000.0)),
            rope_all_global=dict(rope_parameters=gemma_rope(1000000.0, 1000000.0)),
            exact_gelu=dict(hidden_activation="gelu"),
            silu=dict(hidden_activation="silu"),
        ),
        # zero-centred: 0 stored is a factor of one
        dict(query_norm=("q_norm", 0.0), post_attention_norm=("post_attention_layernorm", 0.0)),
        config_class="Gemma3TextConfig",
        zero_centred_norms=True,
        embed_std=TIED_EMBED_STD / 8.0,  # Gemma multiplies by the root of the width, which is 8
        final_norm=TIED_FINAL_NORM * 8.0,
    ),
}
