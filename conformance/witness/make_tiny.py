#!/usr/bin/env python3
"""Make the tiny random-weight models of conformance/fixtures, with the logits that transformers computes for them.

    make_tiny.py --llama-cpp SOURCE [--out DIR] [--keep DIR] [FAMILY ...]

SOURCE is llama.cpp's source folder: its own converter writes the GGUF. For each family DIR receives

    FAMILY.gguf     F32 weights and a real byte-level BPE tokenizer of 512 tokens
    FAMILY.logits   f32 little-endian [prompt tokens, vocabulary]: transformers in f32, eager attention, no cache;
                    of an encoder the rows that it gives, [prompt tokens, width]
    FAMILY.json     the prompt and its ids, the greedy continuation with its margins, and the ablations (see below)

Everything is seeded. Of the seeds, tried in order, the first is taken whose greedy choices are all clear of a tie by
MIN_MARGIN, so that an engine with honest f32 rounding reproduces the ids, and do not merely repeat themselves.

An ablation runs the same weights with one detail of the architecture changed (another rope base, a window one longer,
no query norm, ...) and records how far the logits move. Each must move more than the tolerance of the tests that use the
fixture, MIN_ABLATION at the least: that is what shows a fixture able to catch the mistake.
"""
import argparse
import hashlib
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

import jina_bert
from tiny_family import VOCAB
from tiny_text import CHAT_TEMPLATE, CORPUS, PROMPT

GREEDY_TOKENS = 16
MIN_MARGIN = 0.02  # logits; f32 rounding moves these models' logits by about 1e-5
MIN_ABLATION = 0.005  # logits; five times the tolerance of the tests, 1e-3
MAX_SEEDS = 200
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"]

# The pre-tokenizer that GGUF calls "qwen2" (published with Qwen2's tokenizer.json).
PRE_TOKENIZER = "qwen2"
PRE_TOKENIZER_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def families():
    """Every family, from the files in families/."""
    found = {}
    for path in sorted((Path(__file__).parent / "families").glob("*.py")):
        found |= runpy.run_path(str(path))["FAMILIES"]
    return found


FAMILIES = families()


def make_tokenizer():
    """A byte-level BPE of exactly VOCAB tokens, as transformers' fast tokenizer."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENIZER_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([CORPUS], trainer)
    if tokenizer.get_vocab_size() != VOCAB:
        sys.exit(f"the corpus gives {tokenizer.get_vocab_size()} tokens, not {VOCAB}: make it longer")
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def build(family, changes=None):
    """The model of a family, its configuration changed by `changes`, with whatever weights transformers draws."""
    classes = jina_bert if family.prefix == "JinaBert" else transformers
    config_class = getattr(classes, family.config_class or family.prefix + "Config")
    model_class = family.model_class or family.prefix + ("Model" if family.encoder else "ForCausalLM")
    model_class = getattr(classes, model_class)
    config = config_class(**(family.config | (changes or {})))
    config.dtype = torch.float32
    return model_class._from_config(config, attn_implementation="eager", dtype=torch.float32).eval()


def randomise(family, model, seed):
    """Draw every parameter anew: norms away from one, biases away from nothing, attention sharp enough to see rope."""
    generator = torch.Generator().manual_seed(seed)
    centre = 0.0 if family.zero_centred_norms else 1.0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
            own = family.draw(name, drawn)
            if own is not None:
                value = own
            elif "embed_tokens" in name:
                value = drawn * family.embed_std
            elif "lm_head" in name:
                value = drawn * 0.3
            elif parameter.ndim == 2:
                gain = 1.6 if "q_proj" in name or "k_proj" in name else 1.0
                value = drawn * gain / parameter.shape[1] ** 0.5
            elif name == "model.norm.weight":
                value = family.final_norm * (1.0 + 0.2 * drawn) + centre - 1.0
            elif "norm" in name:
                value = centre + 0.25 * drawn
            elif name.endswith("bias"):
                value = 0.3 * drawn
            else:
                sys.exit(f"no rule for parameter {name}")
            parameter.copy_(value)
        # Some models keep what is learned otherwise in buffers.
        for name, buffer in model.named_buffers():
            if name.endswith(("e_score_correction_bias", "expert_bias", "layer_scalar")):
                buffer.copy_(family.draw(name, torch.randn(buffer.shape, generator=generator, dtype=torch.float32)))
    model.tie_weights()


def logits(model, ids):
    with torch.no_grad():
        ids = torch.tensor([ids])
        if not hasattr(model, "dense"):
            return model(ids, use_cache=False).logits[0].float()
        rows = model(ids).last_hidden_state[0].float()
        for matrix in model.dense:
            rows = rows @ matrix.T
        return rows


def draw_dense(family, width, seed):
    """The matrices behind an encoder."""
    generator = torch.Generator().manual_seed(seed)
    widths = [width, *family.dense]
    shapes = zip(widths[1:], widths)
    return [torch.randn(shape, generator=generator) / shape[1] ** 0.5 for shape in shapes]


def save(family, model, folder):
    """Write the Hugging Face folder, but for the tokenizer."""
    model.save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | family.saved, indent=1))
    if family.predicts:
        path = folder / "model.safetensors"
        tensors = load_file(path)
        last = model.config.num_hidden_layers - 1
        block = {key: value for key, value in tensors.items() if f".layers.{last}." in key}
        tensors |= {key.replace(f".{last}.", f".{last + 1}.", 1): value * 0.5 for key, value in block.items()}
        width = model.config.hidden_size
        joins = {"eh_proj": (width, 2 * width), "enorm": (width,), "hnorm": (width,), "shared_head.norm": (width,)}
        tensors |= {f"model.layers.{last + 1}.{key}.weight": torch.ones(shape) for key, shape in joins.items()}
        save_file(tensors, path, metadata={"format": "pt"})
    if family.renamed:
        path = folder / "model.safetensors"
        tensors = {}
        for name, value in load_file(path).items():
            for pattern, replacement in family.renamed:
                name = re.sub(pattern, replacement, name)
            if name:
                tensors[name] = value
        save_file(tensors, path, metadata={"format": "pt"})
    if family.rewritten:
        path = folder / "model.safetensors"
        save_file(family.rewritten(load_file(path), model.config), path, metadata={"format": "pt"})
    modules = []
    for i, matrix in enumerate(getattr(model, "dense", [])):
        name = f"{i + 2}_Dense"
        (folder / name).mkdir(exist_ok=True)
        save_file({"linear.weight": matrix.contiguous()}, folder / name / "model.safetensors")
        size = dict(in_features=matrix.shape[1], out_features=matrix.shape[0])
        (folder / name / "config.json").write_text(json.dumps(size))
        modules.append(dict(path=name, type="sentence_transformers.models.Dense"))
    if modules:
        (folder / "modules.json").write_text(json.dumps(modules))


def greedy(model, ids):
    """Plain greedy decoding, without a cache: the ids, and for each the distance to the runner-up in logits.

    None as soon as a choice is within MIN_MARGIN of a tie.
    """
    ids, chosen, margins = list(ids), [], []
    for _ in range(GREEDY_TOKENS):
        top = logits(model, ids)[-1].topk(2)
        chosen.append(int(top.indices[0]))
        margins.append(float(top.values[0] - top.values[1]))
        if margins[-1] < MIN_MARGIN:
            return None
        ids.append(chosen[-1])
    return chosen, margins


def ablate(family, model, ids, base):
    """How far the logits move, at most, for each ablation of the family."""
    moved = {}
    weights = model.state_dict()
    for name, changes in family.ablations.items():
        other = build(family, changes)
        other.load_state_dict(weights)
        if family.encoder:
            other.dense = model.dense
        moved[name] = float((logits(other, ids) - base).abs().max())
    for name, (part, value) in family.neutral.items():
        hits = [key for key in weights if part in key]
        if not hits:
            sys.exit(f"no parameter named like {part}")
        other = build(family)
        other.load_state_dict(
            {key: torch.full_like(w, value) if key in hits else w for key, w in weights.items()}
        )
        if family.encoder:
            other.dense = model.dense
        moved[name] = float((logits(other, ids) - base).abs().max())
    return moved


def convert(source, folder, out, name, options):
    """Have llama.cpp's converter write `out` from the Hugging Face folder."""
    here = Path(__file__).parent
    command = [sys.executable, here / "convert_tiny.py", source, PRE_TOKENIZER, folder]
    command += ["--outfile", out, "--outtype", "f32", "--model-name", name, *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"converter failed for {name}:\n{done.stdout[-3000:]}")


def make(name, source, out, keep):
    family = FAMILIES[name]
    tokenizer = make_tokenizer()
    ids = tokenizer(PROMPT)["input_ids"]
    model = build(family)
    for seed in range(1, MAX_SEEDS + 1):
        randomise(family, model, seed)
        if family.encoder:
            model.dense = draw_dense(family, model.config.hidden_size, seed)
        found = ([], []) if family.encoder else greedy(model, ids)
        if family.encoder or found and len(set(found[0])) > GREEDY_TOKENS // 2:
            break
    else:
        sys.exit(f"{name}: no seed up to {MAX_SEEDS} keeps clear of ties and of repetition")
    chosen, margins = found
    base = logits(model, ids)
    moved = ablate(family, model, ids, base)
    for what, distance in moved.items():
        if distance < MIN_ABLATION:
            sys.exit(f"{name}: the fixture would not notice {what}: logits move by {distance:.2g} only")

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(keep or temporary) / f"tiny-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save_pretrained(folder)
        save(family, model, folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | family.written))
        convert(source, folder, out / f"{name}.gguf", f"tiny-{name}", family.converter)

    base.numpy().astype("<f4").tofile(out / f"{name}.logits")
    record = dict(
        family=name,
        architecture=model.config.architectures[0] if model.config.architectures else type(model).__name__,
        config=family.config,
        seed=seed,
        prompt=PROMPT,
        prompt_ids=ids,
        logits_file=f"{name}.logits",
        logits_shape=list(base.shape),
        logits_std=round(float(base.std()), 4),
        greedy_ids=chosen,
        greedy_margins=[round(m, 5) for m in margins],
        greedy_text=tokenizer.decode(chosen),
        ablations={what: round(distance, 4) for what, distance in moved.items()},
        gguf_sha256=hashlib.sha256((out / f"{name}.gguf").read_bytes()).hexdigest(),
        made_with=dict(transformers=transformers.__version__, torch=torch.__version__, numpy=np.__version__),
    )
    text = json.dumps(record, indent=1, ensure_ascii=False)
    (out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    size = sum((out / f"{name}.{end}").stat().st_size for end in ("gguf", "logits", "json"))
    print(
        f"{name:11} seed {seed:3}  {len(ids)} tokens  logits std {base.std():.2f}  least margin {min(margins, default=0):.3f}"
        f"  {size / 1000:.0f} kB  ablations {record['ablations']}",
        flush=True,
    )
    if size >= 1_000_000:
        sys.exit(f"{name}: {size} bytes; a fixture must stay below 1 MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", required=True, type=Path, help="llama.cpp's source folder")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "fixtures")
    parser.add_argument("--keep", type=Path, help="keep the Hugging Face folders here")
    parser.add_argument("family", nargs="*", metavar="FAMILY", help=f"of {', '.join(FAMILIES)}; none: all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.family or FAMILIES:
        if name not in FAMILIES:
            parser.error(f"unknown family {name}")
        make(name, arguments.llama_cpp, arguments.out, arguments.keep)


if __name__ == "__main__":
    main()
