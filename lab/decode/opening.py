"""Measure how long a fresh process takes to open a packed model, and the memory it takes.

The process imports what ``casspec generate`` does, opens the native engine and runs the target on a
token. Its weights are encoded from the packed file; or encoded and kept; or read as kept.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cassandra_spec.golden import CassandraError
from cassandra_spec.lab import rounds as in_rounds
from cassandra_spec.toolkit.tables import text_table

WAYS = {"encoded": "encoded", "kept": "encoded, then kept", "read": "read as kept"}
"""Sources of the weights, with their names in a table."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opening:
    """Seconds from start to the first token in each round, and bytes of the last one."""

    way: str
    seconds: Sequence[float]
    peak: int  # of the whole process
    held: int  # weights


def measure(source: Path, *, target: str, threads: int, rounds: int) -> list[Opening]:
    """Open a model ``rounds`` times in each way, in turn, after a round that is not counted."""
    found: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        kept = Path(folder)

        def run(way: str) -> None:
            for file in kept.glob("*") if way == "kept" else ():
                file.unlink()
            cache = "" if way == "encoded" else str(kept)
            command = [sys.executable, "-m", __name__, str(source), target, str(threads), cache]
            process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found[way] = json.loads(process.stdout)
            if way == "kept" and not list(kept.glob("*")):
                raise CassandraError(f"{kept.parent} must have room to keep the weights in a file")

        tasks = {way: partial(run, way) for way in WAYS}
        seconds = in_rounds.measure(tasks, rounds, warm_up=True)
    return [Opening(way=way, seconds=seconds[way], **found[way]) for way in WAYS]


def lines(found: Sequence[Opening]) -> str:
    """Return a table of the ways: medians of seconds with their spread, ratios and memory."""
    first = found[0]
    rows = []
    for one in found:
        rows.append(
            [
                WAYS[one.way],
                in_rounds.middle(one.seconds, 1),
                in_rounds.ratio(first.seconds, one.seconds),
                f"{one.peak / 1e6:,.0f}",
                f"{one.held / 1e6:,.0f}",
            ]
        )
    head = ["weights", "seconds to a token", "of encoded", "MB at the peak", "MB of weights"]
    return text_table(head, rows)


def _peak() -> int:
    """Return the peak memory of this process in bytes (VmHWM)."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in text.splitlines() if "VmHWM" in line) * 1024


def _open(source: str, target: str, threads: str, cache: str) -> None:
    """Open a model in this process, and print what it took."""
    import cassandra_spec.model.backends  # noqa: F401  # what a user's command imports
    from cassandra_spec.native.engine import Engine
    from cassandra_spec.native.models import kept

    kept.LEAST = 0  # small models, too
    with Engine.from_packed(
        source, target=target, threads=int(threads), cache=Path(cache) if cache else None
    ) as engine:
        engine.forward([0], last=1)
        memory = engine.memory()
        held = sum(memory[part] for part in ("target", "draft", "embedding"))
        print(json.dumps({"peak": _peak(), "held": held}))


if __name__ == "__main__":
    _open(*sys.argv[1:])
