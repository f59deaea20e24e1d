#!/usr/bin/env python3
"""Record llama.cpp's greedy continuations of five prompts, and how close each choice was.

    llamacpp_greedy.py --build BUILD --package PACKAGE MODEL.gguf OUT.json [--chat chatml] [--tokens 64]

For each prompt OUT.json holds the text, its token ids, the ids chosen, their text, and at every choice the five best ids
with their raw logits (before any sampling). Nothing ends a continuation: the end-of-text tokens are chosen and continued
like any other, so that every list has the full length.
"""
import argparse
import hashlib
import json
from pathlib import Path

import numpy as np

import llamacpp

TOP = 5

QUESTION = "Why does the moon always show us the same side? Answer in two sentences."
CHATML = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"

PROMPTS = {
    "prose": "The lighthouse keeper had not spoken to anyone for eleven days when, on a grey morning in March, he saw",
    "code": "def merge_sorted(left, right):\n    \"\"\"Merge two sorted lists into one sorted list.\"\"\"\n    result = []\n",
    "question": QUESTION,
    "list": "Things to pack for a week in the mountains:\n1. A warm jacket\n2. Two pairs of socks\n3.",
    "french": "La ville de Lyon est connue pour sa cuisine. Le matin, les habitants",
}


def continuation(witness, name, text, count):
    ids = witness.tokenize(text)
    chosen, rows = witness.greedy(ids, count)
    order = np.argsort(-rows, axis=1, kind="stable")[:, :TOP]
    top = [[[int(i), round(float(row[i]), 5)] for i in best] for row, best in zip(rows, order)]
    gaps = [a[1] - b[1] for a, b, *_ in top]
    print(f"{name:9} {len(ids):3} prompt tokens, least margin {min(gaps):.4f}: {witness.text(chosen)[:90]!r}", flush=True)
    return dict(
        name=name, prompt=text, prompt_ids=ids, greedy_ids=chosen, greedy_text=witness.text(chosen), top=top,
        first_end=next((i for i, token in enumerate(chosen) if witness.ends(token)), None),
    )


def dump(record):
    """JSON with one line for each list of numbers: small, and readable as a difference."""
    head = {key: value for key, value in record.items() if key != "continuations"}
    lines = ["{"] + [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()] + [' "continuations": [']
    parts = []
    for entry in record["continuations"]:
        fields = [f"   {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
        parts.append("  {\n" + ",\n".join(fields) + "\n  }")
    return "\n".join(lines) + "\n" + ",\n".join(parts) + "\n ]\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    llamacpp.add_arguments(parser)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--chat", choices=["chatml", "none"], default="none", help="how the question is put to a chat model")
    arguments = parser.parse_args()
    witness = llamacpp.Witness(arguments.package, arguments.build, arguments.model, threads=arguments.threads)
    prompts = PROMPTS | ({"question": CHATML} if arguments.chat == "chatml" else {})
    record = dict(
        model=arguments.model.name,
        model_sha256=hashlib.file_digest(arguments.model.open("rb"), "sha256").hexdigest(),
        engine="llama.cpp of llama-cpp-python 0.3.36, CPU, f16 cache, no flash attention",
        top_fields=["id", "logit"],
        continuations=[continuation(witness, name, text, arguments.tokens) for name, text in prompts.items()],
    )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(dump(record), encoding="utf-8")


if __name__ == "__main__":
    main()
