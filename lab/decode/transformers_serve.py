"""A worker that decodes by transformers (:mod:`cassandra_spec.bench.decode.serve`)."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from cassandra_spec.bench.decode.serve import Answer, Loaded, Request, main


def load(packed: Path, options: dict[str, Any], threads: int, context: int) -> Loaded:
    """Load a packed model's target into transformers."""
    import torch
    from transformers import GenerationConfig

    from cassandra_spec.golden import GoldenCodec
    from cassandra_spec.model.packing.packer import open_packed
    from cassandra_spec.model.reply import build_model, packed_reader

    torch.set_num_threads(threads)
    network = build_model(packed, packed_reader(open_packed(packed), GoldenCodec().decode_target))

    def reply(request: Request) -> Answer:
        clock = _Clock(len(request["prompt"]))
        config = GenerationConfig(
            max_new_tokens=request["max_tokens"],
            do_sample=False,
            eos_token_id=request["stops"],
            pad_token_id=request["stops"][0],
        )
        inputs = torch.tensor([request["prompt"]])
        with torch.inference_mode():
            network.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                generation_config=config,
                streamer=clock,
            )
        return clock.answer()

    return reply, None


class _Clock:
    """A streamer that keeps tokens with the time at which they came."""

    def __init__(self, prompt: int) -> None:
        self._skip = prompt
        self._begin = self._first = self._end = time.perf_counter()
        self._tokens: list[int] = []

    def put(self, values: Any) -> None:
        """Take tokens; the prompt comes first."""
        if self._skip:
            self._skip = 0
            return
        self._end = time.perf_counter()
        if not self._tokens:
            self._first = self._end
        self._tokens += values.reshape(-1).tolist()

    def end(self) -> None:
        """Do nothing at the end."""

    def answer(self) -> Answer:
        """Return the collected answer."""
        return {
            "tokens": self._tokens,
            "first": self._first - self._begin,
            "seconds": self._end - self._first,
        }


if __name__ == "__main__":
    main(sys.argv[1:], load)
