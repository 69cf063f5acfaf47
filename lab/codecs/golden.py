"""Measure golden's MB/s on real weights, beside zstd -3 on the same bytes (``make bench``).

MB/s are 10^6 bytes of BF16 values per second of wall time, on one thread. Each round measures
everything once, so other load on the machine affects all figures alike. A figure is the median over
rounds, with minimum and maximum in brackets; a ratio is the median of the ratios within a round.
The gateware's rate is clock cycles simulated per second.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

import numpy as np
import zstandard
from numpy.typing import NDArray

from cassandra_spec.golden import Format, GoldenCodec
from cassandra_spec.golden.codec import encode
from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.lab.codecs.tasks import CONFIGURATIONS, codec_tasks, take_weights
from cassandra_spec.lab.rounds import Task, measure, ratio, spread
from cassandra_spec.model.packing.masks import kept_by_magnitude
from cassandra_spec.model.weights.sources import BUNDLED, open_source, packed_tensors
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import text_table
from cassandra_spec.verif.decoder.bulk import RtlCodec

Rows = NDArray[np.uint16]

NAMES = ("unary", "unary, pruned", "unary, pruned, coded", "mx", "exact")
"""The configurations that are measured."""

ZSTD_LEVEL = 3
ZSTD = f"zstd -{ZSTD_LEVEL}"


def take_rows(location: str, count: int) -> Rows:
    """Return rows of a model's linear weights, uint16 [rows, columns], up to ``count`` values."""
    tensors = packed_tensors(open_source(location))
    columns = next(tensor.shape[1] for tensor in tensors if tensor.kind == "linear")
    return take_weights(location, count, columns).reshape(-1, columns)


def _zstd_tasks(rows: Rows) -> tuple[bytes, dict[str, Task]]:
    """Compress the same bytes with zstd; check the decoded bytes."""
    raw = rows.tobytes()
    packed = zstandard.compress(raw, ZSTD_LEVEL)
    if zstandard.decompress(packed) != raw:
        raise AssertionError("zstd must return the original")
    return packed, {
        f"{ZSTD}: encode": lambda: zstandard.compress(raw, ZSTD_LEVEL),
        f"{ZSTD}: target": lambda: zstandard.decompress(packed),
    }


def _codec_table(rows: Rows, rounds: int) -> str:
    """Measure every configuration of golden's codec, and zstd."""
    compressed, tasks = _zstd_tasks(rows)
    bits = {ZSTD: 16 * len(compressed) / rows.nbytes}
    for name in NAMES:
        format, pruned = CONFIGURATIONS[name]
        kept = kept_by_magnitude(rows, pruned).reshape(-1) if pruned else None
        packed, own = codec_tasks(rows.reshape(-1), GoldenCodec(), name, format, kept)
        bits[name] = packed.bits()["total"]
        tasks |= own
    seconds = measure(tasks, rounds)
    lines = []
    for name, size in bits.items():
        line = [name, f"{size:.2f}"]
        for column, yardstick in (("encode", "encode"), ("draft", "target"), ("target", "target")):
            found = seconds.get(f"{name}: {column}")
            zstd = seconds[f"{ZSTD}: {yardstick}"]
            line += [spread(rows.nbytes / 1e6, found), ratio(found, zstd)] if found else ["", ""]
        lines.append(line)
    header = ["codec", "bits/value"]
    for column in ("encode", "draft", "target"):
        header += [f"{column} MB/s", "x zstd"]
    return text_table(header, lines)


def _gateware_table(rows: Rows, rounds: int) -> str:
    """Measure every scheme and mode of the Verilated decoder."""
    codec = RtlCodec()
    lines = []
    for scheme in SCHEMES:
        packed = encode(rows.reshape(-1), Format(scheme=scheme))
        for mode, decode in (("draft", codec.decode_draft), ("target", codec.decode_target)):
            name = f"{scheme}, {mode}"
            (seconds,) = measure({name: partial(decode, packed)}, rounds).values()
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


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.lab.codecs.golden", description=__doc__)
    text = "model: `smollm2`, a GGUF file or a directory"
    parser.add_argument("--source", default=BUNDLED, help=text)
    flags.add_count(parser, "values", "number of weights", 1 << 22)
    flags.add_count(parser, "repeat", "number of rounds", 5)
    return parser


def _run(args: argparse.Namespace) -> int:
    rows = take_rows(args.source, args.values)
    print(f"{rows.size:,} weights of {args.source}, {args.repeat} rounds, one thread\n")
    print(_codec_table(rows, args.repeat))
    print("\nVerilated decoder, 16 lanes, one instance\n")
    print(_gateware_table(rows, args.repeat))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 2 if the weights cannot be read."""
    return run_command(_parser, _run, argv)


if __name__ == "__main__":
    raise SystemExit(main())
