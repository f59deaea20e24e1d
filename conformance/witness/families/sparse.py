"""Mixtures of experts in hybrids, and behind attention of which a part turns."""
from families.moe import GRANITE, GRANITE_TIED, TIED, draw as draw_experts
from families.recurrent import FAMILIES as RECURRENT, draw_qwen, draw_tied
from tiny_family import SHAPE, TIED_EMBED_STD, TIED_FINAL_NORM, Family, rope


def both(own):
    """What experts are drawn by, and where that has no rule `own`."""

    def draw(name, drawn):
        found = draw_experts(name, drawn)
        return own(name, drawn) if found is None else found

    return draw


def draw_lfm(name, drawn):
    if name.endswith("feed_forward.gate.weight"):
        return drawn * 1.5 / drawn.shape[1] ** 0.5
    if name.endswith("expert_bias"):
        return 0.2 * drawn
    return draw_tied(name, drawn)


QWEN = RECURRENT["qwen35"]
QWEN_CONFIG = {key: value for key, value in QWEN.config.items() if key != "intermediate_size"} | dict(
    num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=32
)
QWEN_ROPE = dict(rope_base=dict(rope_parameters=rope(100.0, partial_rotary_factor=0.25)))
USED = dict(one_expert_less=dict(num_experts_per_tok=1), one_expert_more=dict(num_experts_per_tok=3))
SHARED = dict(
    router=("mlp.gate.weight", 0.0),
    shared_expert=("shared_expert.down_proj", 0.0),
    shared_gate=("shared_expert_gate", 0.0),
)
GLM_ROPE = dict(partial_rotary_factor=0.5)

FAMILIES = {
    "qwen35moe": Family(
        "Qwen3_5Moe",
        QWEN_CONFIG,
        QWEN.ablations | USED,
        QWEN.neutral | SHARED,
        config_class="Qwen3_5MoeTextConfig",
        converter=["--no-mtp"],
        zero_centred_norms=True,
        draw=both(draw_qwen),
    ),
    "qwen3next": Family(
        "Qwen3Next",
        QWEN_CONFIG | dict(rope_parameters=rope(1000000.0, partial_rotary_factor=0.25), decoder_sparse_step=1),
        QWEN_ROPE | USED | dict(not_normalised=dict(norm_topk_prob=False)),
        QWEN.neutral | SHARED,
        converter=["--no-mtp"],
        zero_centred_norms=True,
        draw=both(draw_qwen),
    ),
    # The first block is dense.
    "lfm2moe": Family(
        "Lfm2Moe",
        SHAPE
        | dict(
            num_hidden_layers=4,
            intermediate_size=64,
            moe_intermediate_size=24,
            num_experts=4,
            num_experts_per_tok=2,
            num_dense_layers=1,
            conv_L_cache=3,
            layer_types=["conv", "full_attention", "conv", "conv"],
            tie_word_embeddings=True,
            rope_parameters=rope(1000000.0),
        ),
        USED | dict(rope_base=dict(rope_parameters=rope(10000.0)), not_normalised=dict(norm_topk_prob=False)),
        dict(
            router=("feed_forward.gate.weight", 0.0),
            selection_bias=("expert_bias", 0.0),
            query_norm=("q_layernorm", 1.0),
            convolution=("conv.conv", 1.0),
        ),
        embed_std=TIED_EMBED_STD,
        draw=both(draw_lfm),
    ),
    "granitehybrid-moe": Family(
        "GraniteMoeHybrid",
        RECURRENT["granitehybrid"].config
        | dict(intermediate_size=24, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=32),
        USED | {name: {name: 1.0 if name != "attention_multiplier" else 16**-0.5} for name in GRANITE},
        dict(router=("block_sparse_moe.router.weight", 0.0), shared_expert=("shared_mlp.output_linear", 0.0)),
        draw=both(RECURRENT["granitehybrid"].draw),
        written=RECURRENT["granitehybrid"].written,
        **GRANITE_TIED,
    ),
    # The first block is dense; experts are chosen out of one of two groups. Half of each head turns.
    "glm4moe": Family(
        "Glm4Moe",
        SHAPE
        | dict(
            num_hidden_layers=3,
            intermediate_size=64,
            moe_intermediate_size=24,
            head_dim=16,
            n_routed_experts=4,
            n_shared_experts=1,
            num_experts_per_tok=2,
            n_group=2,
            topk_group=1,
            first_k_dense_replace=1,
            routed_scaling_factor=1.5,
            norm_topk_prob=True,
            use_qk_norm=True,
            attention_bias=True,
            tie_word_embeddings=True,
            rope_parameters=rope(1000000.0, **GLM_ROPE),
        ),
        dict(
            one_expert_less=dict(num_experts_per_tok=1),
            not_normalised=dict(norm_topk_prob=False),
            routed_scale=dict(routed_scaling_factor=1.0),
            groups=dict(n_group=1),
            rope_base=dict(rope_parameters=rope(10000.0, **GLM_ROPE)),
            rope_whole=dict(rope_parameters=rope(1000000.0, partial_rotary_factor=1.0)),
        ),
        dict(
            router=("mlp.gate.weight", 0.0),
            selection_bias=("e_score_correction_bias", 0.0),
            shared_expert=("shared_experts.down_proj", 0.0),
            query_bias=("q_proj.bias", 0.0),
            query_norm=("q_norm", 1.0),
            key_norm=("k_norm", 1.0),
        ),
        draw=draw_experts,
        predicts=True,
        **TIED,
    ),
}
