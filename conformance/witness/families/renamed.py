"""Llama and Qwen 2 under the names and in the layouts of models that transformers has no code for, and text models inside others."""
import re

import torch
from tiny_family import SHAPE, TIED_EMBED_STD, TIED_FINAL_NORM, Family, rope

SHORT = SHAPE | dict(max_position_embeddings=512)
LLAMA3_ROPE = rope(
    500000.0,
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)


def rename(tensors, names):
    """The tensors by the names of another model; {n} stands for the number of a layer."""
    out = {}
    for name, tensor in tensors.items():
        layer = re.match(r"model\.layers\.(\d+)\.(.*)", name)
        new = names[layer[2]].format(n=layer[1]) if layer else names[name]
        out[new] = tensor.contiguous()
    return out


def join(tensors, layer, part, how):
    """Takes a layer's queries, keys and values out of the tensors: what `how` makes of them."""
    return how(*[tensors.pop(f"model.layers.{layer}.self_attn.{x}_proj.{part}") for x in "qkv"])


def internlm2(tensors, config):
    """Queries of a group, its key and its value, group by group."""

    def of_groups(q, k, v):
        groups, width = config.num_key_value_heads, config.hidden_size
        heads = [x.reshape(groups, -1, config.head_dim, width) for x in (q, k, v)]
        return torch.cat(heads, dim=1).reshape(-1, width)

    for n in range(config.num_hidden_layers):
        tensors[f"model.layers.{n}.attention.wqkv.weight"] = join(tensors, n, "weight", of_groups)
    names = {
        "model.embed_tokens.weight": "model.tok_embeddings.weight",
        "model.norm.weight": "model.norm.weight",
        "lm_head.weight": "output.weight",
    }
    of_layers = {
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "attention.wqkv": "attention.wqkv",
        "self_attn.o_proj": "attention.wo",
        "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3",
        "mlp.down_proj": "feed_forward.w2",
    }
    layers = {f"{old}.weight": f"model.layers.{{n}}.{new}.weight" for old, new in of_layers.items()}
    return rename(tensors, names | layers)


def gpt_names(of_layers):
    names = {
        "model.embed_tokens.weight": "transformer.wte.weight",
        "model.norm.weight": "transformer.ln_f.weight",
        "lm_head.weight": "lm_head.weight",
    }
    of_layers = of_layers | {"input_layernorm": "ln_1", "post_attention_layernorm": "ln_2"}
    parts = ("weight", "bias")
    return names | {f"{old}.{p}": f"transformer.h.{{n}}.{new}.{p}" for old, new in of_layers.items() for p in parts}


def qwen(tensors, config):
    """Queries, keys and values one after another."""
    for n in range(config.num_hidden_layers):
        for part in ("weight", "bias"):
            joined = join(tensors, n, part, lambda *heads: torch.cat(heads))
            tensors[f"model.layers.{n}.self_attn.c_attn.{part}"] = joined
    of_layers = {
        "self_attn.c_attn": "attn.c_attn",
        "self_attn.o_proj": "attn.c_proj",
        "mlp.gate_proj": "mlp.w2",
        "mlp.up_proj": "mlp.w1",
        "mlp.down_proj": "mlp.c_proj",
    }
    return rename(tensors, gpt_names(of_layers))


def exaone(tensors, config):
    of_layers = {f"self_attn.{x}_proj": f"attn.attention.{x}_proj" for x in "qkv"} | {
        "self_attn.o_proj": "attn.attention.out_proj",
        "mlp.gate_proj": "mlp.c_fc_0",
        "mlp.up_proj": "mlp.c_fc_1",
        "mlp.down_proj": "mlp.c_proj",
    }
    return rename(tensors, gpt_names(of_layers))


def draw_text(name, drawn):
    """Leaves out what is for pictures, which the file does not hold."""
    if "visual" in name:
        return 0.02 * drawn
    return 1.0 + 0.2 * drawn if name == "model.language_model.norm.weight" else None


def seeing(text, **vision):
    vision = dict(depth=1, hidden_size=32, num_heads=2, intermediate_size=32, out_hidden_size=64) | vision
    return dict(text_config=SHORT | text, vision_config=vision)


def sections(theta, of):
    return dict(rope_parameters=rope(theta, mrope_section=of))


QWEN2VL = dict(tie_word_embeddings=False)
QWEN3VL = dict(head_dim=32, tie_word_embeddings=False)

FAMILIES = {
    "internlm2": Family(
        "Llama",
        SHORT | dict(head_dim=16, rope_parameters=rope(1000000.0)),
        dict(rope_base=dict(rope_parameters=rope(10000.0))),
        rewritten=internlm2,
        written=dict(architectures=["InternLM2ForCausalLM"]),
    ),
    "qwen": Family(
        "Qwen2",
        SHORT | dict(num_key_value_heads=4, rope_parameters=rope(10000.0)),
        dict(rope_base=dict(rope_parameters=rope(20000.0))),
        dict(query_bias=("q_proj.bias", 0.0), value_bias=("v_proj.bias", 0.0)),
        rewritten=qwen,
        written=dict(architectures=["QWenLMHeadModel"]),
    ),
    "exaone": Family(
        "Llama",
        SHORT | dict(head_dim=16, rope_parameters=LLAMA3_ROPE),
        dict(rope_unscaled=dict(rope_parameters=rope(500000.0))),
        rewritten=exaone,
        written=dict(architectures=["ExaoneForCausalLM"], activation_function="silu"),
    ),
    # GLM 4 of 2024, and GLM 3.
    "chatglm": Family(
        "Glm",
        SHORT
        | dict(
            head_dim=16,
            attention_bias=True,
            rms_norm_eps=1e-5,
            rope_parameters=rope(10000.0, partial_rotary_factor=0.5),
        ),
        dict(rope_of_whole_heads=dict(rope_parameters=rope(10000.0, partial_rotary_factor=1.0))),
        dict(query_bias=("q_proj.bias", 0.0), second_norm=("post_attention_layernorm", 1.0)),
        written=dict(seq_length=512),
    ),
    # Text has one position in all sections of the rope.
    "qwen2vl": Family(
        "Qwen2_5_VL",
        seeing(QWEN2VL | sections(1000000.0, [2, 3, 3])),
        dict(rope_base=seeing(QWEN2VL | sections(10000.0, [2, 3, 3]))),
        dict(query_bias=("language_model.layers.0.self_attn.q_proj.bias", 0.0)),
        model_class="Qwen2_5_VLForConditionalGeneration",
        draw=draw_text,
    ),
    "qwen3vl": Family(
        "Qwen3VL",
        seeing(QWEN3VL | sections(5000000.0, [6, 5, 5]), num_position_embeddings=16, deepstack_visual_indexes=[0]),
        dict(
            rope_base=seeing(
                QWEN3VL | sections(10000.0, [6, 5, 5]), num_position_embeddings=16, deepstack_visual_indexes=[0]
            )
        ),
        dict(query_norm=("q_norm", 1.0)),
        model_class="Qwen3VLForConditionalGeneration",
        draw=draw_text,
    ),
}
