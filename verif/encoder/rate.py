"""Measure the encoder's cycles per vector, by scheme and by the number of kept values.

``python -m cassandra_spec.verif.encoder.rate [--document rate.md]`` runs the Verilated top in bulk
and prints a table, or writes it into the block ``encoder-rates`` of a page.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from cassandra_spec.golden.format import SCHEMES, Format, Scheme
from cassandra_spec.rtl.encode.types import EncodeCommandLayout, EncoderConfig
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.documents import fill_file
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import markdown_table
from cassandra_spec.verif.encoder.bulk import Encoded, EncodeRequest, RtlEncoder, requests_of
from cassandra_spec.verif.library.payloads import exponents_of, gaussian

VECTOR = 64
SEGMENTS = 8
_MASK = 1 << EncodeCommandLayout["mask"].offset
KEEPS = (None, 38, 26, 0)
PACES = (16, 4)
SIZES = (1024, 4096, 16384)


def rates(results: list[Encoded], segment: int) -> float:
    """Return cycles per vector in steady state: between ends of segments, without the first."""
    ends = [result.cycle for result in results]
    return (ends[-1] - ends[0]) / (len(ends) - 1) * VECTOR / segment


def measure(
    encoder: RtlEncoder, scheme: Scheme, keep: int | None, segment: int, *, mask: bool = True
) -> float:
    """Return cycles per vector of 64 values, segments back to back, everything at full speed.

    Without ``mask`` (unary, all kept), values whose exponent is not in the codebook become ones.
    """
    values = gaussian(np.random.default_rng(11), SEGMENTS * segment, 1.0)
    fmt = Format(scheme=scheme, segment=segment)
    requests = list(requests_of(values, fmt, vector=VECTOR, keep=keep))
    if not mask:
        requests = [_without_mask(request) for request in requests]
    return rates(encoder.run(requests), segment)


def _without_mask(request: EncodeRequest) -> EncodeRequest:
    known = np.isin(exponents_of(request.values), request.codebook)
    values = np.where(known, request.values, np.uint16(0x3F80))
    return dataclasses.replace(request, values=values, command=request.command & ~_MASK)


def _rows() -> Iterator[list[str]]:
    for pace, scheme in itertools.product(PACES, SCHEMES):
        encoder = RtlEncoder(EncoderConfig(values_per_cycle=pace))
        for segment in SIZES:
            cells = [f"{measure(encoder, scheme, keep, segment):.2f}" for keep in KEEPS]
            if scheme == "unary":
                cells[0] += f" ({measure(encoder, scheme, None, segment, mask=False):.2f})"
            yield [str(pace), scheme, f"{segment:,}", *cells]


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.verif.encoder.rate", description=__doc__)
    flags.add_file(parser, "document", "update the table of this Markdown file, print nothing")
    return parser


def _run(args: argparse.Namespace) -> int:
    heads = ["k = all" if keep is None else f"k = {keep}" for keep in KEEPS]
    table = markdown_table(["P", "scheme", "segment", *heads], _rows())
    if args.document:
        fill_file(args.document, {"encoder-rates": table})
    else:
        print(table)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print or write the table."""
    return run_command(_parser, _run, argv)


if __name__ == "__main__":
    raise SystemExit(main())
