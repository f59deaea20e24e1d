"""State spaces, convolutions, the delta rule, and hybrids of them with attention."""
from tiny_family import SHAPE, TIED_EMBED_STD, TIED_FINAL_NORM, Family, rope


def draw_state_space(name, drawn):
    """Rates and steps such that states last from a few tokens to the whole prompt."""
    if name.endswith("A_log"):
        return 0.5 * drawn
    if name.endswith((".D", "conv1d.bias", "dt_bias", "dt_proj.bias")):
        return 0.5 * drawn - (1.0 if "dt" in name else 0.0)
    if name.endswith(("conv1d.weight", "conv.conv.weight")):
        return 0.6 * drawn
    if name.endswith("dt_proj.weight"):
        return drawn * 0.5 / drawn.shape[1] ** 0.5
    return None


def draw_tied(name, drawn):
    """The names that Mamba gives its embedding, and Mamba and LFM2 their last norm."""
    if name == "backbone.embeddings.weight":
        return drawn * TIED_EMBED_STD
    if name in ("backbone.norm_f.weight", "model.embedding_norm.weight"):
        return TIED_FINAL_NORM * (1.0 + 0.2 * drawn)
    return draw_state_space(name, drawn)


def draw_falcon(name, drawn):
    if name == "model.final_layernorm.weight":
        return 1.0 + 0.2 * drawn
    return draw_state_space(name, drawn)



def draw_qwen(name, drawn):
    """The delta net's own norm is not centred at zero."""
    return 1.0 + 0.25 * drawn if name.endswith("linear_attn.norm.weight") else draw_state_space(name, drawn)


MAMBA = {key: SHAPE[key] for key in ("vocab_size", "hidden_size", "bos_token_id", "eos_token_id", "pad_token_id")}
SCAN_ABLATIONS = dict(
    convolution_bias=("conv1d.bias", 0.0),
    skip=(".D", 0.0),
    step_bias=("dt_bias", 0.0),
    rates=("A_log", 0.0),
)
GRANITE = dict(embedding_multiplier=6.0, residual_multiplier=0.45, attention_multiplier=0.4, logits_scaling=1.5)

FAMILIES = {
    "mamba": Family(
        "Mamba",
        MAMBA | dict(num_hidden_layers=2, state_size=16, time_step_rank=32, conv_kernel=4, tie_word_embeddings=True),
        dict(norm_epsilon=dict(layer_norm_epsilon=1e-2), silu=dict(hidden_act="gelu")),
        SCAN_ABLATIONS | dict(step_bias=("dt_proj.bias", 0.0)),
        draw=draw_tied,
    ),
    "mamba2": Family(
        "Mamba2",
        MAMBA
        | dict(
            num_hidden_layers=2,
            state_size=16,
            num_heads=4,
            head_dim=32,
            expand=2,
            n_groups=2,
            chunk_size=16,
            tie_word_embeddings=True,
        ),
        dict(norm_epsilon=dict(layer_norm_epsilon=1e-2), silu=dict(hidden_act="gelu")),
        SCAN_ABLATIONS | dict(gated_norm=("mixer.norm.weight", 1.0)),
        draw=draw_tied,
    ),
    "lfm2": Family(
        "Lfm2",
        SHAPE
        | dict(
            num_hidden_layers=4,
            intermediate_size=96,
            block_ff_dim=96,
            block_auto_adjust_ff_dim=False,
            conv_L_cache=3,
            conv_bias=False,
            layer_types=["conv", "full_attention", "conv", "conv"],
            tie_word_embeddings=True,
            rope_parameters=rope(1000000.0),
        ),
        dict(rope_base=dict(rope_parameters=rope(10000.0)), norm_epsilon=dict(norm_eps=1e-2)),
        dict(query_norm=("q_layernorm", 1.0), key_norm=("k_layernorm", 1.0), convolution=("conv.conv", 1.0)),
        embed_std=TIED_EMBED_STD,
        draw=draw_tied,
    ),
    # Multipliers far from one: the converter puts them into the weights.
    "falcon-h1": Family(
        "FalconH1",
        SHAPE
        | dict(
            head_dim=16,
            mamba_d_ssm=128,
            mamba_n_heads=4,
            mamba_d_head=32,
            mamba_d_state=16,
            mamba_n_groups=2,
            mamba_chunk_size=16,
            attention_in_multiplier=0.8,
            attention_out_multiplier=1.3,
            ssm_in_multiplier=1.2,
            ssm_out_multiplier=0.7,
            key_multiplier=1.4,
            lm_head_multiplier=0.9,
            embedding_multiplier=1.5,
            mlp_multipliers=[0.9, 1.1],
            ssm_multipliers=[0.8, 1.2, 0.9, 1.1, 1.3],
            rope_parameters=rope(100000.0),
        ),
        dict(rope_base=dict(rope_parameters=rope(10000.0)), key_multiplier=dict(key_multiplier=1.0)),
        SCAN_ABLATIONS,
        draw=draw_falcon,
    ),
    "granitehybrid": Family(
        "GraniteMoeHybrid",
        SHAPE
        | GRANITE
        | dict(
            num_hidden_layers=3,
            num_local_experts=0,
            num_experts_per_tok=0,
            shared_intermediate_size=96,
            layer_types=["mamba", "attention", "mamba"],
            mamba_n_heads=4,
            mamba_d_head=32,
            mamba_d_state=16,
            mamba_n_groups=1,
            mamba_expand=2,
            mamba_chunk_size=16,
            position_embedding_type=None,
            tie_word_embeddings=True,
        ),
        {name: {name: 1.0 if name != "attention_multiplier" else 16**-0.5} for name in GRANITE},
        SCAN_ABLATIONS | dict(gated_norm=("mamba.norm.weight", 1.0)),
        embed_std=TIED_EMBED_STD / 6.0,  # the embedding multiplier gives it back
        final_norm=TIED_FINAL_NORM * 6.0,
        draw=draw_state_space,
        written=dict(layer_types=["mamba", "attention", "mamba"]),
    ),
    # Heads of 16 of which 4 elements turn; two value heads for each key head.
    "qwen35": Family(
        "Qwen3_5",
        SHAPE
        | dict(
            num_hidden_layers=3,
            intermediate_size=96,
            head_dim=16,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=16,
            linear_value_head_dim=16,
            linear_conv_kernel_dim=4,
            layer_types=["linear_attention", "full_attention", "linear_attention"],
            rope_parameters=rope(1000000.0, partial_rotary_factor=0.25, mrope_section=[2, 0, 0], mrope_interleaved=True),
        ),
        dict(rope_base=dict(rope_parameters=rope(100.0, partial_rotary_factor=0.25, mrope_section=[2, 0, 0]))),
        dict(
            query_norm=("q_norm", 0.0),
            key_norm=("k_norm", 0.0),
            step_bias=("dt_bias", 0.0),
            rates=("A_log", 0.0),
            gated_norm=("linear_attn.norm.weight", 1.0),
        ),
        config_class="Qwen3_5TextConfig",
        converter=["--no-mtp"],
        zero_centred_norms=True,
        draw=draw_qwen,
    ),
}
