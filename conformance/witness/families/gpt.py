"""Decoders with layer norms: GPT-2 and its kin."""
from tiny_family import SHAPE, TIED_EMBED_STD, TIED_FINAL_NORM, Family, rope

SHORT = SHAPE | dict(max_position_embeddings=512)
NO_GROUPS = {key: value for key, value in SHORT.items() if key != "num_key_value_heads"}
# The names that these models give their embedding and their last norm.
EMBEDDINGS = ("wte.weight", "embed_in.weight", "word_embeddings.weight", "embed_tokens.weight")
LAST_NORMS = ("ln_f.weight", "final_layer_norm.weight", "final_layernorm.weight", "model.norm.weight")
NORMS = ("norm.weight", "ln_1.weight", "ln_2.weight", "ln_attn.weight", "ln_mlp.weight")
UPS = ("c_fc.weight", "dense_h_to_4h.weight", "fc1.weight")
DOWNS = ("mlp.c_proj.weight", "dense_4h_to_h.weight", "fc2.weight")
# Where the two forms of GELU differ most, against their size: far to the left of zero.
TAIL = 2.4


def draw_gpt(tied=True, conv=False, plain=True):
    """Rules for matrices that are joined or named otherwise, and, of plain units, for units whose sums lie in GELU's left tail.

    `conv`: matrices are stored transposed.
    """

    def draw(name, drawn):
        inputs = drawn.shape[0 if conv else -1]
        if name.endswith("wpe.weight"):
            return 0.4 * drawn
        if name.endswith(EMBEDDINGS):
            return drawn * (TIED_EMBED_STD if tied else 0.3)
        if name.endswith("embed_out.weight"):
            return 0.3 * drawn
        if name.endswith(LAST_NORMS):
            return (TIED_FINAL_NORM if tied else 1.0) * (1.0 + 0.2 * drawn)
        if name.endswith(NORMS) or ".norms." in name:
            return 1.0 + 0.25 * drawn
        if name.endswith(".bias") and "norm" not in name and "ln_" not in name:
            return 0.3 * drawn
        if name.endswith(".bias"):
            # Away from zero, so that rows of one sign bring units to the tail without biases of their own.
            return 0.8 + 0.3 * drawn if plain and "f" not in name.split(".")[-2] else 0.3 * drawn
        if plain and name.endswith(UPS):
            return drawn * 0.6 / inputs**0.5 - TAIL / 0.8 / inputs
        if plain and name.endswith(DOWNS):
            return drawn * 12.0 / inputs**0.5
        if name.endswith(("c_attn.weight", "query_key_value.weight")):
            return drawn * 1.4 / inputs**0.5
        if conv and drawn.ndim == 2:
            return drawn / inputs**0.5
        return None

    return draw


def neox_rope(part):
    return rope(10000.0, partial_rotary_factor=part)


NEOX = NO_GROUPS | dict(rope_parameters=neox_rope(0.5))
NEOX_ABLATIONS = dict(
    tanh_gelu=dict(hidden_act="gelu_new"),
    rope_of_whole_heads=dict(rope_parameters=neox_rope(1.0)),
    norm_epsilon=dict(layer_norm_eps=1e-2),
)
NEOX_BIASES = dict(
    joined_bias=("query_key_value.bias", 0.0),
    output_bias=("attention.dense.bias", 0.0),
    up_bias=("dense_h_to_4h.bias", 0.0),
    down_bias=("dense_4h_to_h.bias", 0.0),
    norm_bias=("input_layernorm.bias", 0.0),
    last_bias=("final_layer_norm.bias", 0.0),
)
STABLE = SHORT | dict(rope_parameters=neox_rope(0.25))
STABLE_BIASES = dict(norm_bias=("input_layernorm.bias", 0.0), last_bias=("model.norm.bias", 0.0))
FALCON = dict(
    vocab_size=512,
    hidden_size=64,
    ffn_hidden_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    layer_norm_epsilon=1e-4,
    rope_parameters=rope(10000.0),
    bos_token_id=1,
    eos_token_id=2,
)
FALCON_ABLATIONS = dict(tanh_gelu=dict(activation="gelu_new"), norm_epsilon=dict(layer_norm_epsilon=1e-2))
COHERE = SHORT | dict(intermediate_size=128, logit_scale=0.5, layer_norm_eps=1e-4)

FAMILIES = {
    "gpt2": Family(
        "GPT2",
        dict(
            vocab_size=512,
            n_embd=64,
            n_inner=128,
            n_layer=2,
            n_head=4,
            n_positions=512,
            layer_norm_epsilon=1e-4,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        ),
        dict(exact_gelu=dict(activation_function="gelu"), norm_epsilon=dict(layer_norm_epsilon=1e-2)),
        dict(
            positions=("wpe.weight", 0.0),
            joined_bias=("c_attn.bias", 0.0),
            up_bias=("c_fc.bias", 0.0),
            down_bias=("mlp.c_proj.bias", 0.0),
            norm_bias=("ln_1.bias", 0.0),
            last_bias=("ln_f.bias", 0.0),
        ),
        model_class="GPT2LMHeadModel",
        draw=draw_gpt(conv=True),
        written=dict(n_ctx=512),
    ),
    # Multi-query attention.
    "starcoder": Family(
        "GPTBigCode",
        dict(
            vocab_size=512,
            n_embd=64,
            n_inner=128,
            n_layer=2,
            n_head=4,
            n_positions=512,
            multi_query=True,
            layer_norm_epsilon=1e-4,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        ),
        dict(exact_gelu=dict(activation_function="gelu"), norm_epsilon=dict(layer_norm_epsilon=1e-2)),
        dict(positions=("wpe.weight", 0.0), joined_bias=("c_attn.bias", 0.0)),
        draw=draw_gpt(),
    ),
    "gptneox": Family(
        "GPTNeoX",
        NEOX | dict(use_parallel_residual=True),
        NEOX_ABLATIONS | dict(in_turn=dict(use_parallel_residual=False)),
        NEOX_BIASES,
        draw=draw_gpt(tied=False),
        written=dict(rotary_pct=0.5),
    ),
    "gptneox-in-turn": Family(
        "GPTNeoX",
        NEOX | dict(use_parallel_residual=False),
        NEOX_ABLATIONS | dict(parallel=dict(use_parallel_residual=True)),
        NEOX_BIASES,
        draw=draw_gpt(tied=False),
        written=dict(rotary_pct=0.5),
    ),
    "phi2": Family(
        "Phi",
        NO_GROUPS | dict(rope_parameters=neox_rope(0.5)),
        dict(
            exact_gelu=dict(hidden_act="gelu"),
            rope_of_whole_heads=dict(rope_parameters=neox_rope(1.0)),
            norm_epsilon=dict(layer_norm_eps=1e-2),
        ),
        dict(
            query_bias=("q_proj.bias", 0.0),
            output_bias=("self_attn.dense.bias", 0.0),
            logit_bias=("lm_head.bias", 0.0),
            norm_bias=("input_layernorm.bias", 0.0),
        ),
        draw=draw_gpt(tied=False),
    ),
    "starcoder2": Family(
        "Starcoder2",
        SHORT | dict(rope_parameters=rope(100000.0), tie_word_embeddings=True),
        dict(
            exact_gelu=dict(hidden_act="gelu"),
            rope_base=dict(rope_parameters=rope(10000.0)),
            norm_epsilon=dict(norm_epsilon=1e-2),
        ),
        dict(key_bias=("k_proj.bias", 0.0), value_bias=("v_proj.bias", 0.0), norm_bias=("input_layernorm.bias", 0.0)),
        draw=draw_gpt(),
    ),
    "stablelm": Family(
        "StableLm",
        STABLE | dict(use_qkv_bias=True),
        dict(
            rope_of_whole_heads=dict(rope_parameters=neox_rope(1.0)),
            norm_epsilon=dict(layer_norm_eps=1e-2),
        ),
        STABLE_BIASES | dict(query_bias=("q_proj.bias", 0.0), second_norm=("post_attention_layernorm.weight", 1.0)),
        draw=draw_gpt(tied=False, plain=False),
    ),
    # As the 12B model: heads with norms of their own, and one norm for both halves.
    "stablelm-parallel": Family(
        "StableLm",
        STABLE | dict(use_parallel_residual=True, qk_layernorm=True),
        dict(rope_of_whole_heads=dict(rope_parameters=neox_rope(1.0)), norm_epsilon=dict(layer_norm_eps=1e-2)),
        STABLE_BIASES | dict(query_norm=("q_layernorm.norms", 1.0), one_key_norm=("k_layernorm.norms.1", 1.0)),
        draw=draw_gpt(tied=False, plain=False),
    ),
    # As the 7B model: one key head, one norm for both halves.
    "falcon": Family(
        "Falcon",
        FALCON | dict(multi_query=True),
        FALCON_ABLATIONS,
        dict(norm_bias=("input_layernorm.bias", 0.0), last_bias=("ln_f.bias", 0.0)),
        draw=draw_gpt(),
        written=dict(num_kv_heads=1),
    ),
    # As the 40B model: grouped heads, a norm for each half.
    "falcon-two-norms": Family(
        "Falcon",
        FALCON | dict(new_decoder_architecture=True, num_kv_heads=2),
        FALCON_ABLATIONS,
        dict(attention_norm=("ln_attn.weight", 1.0), unit_norm=("ln_mlp.weight", 1.0), norm_bias=("ln_attn.bias", 0.0)),
        draw=draw_gpt(),
    ),
    # With the norms of heads that Command R+ has.
    "command-r": Family(
        "Cohere",
        COHERE | dict(rope_parameters=rope(500000.0), use_qk_norm=True),
        dict(
            logit_scale=dict(logit_scale=1.0),
            rope_base=dict(rope_parameters=rope(10000.0)),
            norm_epsilon=dict(layer_norm_eps=1e-2),
        ),
        dict(query_norm=("q_norm", 1.0), key_norm=("k_norm", 1.0)),
        draw=draw_gpt(plain=False),
    ),
    "cohere2": Family(
        "Cohere2",
        COHERE | dict(num_hidden_layers=4, intermediate_size=64, sliding_window=8, rope_parameters=rope(50000.0)),
        dict(
            window_longer=dict(sliding_window=9),
            window_shorter=dict(sliding_window=7),
            windows_everywhere=dict(layer_types=["sliding_attention"] * 4),
            logit_scale=dict(logit_scale=1.0),
            rope_base=dict(rope_parameters=rope(10000.0)),
        ),
        draw=draw_gpt(plain=False),
        written=dict(rotary_pct=1.0),
    ),
}
