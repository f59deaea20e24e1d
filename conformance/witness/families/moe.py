"""Mixtures of experts that are otherwise Llama's kin."""
from tiny_family import SHAPE, TIED_EMBED_STD, TIED_FINAL_NORM, Family, rope

# Few experts, narrow ones: so the files stay small. Their width is no multiple of a panel's 16 rows.
SPARSE = SHAPE | dict(tie_word_embeddings=True, rope_parameters=rope(10000.0))
ROUTED = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
TIED = dict(embed_std=TIED_EMBED_STD, final_norm=TIED_FINAL_NORM)
USED = dict(one_expert_less=dict(num_experts_per_tok=1), one_expert_more=dict(num_experts_per_tok=3))
GRANITE = dict(embedding_multiplier=6.0, residual_multiplier=0.45, attention_multiplier=0.4, logits_scaling=1.5)
GRANITE_TIED = dict(embed_std=TIED_EMBED_STD / 6.0, final_norm=TIED_FINAL_NORM * 6.0)


def draw(name, drawn):
    """Stacks of experts, and routers so steep that weights differ."""
    if drawn.ndim == 3:
        return drawn / drawn.shape[2] ** 0.5
    if name.endswith(("mlp.gate.weight", "router.weight")):
        return drawn * 1.5 / drawn.shape[1] ** 0.5
    if name.endswith("e_score_correction_bias"):
        return 0.2 * drawn
    return None


FAMILIES = {
    "mixtral": Family(
        "Mixtral",
        SPARSE | dict(head_dim=16, intermediate_size=24, num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
        USED,
        dict(router=("mlp.gate.weight", 0.0)),
        draw=draw,
        **TIED,
    ),
    "qwen2moe": Family(
        "Qwen2Moe",
        SPARSE | ROUTED | dict(shared_expert_intermediate_size=32, decoder_sparse_step=1, norm_topk_prob=False),
        USED | dict(normalised=dict(norm_topk_prob=True)),
        dict(
            router=("mlp.gate.weight", 0.0),
            shared_expert=("shared_expert.down_proj", 0.0),
            shared_gate=("shared_expert_gate", 0.0),
            query_bias=("q_proj.bias", 0.0),
        ),
        draw=draw,
        **TIED,
    ),
    "qwen3moe": Family(
        "Qwen3Moe",
        SPARSE | ROUTED | dict(head_dim=16, decoder_sparse_step=1, norm_topk_prob=True),
        USED | dict(not_normalised=dict(norm_topk_prob=False)),
        dict(router=("mlp.gate.weight", 0.0), query_norm=("q_norm", 1.0), key_norm=("k_norm", 1.0)),
        draw=draw,
        **TIED,
    ),
    "olmoe": Family(
        "Olmoe",
        SPARSE | dict(intermediate_size=24, num_experts=4, num_experts_per_tok=2, norm_topk_prob=False),
        USED | dict(normalised=dict(norm_topk_prob=True)),
        dict(router=("mlp.gate.weight", 0.0), query_norm=("q_norm", 1.0), key_norm=("k_norm", 1.0)),
        draw=draw,
        **TIED,
    ),
    "granitemoe": Family(
        "GraniteMoe",
        SPARSE | GRANITE | dict(intermediate_size=24, num_local_experts=4, num_experts_per_tok=2),
        USED | {name: {name: 1.0 if name != "attention_multiplier" else 16**-0.5} for name in GRANITE},
        dict(router=("block_sparse_moe.router.weight", 0.0)),
        draw=draw,
        **GRANITE_TIED,
    ),
    "granitemoeshared": Family(
        "GraniteMoeShared",
        SPARSE
        | GRANITE
        | dict(intermediate_size=24, shared_intermediate_size=32, num_local_experts=4, num_experts_per_tok=2),
        USED,
        dict(router=("block_sparse_moe.router.weight", 0.0), shared_expert=("shared_mlp.output_linear", 0.0)),
        draw=draw,
        **GRANITE_TIED,
    ),
    # The first block is dense.
    "ernie4_5-moe": Family(
        "Ernie4_5_Moe",
        SPARSE
        | dict(
            intermediate_size=64,
            moe_intermediate_size=24,
            moe_num_experts=4,
            moe_k=2,
            moe_num_shared_experts=2,
            moe_layer_start_index=1,
            moe_layer_end_index=2,
            num_hidden_layers=3,
        ),
        dict(one_expert_less=dict(moe_k=1), one_expert_more=dict(moe_k=3)),
        dict(
            router=("mlp.gate.weight", 0.0),
            selection_bias=("e_score_correction_bias", 0.0),
            shared_expert=("shared_experts.down_proj", 0.0),
        ),
        draw=draw,
        **TIED,
    ),
}
