#!/usr/bin/env python3
"""Describe tiny Hugging Face folders, what llama.cpp's converter makes of them, and the logits that transformers computes.

    make_folders.py --llama-cpp SOURCE [--out DIR] [NAME ...]

The weights are not stored: both this script and the tests draw them, by `draw` below, from a tensor's name and the two
numbers that stand beside it. DIR (conformance/fixtures/folders) receives for each NAME

    NAME.json       config.json, the tensors with their types and sizes, and the keys and tensors of the GGUF file that
                    the converter writes: type, sizes and SHA-256 of each
    NAME.logits     f32 little-endian [prompt tokens, vocabulary]: transformers in f32, eager attention, no cache
    tokenizer.json, tokenizer_config.json, generation_config.json    the same for all

A name is a family of make_tiny.py, or one of OTHERS, which says what differs.
"""
import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors import safe_open

import make_tiny
from make_tiny import FAMILIES, PRE_TOKENIZER, PROMPT, build, logits, make_tokenizer

# How the numbers of each are stored; F32 where it is not said. Two shards where there is a second word.
STORED = {
    "llama": "F32 sharded",
    "llama3rope": "BF16",
    "mistral": "F16",
    "mixtral": "BF16 sharded",
    "qwen2": "BF16",
    "qwen2moe": "BF16",
    "qwen3": "BF16",
    "qwen3moe": "BF16",
    "gemma3": "BF16",
    "granite": "BF16",
    "granitemoe": "BF16",
    "granitemoeshared": "BF16",
    "olmoe": "F16",
    "smollm3": "BF16",
    "ernie4_5-moe": "BF16",
    "fp8": "F8_E4M3",
}
# Name -> family of make_tiny.py, changed entries of config.json.
OTHERS = {
    "fp8": ("llama", {}),
}
TOKENS = 24  # of the prompt: enough for the windows of these models
TILE = 32  # rows and columns of a matrix of 8-bit floats that share a factor
TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "F8_E4M3": torch.float8_e4m3fn}
MASK = (1 << 64) - 1


def bits(name, count):
    """64 random bits for each element: splitmix64 of a state that begins with the FNV-1a hash of the name."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001B3 & MASK
    with np.errstate(over="ignore"):
        z = np.uint64(state) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def draw(name, dtype, dims, centre, scale):
    """A tensor's numbers: `centre + scale * u`, u of 24 bits for F32, of 8 for halves, of 5 where the centre is not 0. All
    are exact in their type. 8-bit floats are random bytes, those that are no number lowered by one."""
    z = bits(name, int(np.prod(dims)))
    if dtype == "F8_E4M3":
        byte = (z >> np.uint64(56)).astype(np.uint8)
        byte -= (byte & 127) == 127
        return torch.from_numpy(byte).view(torch.float8_e4m3fn).reshape(dims)
    width = 24 if dtype == "F32" else 8 if centre == 0 else 5
    half = np.float32(1 << (width - 1))
    u = ((z >> np.uint64(64 - width)).astype(np.int64) - (1 << (width - 1))).astype(np.float32) / half
    value = np.float32(centre) + np.float32(scale) * u
    stored = torch.from_numpy(value).reshape(dims).to(TYPES[dtype])
    assert torch.equal(stored.float(), torch.from_numpy(value).reshape(dims)), name
    return stored


def power(x):
    return float(2.0 ** np.round(np.log2(x)))


def spread(family, name, dims):
    """Centre and scale of a tensor's numbers, the latter a power of two."""
    if name.endswith("_scale_inv"):
        return 2.0**-8, 2.0**-9
    if "norm" in name and name.endswith("weight"):
        last = name.endswith((".norm.weight", "final_layernorm.weight"))
        centre = (family.final_norm if last else 1.0) - (1.0 if family.zero_centred_norms else 0.0)
        return centre, power(0.25 * max(centre, 1.0))
    if name.endswith("bias"):
        return 0.0, 0.5
    if "embed_tokens" in name:
        return 0.0, power(family.embed_std * 1.7)
    if "lm_head" in name:
        return 0.0, 0.5
    gain = 3.0 if "q_proj" in name or "k_proj" in name or "gate.weight" in name or "router" in name else 1.7
    return 0.0, power(gain / dims[-1] ** 0.5)


def save(path, tensors):
    """A safetensors file of tensors in order."""
    header, at, data = {}, 0, []
    for name, dtype, t in tensors:
        raw = t.contiguous().view(torch.uint8).numpy().tobytes() if t.ndim else t.numpy().tobytes()
        header[name] = dict(dtype=dtype, shape=list(t.shape), data_offsets=[at, at + len(raw)])
        at += len(raw)
        data.append(raw)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data))


def described(folder, family, dtype):
    """Name, type, sizes, centre and scale of each tensor that transformers saves."""
    found = []
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in sorted(file.keys()):
                found.append((name, list(file.get_slice(name).get_shape())))
        path.unlink()
    described = []
    for name, dims in found:
        own = dtype
        if dtype == "F8_E4M3":
            own = "F8_E4M3" if len(dims) == 2 and "proj" in name else "BF16"
        centre, scale = spread(family, name, dims)
        described.append(dict(name=name, dtype=own, dims=dims, centre=centre, scale=scale))
        if own == "F8_E4M3":
            tiles = [-(-dim // TILE) for dim in dims]
            name = name + "_scale_inv"
            centre, scale = spread(family, name, tiles)
            described.append(dict(name=name, dtype="F32", dims=tiles, centre=centre, scale=scale))
    return described


def gguf_of(path):
    """Keys and tensors of the converter's file."""
    sys.path[:0] = [str(make_folders_source / "gguf-py")]
    from gguf import GGUFReader

    reader = GGUFReader(path)
    keys = {}
    for field in reader.fields.values():
        if not field.name.startswith(("GGUF.", "tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type")):
            keys[field.name] = dict(type=[t.name.lower() for t in field.types], value=field.contents())
    tensors = {
        t.name: dict(
            type=t.tensor_type.name, dims=[int(n) for n in t.shape], sha256=hashlib.sha256(t.data.tobytes()).hexdigest()
        )
        for t in reader.tensors
    }
    return dict(keys=keys, tensors=tensors)


def make(name, source, out, tokenizer):
    kind, changes = OTHERS.get(name, (name, {}))
    family = FAMILIES[kind]
    dtype, *sharded = STORED.get(name, "F32").split()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / f"tiny-{name}"
        folder.mkdir()
        tokenizer.save_pretrained(folder)
        make_tiny.save(family, build(family), folder)
        config = json.loads((folder / "config.json").read_text()) | changes | family.written
        config.pop("transformers_version", None)
        config["dtype"] = {"BF16": "bfloat16", "F16": "float16"}.get(dtype, "float32")
        tensors = described(folder, family, dtype)
        drawn = [(t["name"], t["dtype"], draw(*(t[k] for k in ("name", "dtype", "dims", "centre", "scale")))) for t in tensors]

        # What transformers computes is of the same numbers in f32.
        plain, factors = [], {n: t for n, _, t in drawn if n.endswith("_scale_inv")}
        for tensor, _, t in drawn:
            if tensor in factors:
                continue
            t = t.float()
            if tensor + "_scale_inv" in factors:
                tiles = factors[tensor + "_scale_inv"].repeat_interleave(TILE, 0).repeat_interleave(TILE, 1)
                t = t * tiles[: t.shape[0], : t.shape[1]]
            plain.append((tensor, "F32", t))
        (folder / "config.json").write_text(json.dumps(config | dict(dtype="float32")))
        save(folder / "model.safetensors", plain)
        auto = getattr(transformers, family.prefix + "ForCausalLM")
        model, report = auto.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
        assert not report["missing_keys"] and not report["unexpected_keys"], report
        ids = tokenizer(PROMPT)["input_ids"][:TOKENS]
        base = logits(model.eval(), ids)

        if dtype == "F8_E4M3":
            config["quantization_config"] = dict(quant_method="fp8", weight_block_size=[TILE, TILE])
        (folder / "config.json").write_text(json.dumps(config, indent=1))
        save(folder / "model.safetensors", drawn)
        outtype = {"F32": "f32", "F16": "f16"}.get(dtype, "bf16")
        command = [sys.executable, Path(__file__).parent / "convert_tiny.py", source, PRE_TOKENIZER, folder]
        command += ["--outfile", folder / "out.gguf", "--outtype", outtype]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"converter failed for {name}:\n{done.stdout[-3000:]}")
        record = dict(
            config=config,
            shards=2 if sharded else 1,
            tensors=tensors,
            prompt_ids=ids,
            logits_shape=list(base.shape),
            logits_std=round(float(base.std()), 4),
            gguf=gguf_of(folder / "out.gguf"),
            made_with=dict(transformers=transformers.__version__, torch=torch.__version__),
        )
    base.numpy().astype("<f4").tofile(out / f"{name}.logits")
    lines = json.dumps(record, ensure_ascii=False).replace('{"name"', '\n{"name"').replace('": {"type"', '":\n{"type"')
    (out / f"{name}.json").write_text(lines + "\n", encoding="utf-8")
    print(f"{name:16} {len(tensors)} tensors  logits std {base.std():.2f}", flush=True)


def main():
    global make_folders_source
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", required=True, type=Path, help="llama.cpp's source folder")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "fixtures" / "folders")
    parser.add_argument("name", nargs="*", help=f"of {', '.join(STORED)}; none: all")
    arguments = parser.parse_args()
    make_folders_source = arguments.llama_cpp
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(arguments.out)
    (arguments.out / "chat_template.jinja").unlink(missing_ok=True)
    (arguments.out / "generation_config.json").write_text(json.dumps(dict(eos_token_id=[2, 5])) + "\n")
    (arguments.out / "chat_template.jinja").write_text(make_tiny.CHAT_TEMPLATE)
    for name in arguments.name or STORED:
        make(name, arguments.llama_cpp, arguments.out, tokenizer)


if __name__ == "__main__":
    main()
