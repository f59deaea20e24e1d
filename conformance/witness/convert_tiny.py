#!/usr/bin/env python3
"""Run llama.cpp's converter on a model of make_tiny.py.

    convert_tiny.py SOURCE PRE_TOKENIZER MODEL_DIR [converter's own options]

The converter knows a pre-tokenizer by a hash over the token ids of a sample text. A tokenizer trained here is in no such
table, so its name is given instead. Families that come with SentencePiece, or with special tokens of their own, take the tokenizer trained here too. Nothing else
is changed.
"""
import runpy
import sys
from pathlib import Path


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
    base.TextModel._set_vocab_glm = base.TextModel._set_vocab_gpt2
    sys.argv = [str(script), *options]
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
