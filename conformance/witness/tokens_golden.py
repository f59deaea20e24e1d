#!/usr/bin/env python3
"""Writes the ids that `tokenizers` gives for real files: crates/token/tests/data/hf_real.json.

    tokens_golden.py NAME=TOKENIZER.json...
"""

import json
import random
import sys
from pathlib import Path

import tokenizers
from tokens import line

OUT = Path(__file__).resolve().parent.parent.parent / "crates/token/tests/data/hf_real.json"


def main() -> None:
    rng = random.Random(0)
    texts = ["", " ", "Hello  world", "it's 1234567 boats'LL \n\n\tx"] + [line(rng, []) for _ in range(75)]
    found = {}
    for argument in sys.argv[1:]:
        name, file = argument.split("=", 1)
        witness = tokenizers.Tokenizer.from_file(file)
        witness.no_truncation()
        witness.no_padding()
        witness.encode_special_tokens = True
        found[name] = [witness.encode(text, add_special_tokens=False).ids for text in texts]
    data = {"made with": f"tokenizers {tokenizers.__version__}", "texts": texts, "tokenizers": found}
    OUT.write_text(json.dumps(data, separators=(",", ":")) + "\n")
    print(OUT, OUT.stat().st_size)


if __name__ == "__main__":
    main()
