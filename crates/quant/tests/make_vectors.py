#!/usr/bin/env python3
"""Writes the fixtures that tests/vectors.rs reads, with ggml's own code as the witness.

    pip install gguf numpy llama-cpp-python
    python crates/quant/tests/make_vectors.py [path of libggml-base.so]

Two witnesses must agree before anything is written: the `gguf` package (ggml's dequantization in numpy) and ggml's
compiled library, which the `llama-cpp-python` package carries. The second one also gives the errors that ggml's
encoders leave, and is alone for types that `gguf` has no dequantization of. Both must know every type below: if the
released ones do not, take llama.cpp's own `gguf-py` and build.

data/vectors.txt   decode <type> <hash>           of 1,000 random blocks (every value, for F16 and BF16)
                   edges <type> <hash>            of 1,000 blocks with extreme scales, a quarter of them extreme throughout
                   encode <type> <set> <hash>     of ggml's encoding of a set of weights, where ours is bit-equal
                   rms <type> <set> <value>       root mean square error of ggml's encoding
                   weighted <type> <set> <value>  the same with importances, by importance

Random bytes are xorshift64 (shifts 13, 7, 17), eight little-endian bytes a step, seeded with
0x9e3779b97f4a7c15 + the type's id. Hashes are FNV-1a 64 taken 32 bits at a time, every NaN being 0x7fc00000.
"""

import ctypes
import importlib.util
import pathlib
import struct
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize

DATA = pathlib.Path(__file__).parent / "data"
SEED = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
RANDOM_BLOCKS = 1000
EXACT = [Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.Q1_0]
SEARCHED = [
    Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.IQ4_NL, Type.IQ4_XS, Type.MXFP4,
    Type.IQ2_XXS, Type.IQ2_XS, Type.IQ2_S, Type.IQ3_XXS, Type.IQ3_S, Type.IQ1_S, Type.IQ1_M,
    Type.TQ1_0, Type.TQ2_0, Type.NVFP4, Type.Q2_0,
]  # fmt: skip
# What `gguf` does not dequantize.
COMPILED_ONLY = [Type.Q1_0, Type.Q2_0]
# Offsets of the f16 fields in a block.
HALVES = {
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.IQ4_NL: [0], Type.IQ4_XS: [0], Type.IQ2_XXS: [0], Type.IQ2_XS: [0], Type.IQ2_S: [0], Type.IQ3_XXS: [0],
    Type.IQ3_S: [0], Type.IQ1_S: [0], Type.TQ1_0: [52], Type.TQ2_0: [64], Type.Q1_0: [0], Type.Q2_0: [0],
}  # fmt: skip
# Offsets of the scales of one byte.
BYTES = {Type.MXFP4: [0], Type.NVFP4: [0, 1, 2, 3]}
# Zeros, ends of the subnormals, the smallest normal, ones, the largest, infinities, NaN.
EDGES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01]
# Of MXFP4's scales both subnormals, their neighbour, ones, the largest; of NVFP4's the same and what is no number.
BYTE_EDGES = [0, 1, 2, 7, 8, 56, 126, 127, 128, 253, 254, 255]
FILLS = [0x00, 0xFF, 0x0F, 0xF0, 0x7F, 0x80]


def xorshift(seed):
    state = seed & MASK
    while True:
        state ^= (state << 13) & MASK
        state ^= state >> 7
        state ^= (state << 17) & MASK
        yield state


def random_bytes(seed, count):
    words = xorshift(seed)
    steps = (count + 7) // 8
    return b"".join(struct.pack("<Q", next(words)) for _ in range(steps))[:count]


def fnv(words):
    h = 0xCBF29CE484222325
    for word in words:
        h = ((h ^ int(word)) * 0x100000001B3) & MASK
    return f"{h:016x}"


def fnv_weights(weights):
    return fnv(np.where(np.isnan(weights), np.uint32(0x7FC00000), weights.view(np.uint32)))


class Ggml:
    """ggml's compiled library, for the formats' row functions."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL | getattr(ctypes, "RTLD_LAZY", 1))

    def decode(self, ty, data):
        length, size = GGML_QUANT_SIZES[ty]
        out = np.empty(data.size // size * length, np.float32)
        function = getattr(self.lib, "dequantize_row_" + ty.name.lower().replace("_k", "_K"))
        function.restype = None
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        function(data.ctypes.data, out.ctypes.data, out.size)
        return out

    def encode(self, ty, x, importance=None):
        """As ggml's own tool does, `x` being rows as long as `importance`. Without one it is one row, and all weights
        are as important where ggml insists on importances."""
        length, size = GGML_QUANT_SIZES[ty]
        out = np.empty(x.size // length * size, np.uint8)
        insists = self.lib.ggml_quantize_requires_imatrix
        insists.restype = ctypes.c_bool
        if importance is None and insists(ty.value):
            importance = np.ones(x.size, np.float32)
        columns = x.size if importance is None else importance.size
        pointer = None if importance is None else importance.ctypes.data
        function = self.lib.ggml_quantize_chunk
        function.restype = ctypes.c_size_t
        function.argtypes = [ctypes.c_int] + [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
        rows = x.size // columns
        written = function(ty.value, x.ctypes.data, out.ctypes.data, 0, rows, columns, pointer)
        assert written == out.size
        return out


def agreed_decode(ggml, ty, data):
    """Decoded by both witnesses, which must agree to the bit."""
    data = np.frombuffer(data, np.uint8)
    if ty in COMPILED_ONLY:
        return ggml.decode(ty, data)
    with np.errstate(all="ignore"):
        first = dequantize(data.reshape(-1, GGML_QUANT_SIZES[ty][1]), ty).reshape(-1)
    if ty in EXACT or ty in SEARCHED:
        second = ggml.decode(ty, data)
        assert fnv_weights(first) == fnv_weights(second), f"the witnesses differ on {ty.name}"
    return first.astype(np.float32)


def edges(ty, data):
    """The random blocks with edges for scales, in all combinations of two; every fourth is filled with one byte."""
    size = GGML_QUANT_SIZES[ty][1]
    blocks = [bytearray(data[at : at + size]) for at in range(0, len(data), size)]
    for i, block in enumerate(blocks):
        if i % 4 == 0:
            block[:] = bytes([FILLS[i // 4 % len(FILLS)]]) * size
        for field, at in enumerate(HALVES.get(ty, [])):
            block[at : at + 2] = struct.pack("<H", EDGES[i // 12**field % 12])
        for field, at in enumerate(BYTES.get(ty, [])):
            block[at] = BYTE_EDGES[i // 12**field % 12]
        if ty == Type.IQ1_M:  # a nibble each on top of four words
            for word in range(4):
                nibble = EDGES[i % 12] >> 4 * word & 15
                block[49 + 2 * word] = block[49 + 2 * word] & 15 | nibble << 4
    return b"".join(blocks)


def weight_sets():
    """Sets of 16,384 weights, exact in f32 however they are computed.

    bell     sums of four uniform numbers: nearly normal, within -2..2
    tails    cubes of those: most are tiny, a few large
    aside    those + 1.5: nearly all positive
    """
    words = xorshift(SEED)
    bell = np.empty(16384, np.float32)
    for i in range(bell.size):
        word = next(words)
        total = sum(word >> shift & 0xFFFF for shift in (0, 16, 32, 48))
        bell[i] = np.float32(total - 131070) / np.float32(65536)
    return {"bell": bell, "tails": bell * bell * bell, "aside": bell + np.float32(1.5)}


def importances(sets):
    """Of 1,024 columns: squares of the first tails, from nearly nothing to 64."""
    return sets["tails"][:1024] * sets["tails"][:1024]


def library():
    if len(sys.argv) > 1:
        return sys.argv[1]
    package = importlib.util.find_spec("llama_cpp")
    if package is None:
        sys.exit("give the path of libggml-base.so, or install llama-cpp-python")
    return str(pathlib.Path(package.origin).parent / "lib" / "libggml-base.so")


def main():
    ggml = Ggml(library())
    lines = []
    DATA.mkdir(exist_ok=True)
    for ty in [Type.F16, Type.BF16]:
        every = np.arange(1 << 16, dtype="<u2").tobytes()
        lines.append(f"decode {ty.name} {fnv_weights(agreed_decode(ggml, ty, every))}")
    for ty in EXACT + SEARCHED:
        data = random_bytes(SEED + ty.value, RANDOM_BLOCKS * GGML_QUANT_SIZES[ty][1])
        lines.append(f"decode {ty.name} {fnv_weights(agreed_decode(ggml, ty, data))}")
        lines.append(f"edges {ty.name} {fnv_weights(agreed_decode(ggml, ty, edges(ty, data)))}")
    sets = weight_sets()
    importance = importances(sets)
    by_importance = np.tile(importance.astype(np.float64), sets["bell"].size // importance.size)
    for name, x in sets.items():
        for ty in EXACT + SEARCHED:
            encoded = ggml.encode(ty, x)
            if ty in EXACT:
                lines.append(f"encode {ty.name} {name} {fnv(encoded)}")
            error = ggml.decode(ty, encoded).astype(np.float64) - x
            lines.append(f"rms {ty.name} {name} {np.sqrt(np.mean(error * error)):.9e}")
            error = ggml.decode(ty, ggml.encode(ty, x, importance)).astype(np.float64) - x
            weighted = np.sqrt(np.average(error * error, weights=by_importance))
            lines.append(f"weighted {ty.name} {name} {weighted:.9e}")
    (DATA / "vectors.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
