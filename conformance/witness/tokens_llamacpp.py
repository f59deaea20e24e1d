#!/usr/bin/env python3
"""Compares cera's tokenizers with llama.cpp's on random text.

    tokens_llamacpp.py --encode PROGRAM --build B --package P [--lines N] VOCABULARY.gguf...

As `tokens.py`, for GGUF files. llama.cpp has simpler expressions for some pre-tokenizers, older tables of characters
for others, so that differences are to be looked at, not counted.
"""

import argparse
import random
import sys

from llamacpp import Vocabulary, add_arguments
from tokens import encode, line


def main() -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    parser.add_argument("--encode", required=True)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=5)
    parser.add_argument("vocabularies", nargs="+")
    args = parser.parse_args()
    different = 0
    for file in args.vocabularies:
        witness = Vocabulary(args.package, args.build, file)
        rng = random.Random(args.seed)
        lines = [line(rng, ["<s>", "</s>", "<|endoftext|>", "<|im_end|>", "[SEP]", "[MASK]"]) for _ in range(args.lines)]
        lines = [text.replace("\0", "") for text in lines]
        for way, parse in (("as-text", False), ("parse", True)):
            ours = encode(args.encode, file, way, lines)
            wanted = [witness.tokenize(text, add_special=False, parse_special=parse) for text in lines]
            wrong = [i for i, ids in enumerate(wanted) if ours[i] != " ".join(map(str, ids))]
            different += len(wrong)
            print(f"{file} {way}: {len(lines)} lines, {len(wrong)} differ", flush=True)
            for i in sorted(wrong, key=lambda i: len(lines[i]))[: args.show]:
                print(f"  {lines[i].encode('unicode_escape').decode()}\n    want {wanted[i]}\n    got  {ours[i]}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
