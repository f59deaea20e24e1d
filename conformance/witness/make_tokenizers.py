#!/usr/bin/env python3
"""Makes tiny tokenizers of every form that `tokenizer.json` files have, and the ids that `tokenizers` gives.

    make_tokenizers.py            # into crates/token/tests/data/hf, one file a form

Each file holds the tokenizer and some lines: the text, its ids with special tokens as text, parsed and with what goes
before and behind a whole text, and what the first of these decode to. The vocabularies are trained here on the texts
of `conformance/text`; their lines are random (see `tokens.py`).
"""

import json
import random
import tempfile
from pathlib import Path

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokens import line

HERE = Path(__file__).resolve().parent
OUT = HERE.parent.parent / "crates/token/tests/data/hf"
TEXTS = [path.read_text() for path in sorted((HERE.parent / "text").glob("*.txt"))] + [
    "Привет мир, как дела? 你好世界 こんにちは 안녕하세요 Zürich straße café naïve résumé " * 20,
    "def f(x):\n    return x + 1\n\n\nfor i in range(10):\n        print(i)\n" * 20,
]
LINES = 40
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
OTHERS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + OTHERS
QWEN2 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + OTHERS
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTION + "?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTION + "?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]
# Rules of a small map of characters: some of NFKC's, among them two characters that become one.
CHARSMAP = [(chr(0xFF01 + i), chr(0x21 + i)) for i in range(94)] + [
    ("\u00a0", " "), ("\u3000", " "), ("\t", " "), ("\n", " "), ("\u200b", ""), ("ﬁ", "fi"), ("½", "1⁄2"), ("…", "..."),
    ("ｶ", "カ"), ("ｶﾞ", "ガ"), ("e\u0301", "é"), ("\u212b", "\u00c5"), ("\u0301", " \u0301"), ("①", "1"), ("q", "k"), ("q\u0301", "Q"), ("ﷺ", "صلى الله عليه وسلم"),
]


def split(pattern: str, behavior: str = "isolated", invert: bool = False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(use_regex: bool = False, prefix: bool = False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)


def bpe(pre, normalizer=None, specials=("<|endoftext|>",), added=(), size=360, decoder="bytes", **settings) -> Tokenizer:
    """Byte-level BPE, trained."""
    tokenizer = Tokenizer(models.BPE(**settings))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(pre) if isinstance(pre, list) else pre
    if normalizer:
        tokenizer.normalizer = normalizer
    if decoder == "bytes":
        tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(specials), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_tokens(list(added))
    return tokenizer


def template(tokenizer: Tokenizer, before=(), behind=()):
    single = " ".join([*before, "$A", *behind])
    ids = [(text, tokenizer.token_to_id(text)) for text in {*before, *behind}]
    return processors.TemplateProcessing(single=single, pair=f"{single} $B", special_tokens=ids)


def spaced_bpe(normalizer, pre, decoder, added=(), **settings) -> Tokenizer:
    """BPE over characters with spaces spelled U+2581 and bytes for what is unknown."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", **settings))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre:
        tokenizer.pre_tokenizer = pre
    specials = ["<unk>", "<s>", "</s>"]
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=560, special_tokens=specials + byte_tokens, limit_alphabet=90, show_progress=False)
    tokenizer.train_from_iterator([word for text in TEXTS for word in text.splitlines(keepends=True)], trainer)
    tokenizer.decoder = decoder
    file = json.loads(tokenizer.to_str())
    # Byte tokens belong to the model alone.
    file["added_tokens"] = [token for token in file["added_tokens"] if token["content"] in specials]
    file["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.add_tokens(list(added))
    return tokenizer


def charsmap() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.tsv"
        code = lambda text: " ".join(f"{ord(c):04X}" for c in text)
        rules.write_text("".join(f"{code(old)}\t{code(new)}\n" for old, new in CHARSMAP))
        text = Path(folder) / "text.txt"
        text.write_text("\n".join(TEXTS))
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=f"{folder}/m", vocab_size=300, normalization_rule_tsv=str(rules),
            character_coverage=0.99, hard_vocab_limit=False, minloglevel=2,
        )
        processor = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/m.model")
        from sentencepiece import sentencepiece_model_pb2 as proto
        model = proto.ModelProto()
        model.ParseFromString(processor.serialized_model_proto())
        return model.normalizer_spec.precompiled_charsmap


def unigram(normalizer, pre, decoder, byte_fallback=False, specials=("<pad>", "</s>", "<unk>")) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoder
    specials = list(specials) + ([f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else [])
    trainer = trainers.UnigramTrainer(
        vocab_size=300 + (256 if byte_fallback else 0), special_tokens=specials, unk_token="<unk>", show_progress=False,
        initial_alphabet=[],
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    if not byte_fallback:
        return tokenizer
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = [token for token in file["added_tokens"] if not token["content"].startswith("<0x")]
    file["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(file))


def wordpiece(lowercase: bool, **settings) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", **settings))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=lowercase)
    trainer = trainers.WordPieceTrainer(
        vocab_size=380, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = template(tokenizer, ["[CLS]"], ["[SEP]"])
    return tokenizer


def forms():
    gpt2 = bpe(byte_level(use_regex=True))
    yield "gpt2", gpt2

    roberta = bpe(byte_level(use_regex=True, prefix=True), specials=("<s>", "<pad>", "</s>", "<unk>"))
    roberta.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    ids = [(text, roberta.token_to_id(text)) for text in ("</s>", "<s>")]
    roberta.post_processor = processors.RobertaProcessing(*ids)
    yield "roberta", roberta

    llama3 = bpe([split(LLAMA3), byte_level()], ignore_merges=True, specials=("<|begin_of_text|>", "<|end_of_text|>"))
    llama3.post_processor = processors.Sequence([processors.ByteLevel(), template(llama3, ["<|begin_of_text|>"])])
    yield "llama3", llama3

    yield "qwen", bpe([split(QWEN2), byte_level()], normalizers.NFC(), added=["<think>", "</think>"])
    yield "o200k", bpe([split(O200K), byte_level()])
    yield "deepseek", bpe([*map(split, DEEPSEEK), byte_level()])
    yield "starcoder", bpe([pre_tokenizers.Digits(individual_digits=True), byte_level(use_regex=True)])
    yield "falcon", bpe(
        [
            pre_tokenizers.Punctuation("contiguous"), byte_level(use_regex=True),
            pre_tokenizers.Digits(individual_digits=False), split("[0-9][0-9][0-9]"),
        ]
    )
    yield "alphabet", bpe([split(r"\d{1,3}(?=(?:\d{3})*\b)"), split(r"\p{L}+", "merged_with_previous")], normalizers.ByteLevel())
    yield "threes", bpe([split(r"(?=(\d{3})+(?!\d))"), split(r"\s+", "merged_with_next"), byte_level()])

    # Found in text that was normalized, or not; alone, or with the blanks around them.
    yield "flags", bpe(
        [split(QWEN2), byte_level()],
        normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
        added=[
            AddedToken("River", normalized=True), AddedToken("Harbour", normalized=False), AddedToken("boat", single_word=True),
            AddedToken("<l>", lstrip=True, normalized=False), AddedToken("<r>", rstrip=True, normalized=False),
            AddedToken("<b>", lstrip=True, rstrip=True, normalized=True), AddedToken("  ", normalized=False),
        ],
    )

    llama_decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    llama2 = spaced_bpe(
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, llama_decoder, fuse_unk=True
    )
    llama2.post_processor = template(llama2, ["<s>"])
    yield "llama2", llama2
    for scheme in ("first", "never"):
        tokenizer = spaced_bpe(
            None, pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=False), decoders.Metaspace("▁", prepend_scheme=scheme)
        )
        tokenizer.decoder = llama_decoder if scheme == "first" else decoders.Sequence(llama_decoder_without_strip())
        yield f"metaspace_{scheme}", tokenizer
    gemma = spaced_bpe(
        normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"),
        decoders.Sequence(llama_decoder_without_strip()), fuse_unk=True,
        added=[AddedToken(text, normalized=False) for text in ("\n\n", "▁▁", "<h1>", "</h1>")],
    )
    gemma.post_processor = template(gemma, ["<s>"])
    yield "gemma", gemma

    for name, fuse in (("plain", False), ("plain_fused", True)):
        plain = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=fuse))
        plain.pre_tokenizer = pre_tokenizers.Whitespace()
        plain.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Strip()])
        plain.train_from_iterator(
            TEXTS, trainers.BpeTrainer(vocab_size=250, special_tokens=["[UNK]"], limit_alphabet=60, show_progress=False)
        )
        yield name, plain

    small = charsmap()
    t5 = unigram(
        normalizers.Precompiled(small), pre_tokenizers.Metaspace("▁", prepend_scheme="always"),
        decoders.Metaspace("▁", prepend_scheme="always"),
    )
    t5.post_processor = template(t5, [], ["</s>"])
    yield "t5", t5
    xlmr = unigram(
        normalizers.Sequence([normalizers.Nmt(), normalizers.Precompiled(small), normalizers.Replace(Regex(" {2,}"), " ")]),
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("▁", prepend_scheme="always")]),
        decoders.Metaspace("▁", prepend_scheme="always"), specials=("<s>", "<pad>", "</s>", "<unk>"),
    )
    xlmr.post_processor = template(xlmr, ["<s>"], ["</s>"])
    yield "xlmr", xlmr
    yield "unigram_bytes", unigram(
        normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.Precompiled(small)]),
        pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False),
        decoders.Sequence([*llama_decoder_without_strip(), decoders.Strip(" ", 1, 0)]), byte_fallback=True,
    )
    yield "bert", wordpiece(True)
    yield "bert_cased", wordpiece(False, max_input_chars_per_word=12)


def llama_decoder_without_strip():
    return [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    for name, tokenizer in forms():
        file = json.loads(tokenizer.to_str())
        tokenizer = Tokenizer.from_str(json.dumps(file))
        rng = random.Random(name)
        added = [token["content"] for token in file["added_tokens"]]
        # A unigram model has special tokens in its list, and text becomes them by way of the model.
        specials = [] if file["model"]["type"] == "Unigram" else added
        texts = ["", " ", "  a", "Hello  world ", " it's 1234567 boats", "\n\n\n x", "ｶﾞ e\u0301 ﬁ", "▁▁a▁"]
        texts += ["q q\u0301", "你好 你好x"] + [f"a {text}  b{text}c \t{text}" for text in specials[-7:]]
        texts += [line(rng, specials) for _ in range(LINES - len(texts))]
        lines = []
        for text in texts:
            tokenizer.encode_special_tokens = True
            as_text = tokenizer.encode(text, add_special_tokens=False).ids
            tokenizer.encode_special_tokens = False
            parsed = tokenizer.encode(text, add_special_tokens=False).ids
            whole = tokenizer.encode(text, add_special_tokens=True).ids
            decoded = tokenizer.decode(as_text, skip_special_tokens=False) if file["decoder"] else None
            lines.append({"text": text, "as_text": as_text, "parse": parsed, "whole": whole, "decoded": decoded})
        head = f'{{"made with":"tokenizers {tokenizers.__version__}",\n"tokenizer":{json.dumps(file, separators=(",", ":"), ensure_ascii=False)},\n"lines":[\n'
        body = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in lines)
        (OUT / f"{name}.json").write_text(head + body + "\n]}\n")
        print(name, (OUT / f"{name}.json").stat().st_size)


if __name__ == "__main__":
    main()
