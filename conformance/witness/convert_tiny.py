#!/usr/bin/env python3
"""Run llama.cpp's converter on a model of make_tiny.py.

    convert_tiny.py SOURCE PRE_TOKENIZER MODEL_DIR [converter's own options]

The converter knows a pre-tokenizer by a hash over the token ids of a sample text. A tokenizer trained here is in no such
table, so its name is given instead. Families that come with SentencePiece, or with special tokens of their own, take the
tokenizer trained here too. What else is changed is said with the functions below.
"""
import json
import runpy
import sys
from pathlib import Path


def keep_rotary_part(model):
    """An entry of config.json that transformers drops on reading, and the converter asks for."""
    load = model.load_hparams

    def load_hparams(folder, is_mistral_format):
        written = json.loads((Path(folder) / "config.json").read_text())
        return {key: written[key] for key in ("rotary_pct",) if key in written} | load(folder, is_mistral_format)

    model.load_hparams = staticmethod(load_hparams)


def pass_norms_on():
    """The converter stacks StableLM's norms of heads, and returns them from a generator, where they are lost."""
    from conversion.stablelm import StableLMModel

    modify = StableLMModel.modify_tensors

    def modify_tensors(self, *tensor):
        yield from (yield from modify(self, *tensor)) or ()

    StableLMModel.modify_tensors = modify_tensors


def name_answers():
    """A reranker of Qwen 3's kind looks for the tokens of yes and no, which a small vocabulary lacks: others stand for them."""
    from conversion.qwen import Qwen3Model

    def find(self):
        self.is_rerank = True
        self.is_tied_embeddings = self.hparams.get("tie_word_embeddings", False)
        self.token_true_id, self.token_false_id = 300, 301

    Qwen3Model._find_rerank_config = find


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    source, pre_tokenizer, options = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    script = source / "convert_hf_to_gguf.py"
    sys.path[:0] = [str(source), str(source / "gguf-py")]
    from conversion import base

    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre_tokenizer
    # Only where its file is missing: the tokenizer trained here is a tokenizer.json.
    sentencepiece = base.TextModel._set_vocab_sentencepiece

    def set_vocab(self, *args, **more):
        if (self.dir_model / "tokenizer.model").is_file():
            return sentencepiece(self, *args, **more)
        return self._set_vocab_gpt2()

    base.TextModel._set_vocab_sentencepiece = set_vocab
    from conversion.chatglm import ChatGLMModel
    from conversion.glm import Glm4Model
    from conversion.internlm import InternLM2Model
    from conversion.phi import Phi3MiniModel
    from conversion.qwen import QwenModel

    for own in (ChatGLMModel, Glm4Model, InternLM2Model, Phi3MiniModel, QwenModel):
        own.set_vocab = set_vocab
    base.TextModel._set_vocab_glm = base.TextModel._set_vocab_gpt2
    import conversion.gemma

    import conversion.bert

    conversion.bert.XLMRobertaModel.set_vocab = conversion.bert.BertModel.set_vocab
    conversion.bert.JinaBertV2Model.set_vocab = conversion.bert.BertModel.set_vocab
    conversion.bert.NomicBertModel._is_tokenizer_xlmroberta = lambda self: False
    conversion.gemma.Gemma4Model.set_vocab = base.TextModel._set_vocab_gpt2
    keep_rotary_part(base.ModelBase)
    pass_norms_on()
    name_answers()
    sys.argv = [str(script), *options]
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
