"""A worker of :mod:`cassandra_spec.bench.decode.workers` that decodes by this project or by
transformers.

``python -m cassandra_spec.bench.decode.serve PACKED SETTINGS THREADS CONTEXT``, SETTINGS being a
JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

Answer = dict[str, Any]
Request = dict[str, Any]


def main(argv: list[str]) -> None:
    """Load a model, then answer until the input ends."""
    settings: dict[str, Any] = json.loads(argv[1])
    loaders = {"native": _native, "torch": _torch, "transformers": _transformers}
    reply, size = loaders[settings["kind"]](Path(argv[0]), settings, int(argv[2]), int(argv[3]))
    print(json.dumps({"ready": True, "bytes": size}), flush=True)
    for line in sys.stdin:
        print(json.dumps(reply(json.loads(line))), flush=True)


Loaded = tuple[Callable[[Request], Answer], int | None]


def timed(rounds: Iterable[list[int]]) -> Answer:
    """Collect and time the tokens of a reply that arrives in rounds, the first of one token."""
    begin = time.perf_counter()
    found: Iterator[list[int]] = iter(rounds)
    tokens = list(next(found))
    first = end = time.perf_counter()
    times: list[float] = []  # of all tokens but the first
    for emitted in found:
        end = time.perf_counter()
        tokens += emitted
        times += [end - first] * len(emitted)
    return {"tokens": tokens, "first": first - begin, "seconds": end - first, "times": times}


def _native(packed: Path, options: dict[str, Any], threads: int, context: int) -> Loaded:
    from cassandra_spec.native.engine import Engine

    draft = options["draft"] in ("model", "hybrid")
    engine = Engine.from_packed(
        packed, target=options["target"], draft=draft, threads=threads, context=context
    )
    if table := options.get("table"):
        from cassandra_spec.model.baking import open_table

        engine.use_table(open_table(Path(table), packed))
    held = engine.memory()
    positions = held.pop("position") * context
    return _replier(engine, options), sum(held.values()) + positions


def _torch(packed: Path, options: dict[str, Any], threads: int, context: int) -> Loaded:
    import torch

    from cassandra_spec.model.speculative import CassandraForCausalLM

    torch.set_num_threads(threads)
    return _replier(CassandraForCausalLM.from_pretrained(packed), options), None


def _replier(model: Any, options: dict[str, Any]) -> Callable[[Request], Answer]:
    """Return a function that replies with one of the two runtimes."""
    from cassandra_spec.drafting import Counters, Settings

    def reply(request: Request) -> Answer:
        counters = Counters()
        settings = Settings(
            gamma=options["gamma"],
            draft=options["draft"],
            min_margin=options["min_margin"],
            max_tokens=request["max_tokens"],
            stop_tokens=frozenset(request["stops"]),
        )
        found = timed(model.rounds(request["prompt"], settings, counters))
        native = model.make_report(counters, settings).native
        return {
            **found,
            "drafted": counters.drafted,
            "accepted": counters.accepted,
            "plans": dict(native.plans) if native else {},  # of all replies so far
        }

    return reply


def _transformers(packed: Path, options: dict[str, Any], threads: int, context: int) -> Loaded:
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
    main(sys.argv[1:])
