"""``make bench``: encode and decode MB/s on real weights, beside zstd -3 on the same bytes.

MB/s are 10^6 bytes of BF16 values per second of wall time, the best of some repetitions, on one
thread. The gateware's rate is clock cycles simulated per second.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import zstandard
from numpy.typing import NDArray

from casspec.table import table
from golden.codec import decode_draft, decode_target, encode
from golden.errors import CassandraError
from golden.format import SCHEMES, Format
from golden.packed import Packed
from model.masks import kept_by_magnitude
from model.sources import BUNDLED, open_source, packed_tensors
from verif.bulk import RtlCodec

Result = TypeVar("Result")
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


def fastest(work: Callable[[], Result], repeat: int) -> tuple[float, Result]:
    """Least seconds of several calls, and what the last one returned."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


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


def codec_row(rows: Rows, name: str, format: Format, pruned: float, repeat: int) -> list[str]:
    """Golden's codec in one configuration."""
    values = rows.reshape(-1)
    kept = kept_by_magnitude(rows, pruned).reshape(-1) if pruned else None
    encoding, packed = fastest(lambda: encode(values, format, kept=kept), repeat)
    draft, _ = fastest(lambda: decode_draft(packed), repeat)
    target, decoded = fastest(lambda: decode_target(packed), repeat)
    if format.scheme != "mx" and not np.array_equal(decoded, values):
        raise AssertionError(f"{name}: the target must be the original")
    rates = [f"{values.nbytes / seconds / 1e6:.0f}" for seconds in (encoding, draft, target)]
    return [name, f"{packed.bits()['total']:.2f}", *rates]


def zstd_row(rows: Rows, repeat: int) -> list[str]:
    """The same bytes through zstd."""
    raw = rows.tobytes()
    encoding, packed = fastest(lambda: zstandard.compress(raw, ZSTD_LEVEL), repeat)
    decoding, decoded = fastest(lambda: zstandard.decompress(packed), repeat)
    if decoded != raw:
        raise AssertionError("zstd must return the original")
    rates = [f"{len(raw) / seconds / 1e6:.0f}" for seconds in (encoding, decoding)]
    return [f"zstd -{ZSTD_LEVEL}", f"{16 * len(packed) / len(raw):.2f}", rates[0], "", rates[1]]


def gateware_row(codec: RtlCodec, packed: Packed, repeat: int, *, target: bool) -> list[str]:
    """The Verilated decoder in one scheme and mode."""
    decode = codec.decode_target if target else codec.decode_draft
    seconds, values = fastest(lambda: decode(packed), repeat)
    return [
        f"{packed.format.scheme}, {'target' if target else 'draft'}",
        f"{codec.latest.cycles / seconds / 1e6:.2f}",
        f"{codec.latest.values_per_cycle:.2f}",
        f"{values.nbytes / seconds / 1e6:.1f}",
    ]


def gateware_rows(rows: Rows, repeat: int) -> Iterator[list[str]]:
    """Every scheme and mode of the Verilated decoder."""
    codec = RtlCodec()
    for scheme in SCHEMES:
        packed = encode(rows.reshape(-1), Format(scheme=scheme))
        for target in (False, True):
            yield gateware_row(codec, packed, repeat, target=target)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--source", default=BUNDLED, help="model: smollm2, GGUF file or folder")
    parser.add_argument("--values", type=int, default=1 << 22, help="weights to measure with")
    parser.add_argument(
        "--repeat", type=int, default=3, help="repetitions, of which the best counts"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 2 if the weights cannot be read."""
    args = _parser().parse_args(argv)
    try:
        rows = take_weights(args.source, args.values)
        print(f"{rows.size:,} weights of {args.source}, best of {args.repeat}, one thread\n")
        lines = [codec_row(rows, *line, args.repeat) for line in CONFIGURATIONS]
        lines.append(zstd_row(rows, args.repeat))
        print(table(["codec", "bits/value", "encode MB/s", "draft MB/s", "target MB/s"], lines))
        print("\nVerilated decoder, 16 lanes, one instance\n")
        lines = list(gateware_rows(rows, args.repeat))
        print(table(["scheme, mode", "Mcycles/s", "values/cycle", "MB/s"], lines))
    except CassandraError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
