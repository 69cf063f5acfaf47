"""GB/s of the native codec beside memcpy, ZipNN and golden."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cassandra_spec import native
from cassandra_spec.golden import CassandraError, GoldenCodec, Packer
from cassandra_spec.lab.codecs.tasks import CONFIGURATIONS, codec_tasks
from cassandra_spec.lab.rounds import Seconds, Task, measure, ratio, spread
from cassandra_spec.native.codec import NativeCodec
from cassandra_spec.native.library import available_isas
from cassandra_spec.toolkit.tables import text_table


def dithered(values: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Add uniform noise to quantised weights, which fills their low mantissa bits."""
    rng = np.random.default_rng(0)
    numbers = (values.astype(np.uint32) << 16).view(np.float32)
    noise = rng.uniform(-1 / 64, 1 / 64, values.size).astype(np.float32)
    spread = (numbers * (1 + noise)).view(np.uint32)
    return ((spread + 0x8000) >> 16).astype(np.uint16)


def _zipnn_tasks(values: NDArray[np.uint16]) -> tuple[float, dict[str, Task]]:
    """Return ZipNN's bits per value and tasks on one thread; empty if it is not installed."""
    if importlib.util.find_spec("zipnn") is None:
        return 0.0, {}
    import zipnn

    coder = zipnn.ZipNN(bytearray_dtype="bfloat16", input_format="byte", threads=1)
    raw = values.tobytes()
    packed = bytes(coder.compress(bytearray(raw)))
    if bytes(coder.decompress(packed)) != raw:
        raise AssertionError("ZipNN must return the original")
    return 8 * len(packed) / values.size, {
        # it splits bytes in place: each run has its own
        "ZipNN: encode": lambda: coder.compress(bytearray(raw)),
        "ZipNN: target": lambda: coder.decompress(packed),
    }


def measure_codec(
    values: NDArray[np.uint16],
    isas: Sequence[str] = (),
    *,
    rounds: int,
    golden: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[dict[str, float], Seconds]:
    """Measure bits per value by row, and seconds of each round by task.

    Args:
        values: BF16 patterns [count].
        isas: instruction sets of :data:`native.ISAS`; none: the best.
        rounds: at least 1.
        golden: measure golden's codec, too.
        clock: of wall time or of processor time.

    Raises:
        CassandraError: an instruction set is not available.
        NativeError: there is no native library.
    """
    for isa in isas:
        if isa not in available_isas():
            raise CassandraError(f"isa must be {' or '.join(available_isas())}, not {isa!r}")
    target = np.empty_like(values)
    size, tasks = _zipnn_tasks(values)
    bits: dict[str, float] = {"ZipNN": size} if tasks else {}
    tasks["memcpy: target"] = lambda: np.copyto(target, values)
    for isa in isas or [native.isa()]:
        for row, packed, own in _rows(values, NativeCodec(), isa):
            bits[row] = packed
            tasks |= {task: _with_isa(isa, run) for task, run in own.items()}
    for row, packed, own in _rows(values, GoldenCodec(), "golden") if golden else ():
        bits[row] = packed
        tasks |= own
    try:
        return bits, measure(tasks, rounds, clock, warm_up=True)
    finally:
        native.set_isa(None)


def _rows(
    values: NDArray[np.uint16], codec: Packer, label: str
) -> Iterator[tuple[str, float, dict[str, Task]]]:
    """Name, bits per value and tasks of each configuration."""
    for name, (format, pruned) in CONFIGURATIONS.items():
        row = f"{name} [{label}]"
        kept = np.random.default_rng(1).random(values.size) >= pruned if pruned else None
        packed, tasks = codec_tasks(values, codec, row, format, kept)
        yield row, packed.bits()["total"], tasks


def _with_isa(isa: str, run: Task) -> Task:
    def task() -> object:
        native.set_isa(isa)
        return run()

    return task


def codec_table(bits: Mapping[str, float], seconds: Seconds, values: int) -> str:
    """Format the result of :func:`measure_codec`."""
    amount = 2 * values / 1e9
    memcpy, other = seconds["memcpy: target"], seconds.get("ZipNN: target")
    header = ["codec", "bits/value", "encode GB/s", "draft GB/s", "x memcpy", "target GB/s"]
    lines = [["memcpy", "16.00", "", "", "", spread(amount, memcpy, 2), "", ""]]
    for name, size in bits.items():
        line = [name, f"{size:.2f}", spread(amount, seconds[f"{name}: encode"], 2)]
        for column in ("draft", "target"):
            found = seconds.get(f"{name}: {column}")
            line += [spread(amount, found, 2), ratio(found, memcpy)] if found else ["", ""]
        line.append(ratio(seconds[f"{name}: target"], other) if other else "")
        lines.append(line)
    return text_table([*header, "x memcpy", "x ZipNN"], lines)
