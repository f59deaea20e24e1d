#!/usr/bin/env python3
"""Compares cera's tokenizers with Hugging Face's `tokenizers` on random text.

    tokens.py --encode PROGRAM [--lines N] [--seed S] TOKENIZER.json...

PROGRAM is the example `encode` of cera-token, built with `cargo build --release -p cera-token --example encode`.
Each line is encoded three ways: special tokens as text, special tokens parsed, and as a whole text with what goes
before and behind it. The ids must be equal. Prints the differences, and ends with 1 if there are any.

Three things differ on purpose. A text that spells the token before or behind it gets no second one. Tokens such as
`<|fim_middle|>` are structure although Qwen's file says that they are not special: lines with one are left out where
special tokens are text. And no text becomes a special token by way of the model: a unigram model has them in its
list, so its lines have none.
"""

import argparse
import json
import random
import subprocess
import sys

import tokenizers

BLANKS = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n", "\u00a0", "\u3000", "\u2009", "\u2028", "\u0085", "\u200b"]
RANGES = [
    (0x20, 0x7F), (0xA0, 0x180), (0x250, 0x370), (0x370, 0x400), (0x400, 0x530), (0x590, 0x700), (0x900, 0xE00),
    (0xE00, 0x1100), (0x1100, 0x1200), (0x1E00, 0x2000), (0x2000, 0x2070), (0x2070, 0x2400), (0x2400, 0x2C00),
    (0x3000, 0x3100), (0x3100, 0x3400), (0x3400, 0x4E00), (0x4E00, 0xA000), (0xA000, 0xABFF), (0xAC00, 0xD7A4),
    (0xE000, 0xE010), (0xF900, 0xFB00), (0xFB00, 0xFE00), (0xFE00, 0x10000), (0x10000, 0x10400), (0x10400, 0x11000),
    (0x11000, 0x12000), (0x16000, 0x17000), (0x1D000, 0x1E000), (0x1E000, 0x1F000), (0x1F000, 0x1FC00),
    (0x20000, 0x20100), (0x2A700, 0x2CF00), (0x30000, 0x30010), (0xE0000, 0xE0200),
]
WORDS = """the of and to in a is that for it was on are as with his they be at one have this from or had by hot but some
what there we can out other were all your when up use word how said an each she which do their time if will way about
many then them would write like so these her long make thing see him two has look more day could go come did my sound
no most number who over know water than call first people may down side been now find Hello World HTTP JSON café naïve
Zürich straße İstanbul ΣΊΣΥΦΟΣ résumé don't I'll we've it's they're I'd you'd O'Brien rock'n'roll #include std::vector
foo_bar fooBar FooBar x86_64 3.14159 1,000,000 2024-01-01 0x7fff user@example.com https://example.org/a?b=c&d=e
Привет мир 你好世界 こんにちは 안녕하세요 مرحبا שלום नमस्ते สวัสดี 🙂 👩‍👩‍👧‍👦 🇩🇪 ½ ² Ⅷ ① ﬁ ﷺ ſ K Å""".split()
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["…", "—", "“", "”", "。", "，", "、", "·", "¿", "«", "''", "...", "::", "->", "=="]


def character(rng: random.Random) -> str:
    while True:
        first, last = rng.choice(RANGES) if rng.random() < 0.9 else (0, 0x110000)
        code = rng.randrange(first, last)
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def run(rng: random.Random) -> str:
    """Characters of one range."""
    first, last = rng.choice(RANGES)
    return "".join(chr(rng.randrange(first, last)) for _ in range(rng.randrange(1, 8)))


def line(rng: random.Random, specials: list[str]) -> str:
    parts = []
    for _ in range(rng.randrange(1, 14)):
        kind = rng.random()
        if kind < 0.35:
            word = rng.choice(WORDS)
            if rng.random() < 0.2:
                word = rng.choice([word.upper(), word.title(), word.lower(), word[: rng.randrange(1, len(word) + 1)]])
            parts.append(rng.choice([" ", " ", " ", ""]) + word)
        elif kind < 0.47:
            parts.append(rng.choice(BLANKS) * rng.choice([1, 1, 1, 2, 3, 7]))
        elif kind < 0.57:
            parts.append(rng.choice(PUNCTUATION) * rng.choice([1, 1, 1, 2, 3]))
        elif kind < 0.65:
            parts.append(str(rng.randrange(10 ** rng.randrange(1, 12))))
        elif kind < 0.80:
            parts.append(run(rng))
        elif kind < 0.90:
            parts.append(character(rng))
        elif kind < 0.93:
            parts.append("e\u0301" if rng.random() < 0.5 else chr(rng.randrange(0x300, 0x370)))
        elif kind < 0.95:
            parts.append("\u2581" * rng.randrange(1, 4))
        elif specials and kind < 0.98:
            text = rng.choice(specials)
            parts.append(text if rng.random() < 0.7 else text[: rng.randrange(1, len(text) + 1)])
        else:
            parts.append(rng.choice("abcXYZ") * rng.randrange(1, 40))
    return "".join(parts)


def encode(program: str, file: str, way: str, lines: list[str]) -> list[str]:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([program, file, way], input=text, capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


def without_second(witness: tokenizers.Tokenizer, ids: list[int]) -> list[int]:
    """`ids` with one of each token that goes before and behind a text."""
    around = witness.encode("").ids
    if around:
        first, last = around[0], around[-1] if len(around) > 1 else None
        while ids[:2] == [first, first]:
            ids = ids[1:]
        if last is not None and ids[-2:] == [last, last] and len(ids) > 2:
            ids = ids[:-1]
    return ids


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--encode", required=True)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=5)
    parser.add_argument("tokenizers", nargs="+")
    args = parser.parse_args()
    total = different = 0
    for file in args.tokenizers:
        witness = tokenizers.Tokenizer.from_file(file)
        witness.no_truncation()
        witness.no_padding()
        added = list(witness.get_added_tokens_decoder().values())
        structure = [token.content for token in added if not token.special and token.content.startswith("<|")]
        is_unigram = type(witness.model).__name__ == "Unigram"
        specials = [] if is_unigram else [token.content for token in added][:300]
        rng = random.Random(args.seed)
        lines = [line(rng, specials) for _ in range(args.lines)]
        for way in ("as-text", "parse", "whole"):
            witness.encode_special_tokens = way == "as-text"
            ours = encode(args.encode, file, way, lines)
            wanted = [e.ids for e in witness.encode_batch_fast(lines, add_special_tokens=way == "whole")]
            if way == "whole":
                wanted = [without_second(witness, ids) for ids in wanted]
            wrong = [i for i, ids in enumerate(wanted) if ours[i] != " ".join(map(str, ids))]
            if way == "as-text":
                wrong = [i for i in wrong if not any(text in lines[i] for text in structure)]
            total += len(lines)
            different += len(wrong)
            print(f"{file} {way}: {len(lines)} lines, {len(wrong)} differ", flush=True)
            # The shortest say most.
            for i in sorted(wrong, key=lambda i: len(lines[i]))[: args.show]:
                print(f"  {lines[i]!r} {lines[i].encode('unicode_escape').decode()}\n    want {wanted[i]}\n    got  {ours[i]}")
    print(f"{total} comparisons, {different} differ, tokenizers {tokenizers.__version__}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
