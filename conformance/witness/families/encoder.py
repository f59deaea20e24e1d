"""Encoders: BERT, and EmbeddingGemma. The witness is the last hidden state, or what dense modules make of it."""
from tiny_family import SHAPE, Family, rope

GEMMA_LAYERS = ["sliding_attention"] * 5 + ["full_attention"]
GEMMA = SHAPE | dict(
    num_hidden_layers=6,
    intermediate_size=64,
    head_dim=16,
    query_pre_attn_scalar=16,
    sliding_window=8,
    layer_types=GEMMA_LAYERS,
    rope_parameters=dict(sliding_attention=rope(10000.0), full_attention=rope(1000000.0)),
    use_bidirectional_attention=True,
)
# The last norm's weight: rows that are spread out show how the two forms of GELU differ.
SPREAD = 12.0


def draw_bert(name, drawn):
    """Embeddings large enough that each of the three kinds shows behind their norm, and attention that is sharp."""
    if "embeddings.weight" in name:
        return 0.5 * drawn
    if name == "encoder.layer.1.output.LayerNorm.weight":
        return SPREAD * (1.0 + 0.25 * drawn)
    if "LayerNorm.weight" in name:
        return 1.0 + 0.25 * drawn
    if name.endswith(("query.weight", "key.weight", "intermediate.dense.weight")):
        return drawn * 1.6 / drawn.shape[1] ** 0.5
    return None


def draw_nomic(name, drawn):
    if "embeddings.weight" in name:
        return 0.5 * drawn
    if name == "layers.1.post_mlp_layernorm.weight":
        return SPREAD * (1.0 + 0.25 * drawn)
    if name.endswith("norm.weight") or name.endswith("LayerNorm.weight"):
        return 1.0 + 0.25 * drawn
    return None


def draw_modern(name, drawn):
    if "tok_embeddings" in name:
        return 0.5 * drawn
    if name == "final_norm.weight":
        return SPREAD * (1.0 + 0.25 * drawn)
    if name.endswith("Wqkv.weight"):
        return drawn * 1.6 / drawn.shape[1] ** 0.5
    return None


def draw_gemma(name, drawn):
    return SPREAD * (1.0 + 0.2 * drawn) - 1.0 if name == "norm.weight" else None


FAMILIES = {
    "bert": Family(
        "Bert",
        dict(
            vocab_size=512,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=256,
            type_vocab_size=2,
            layer_norm_eps=1e-3,
        ),
        dict(
            causal=dict(is_decoder=True),
            silu=dict(hidden_act="silu"),
            relu=dict(hidden_act="relu"),
            tanh_gelu=dict(hidden_act="gelu_new"),
            norm_epsilon=dict(layer_norm_eps=1e-1),
        ),
        dict(
            types=("token_type_embeddings", 0.0),
            positions=("position_embeddings", 0.0),
            query_bias=("query.bias", 0.0),
            value_bias=("value.bias", 0.0),
            up_bias=("intermediate.dense.bias", 0.0),
            embedding_norm=("embeddings.LayerNorm.weight", 1.0),
            norm_bias=("output.LayerNorm.bias", 0.0),
        ),
        draw=draw_bert,
        encoder=True,
    ),
    # Heads turn by two bases, and the first block has no norm before attention.
    "modern-bert": Family(
        "ModernBert",
        dict(
            vocab_size=512,
            hidden_size=64,
            intermediate_size=48,
            num_hidden_layers=4,
            num_attention_heads=4,
            max_position_embeddings=256,
            local_attention=8,
            norm_eps=1e-3,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            cls_token_id=1,
            sep_token_id=2,
            rope_parameters=dict(sliding_attention=rope(10000.0), full_attention=rope(160000.0)),
        ),
        dict(
            window_longer=dict(local_attention=10),
            window_shorter=dict(local_attention=6),
            tanh_gelu=dict(hidden_activation="gelu_pytorch_tanh"),
            silu=dict(hidden_activation="silu"),
            rope_base=dict(rope_parameters=dict(sliding_attention=rope(10000.0), full_attention=rope(10000.0))),
            norm_epsilon=dict(norm_eps=1e-1),
        ),
        dict(embedding_norm=("embeddings.norm", 1.0), second_norm=("mlp_norm", 1.0)),
        draw=draw_modern,
        encoder=True,
        written=dict(local_attention=8, global_attn_every_n_layers=3),
    ),
    "jina-bert-v2": Family(
        "JinaBert",
        dict(
            vocab_size=512,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=256,
            type_vocab_size=2,
            layer_norm_eps=1e-3,
        ),
        dict(
            distance=dict(alibi=4.0),
            tanh_gelu=dict(hidden_act="gelu_new"),
            silu=dict(hidden_act="silu"),
            norm_epsilon=dict(layer_norm_eps=1e-1),
        ),
        dict(
            types=("token_type_embeddings", 0.0),
            query_bias=("query.bias", 0.0),
            norm_bias=("output.LayerNorm.bias", 0.0),
        ),
        draw=draw_bert,
        encoder=True,
        renamed=[
            (r".*position_embeddings.*", ""),
            (r"intermediate\.dense", "mlp.gated_layers"),
            (r"(layer\.\d+)\.output\.dense", r"\1.mlp.wo"),
            (r"(layer\.\d+)\.output\.LayerNorm", r"\1.mlp.layernorm"),
        ],
        written=dict(architectures=["JinaBertModel"]),
    ),
    "nomic-bert": Family(
        "NomicBert",
        dict(
            vocab_size=512,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=2048,
            type_vocab_size=2,
            layer_norm_eps=1e-3,
            rope_parameters=rope(1000.0),
        ),
        dict(
            rope_base=dict(rope_parameters=rope(10000.0)),
            gelu=dict(hidden_act="gelu"),
            norm_epsilon=dict(layer_norm_eps=1e-1),
        ),
        dict(types=("token_type_embeddings", 0.0), norm_bias=("post_attention_layernorm.bias", 0.0)),
        draw=draw_nomic,
        encoder=True,
        # As the published model's configuration says it.
        written=dict(
            n_positions=8192,
            max_trained_positions=2048,
            activation_function="swiglu",
            causal=False,
            qkv_proj_bias=False,
            mlp_fc1_bias=False,
            mlp_fc2_bias=False,
            prenorm=False,
            rotary_emb_fraction=1.0,
            rotary_emb_interleaved=False,
            rotary_emb_scale_base=None,
            rotary_emb_base=1000,
        ),
    ),
    "gemma-embedding": Family(
        "Gemma3Text",
        GEMMA,
        dict(
            causal=dict(use_bidirectional_attention=False, sliding_window=5),
            window_longer=dict(sliding_window=10),
            window_shorter=dict(sliding_window=6),
            exact_gelu=dict(hidden_activation="gelu"),
        ),
        dict(query_norm=("q_norm", 0.0), post_attention_norm=("post_attention_layernorm", 0.0)),
        draw=draw_gemma,
        zero_centred_norms=True,
        embed_std=0.1,
        encoder=True,
        # transformers saves what it made of the window: half of it, and one.
        saved=dict(sliding_window=8),
        dense=[96, 48],
        converter=["--sentence-transformers-dense-modules"],
    ),
}
