#!/usr/bin/env python3
"""Make tokenizers of Hugging Face folders, and record the keys that llama.cpp's converter writes for them.

    make_folder_vocabularies.py --llama-cpp SOURCE

Each goes to `../fixtures/folders/vocabularies/NAME/`, with `keys.json`: the keys of a model of 512 ids that has these files.
The converter knows a pre-tokenizer by a hash, and these by none: its name is given.
"""
import argparse
import copy
import io
import json
import shutil
import sys
from pathlib import Path

from tiny_text import CORPUS

OUT = Path(__file__).parent.parent / "fixtures" / "folders"
CONFIG = {"vocab_size": 512, "bos_token_id": 1, "eos_token_id": [2, 5]}


def pieces():
    """A vocabulary of SentencePiece's with all kinds of pieces."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines()), model_writer=model, vocab_size=460, model_type="bpe",
        byte_fallback=True, user_defined_symbols=["<user>"], control_symbols=["<control>"], hard_vocab_limit=False,
        normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2, num_threads=1)
    return model.getvalue()


def as_json(model, prefix):
    """The same as transformers' converters write it: merges of all pairs whose sum is a piece, bytes for what is left."""
    import sentencepiece
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    sp = sentencepiece.SentencePieceProcessor(model_proto=model)
    vocab = {sp.id_to_piece(i): i for i in range(sp.vocab_size())}
    score = {piece: sp.get_score(i) for piece, i in vocab.items()}
    plain = [p for p, i in vocab.items() if not (sp.is_byte(i) or sp.is_control(i) or sp.is_unknown(i)) and p != "<user>"]
    merges = []
    for piece in plain:
        pairs = [(piece[:n], piece[n:]) for n in range(1, len(piece))]
        pairs = [pair for pair in pairs if all(part in vocab for part in pair)]
        merges += [(score[piece], vocab[pair[0]], vocab[pair[1]], pair) for pair in pairs]
    merges.sort(key=lambda merge: (-merge[0], merge[1], merge[2]))
    tokenizer = Tokenizer(models.BPE(vocab, [m[3] for m in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [normalizers.Prepend("▁")] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>", "<control>")])
    tokenizer.add_tokens([AddedToken("<user>", normalized=False), AddedToken("▁tool▁", normalized=False)])
    return json.loads(tokenizer.to_str())


def template(single, pair, ids):
    """A post-processor that puts tokens around."""
    def entry(word):
        return {"Sequence": {"id": word, "type_id": 0}} if word in "AB" else {"SpecialToken": {"id": word, "type_id": 0}}

    special = {word: {"id": word, "ids": [ids[word]], "tokens": [word]} for word in {*single, *pair} - {"A", "B"}}
    return {"type": "TemplateProcessing", "single": [entry(w) for w in single], "pair": [entry(w) for w in pair],
            "special_tokens": special}


def cases():
    model = pieces()
    settings = {
        "bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": "<unk>", "add_bos_token": True,
        "add_eos_token": False, "chat_template": "{{ messages[0].content }}",
        "added_tokens_decoder": {"500": {"content": "<|im_end|>", "special": False}, "501": {"content": "▁tool▁"},
                                 "600": {"content": "beyond"}, "3": {"content": "<ctl>", "special": True}},
    }
    yield "pieces", "llama", {"tokenizer.model": model, "tokenizer_config.json": settings, "added_tokens.json": {"<extra>": 502}}
    yield "pieces-alone", "llama", {"tokenizer.model": model}
    both = {"tokenizer.model": model, "tokenizer.json": as_json(model, True)}
    yield "pieces-and-json", "llama", both | {"tokenizer_config.json": {"bos_token": "<s>", "add_prefix_space": True}}
    # No witness of scores: `tests/folders.rs` compares ids.
    yield "merges", None, {"tokenizer.json": as_json(model, True), "tokenizer_config.json": {"eos_token": "</s>"}}
    yield "merges-without-space", None, {"tokenizer.json": as_json(model, False)}

    plain = json.loads((OUT / "tokenizer.json").read_text())
    ids = {token["content"]: token["id"] for token in plain["added_tokens"]}

    def bytes_of(processor, settings, changes={}, **files):
        json_ = copy.deepcopy(plain) | {"post_processor": processor} | changes
        return {"tokenizer.json": json_, "tokenizer_config.json": settings} | files

    named = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    yield "around", "gpt2", bytes_of(
        {"type": "Sequence", "processors": [level, template(["<s>", "A", "</s>"], ["<s>", "A", "</s>", "B", "</s>"], ids)]}, named)
    yield "other-end", "gpt2", bytes_of(template(["<s>", "A", "<|im_end|>"], ["<s>", "A", "B", "<|im_end|>"], ids), named)
    yield "separated", "gpt2", bytes_of(
        template(["<s>", "A"], ["<s>", "A", "<|endoftext|>", "B"], ids),
        {"cls_token": "<s>", "sep_token": "<|endoftext|>", "mask_token": "<unk>"})
    yield "roberta", "gpt2", bytes_of(
        {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1], "trim_offsets": True, "add_prefix_space": False}, named)
    yield "levelled", "gpt2", bytes_of(level, named | {"add_bos_token": True, "chat_template": [
        {"name": "default", "template": "{{ messages }}"}, {"name": "tool use", "template": "{{ tools }}"}]})
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in plain["model"]["merges"]]
    added = plain["added_tokens"] + [
        dict(plain["added_tokens"][0], id=512 + n, content=text, special=False, normalized=n > 0)
        for n, text in enumerate(("behind the end",))]
    added[4] = dict(added[4], special=False)
    yield "pairs", "gpt2", bytes_of(
        None, named, {"model": plain["model"] | {"merges": merges}, "added_tokens": added[:-1]}) | {"chat_template.jinja": "{{ 1 }}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", required=True, type=Path, help="llama.cpp's source folder")
    source = parser.parse_args().llama_cpp
    sys.path[:0] = [str(source), str(source / "gguf-py")]
    import gguf
    from conversion import base
    from conversion.llama import LlamaModel

    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
    out = OUT / "vocabularies"
    shutil.rmtree(out, ignore_errors=True)
    for name, kind, files in cases():
        folder = out / name
        folder.mkdir(parents=True)
        for file, content in files.items():
            if isinstance(content, bytes):
                (folder / file).write_bytes(content)
            else:
                text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
                (folder / file).write_text(text, encoding="utf-8")
        if kind is None:
            continue
        (folder / "config.json").write_text(json.dumps(CONFIG | {"model_type": "llama"}))
        model = object.__new__(LlamaModel)
        model.dir_model, model.hparams, model.gguf_writer = folder, dict(CONFIG), gguf.GGUFWriter(None, "llama")
        model.origin_hf_arch, model.is_mistral_format = None, False
        model.set_vocab() if kind == "llama" else model._set_vocab_gpt2()
        (folder / "config.json").unlink()
        keys = {}
        for key, value in model.gguf_writer.kv_data[0].items():
            value = value.value
            if key.startswith("tokenizer."):
                if isinstance(value, list) and value and isinstance(value[0], (bytes, bytearray)):
                    value = [text.decode() for text in value]
                keys[key] = value
        (folder / "keys.json").write_text(json.dumps(keys, ensure_ascii=False) + "\n", encoding="utf-8")
        print(name, {k: v for k, v in keys.items() if not isinstance(v, list) or len(v) < 9})


main()
