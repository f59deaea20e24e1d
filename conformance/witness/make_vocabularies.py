#!/usr/bin/env python3
"""Makes tiny GGUF vocabularies of the kinds that no vocabulary file of llama.cpp's has, and the ids that llama.cpp gives.

    make_vocabularies.py --build B --package P [--vocabs FOLDER]     # into crates/token/tests/data/gguf

One file a kind, NAME.gguf, and NAME.json with texts and their ids: special tokens as text, and parsed with what goes
before and behind a whole text. WordPiece has no ids of llama.cpp's: its normalization is not BERT's, and the test takes
those of `tokenizers` for the same vocabulary. With `--vocabs`, the ids for llama.cpp's ggml-vocab-nomic-bert-moe.gguf, which
has none beside it, go into nomic.json. The tokens are pieces of the texts in `conformance/text`; run `make_tokenizers.py` first,
whose trained vocabularies some kinds take.
"""

import argparse
import base64
import collections
import json
import random
from pathlib import Path

import gguf
from gguf import TokenType
from llamacpp import Vocabulary, add_arguments
from tokens import line

HERE = Path(__file__).resolve().parent
DATA = HERE.parent.parent / "crates/token/tests/data"
OUT = DATA / "gguf"
TEXT = "\n".join(path.read_text() for path in sorted((HERE.parent / "text").glob("*.txt"))) + " 你好世界 Привет мир café "
LINES = 60


def pieces(text, count, lengths=range(2, 9)):
    """The substrings of `text` that cover most of it, with how often each occurs."""
    found = collections.Counter()
    for length in lengths:
        found.update(text[i : i + length] for i in range(len(text) - length + 1))
    return sorted(found.items(), key=lambda item: (-item[1] * len(item[0]), item[0]))[:count]


def trained(name):
    return json.loads((DATA / f"hf/{name}.json").read_text())["tokenizer"]


def rwkv(writer):
    tokens = [b"<s>"] + [bytes([byte]) for byte in range(256)]
    tokens += [piece for piece, _ in pieces(TEXT.encode(), 300) if piece not in tokens]
    tokens += [b"\n\n", b"\\x", b"'\"", b"\\\\n"]
    tokens = list(dict.fromkeys(tokens))
    writer.add_token_list([tokens[0]] + [repr(token)[2:-1].encode() for token in tokens[1:]])
    writer.add_token_types([TokenType.CONTROL] + [TokenType.NORMAL] * (len(tokens) - 1))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)


def plamo2(writer):
    tokens = [("<|plamo:unk|>", 0.0, TokenType.UNKNOWN)]
    tokens += [(f"<|plamo:{name}|>", 0.0, TokenType.CONTROL) for name in ("bos", "eos", "pad")]
    tokens += [(f"<0x{byte:02X}>", 0.0, TokenType.BYTE) for byte in range(256)]
    for piece, times in pieces(TEXT, 400, range(1, 9)):
        tokens.append((piece, -10 + times**0.25 * len(piece) ** 0.3, TokenType.NORMAL))
    tokens += [("zzz", float("-inf"), TokenType.NORMAL), ("  ", -9.5, TokenType.NORMAL), ("\n\n", -9.5, TokenType.NORMAL)]
    tokens = list({text: (text, score, kind) for text, score, kind in tokens}.values())
    writer.add_token_list([text.encode() for text, _, _ in tokens])
    writer.add_token_scores([score for _, score, _ in tokens])
    writer.add_token_types([kind for _, _, kind in tokens])


def t5(prefix, merge, charsmap=True, without=()):
    def write(writer):
        file = trained("t5")
        special = {token["content"] for token in file["added_tokens"]}
        kind = lambda text: TokenType.UNKNOWN if text == "<unk>" else TokenType.CONTROL if text in special else TokenType.NORMAL
        vocab = [entry for entry in file["model"]["vocab"] if entry[0] not in without]
        vocab += [["<h1>", 0.0], ["[PAD9]", -10000.0]]
        writer.add_token_list([text.encode() for text, _ in vocab])
        writer.add_token_scores([score for _, score in vocab])
        kinds = [kind(text) for text, _ in vocab]
        kinds[-2:] = [TokenType.USER_DEFINED, TokenType.UNUSED]
        writer.add_token_types(kinds)
        writer.add_add_space_prefix(prefix)
        writer.add_remove_extra_whitespaces(merge)
        if charsmap:
            writer.add_precompiled_charsmap(base64.b64decode(file["normalizer"]["precompiled_charsmap"]))
        texts = [text for text, _ in vocab]
        writer.add_eos_token_id(texts.index("</s>"))
        writer.add_unk_token_id(texts.index("<unk>"))
        writer.add_pad_token_id(texts.index("<pad>"))

    return write


def bert(lowercase):
    def write(writer):
        file = trained("bert" if lowercase else "bert_cased")
        special = {token["content"] for token in file["added_tokens"]}
        tokens = [text for text, _ in sorted(file["model"]["vocab"].items(), key=lambda item: item[1])]
        spell = lambda text: text if text in special else text[2:] if text.startswith("##") else "▁" + text
        writer.add_token_list([spell(text).encode() for text in tokens])
        writer.add_token_types([TokenType.CONTROL if text in special else TokenType.NORMAL for text in tokens])
        writer.add_bool("tokenizer.ggml.normalizer.lowercase", lowercase)
        writer.add_bos_token_id(tokens.index("[CLS]"))
        writer.add_sep_token_id(tokens.index("[SEP]"))
        writer.add_unk_token_id(tokens.index("[UNK]"))
        writer.add_pad_token_id(tokens.index("[PAD]"))
        writer.add_mask_token_id(tokens.index("[MASK]"))

    return write


def bpe(form, pre, lowercase=None):
    def write(writer):
        file = trained(form)
        tokens = [text for text, _ in sorted(file["model"]["vocab"].items(), key=lambda item: item[1])]
        special = {token["content"] for token in file["added_tokens"] if token["special"]}
        added = {token["content"] for token in file["added_tokens"]}
        kind = lambda text: (
            TokenType.CONTROL if text in special else TokenType.USER_DEFINED if text in added
            else TokenType.BYTE if len(text) == 6 and text.startswith("<0x") else TokenType.NORMAL
        )
        writer.add_token_list([text.encode() for text in tokens])
        writer.add_token_types([kind(text) for text in tokens])
        writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in file["model"]["merges"]])
        if pre:
            writer.add_tokenizer_pre(pre)
        if lowercase is not None:
            writer.add_bool("tokenizer.ggml.normalizer.lowercase", lowercase)
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(0)

    return write


KINDS = {
    "rwkv": ("rwkv", rwkv),
    "plamo2": ("plamo2", plamo2),
    "t5": ("t5", t5(True, True)),
    "t5_spaces": ("t5", t5(True, False)),
    "t5_plain": ("t5", t5(False, False, charsmap=False)),
    "t5_no_space": ("t5", t5(True, False, without=("▁",))),
    "bert": ("bert", bert(True)),
    "bert_cased": ("bert", bert(False)),
    "sarvam": ("gpt2", bpe("gemma", "sarvam-moe")),
    "gemma4": ("gemma4", bpe("gemma", None)),
    "whitespace": ("whitespace", bpe("plain", "whitespace")),
    "whitespace_lower": ("whitespace", bpe("plain", "whitespace", lowercase=True)),
}


def write(path, model, fill):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def record(args, path, name, change=lambda texts: texts):
    """Writes what llama.cpp gives for random lines."""
    witness = Vocabulary(args.package, args.build, path)
    rng = random.Random(name)
    texts = ["", " ", "  a", "Hello  world ", " it's 1234567 boats", "\n\n\n x", "▁▁a▁", "</s> x", "[SEP] x <h1>y"]
    texts += [line(rng, []).replace("\0", "") for _ in range(LINES - len(texts))]
    texts = change(texts)
    as_text = [witness.tokenize(text, add_special=False, parse_special=False) for text in texts]
    whole = [witness.tokenize(text, add_special=True, parse_special=True) for text in texts]
    data = {"texts": texts, "as_text": as_text, "whole": whole}
    (OUT / f"{name}.json").write_text(json.dumps(data, separators=(",", ":")) + "\n")
    print(name, (OUT / f"{name}.json").stat().st_size, flush=True)


def known_only(lower):
    """llama.cpp leaves out the characters that a `whitespace` vocabulary does not have."""
    known = set(trained("plain")["model"]["vocab"]) & set("abcdefghijklmnopqrstuvwxyz,. \n\t")

    def change(texts):
        texts = ["".join(c for c in text if c.isspace() or c.lower() in known) for text in texts]
        return texts if lower else [text.lower() for text in texts]

    return change


def main():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    parser.add_argument("--vocabs", type=Path)
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    for name, (model, fill) in KINDS.items():
        path = OUT / f"{name}.gguf"
        write(path, model, fill)
        if model == "whitespace":
            record(args, path, name, known_only(lower="lower" in name))
        elif model != "bert":
            record(args, path, name)
    if args.vocabs:
        record(args, args.vocabs / "ggml-vocab-nomic-bert-moe.gguf", "nomic")


if __name__ == "__main__":
    main()
