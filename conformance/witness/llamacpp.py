"""llama.cpp as a witness: token ids and raw logits of a GGUF, through the C API.

The structures' layout comes from the ctypes bindings in the Python package llama-cpp-python, taken from the same source
package as the llama.cpp that was built; nothing of that package but its bindings is loaded.
"""
import ctypes
import os
import sys
import types
from pathlib import Path

import numpy as np

GGML_TYPE_F32, GGML_TYPE_F16 = 0, 1
FLASH_ATTENTION_OFF = 0


def load_bindings(package, build):
    """The module llama_cpp.llama_cpp of folder `package`, over the shared libraries in `build`/bin."""
    os.environ["LLAMA_CPP_LIB_PATH"] = str(Path(build).resolve() / "bin")
    parent = types.ModuleType("llama_cpp")  # stands in for the package, whose own __init__ wants more than the bindings
    parent.__path__ = [str(Path(package).resolve() / "llama_cpp")]
    sys.modules["llama_cpp"] = parent
    import llama_cpp.llama_cpp as api

    return api


class Vocabulary:
    """The vocabulary of one model of llama.cpp; with `vocab_only`, nothing else of the file is read."""

    def __init__(self, package, build, gguf, vocab_only=True, repack=True):
        self.api = api = load_bindings(package, build)
        self._quiet = api.llama_log_callback(lambda level, text, data: None)  # kept alive: C holds the pointer
        api.llama_log_set(self._quiet, ctypes.c_void_p(0))
        api.llama_backend_init()
        model_parameters = api.llama_model_default_params()
        model_parameters.n_gpu_layers = 0
        model_parameters.use_extra_bufts = repack
        model_parameters.vocab_only = vocab_only
        self.model = api.llama_model_load_from_file(str(gguf).encode(), model_parameters)
        if not self.model:
            sys.exit(f"llama.cpp does not load {gguf}")
        self.vocab = api.llama_model_get_vocab(self.model)
        self.vocab_size = api.llama_vocab_n_tokens(self.vocab)

    def tokenize(self, text, add_special=True, parse_special=True):
        """Token ids of `text`, with the vocabulary's own BOS/EOS if `add_special`, special tokens read if `parse_special`."""
        raw = text.encode()
        room = len(raw) + 16
        ids = (self.api.llama_token * room)()
        count = self.api.llama_tokenize(self.vocab, raw, len(raw), ids, room, add_special, parse_special)
        if count < 0:
            sys.exit(f"llama.cpp does not tokenize {text[:40]!r}: {count}")
        return list(ids[:count])

    def text(self, ids):
        """The text of `ids`, special tokens written out; undecodable bytes become replacement characters."""
        raw = b""
        for token in ids:
            room = 256
            buffer = ctypes.create_string_buffer(room)
            count = self.api.llama_token_to_piece(self.vocab, token, buffer, room, 0, True)
            raw += buffer.raw[: max(count, 0)]
        return raw.decode("utf-8", errors="replace")

    def ends(self, token):
        """Whether the vocabulary says that generation ends with this token."""
        return bool(self.api.llama_vocab_is_eog(self.vocab, token))


class Witness(Vocabulary):
    """One model and one context of llama.cpp: greedy decoding and logits, on the CPU.

    Keys and values are cached in `cache_type`; flash attention is off; `threads` threads. `repack=False` keeps ggml from
    rearranging the weights for its faster kernels.
    """

    def __init__(self, package, build, gguf, context=1024, threads=2, cache_type=GGML_TYPE_F16, repack=True):
        super().__init__(package, build, gguf, vocab_only=False, repack=repack)
        api = self.api
        parameters = api.llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = context
        parameters.n_ubatch = min(context, 512)
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.flash_attn_type = FLASH_ATTENTION_OFF
        parameters.type_k = parameters.type_v = cache_type
        self.context = api.llama_init_from_model(self.model, parameters)
        if not self.context:
            sys.exit(f"llama.cpp makes no context for {gguf}")

    def reset(self):
        """Forget every position."""
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)

    def step(self, ids, start, every=False):
        """Feed `ids` at positions `start`.. of the one sequence; logits f32 [rows, vocabulary] of each, or of the last."""
        batch = self.api.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i] = token, start + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = every or i == len(ids) - 1
        status = self.api.llama_decode(self.context, batch)
        if status != 0:
            sys.exit(f"llama_decode answers {status}")
        rows = range(len(ids)) if every else [len(ids) - 1]
        out = np.empty((len(rows), self.vocab_size), np.float32)
        for row, i in zip(out, rows):
            pointer = self.api.llama_get_logits_ith(self.context, i)
            row[:] = np.ctypeslib.as_array(pointer, (self.vocab_size,))
        self.api.llama_batch_free(batch)
        return out

    def greedy(self, ids, count):
        """(chosen ids, logits f32 [count, vocabulary] they were chosen from): the lowest id wins a tie; nothing ends it."""
        self.reset()
        row, position = self.step(ids, 0)[0], len(ids)
        chosen, rows = [], []
        for _ in range(count):
            rows.append(row)
            chosen.append(int(row.argmax()))
            row = self.step([chosen[-1]], position)[0]
            position += 1
        return chosen, np.stack(rows)

    def prompt_logits(self, ids, chunk=None):
        """Logits f32 [tokens, vocabulary] at every position of `ids`, fed `chunk` tokens a step (None: all at once)."""
        self.reset()
        chunk = chunk or len(ids)
        parts = [self.step(ids[i : i + chunk], i, every=True) for i in range(0, len(ids), chunk)]
        return np.concatenate(parts)


def add_arguments(parser):
    """The options that say where llama.cpp is."""
    parser.add_argument("--build", required=True, help="llama.cpp's build folder, made with shared libraries")
    parser.add_argument("--package", required=True, help="unpacked source package of llama-cpp-python (for its bindings)")
    parser.add_argument("--threads", type=int, default=2)
