#!/usr/bin/env python3
"""Record which types llama.cpp's quantize gives to tensors, and the files that it writes.

    quantize.py --build BUILD

`../fixtures/quantize/types.json` receives models, each with the keys that its mixes depend on and its tensors, and for each
mix the types that are not the mix's own. The models are made up: shapes whose rules differ, cut to a few columns. Their
numbers are holes in a sparse file, since only a dry run reads them. `../fixtures/quantize/files.json` receives the SHA-256
of whole files, made of fixtures in types whose encoders have nothing to search for.
"""
import argparse
import hashlib
import json
import re
import struct
import subprocess
import tempfile
from pathlib import Path

import gguf
import numpy as np

FIXTURES = Path(__file__).parent.parent / "fixtures"
MIXES = """F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q2_K_S Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K IQ1_S IQ1_M
IQ2_XXS IQ2_XS IQ2_S IQ2_M IQ3_XXS IQ3_XS IQ3_S IQ3_M IQ4_NL IQ4_XS TQ1_0 TQ2_0 MXFP4_MOE Q1_0 Q2_0""".split()
# Types of most tensors, where that is not the mix's name.
PLAIN = {"Q2_K_S": "q2_k", "IQ3_XS": "iq3_s", "IQ3_M": "iq3_s", "IQ2_S": "iq2_xs", "IQ2_M": "iq2_s", "MXFP4_MOE": "mxfp4"}
PLAIN |= {f"Q{n}_K_{size}": f"q{n}_k" for n in (3, 4, 5) for size in "SML"}


def tensors(blocks, *, width=256, forward=256, experts=0, tied=False, joined=False, mla=False, shared=False):
    """Names and sizes (the fastest first) of a decoder's tensors."""
    found = {"token_embd.weight": [width, 64], "output_norm.weight": [width]}
    if not tied:
        found["output.weight"] = [width, 64]
    for n in range(blocks):
        own = {"attn_norm.weight": [width], "attn_output.weight": [width, width]}
        if joined:
            own["attn_qkv.weight"] = [width, 2 * width]
        elif mla:
            own |= {"attn_q_a.weight": [width, 64], "attn_q_b.weight": [64, width], "attn_kv_a_mqa.weight": [width, 64]}
            own |= {"attn_k_b.weight": [32, 64, 4], "attn_v_b.weight": [64, 32, 4], "attn_kv_b.weight": [64, width]}
        else:
            own |= {f"attn_{which}.weight": [width, width] for which in "qkv"}
            own["attn_q.bias"] = [width]
        if experts and n:
            own |= {f"ffn_{which}_exps.weight": [width, forward, experts] for which in ("gate", "up", "down")}
            own["ffn_gate_inp.weight"] = [width, experts]
        if shared and n:
            own |= {f"ffn_{which}_shexp.weight": [width, forward] for which in ("gate", "up", "down")}
        if not experts or not n:
            own |= {"ffn_up.weight": [width, forward], "ffn_down.weight": [forward, width]}
            if not joined:
                own["ffn_gate.weight"] = [width, forward]
        found |= {f"blk.{n}.{name}": dims for name, dims in own.items()}
    return found


# Architecture, blocks, heads, heads of keys and values, experts, tensors.
MODELS = {
    "dense": ("llama", 20, 8, 8, 0, tensors(20)),
    "grouped": ("llama", 16, 8, 2, 0, tensors(16)),
    "tied": ("qwen2", 9, 8, 4, 0, tensors(9, tied=True)),
    "seventy": ("llama", 80, 8, 2, 0, tensors(80, width=32, forward=32)),
    "seventy-wide": ("llama", 80, 8, 2, 0, {k: v for k, v in tensors(80).items() if "attn" in k or "ffn_down" in k}),
    "mixtral": ("llama", 16, 8, 2, 8, tensors(16, experts=8)),
    "sparse": ("qwen2moe", 17, 8, 8, 60, tensors(17, experts=60, shared=True)),
    "latent": ("deepseek2", 9, 8, 1, 4, tensors(9, experts=4, shared=True, mla=True)),
    "falcon": ("falcon", 32, 8, 1, 0, tensors(32, joined=True)),
    "joined": ("gptneox", 18, 8, 8, 0, tensors(18, joined=True)),
    "halves": ("llama", 8, 8, 4, 0, tensors(8, width=96, forward=288)),
    "odd": ("llama", 3, 8, 4, 0, tensors(3, width=72, forward=256, tied=True)),
    "state": ("mamba", 2, 0, 0, 0, {
        "token_embd.weight": [256, 64], "blk.0.ssm_in.weight": [256, 512], "blk.0.ssm_conv1d.weight": [4, 512],
        "blk.0.ssm_a": [16, 512], "blk.1.ssm_out.weight": [512, 256], "blk.1.ssm_x.weight": [512, 64],
        "per_layer_token_embd.weight": [256, 64], "position_embd.weight": [256, 64], "blk.1.odd.weight": [256, 1]}),
}
# More than a mix.
CASES = [
    ("dense", "Q4_K_M", ["--pure"]),
    ("tied", "Q4_K_M", ["--output-tensor-type", "q8_0"]),
    ("grouped", "Q4_K_M", ["--output-tensor-type", "q8_0", "--token-embedding-type", "q5_0"]),
    ("grouped", "Q2_K", ["--leave-output-tensor"]),
    ("grouped", "Q5_K_S", ["--tensor-type", "ffn_(up|down)=q8_0", "--tensor-type", r"blk\.1\.=f16"]),
    ("state", "IQ4_XS", ["--token-embedding-type", "q6_k", "--tensor-type", "per_layer=q5_k"]),
    ("odd", "Q3_K_L", ["--tensor-type", "ffn_down=iq4_nl"]),
]
# Fixture, mix.
FILES = [(name, mix) for name in ("qwen2", "mixtral", "gpt2") for mix in ("F32", "F16", "BF16", "Q8_0")]


def write(path, model, sparse):
    architecture, blocks, heads, shared, experts, found = model
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in keys(model).items():
        writer.add_uint32(key, value)
    # What its loader asks for besides.
    writer.add_context_length(64)
    writer.add_embedding_length(256)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    for key, value in {"feed_forward_length": 256, "leading_dense_block_count": 1, "expert_shared_count": 1,
                       "expert_feed_forward_length": 256, "attention.kv_lora_rank": 32, "attention.q_lora_rank": 32,
                       "rope.dimension_count": 32, "attention.key_length": 32, "attention.value_length": 32,
                       "ssm.conv_kernel": 4, "ssm.inner_size": 512, "ssm.state_size": 16, "ssm.time_step_rank": 32,
                       }.items():
        writer.add_uint32(f"{architecture}.{key}", value)
    writer.add_expert_weights_scale(1.0)
    writer.add_bool(f"{architecture}.use_parallel_residual", True)
    if experts:
        writer.add_expert_used_count(2)
    for name, dims in found.items():
        shape = list(reversed(dims))
        writer.add_tensor_info(name, shape, np.dtype(np.float32), 4 * int(np.prod(shape)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    pad = sum(-(-4 * int(np.prod(dims)) // 32) * 32 for dims in found.values())
    with open(path, "r+b") as file:
        file.seek(0, 2)
        file.truncate(-(-file.tell() // 32) * 32 + pad)


def keys(model):
    architecture, blocks, heads, shared, experts, _ = model
    found = {"block_count": blocks, "attention.head_count": heads, "attention.head_count_kv": shared, "expert_count": experts}
    return {f"{architecture}.{key}": value for key, value in found.items()}


def imatrix(path, found):
    """The old form: a list of arrays."""
    with open(path, "wb") as file:
        file.write(struct.pack("<i", len(found)))
        for name, dims in found.items():
            columns = dims[0] * (dims[2] if len(dims) > 2 else 1)
            file.write(struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", 2, columns))
            file.write(np.ones(columns, "<f4").tobytes())
        file.write(struct.pack("<ii", 5, 5) + b"words")


def dry_run(program, path, mix, words):
    done = subprocess.run([program, "--dry-run", *words, path, mix], capture_output=True, text=True)
    text = done.stdout + done.stderr
    if "no tensor type fallback is defined" in text:
        return None
    if done.returncode != 0:
        raise SystemExit(f"{path.name} {mix}: {text[-800:]}")
    line = re.compile(r"^\[ *\d+/ *\d+\] +(\S+) +- .*?type = +(\w+), .*?size = .*?(?:\((\w+)\))?$", re.M)
    return {name: (new or old).lower() for name, old, new in line.findall(text)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=Path)
    arguments = parser.parse_args()
    program = arguments.build / "bin" / "llama-quantize"
    record = {"models": {}, "mixes": [], "cases": []}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in MODELS.items():
            path = Path(folder) / f"{name}.gguf"
            write(path, model, True)
            weights = Path(folder) / f"{name}.dat"
            imatrix(weights, model[5])
            # Kept tensors are of F32.
            record["models"][name] = {"architecture": model[0], "keys": keys(model), "tensors": sizes(model[5])}
            for mix in MIXES:
                for importances in (False, True):
                    types = dry_run(program, path, mix, ["--imatrix", weights] if importances else [])
                    if types is None:
                        record["mixes"].append({"model": name, "mix": mix, "importances": importances, "types": None})
                        continue
                    assert types.keys() == model[5].keys(), (name, mix, types.keys() ^ model[5].keys())
                    plain = PLAIN.get(mix, mix.lower())
                    other = {tensor: ty for tensor, ty in types.items() if ty != plain}
                    record["mixes"].append(
                        {"model": name, "mix": mix, "importances": importances, "plain": plain, "types": compact(other)})
        for name, mix, words in CASES:
            types = dry_run(program, Path(folder) / f"{name}.gguf", mix, words)
            record["cases"].append({"model": name, "mix": mix, "words": words, "types": compact(types)})
        files = []
        for name, mix in FILES:
            path = Path(folder) / "out.gguf"
            subprocess.run([program, FIXTURES / f"{name}.gguf", path, mix], check=True, capture_output=True)
            files.append({"model": name, "mix": mix, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()})
        small = Path(folder) / "words.dat"
        reader = gguf.GGUFReader(FIXTURES / "qwen2.gguf")
        imatrix(small, {t.name: [int(n) for n in t.shape] for t in reader.tensors if len(t.shape) > 1})
        words = [program, "--imatrix", "words.dat", FIXTURES.resolve() / "qwen2.gguf", path, "Q8_0"]
        subprocess.run(words, check=True, capture_output=True, cwd=folder)
        fields = gguf.GGUFReader(path).fields.values()
        keys_of = [(f.name, f.contents()) for f in fields if not f.name.startswith(("GGUF.", "tokenizer."))]
        files = {"files": files, "with_importances": keys_of}
    out = FIXTURES / "quantize"
    out.mkdir(exist_ok=True)
    (out / "types.json").write_text(json.dumps(record, separators=(",", ":")) + "\n")
    (out / "files.json").write_text(json.dumps(files, indent=1) + "\n")


def stems(names):
    """Names without their blocks, with ranges of those: first and last of each."""
    found = {}
    for name in names:
        block = re.fullmatch(r"blk\.(\d+)\.(.+)", name)
        ranges = found.setdefault(block[2] if block else name, [])
        if block:
            number = int(block[1])
            if ranges and ranges[-1][1] == number - 1:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
    return found


def compact(types):
    """By type, the names."""
    return {ty: stems(name for name, other in types.items() if other == ty) for ty in sorted(set(types.values()))}


def sizes(found):
    """Sizes, and the names that have them."""
    shapes = sorted({tuple(dims) for dims in found.values()})
    return [[shape, stems(name for name, dims in found.items() if tuple(dims) == shape)] for shape in shapes]


main()
