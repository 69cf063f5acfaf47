"""Logits and tokens of GGUF files by llama.cpp; run by a Python that has llama-cpp-python.

A program of its own, without imports of the project. It answers requests, a JSON object in a line
each, on standard input: ``model``, a path; ``tokens``, whose logits it returns;
``texts``, whose tokens it returns. ``ends`` are the tokens that end a reply. With ``copy`` it
writes the model there in another ``file_type``, a name of llama.cpp, instead. What llama.cpp
refuses is ``{"error": true}``.
"""

from __future__ import annotations

import base64
import ctypes
import json
import sys
from typing import Any

import llama_cpp
import numpy as np

_F32 = 0  # a type of ggml: keys and values as they are computed
_ERROR = 4  # of llama.cpp's log levels


@llama_cpp.llama_log_callback
def _log(level: int, text: bytes, _: Any) -> None:
    if level == _ERROR:
        sys.stderr.write(text.decode(errors="replace"))


def _context(model: Any, size: int) -> Any:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = size
    params.n_threads = params.n_threads_batch = 1
    params.type_k = params.type_v = _F32
    params.flash_attn_type = 0
    return llama_cpp.llama_init_from_model(model, params)


def _logits(model: Any, tokens: list[int], size: int) -> str:
    """Return the logits of each token in float32, [tokens, vocabulary], in base64."""
    context = _context(model, size)
    count = len(tokens)
    batch = llama_cpp.llama_batch_init(count, 0, 1)
    batch.n_tokens = count
    for at, token in enumerate(tokens):
        batch.token[at], batch.pos[at], batch.logits[at] = token, at, 1
        batch.n_seq_id[at], batch.seq_id[at][0] = 1, 0
    if llama_cpp.llama_decode(context, batch):
        raise SystemExit("llama.cpp cannot decode")
    words = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    rows = [
        np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, at), (words,)).copy()
        for at in range(count)
    ]
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    return base64.b64encode(np.stack(rows).astype("<f4").tobytes()).decode()


def _encode(vocabulary: Any, text: str) -> list[int]:
    """Return the tokens of a text with those that the model wants around it."""
    data = text.encode()
    room = (llama_cpp.llama_token * (len(data) + 8))()
    count = llama_cpp.llama_tokenize(vocabulary, data, len(data), room, len(room), True, True)
    return list(room[:count])


def _copy(request: dict[str, Any]) -> dict[str, Any]:
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_{request['file_type']}")
    params.allow_requantize = True
    paths = (request[name].encode() for name in ("model", "copy"))
    return {"error": bool(llama_cpp.llama_model_quantize(*paths, params))}


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    if "copy" in request:
        return _copy(request)
    options = llama_cpp.llama_model_default_params()
    options.use_extra_bufts = False
    model = llama_cpp.llama_model_load_from_file(request["model"].encode(), options)
    if not model:
        return {"error": True}
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    words = range(llama_cpp.llama_vocab_n_tokens(vocabulary))
    found = {
        "ends": [token for token in words if llama_cpp.llama_vocab_is_eog(vocabulary, token)],
        "texts": [_encode(vocabulary, text) for text in request.get("texts", ())],
    }
    if request.get("tokens"):
        found["logits"] = _logits(model, request["tokens"], request["context"])
    llama_cpp.llama_model_free(model)
    return found


def main() -> None:
    """Answer until the input ends."""
    llama_cpp.llama_log_set(_log, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
