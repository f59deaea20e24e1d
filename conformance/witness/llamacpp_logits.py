#!/usr/bin/env python3
"""Write llama.cpp's raw logits at every position of the first tokens of a text.

    llamacpp_logits.py --build BUILD --package PACKAGE MODEL.gguf TEXT OUT_PREFIX [--tokens 512] [--chunk N]

OUT_PREFIX.logits is f32 little-endian [tokens, vocabulary]; OUT_PREFIX.json holds the ids and the shape. The ids are those
of the whole text, with the vocabulary's BOS where it adds one, cut after --tokens; the text's special-token spellings are
plain text.
"""
import argparse
import json
from pathlib import Path

import llamacpp

# Bytes of text tokenized for each token asked for: more than any vocabulary's mean, so that the cut text is never short.
BYTES_PER_TOKEN = 16


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    llamacpp.add_arguments(parser)
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("out", type=Path, metavar="OUT_PREFIX")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--chunk", type=int, help="tokens a step (default: all)")
    parser.add_argument("--cache", choices=["f32", "f16"], default="f16")
    arguments = parser.parse_args()
    cache = dict(f32=llamacpp.GGML_TYPE_F32, f16=llamacpp.GGML_TYPE_F16)[arguments.cache]
    witness = llamacpp.Witness(
        arguments.package, arguments.build, arguments.model,
        context=max(arguments.tokens, 256), threads=arguments.threads, cache_type=cache,
    )
    text = arguments.text.read_text(encoding="utf-8")[: arguments.tokens * BYTES_PER_TOKEN]
    ids = witness.tokenize(text, parse_special=False)[: arguments.tokens]
    rows = witness.prompt_logits(ids, arguments.chunk)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    rows.astype("<f4").tofile(arguments.out.with_name(arguments.out.name + ".logits"))
    record = dict(model=arguments.model.name, text=arguments.text.name, shape=list(rows.shape), cache=arguments.cache, ids=ids)
    arguments.out.with_name(arguments.out.name + ".json").write_text(json.dumps(record) + "\n")
    print(f"{arguments.out}: {rows.shape[0]} tokens x {rows.shape[1]}")


if __name__ == "__main__":
    main()
