"""Values per cycle of decoders behind their DMA, measured on packed tensors.

:func:`measure` runs the simulation; the test in this module runs inside it.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import cocotb
import numpy as np

from cassandra_spec.golden.format import Format
from cassandra_spec.golden.packed import Packed
from cassandra_spec.rtl.dma.config import DmaConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.verif.decoder.jobs import Job
from cassandra_spec.verif.dma.decoding import start
from cassandra_spec.verif.dma.memory import Order, Timing
from cassandra_spec.verif.library.axi import Ruled
from cassandra_spec.verif.library.payloads import Payload
from cassandra_spec.verif.tools.runner import run_suite

_FOLDER = "CASSANDRA_RATE"  # names the folder with the tensors and the result
LATENCY = (40, 60)
"""Default latency of the memory in cycles, shortest and longest."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rate:
    """Values and cycles of a run, from the first descriptor to the last value."""

    values: int
    cycles: int  # from START of the first segment
    steady_values: int  # values after the first segment of each decoder
    steady_cycles: int
    words: int  # bus words read

    @property
    def whole(self) -> float:
        """Values per cycle, including the start."""
        return self.values / self.cycles

    @property
    def steady(self) -> float:
        """Values per cycle once every decoder is at work."""
        return self.steady_values / self.steady_cycles


def measure(
    config: DmaConfig,
    payload: Payload,
    *,
    target: bool,
    build: Path,
    latency: tuple[int, int] = LATENCY,
) -> Rate:
    """Decode every segment of a payload, compare it with golden, and count cycles.

    The memory answers after ``latency`` cycles, bursts of different IDs in any order. Values are
    always taken.
    """
    folder = build / "rate"
    folder.mkdir(parents=True, exist_ok=True)
    kept = np.ones(len(payload.values), bool) if payload.kept is None else payload.kept
    np.savez(folder / "payload.npz", values=payload.values, kept=kept)
    form = {
        "format": payload.format.to_dict(),
        "target": target,
        "name": payload.name,
        "latency": latency,
    }
    (folder / "payload.json").write_text(json.dumps(form))
    top = CassandraDma(config)
    (folder / "rate.json").unlink(missing_ok=True)
    environment = {_FOLDER: str(folder.resolve())}
    run_suite(Ruled(top), __name__, top.module_name, build_dir=build, extra_env=environment)
    return Rate(**json.loads((folder / "rate.json").read_text()))


def _load(folder: Path) -> tuple[Payload, bool, Timing]:
    form = json.loads((folder / "payload.json").read_text())
    arrays = np.load(folder / "payload.npz")
    fmt = Format.from_dict(form["format"])
    payload = Payload(name=form["name"], format=fmt, values=arrays["values"], kept=arrays["kept"])
    shortest, longest = form["latency"]
    return payload, form["target"], Timing(shortest=shortest, longest=longest, order=Order.BURSTS)


@cocotb.test()
async def rate(dut: Any) -> None:
    """Decode all segments, with descriptors written at full speed."""
    folder = Path(os.environ[_FOLDER])
    payload, target, timing = _load(folder)
    packed: Packed = payload.packed
    bench = await start(dut)
    bench.memory.use(timing)
    jobs = [Job(payload=payload, index=i, target=target) for i in range(len(packed.directory))]
    ends: list[tuple[int, int]] = []  # cycle and number of values at the end of each segment

    placed = [bench.place(job) for job in jobs]
    await bench.enable()
    begin = bench.cycle
    work = cocotb.start_soon(bench.queue(placed))

    def done() -> bool:
        if len(bench.scoreboard.ended) > len(ends):
            ends.append((bench.cycle, bench.scoreboard.values))
        return len(ends) == len(jobs)

    await bench.until(done, 1_000_000, "the last segment")
    await bench.until(work.done, 100, "the end of the host's work")
    first, last = ends[bench.decoders - 1], ends[-1]
    result = Rate(
        values=last[1],
        cycles=last[0] - begin,
        steady_values=last[1] - first[1],
        steady_cycles=last[0] - first[0],
        words=bench.memory.beats,
    )
    (folder / "rate.json").write_text(json.dumps(dataclasses.asdict(result)))
