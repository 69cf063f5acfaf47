"""Rates of the encoder: cycles for a vector, by scheme and by how many values are kept.

``python -m verif.encoder_measure [--document docs/encoder.md]`` runs the Verilated top in bulk and
prints a table, or puts it between the ``<!-- rates -->`` marks of a document.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from golden.format import SCHEMES, Format, Scheme
from rtl.encoder_types import EncoderConfig
from verif.encoder_bulk import Encoded, RtlEncoder, requests_of
from verif.payloads import gaussian
from verif.recording import between

__all__ = ["main", "measure", "rates"]

VECTOR = 64
SEGMENTS = 8
KEEPS = (None, 38, 26, 0)
SIZES = (1024, 4096, 16384)


def rates(results: list[Encoded], segment: int) -> float:
    """Cycles for a vector in steady state: between the ends of segments, the first left out."""
    ends = [result.cycle for result in results]
    return (ends[-1] - ends[0]) / (len(ends) - 1) * VECTOR / segment


def measure(encoder: RtlEncoder, scheme: Scheme, keep: int | None, segment: int) -> float:
    """Cycles for a vector of 64 values, segments back to back, everything at full speed."""
    values = gaussian(np.random.default_rng(11), SEGMENTS * segment, 1.0)
    fmt = Format(scheme=scheme, segment=segment)
    return rates(encoder.run(requests_of(values, fmt, vector=VECTOR, keep=keep)), segment)


def _rows(encoder: RtlEncoder) -> Iterator[str]:
    heads = ["all" if keep is None else str(keep) for keep in KEEPS]
    yield f"| scheme | segment | {' | '.join(f'k = {head}' for head in heads)} |"
    yield "|---" * (len(KEEPS) + 2) + "|"
    for scheme in SCHEMES:
        for segment in SIZES:
            cells = [f"{measure(encoder, scheme, keep, segment):.2f}" for keep in KEEPS]
            yield f"| {scheme} | {segment:,} | {' | '.join(cells)} |"


def main(argv: list[str] | None = None) -> None:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(description="cycles of the encoder for a vector of 64 values")
    parser.add_argument("--document", type=Path, help="put the table there instead of printing it")
    args = parser.parse_args(argv)
    table = "\n".join(_rows(RtlEncoder(EncoderConfig())))
    if args.document:
        text = between(args.document.read_text(encoding="utf-8"), "rates", table)
        args.document.write_text(text, encoding="utf-8")
    else:
        print(table)


if __name__ == "__main__":
    main()
