#!/usr/bin/env python3
"""Check the tiny fixtures against llama.cpp: same prompt ids, same greedy ids, logits near transformers'.

    verify_tiny.py --build BUILD --package PACKAGE [--fixtures DIR] [FAMILY ...]

llama.cpp runs with f32 keys and values. Exits 1 if any fixture differs.
"""
import argparse
import json
import sys
from pathlib import Path

import numpy as np

import llamacpp

TOLERANCE = 1e-3  # logits
# ggml's CPU backend reads GELU from a table of f16 values indexed by f16. Rounding input and output of transformers' GELU
# to f16 moves this fixture's logits as far (0.008) and brings the two within 0.0012 of each other.
TOLERANCE_OF = dict(gemma3=0.02)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    llamacpp.add_arguments(parser)
    parser.add_argument("--fixtures", type=Path, default=Path(__file__).parent.parent / "fixtures")
    parser.add_argument("family", nargs="*", metavar="FAMILY")
    arguments = parser.parse_args()
    names = arguments.family or sorted(path.stem for path in arguments.fixtures.glob("*.gguf"))
    if not names:
        sys.exit(f"no fixture in {arguments.fixtures}")
    wrong = 0
    for name in names:
        record = json.loads((arguments.fixtures / f"{name}.json").read_text(encoding="utf-8"))
        expected = np.fromfile(arguments.fixtures / record["logits_file"], "<f4").reshape(record["logits_shape"])
        witness = llamacpp.Witness(
            arguments.package, arguments.build, arguments.fixtures / f"{name}.gguf",
            context=256, threads=arguments.threads, cache_type=llamacpp.GGML_TYPE_F32,
        )
        ids = witness.tokenize(record["prompt"])
        chosen, _ = witness.greedy(record["prompt_ids"], len(record["greedy_ids"]))
        difference = np.abs(witness.prompt_logits(record["prompt_ids"]) - expected).max()
        same_ids, same_greedy = ids == record["prompt_ids"], chosen == record["greedy_ids"]
        tolerance = TOLERANCE_OF.get(name, TOLERANCE)
        good = same_ids and same_greedy and difference <= tolerance
        wrong += not good
        print(
            f"{name:11} {'ok ' if good else 'BAD'} prompt ids {'same' if same_ids else 'DIFFER'},"
            f" greedy {'same' if same_greedy else 'DIFFER'}, greatest logit difference {difference:.2g} (allowed: {tolerance:g})",
            flush=True,
        )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
