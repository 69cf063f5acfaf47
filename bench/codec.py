"""``casspec bench codec``: GB/s of the native codec beside memcpy, ZipNN and golden."""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.report.tables import text_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cassandra_spec.golden import Format
    from cassandra_spec.golden.packed import Packed

__all__ = ["EPILOG", "bench_codec", "register"]

EPILOG = """\
examples:
  casspec bench codec
  casspec bench codec ~/models/llama --no-dither
  casspec bench codec --isa portable avx512 --json codec.json

GB/s are 10^9 bytes of BF16 values per second of wall time, on one thread: median of the rounds and
the least and the most. Everything is measured once in each round, memcpy too; `x memcpy` and
`x ZipNN` are medians of the ratios within a round. ZipNN is measured where `pip install zipnn` has
been run. Weights of the demonstration model were quantised once and are compressed too well by
anything that counts values: dithering gives them the low mantissa bits of trained weights.
"""

Task = Callable[[], object]
Seconds = dict[str, list[float]]

_PRUNED = 0.4  # of the weights, as in the paper


def register(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``bench codec``."""
    parser.set_defaults(run=run)
    parser.add_argument("source", nargs="?", default="smollm2", help="model (default smollm2)")
    parser.add_argument("--values", type=int, default=1 << 22, metavar="N", help="(default 4 Mi)")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="(default 9)")
    parser.add_argument("--isa", nargs="+", metavar="NAME", help="(default: the best)")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="instead of wall time, of all threads: for a machine that does other things, too",
    )
    parser.add_argument("--no-dither", action="store_true", help="the weights as they are")
    parser.add_argument("--golden", action="store_true", help="measure golden's codec, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all seconds")


def configurations() -> dict[str, tuple[Format, float]]:
    """Format and share of pruned weights of each row."""
    from cassandra_spec.golden import Format

    return {
        "unary": (Format(scheme="unary"), 0.0),
        "unary, pruned": (Format(scheme="unary"), _PRUNED),
        "unary, pruned, coded": (Format(scheme="unary", pruned_exponent="coded"), _PRUNED),
        "mx": (Format(scheme="mx"), 0.0),
        "mx, pruned": (Format(scheme="mx"), _PRUNED),
        "exact": (Format(scheme="exact"), 0.0),
        "exact, pruned": (Format(scheme="exact"), _PRUNED),
    }


def take_weights(location: str, count: int, *, dither: bool) -> NDArray[np.uint16]:
    """``count`` weights of linear layers (or all there are), BF16 patterns [count]."""
    import numpy as np

    from cassandra_spec.model.weights.sources import open_source, packed_tensors

    source, parts, left = open_source(location), [], count
    for tensor in packed_tensors(source):
        if tensor.kind == "linear" and left:
            parts.append(source.read(tensor.name, 0, min(tensor.count, left)))
            left -= parts[-1].size
    values = np.concatenate(parts)
    if not dither:
        return values
    rng = np.random.default_rng(0)
    numbers = (values.astype(np.uint32) << 16).view(np.float32)
    noise = rng.uniform(-1 / 64, 1 / 64, values.size).astype(np.float32)
    spread = (numbers * (1 + noise)).view(np.uint32)
    return ((spread + 0x8000) >> 16).astype(np.uint16)


def _codec_tasks(
    values: NDArray[np.uint16], codec: Any, name: str, choice: tuple[Format, float]
) -> tuple[Packed, dict[str, Task]]:
    import numpy as np

    format, pruned = choice
    kept = None
    if pruned:
        kept = np.random.default_rng(1).random(values.size) >= pruned
    packed = codec.encode(values, format, kept=kept)
    if format.scheme != "mx" and not np.array_equal(codec.decode_target(packed), values):
        raise AssertionError(f"{name}: the target must be the original")
    return packed, {
        f"{name}: encode": lambda: codec.encode(values, format, kept=kept),
        f"{name}: draft": lambda: codec.decode_draft(packed),
        f"{name}: target": lambda: codec.decode_target(packed),
    }


def _zipnn_tasks(values: NDArray[np.uint16]) -> tuple[float, dict[str, Task]]:
    """Bits per value and tasks of ZipNN on one thread; nothing where it is not installed."""
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


def measure(tasks: Mapping[str, Task], rounds: int, clock: Callable[[], float]) -> Seconds:
    """Every task once in each round, after one that is not counted."""
    seconds: Seconds = {name: [] for name in tasks}
    for task in tasks.values():
        task()
    for _ in range(rounds):
        for name, task in tasks.items():
            start = clock()
            task()
            seconds[name].append(clock() - start)
    return seconds


def _rate(amount: float, seconds: list[float]) -> str:
    rates = sorted(amount / second for second in seconds)
    return f"{statistics.median(rates):.2f} ({rates[0]:.2f}-{rates[-1]:.2f})"


def _ratio(seconds: list[float], yardstick: list[float] | None) -> str:
    if yardstick is None:
        return ""
    pairs = zip(seconds, yardstick, strict=True)
    return f"{statistics.median(other / own for own, other in pairs):.2f}"


def bench_codec(
    values: NDArray[np.uint16],
    isas: list[str],
    *,
    rounds: int,
    golden: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[dict[str, float], Seconds]:
    """Bits per value by row, and seconds of each round by task.

    ``isas`` are instruction sets of :data:`native.ISAS`; the rows of golden's codec are added on
    request. Raises :class:`native.NativeError` where native code cannot be had.
    """
    import numpy as np

    from cassandra_spec import native
    from cassandra_spec.golden import GoldenCodec
    from cassandra_spec.native.codec import NativeCodec

    target = np.empty_like(values)
    size, tasks = _zipnn_tasks(values)
    bits: dict[str, float] = {"ZipNN": size} if tasks else {}
    tasks["memcpy: target"] = lambda: np.copyto(target, values)
    for isa in isas:
        for name, choice in configurations().items():
            row = f"{name} [{isa}]"
            packed, own = _codec_tasks(values, NativeCodec(), row, choice)
            bits[row] = packed.bits()["total"]
            tasks |= {task: _with_isa(native.set_isa, isa, run) for task, run in own.items()}
    for name, choice in configurations().items() if golden else ():
        packed, own = _codec_tasks(values, GoldenCodec(), f"{name} [golden]", choice)
        bits[f"{name} [golden]"] = packed.bits()["total"]
        tasks |= own
    try:
        return bits, measure(tasks, rounds, clock)
    finally:
        native.set_isa(None)


def _with_isa(set_isa: Callable[[str], None], isa: str, run: Task) -> Task:
    def task() -> object:
        set_isa(isa)
        return run()

    return task


def _table(bits: Mapping[str, float], seconds: Seconds, amount: float) -> str:
    memcpy, other = seconds["memcpy: target"], seconds.get("ZipNN: target")
    header = ["codec", "bits/value", "encode GB/s"]
    lines = [["memcpy", "16.00", "", "", "", _rate(amount, memcpy), "", ""]]
    for column in ("draft", "target"):
        header += [f"{column} GB/s", "x memcpy"]
    header.append("x ZipNN")
    for name, size in bits.items():
        line = [name, f"{size:.2f}", _rate(amount, seconds[f"{name}: encode"])]
        for column in ("draft", "target"):
            found = seconds.get(f"{name}: {column}")
            line += [_rate(amount, found), _ratio(found, memcpy)] if found else ["", ""]
        line.append(_ratio(seconds[f"{name}: target"], other))
        lines.append(line)
    return text_table(header, lines)


def run(args: argparse.Namespace) -> int:
    """``casspec bench codec``."""
    from cassandra_spec import native
    from cassandra_spec.native.library import available_isas

    if args.values < 1 or args.rounds < 1:
        raise CassandraError("values and rounds must be at least 1")
    isas = args.isa or [native.isa()]
    for isa in isas:
        if isa not in available_isas():
            raise CassandraError(f"isa must be {' or '.join(available_isas())}, not {isa!r}")
    values = take_weights(args.source, args.values, dither=not args.no_dither)
    clock = time.process_time if args.cpu_time else time.perf_counter
    bits, seconds = bench_codec(values, isas, rounds=args.rounds, golden=args.golden, clock=clock)
    time_of = "CPU time" if args.cpu_time else "one thread"
    weights = "as they are" if args.no_dither else "dithered"
    print(f"{values.size:,} weights of {args.source}, {weights}; {args.rounds} rounds, {time_of}\n")
    print(_table(bits, seconds, 2 * values.size / 1e9))
    if args.json:
        args.json.write_text(json.dumps({"bits": bits, "seconds": seconds}, indent=1) + "\n")
    return 0
