"""Replies by llama.cpp, for ``casspec bench decode``; run by a Python that has llama-cpp-python.

A program of its own, without imports of the project: ``llama_serve.py quantize IN OUT TYPE`` writes
a GGUF file in another type, ``llama_serve.py serve MODEL CONTEXT THREADS FLASH`` answers requests,
a JSON object in a line each, on standard input (docs of
:mod:`cassandra_spec.bench.decode.workers`); FLASH is 1 for flash attention, or 0.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Iterable
from typing import Any

import llama_cpp
import numpy as np

_TYPES = {"Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0, "Q4_1": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_1}
_WARNING = 3  # of llama.cpp's log levels; below is talk


@llama_cpp.llama_log_callback
def _log(level: int, text: bytes, _: Any) -> None:
    if level >= _WARNING:
        sys.stderr.write(text.decode(errors="replace"))


def quantize(source: str, destination: str, kind: str) -> None:
    """Write a model in another type, as ``llama-quantize`` does."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = _TYPES[kind]
    code = llama_cpp.llama_model_quantize(
        source.encode(), destination.encode(), ctypes.byref(params)
    )
    if code:
        raise SystemExit(f"llama.cpp cannot quantise {source} to {kind}: code {code}")


class Decoder:
    """Greedy decoding with one context."""

    def __init__(self, path: str, context: int, threads: int, flash: int) -> None:
        options = llama_cpp.llama_model_default_params()
        # Its AMX kernels of quantised types crash on SmolLM2 in this version; BF16 has none
        options.use_extra_bufts = False
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), options)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = context
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = flash
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit(f"llama.cpp cannot load {path}")
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(vocabulary)

    @property
    def bytes(self) -> int:
        """Weights, and keys and values (F16) of the whole context."""
        heads = llama_cpp.llama_model_n_head(self.model)
        size = llama_cpp.llama_model_n_embd(self.model) // heads
        rows = 2 * llama_cpp.llama_model_n_layer(self.model)
        position = 2 * rows * llama_cpp.llama_model_n_head_kv(self.model) * size
        positions = llama_cpp.llama_n_ctx(self.context)
        return int(llama_cpp.llama_model_size(self.model) + position * positions)

    def step(self, tokens: list[int]) -> int:
        """Take tokens; the next one."""
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(array, len(tokens))):
            raise SystemExit("llama.cpp cannot decode")
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, (self.vocabulary,)).argmax())

    def reply(self, prompt: list[int], most: int, stops: Iterable[int]) -> dict[str, Any]:
        """Return the tokens of a reply and the seconds after the first of them."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        begin = time.perf_counter()
        tokens, times = [self.step(prompt)], list[float]()
        first = time.perf_counter()
        while len(tokens) < most and tokens[-1] not in stops:
            tokens.append(self.step(tokens[-1:]))
            times.append(time.perf_counter() - first)
        seconds = times[-1] if times else 0.0
        return {"tokens": tokens, "first": first - begin, "seconds": seconds, "times": times}


def main() -> None:
    """Quantise, or answer until the input ends."""
    llama_cpp.llama_log_set(_log, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    if sys.argv[1] == "quantize":
        quantize(*sys.argv[2:])
        return
    decoder = Decoder(sys.argv[2], *map(int, sys.argv[3:6]))
    print(json.dumps({"ready": True, "bytes": decoder.bytes}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        found = decoder.reply(request["prompt"], request["max_tokens"], set(request["stops"]))
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
