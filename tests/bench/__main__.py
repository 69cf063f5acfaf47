"""``make bench``: encode and decode MB/s on real weights, beside zstd -3 on the same bytes.

MB/s are 10^6 bytes of BF16 values per second of wall time, on one thread. Everything is measured
once in each of several rounds, so that what disturbs the machine disturbs all alike: a figure is
the median of the rounds with the least and the most in brackets, and a ratio is the median of the
ratios within a round. The gateware's rate is clock cycles simulated per second.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import zstandard
from numpy.typing import NDArray

from cassandra_spec.golden.codec import decode_draft, decode_target, encode
from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import SCHEMES, Format
from cassandra_spec.golden.packed import Packed
from cassandra_spec.model.packing.masks import kept_by_magnitude
from cassandra_spec.model.weights.sources import BUNDLED, open_source, packed_tensors
from cassandra_spec.report.tables import text_table
from cassandra_spec.verif.decoder.bulk import RtlCodec

Rows = NDArray[np.uint16]

PRUNED_SHARE = 0.4  # of the weights, as in the paper
CONFIGURATIONS: tuple[tuple[str, Format, float], ...] = (
    ("unary", Format(scheme="unary"), 0.0),
    ("unary, pruned", Format(scheme="unary"), PRUNED_SHARE),
    ("unary, pruned, coded", Format(scheme="unary", pruned_exponent="coded"), PRUNED_SHARE),
    ("mx", Format(scheme="mx"), 0.0),
    ("exact", Format(scheme="exact"), 0.0),
)
"""Name, format and share of pruned weights of each row."""

ZSTD_LEVEL = 3
ZSTD = f"zstd -{ZSTD_LEVEL}"


Task = Callable[[], object]
Tasks = dict[tuple[str, str], Task]
Seconds = dict[tuple[str, str], list[float]]
"""Seconds of each round, by row and column."""


def measure(tasks: Mapping[tuple[str, str], Task], rounds: int) -> Seconds:
    """Every task once in each round."""
    seconds: Seconds = {key: [] for key in tasks}
    for _ in range(rounds):
        for key, task in tasks.items():
            start = time.perf_counter()
            task()
            seconds[key].append(time.perf_counter() - start)
    return seconds


def spread(amount: float, seconds: Sequence[float], digits: int = 0) -> str:
    """Median, least and most of ``amount`` per second."""
    rates = sorted(amount / second for second in seconds)
    median = statistics.median(rates)
    return f"{median:.{digits}f} ({rates[0]:.{digits}f}-{rates[-1]:.{digits}f})"


def ratio(seconds: Sequence[float], yardstick: Sequence[float]) -> str:
    """How much faster than the yardstick, paired by rounds."""
    return f"{statistics.median(y / s for s, y in zip(seconds, yardstick, strict=True)):.2f}"


def take_weights(location: str, count: int) -> Rows:
    """Rows of the linear weights of a model, uint16 [rows, columns], ``count`` values or fewer."""
    source = open_source(location)
    linear = [tensor for tensor in packed_tensors(source) if tensor.kind == "linear"]
    columns = linear[0].shape[1]
    parts, left = [], count // columns * columns
    for tensor in linear:
        if tensor.shape[1] == columns and left:
            parts.append(source.read(tensor.name, 0, min(tensor.count, left)))
            left -= parts[-1].size
    return np.concatenate(parts).reshape(-1, columns)


def codec_tasks(rows: Rows, name: str, format: Format, pruned: float) -> tuple[Packed, Tasks]:
    """Golden's codec in one configuration; its target is checked."""
    values = rows.reshape(-1)
    kept = kept_by_magnitude(rows, pruned).reshape(-1) if pruned else None
    packed = encode(values, format, kept=kept)
    if format.scheme != "mx" and not np.array_equal(decode_target(packed), values):
        raise AssertionError(f"{name}: the target must be the original")
    return packed, {
        (name, "encode"): lambda: encode(values, format, kept=kept),
        (name, "draft"): lambda: decode_draft(packed),
        (name, "target"): lambda: decode_target(packed),
    }


def zstd_tasks(rows: Rows) -> tuple[bytes, Tasks]:
    """The same bytes through zstd; what it decodes is checked."""
    raw = rows.tobytes()
    packed = zstandard.compress(raw, ZSTD_LEVEL)
    if zstandard.decompress(packed) != raw:
        raise AssertionError("zstd must return the original")
    return packed, {
        (ZSTD, "encode"): lambda: zstandard.compress(raw, ZSTD_LEVEL),
        (ZSTD, "target"): lambda: zstandard.decompress(packed),
    }


def codec_table(rows: Rows, rounds: int) -> str:
    """Every configuration of golden's codec, and zstd."""
    compressed, tasks = zstd_tasks(rows)
    bits = {ZSTD: 16 * len(compressed) / rows.nbytes}
    for name, format, pruned in CONFIGURATIONS:
        packed, own = codec_tasks(rows, name, format, pruned)
        bits[name] = packed.bits()["total"]
        tasks |= own
    seconds = measure(tasks, rounds)
    lines = []
    for name, size in bits.items():
        line = [name, f"{size:.2f}"]
        for column, yardstick in (("encode", "encode"), ("draft", "target"), ("target", "target")):
            own_seconds = seconds.get((name, column))
            line += (
                ["", ""]
                if own_seconds is None
                else [
                    spread(rows.nbytes / 1e6, own_seconds),
                    ratio(own_seconds, seconds[ZSTD, yardstick]),
                ]
            )
        lines.append(line)
    header = ["codec", "bits/value"]
    for column in ("encode", "draft", "target"):
        header += [f"{column} MB/s", "x zstd"]
    return text_table(header, lines)


def gateware_table(rows: Rows, rounds: int) -> str:
    """Every scheme and mode of the Verilated decoder."""
    codec = RtlCodec()
    lines = []
    for scheme in SCHEMES:
        packed = encode(rows.reshape(-1), Format(scheme=scheme))
        for mode, decode in (("draft", codec.decode_draft), ("target", codec.decode_target)):
            name = f"{scheme}, {mode}"
            (seconds,) = measure({(name, mode): partial(decode, packed)}, rounds).values()
            cost = codec.latest
            lines.append(
                [
                    name,
                    spread(cost.cycles / 1e6, seconds, 2),
                    f"{cost.values_per_cycle:.2f}",
                    spread(rows.nbytes / 1e6, seconds, 1),
                ]
            )
    return text_table(["scheme, mode", "Mcycles/s", "values/cycle", "MB/s"], lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--source", default=BUNDLED, help="model: smollm2, GGUF file or folder")
    parser.add_argument("--values", type=int, default=1 << 22, help="weights to measure with")
    parser.add_argument("--repeat", type=int, default=5, help="rounds of measurement")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 2 if the weights cannot be read."""
    args = _parser().parse_args(argv)
    try:
        rows = take_weights(args.source, args.values)
        print(f"{rows.size:,} weights of {args.source}, {args.repeat} rounds, one thread\n")
        print(codec_table(rows, args.repeat))
        print("\nVerilated decoder, 16 lanes, one instance\n")
        print(gateware_table(rows, args.repeat))
    except CassandraError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
