"""Gemma 1 and 2."""
from tiny_family import SHAPE, TIED_EMBED_STD, TIED_FINAL_NORM, Family, rope

SCALED = dict(
    zero_centred_norms=True,
    embed_std=TIED_EMBED_STD / 8.0,  # Gemma multiplies by the root of the width, which is 8
    final_norm=TIED_FINAL_NORM * 8.0,
)
# No rope of theirs is of another base: no key of the file says it.
ROPE = dict(rope_parameters=rope(10000.0))

FAMILIES = {
    "gemma": Family(
        "Gemma",
        SHAPE | ROPE | dict(head_dim=32),
        dict(rope_base=dict(rope_parameters=rope(20000.0)), silu=dict(hidden_act="silu"), norm_epsilon=dict(rms_norm_eps=1e-2)),
        **SCALED,
    ),
    # Caps so low that they show.
    "gemma2": Family(
        "Gemma2",
        SHAPE
        | ROPE
        | dict(
            num_hidden_layers=4,
            intermediate_size=64,
            head_dim=16,
            query_pre_attn_scalar=16,
            sliding_window=8,
            attn_logit_softcapping=4.0,
            final_logit_softcapping=6.0,
        ),
        dict(
            window_longer=dict(sliding_window=9),
            window_shorter=dict(sliding_window=7),
            windows_swapped=dict(layer_types=["full_attention", "sliding_attention"] * 2),
            scores_not_capped=dict(attn_logit_softcapping=None),
            logits_not_capped=dict(final_logit_softcapping=None),
            exact_gelu=dict(hidden_activation="gelu"),
        ),
        dict(post_attention_norm=("post_attention_layernorm", 0.0), post_feed_forward_norm=("post_feedforward_layernorm", 0.0)),
        **SCALED,
    ),
}
