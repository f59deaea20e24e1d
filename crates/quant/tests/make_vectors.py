#!/usr/bin/env python3
"""Writes the fixtures that tests/vectors.rs reads, with ggml's own code as the witness.

    pip install gguf numpy llama-cpp-python
    python crates/quant/tests/make_vectors.py [path of libggml-base.so]

Two witnesses must agree before anything is written: the `gguf` package (ggml's dequantization in numpy) and ggml's
compiled library, which the `llama-cpp-python` package carries. The second one also gives the errors that ggml's
encoders leave.

data/<type>.bin    adversarial blocks, each followed by the weights it decodes to (f32, little-endian)
data/vectors.txt   decode <type> <hash>           of 1,000 random blocks (every value, for F16 and BF16)
                   encode <type> <set> <hash>     of ggml's encoding of a set of weights, where ours is bit-equal
                   rms <type> <set> <value>       root mean square error of ggml's encoding

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
EXACT = [Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0]
SEARCHED = [
    Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.IQ4_NL, Type.IQ4_XS, Type.MXFP4,
]  # fmt: skip
# Offsets of the f16 fields in a block.
HALVES = {
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.IQ4_NL: [0], Type.IQ4_XS: [0], Type.MXFP4: [],
}  # fmt: skip
# Zeros, ends of the subnormals, the smallest normal, ones, the largest, infinities, NaN.
EDGES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01]
# The exponents of MXFP4's scales, in its blocks' first byte: both subnormals, their neighbour, ones, the largest.
EXPONENTS = [0, 1, 2, 3, 63, 126, 127, 128, 191, 253, 254, 255]
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

    def encode(self, ty, x):
        """As ggml's own tool does without an importance matrix: `x` is one row."""
        length, size = GGML_QUANT_SIZES[ty]
        out = np.empty(x.size // length * size, np.uint8)
        function = self.lib.ggml_quantize_chunk
        function.restype = ctypes.c_size_t
        function.argtypes = [ctypes.c_int] + [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
        written = function(ty.value, x.ctypes.data, out.ctypes.data, 0, 1, x.size, None)
        assert written == out.size
        return out


def agreed_decode(ggml, ty, data):
    """Decoded by both witnesses, which must agree to the bit."""
    data = np.frombuffer(data, np.uint8)
    with np.errstate(all="ignore"):
        first = dequantize(data.reshape(-1, GGML_QUANT_SIZES[ty][1]), ty).reshape(-1)
    if ty in EXACT or ty in SEARCHED:
        second = ggml.decode(ty, data)
        assert fnv_weights(first) == fnv_weights(second), f"the witnesses differ on {ty.name}"
    return first.astype(np.float32)


def adversarial(ty):
    """Blocks with every edge value in the scales and extreme codes; fewer of the large blocks."""
    size = GGML_QUANT_SIZES[ty][1]
    blocks = []
    for i, edge in enumerate(EDGES):
        fills = FILLS if GGML_QUANT_SIZES[ty][0] == 32 else [FILLS[i % len(FILLS)]]
        for j, fill in enumerate(fills):
            block = bytearray([fill]) * size
            for field, at in enumerate(HALVES[ty]):
                value = EDGES[(i + field * (j + 5)) % len(EDGES)]
                block[at : at + 2] = struct.pack("<H", value)
            if ty == Type.MXFP4:
                block[0] = EXPONENTS[i]
            blocks.append(bytes(block))
    return blocks


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
        size = GGML_QUANT_SIZES[ty][1]
        data = random_bytes(SEED + ty.value, RANDOM_BLOCKS * size)
        lines.append(f"decode {ty.name} {fnv_weights(agreed_decode(ggml, ty, data))}")
        blocks = adversarial(ty)
        weights = agreed_decode(ggml, ty, b"".join(blocks)).reshape(len(blocks), -1)
        pairs = [block + w.astype("<f4").tobytes() for block, w in zip(blocks, weights)]
        (DATA / f"{ty.name.lower()}.bin").write_bytes(b"".join(pairs))
    for name, x in weight_sets().items():
        for ty in EXACT + SEARCHED:
            encoded = ggml.encode(ty, x)
            if ty in EXACT:
                lines.append(f"encode {ty.name} {name} {fnv(encoded)}")
            error = ggml.decode(ty, encoded).astype(np.float64) - x
            lines.append(f"rms {ty.name} {name} {np.sqrt(np.mean(error * error)):.9e}")
    (DATA / "vectors.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
