#!/usr/bin/env python3
"""Record how far llama.cpp's logits are from transformers' when a fixture's matrices are encoded.

    encoded.py --build BUILD --package PACKAGE --encode PROGRAM [FAMILY ...]

PROGRAM is the example `encode` of this crate, which writes the encoded file. For each family `../fixtures/FAMILY.peer.json`
receives the mean KL divergence, in nats, from the logits of the f32 weights, for each of TYPES. A family that llama.cpp
cannot load is passed over, and said.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import llamacpp

TYPES = ["Q8_0", "Q4_0"]
FIXTURES = Path(__file__).parent.parent / "fixtures"


def log_softmax(x):
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def divergence(p, q):
    p, q = log_softmax(p.astype(np.float64)), log_softmax(q.astype(np.float64))
    return float((np.exp(p) * (p - q)).sum(axis=1).mean())


def one(arguments, family, ty):
    """The divergence of one family in one type; run in a process of its own, since llama.cpp may abort."""
    record = json.loads((FIXTURES / f"{family}.json").read_text())
    expected = np.fromfile(FIXTURES / f"{family}.logits", "<f4").reshape(record["logits_shape"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "encoded.gguf"
        subprocess.run([arguments.encode, FIXTURES / f"{family}.gguf", ty, path], check=True)
        witness = llamacpp.Witness(arguments.package, arguments.build, path, context=512, threads=1)
        print(divergence(expected, witness.prompt_logits(record["prompt_ids"], None)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    llamacpp.add_arguments(parser)
    parser.add_argument("--encode", required=True, type=Path)
    parser.add_argument("--one", nargs=2, metavar=("FAMILY", "TYPE"), help=argparse.SUPPRESS)
    parser.add_argument("family", nargs="*")
    arguments = parser.parse_args()
    if arguments.one:
        return one(arguments, *arguments.one)
    for family in arguments.family or sorted(p.stem for p in FIXTURES.glob("*.gguf")):
        if not (FIXTURES / f"{family}.logits").exists():
            continue
        found = {}
        for ty in TYPES:
            command = [sys.executable, *sys.argv, "--one", family, ty]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                print(f"{family} in {ty}: llama.cpp does not run it: {done.stderr.strip()[-200:]}")
                continue
            found[ty] = float(f"{float(done.stdout.split()[-1]):.4g}")
        if found:
            (FIXTURES / f"{family}.peer.json").write_text(json.dumps(found) + "\n")
            print(f"{family}: {found}", flush=True)


main()
