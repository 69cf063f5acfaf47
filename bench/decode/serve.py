"""A worker of :mod:`cassandra_spec.bench.decode.workers` that decodes by this project.

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
Loaded = tuple[Callable[[Request], Answer], int | None]
"""A function that answers requests, and the bytes that the model holds, if known."""
Load = Callable[[Path, dict[str, Any], int, int], Loaded]
"""A loader of a packed model, with settings, threads and context."""


def main(argv: list[str], load: Load | None = None) -> None:
    """Load a model, then answer until the input ends."""
    settings: dict[str, Any] = json.loads(argv[1])
    load = load or {"native": _native, "torch": _torch}[settings["kind"]]
    reply, size = load(Path(argv[0]), settings, int(argv[2]), int(argv[3]))
    print(json.dumps({"ready": True, "bytes": size}), flush=True)
    for line in sys.stdin:
        print(json.dumps(reply(json.loads(line))), flush=True)


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


if __name__ == "__main__":
    main(sys.argv[1:])
