#!/usr/bin/env python3
"""Record the embeddings that transformers gives of some texts, and have llama.cpp's converter write the model's GGUF.

    vectors.py --llama-cpp SOURCE MODEL_DIR OUT.json OUT.gguf

MODEL_DIR is a BERT of sentence-transformers whose embedding is the mean of its rows, of length 1. OUT.json holds the texts
with their ids and their vectors, in f32 with eager attention; the GGUF has F32 weights.
"""
import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers

TEXTS = [
    "The river rose in the night and took the bridge.",
    "How do I bake bread without yeast?",
    "A bridge was destroyed by the flooded river.",
    "Größer café 東京, naïve façade: it's 1,234.5 €!",
    "def f(x): return x * x  # squares",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", required=True, type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("gguf", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / arguments.model.name
        shutil.copytree(arguments.model, folder)
        # Some packages leave the class out, by which the converter goes.
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | dict(architectures=["BertModel"])))
        script = arguments.llama_cpp / "convert_hf_to_gguf.py"
        options = ["--outfile", arguments.gguf, "--outtype", "f32"]
        subprocess.run([sys.executable, script, folder, *options], check=True)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
        records = []
        for text in TEXTS:
            inputs = tokenizer(text, return_tensors="pt")
            with torch.no_grad():
                vector = model(**inputs).last_hidden_state[0].mean(0)
            vector /= vector.norm()
            ids = inputs["input_ids"][0].tolist()
            records.append(dict(text=text, ids=ids, vector=[round(v, 7) for v in vector.tolist()]))
    lines = ",\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    arguments.out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
