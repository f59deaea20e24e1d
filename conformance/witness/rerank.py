#!/usr/bin/env python3
"""Make the tiny rerankers of conformance/fixtures/rerank, with what transformers makes of a sequence.

    rerank.py --llama-cpp SOURCE

For each model NAME.gguf, written by llama.cpp's converter, and NAME.json: the ids of a sequence and the outputs that
transformers computes for it in f32. Those of `qwen3` are its logits of two tokens, in the order in which the converter puts
their rows into the head. `ablations` says how far the outputs move without a part of the head: a test that uses the fixture
notices its absence.
"""
import argparse
import json
import tempfile
from pathlib import Path

import torch

import make_tiny
from tiny_family import SHAPE, Family

OUT = Path(__file__).parent.parent / "fixtures" / "rerank"
SEED = 1
# The tokens that stand for yes and no; see convert_tiny.py.
YES, NO = 300, 301


def draw(name, drawn):
    if name.endswith(("classifier.weight", "out_proj.weight")):
        return drawn * 0.5
    if "embeddings" in name and "norm" not in name.lower():
        return 0.5 * drawn
    if "norm" in name.lower() and name.endswith("weight"):
        return 1.0 + 0.25 * drawn
    return None


ENCODER = dict(
    vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, pad_token_id=0,
)
MODELS = {
    "xlm-roberta": Family(
        "XLMRoberta",
        ENCODER | dict(max_position_embeddings=257, type_vocab_size=1, num_labels=1, layer_norm_eps=1e-5),
        neutral=dict(
            dense=("classifier.dense.weight", 0.0),
            dense_bias=("classifier.dense.bias", 0.0),
            bias=("classifier.out_proj.bias", 0.0),
        ),
        model_class="XLMRobertaForSequenceClassification",
        draw=draw,
    ),
    "modern-bert": Family(
        "ModernBert",
        ENCODER
        | dict(
            max_position_embeddings=256,
            num_labels=1,
            classifier_pooling="mean",
            local_attention=16,
            global_attn_every_n_layers=2,
            norm_eps=1e-5,
            bos_token_id=1,
            eos_token_id=2,
            cls_token_id=1,
            sep_token_id=2,
        ),
        ablations=dict(pooling=dict(classifier_pooling="cls")),
        neutral=dict(dense=("head.dense.weight", 0.0), norm=("head.norm.weight", 1.0), bias=("classifier.bias", 0.0)),
        model_class="ModernBertForSequenceClassification",
        draw=draw,
    ),
    "qwen3": Family("Qwen3", SHAPE | dict(head_dim=32, tie_word_embeddings=True)),
}


def outputs(model, ids):
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].float()
    return logits if logits.ndim == 1 else logits[-1][[YES, NO]]


def make(name, source):
    family = MODELS[name]
    tokenizer = make_tiny.make_tokenizer()
    ids = tokenizer(make_tiny.PROMPT)["input_ids"]
    model = make_tiny.build(family)
    make_tiny.randomise(family, model, SEED)
    base = outputs(model, ids)
    moved = {}
    for what, changes in family.ablations.items():
        other = make_tiny.build(family, changes)
        other.load_state_dict(model.state_dict())
        moved[what] = float((outputs(other, ids) - base).abs().max())
    for what, (part, value) in family.neutral.items():
        weights = model.state_dict()
        other = make_tiny.build(family)
        assert any(part in key for key in weights), part
        other.load_state_dict({k: torch.full_like(w, value) if part in k else w for k, w in weights.items()})
        moved[what] = float((outputs(other, ids) - base).abs().max())
    assert all(distance > make_tiny.MIN_ABLATION for distance in moved.values()), moved
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder) / name
        folder.mkdir()
        tokenizer.save_pretrained(folder)
        make_tiny.save(family, model, folder)
        if name == "qwen3":
            (folder / "README.md").write_text("# Qwen3-Reranker\n")
        make_tiny.convert(source, folder, OUT / f"{name}.gguf", name, family.converter)
    record = dict(ids=ids, outputs=base.tolist(), ablations=moved)
    (OUT / f"{name}.json").write_text(json.dumps(record) + "\n")
    print(name, base.tolist(), moved)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", required=True, type=Path, help="llama.cpp's source folder")
    arguments = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for name in MODELS:
        make(name, arguments.llama_cpp)


main()
