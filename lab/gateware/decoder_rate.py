"""Measure the rate of the decoder on real weights, in its worst cases and at borders.

``python -m cassandra_spec.lab.gateware.decoder_rate`` packs some tensors of SmolLM2, sends them
through decoders of every number of lanes and of both rates under Verilator, compares every value
with golden, and prints values per cycle; ``--document`` writes the tables into a page instead.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from collections.abc import Iterator, Sequence
from typing import get_args

from cassandra_spec.golden.format import Format
from cassandra_spec.model.packing.masks import kept_by_magnitude
from cassandra_spec.model.weights.sources import BUNDLED, open_source, packed_tensors
from cassandra_spec.rtl.common.command import DecoderConfig, TargetRate
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.documents import fill_file
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import markdown_table
from cassandra_spec.verif.decoder.bulk import RtlCodec
from cassandra_spec.verif.decoder.rate import WORST, losses, rate, worst_payload
from cassandra_spec.verif.end_to_end.weights import RECIPES, one_of_each_kind
from cassandra_spec.verif.library.payloads import Payload

RATES: tuple[TargetRate, ...] = get_args(TargetRate)
MODES = tuple((rate, target) for rate in RATES for target in (False, True))
MIN_RATES = {16: 15.8}
"""Required values per cycle, by lanes, of drafts and targets at full rate; half at half rate."""
WORST_VALUES = 1 << 16
SHORT_SEGMENTS = 256
_HEADS = ["draft", "target", "draft", "target"]

Table = list[list[str]]


@functools.cache
def _codec(lanes: int, target_rate: TargetRate) -> RtlCodec:
    return RtlCodec(DecoderConfig(lanes=lanes, target_rate=target_rate))


def real_payloads(names: int | None, values: int) -> Iterator[tuple[str, Payload]]:
    """Scheme and payload: a tensor of each kind, packed as by `make sim`.

    ``names`` limits the number of tensors, ``values`` those of each, up to a whole row. Group
    exponents are the largest of each group.
    """
    source = open_source(BUNDLED)
    for name in one_of_each_kind(packed_tensors(source))[:names]:
        tensor = source.tensors[name]
        columns = tensor.shape[-1]
        count = min(tensor.count, -(-values // columns) * columns)
        rows = source.read(name, 0, count).reshape(-1, columns)
        for scheme, recipe in RECIPES.items():
            kept = kept_by_magnitude(rows, recipe.prune).ravel() if recipe.prune else None
            fmt = recipe.format
            yield scheme, Payload(name=name, format=fmt, values=rows.ravel(), kept=kept)


def _for(config: DecoderConfig, payload: Payload) -> Payload:
    """Convert a payload to the format of this decoder."""
    fmt = dataclasses.replace(payload.format, beat=config.lanes, lead=config.lead)
    return dataclasses.replace(payload, format=fmt)


def real_rates(
    lanes: Sequence[int], payloads: Sequence[tuple[str, Payload]]
) -> tuple[Table, list[str]]:
    """Return a table of lanes, scheme, values and a rate per mode; and the rates that are too
    low.
    """
    rows, low = [], []
    for width in lanes:
        for scheme in RECIPES:
            cells, values = [], 0
            for target_rate, target in MODES:
                codec = _codec(width, target_rate)
                chosen = [_for(codec.config, p) for name, p in payloads if name == scheme]
                result = rate(codec, chosen, target=target)
                values = result.values
                cells.append(f"{result.measured:.2f}")
                least = MIN_RATES.get(width, 0) / (2 if target and target_rate == "half" else 1)
                if result.measured < least:
                    what = f"{width} lanes, {scheme}, {target_rate} rate, target {target}"
                    low.append(f"{what}: {result.measured:.2f} is below {least:.2f}")
            rows.append([str(width), scheme, f"{values:,}", *cells])
    return rows, low


def worst_cases(lanes: int, values: int = WORST_VALUES) -> Table:
    """Return a table of worst cases by scheme: the rate per mode, and the bound of lanes and
    bus.
    """
    rows = []
    for case in WORST:
        for scheme in case.schemes:
            cells = []
            for target_rate, target in MODES:
                codec = _codec(lanes, target_rate)
                fmt = Format(scheme=scheme, beat=lanes, lead=codec.config.lead)
                count = min(values, SHORT_SEGMENTS * lanes) if case.short else values
                result = rate(codec, [worst_payload(case, fmt, count)], target=target)
                cells.append(f"{result.measured:.2f} of {result.bound:.2f}")
            rows.append([case.what, scheme, *cells])
    return rows


def borders(lanes: int) -> Table:
    """Return a table of events, with the cycles without a beat that each costs, per mode."""
    columns = [losses(_codec(lanes, name), "exact", target=target) for name, target in MODES]
    return [[what, *(f"{column[what]:.1f}" for column in columns)] for what in columns[0]]


def _tables(args: argparse.Namespace) -> tuple[dict[str, str], list[str]]:
    """Return the tables by the names of their markers, and the rates that are too low."""
    heads = [f"{mode}, {name}" for mode, name in zip(_HEADS, [n for n, _ in MODES], strict=True)]
    real, low = real_rates(args.lanes, list(real_payloads(None, args.values)))
    middle = 16 if 16 in args.lanes else args.lanes[0]
    return {
        "rates": markdown_table(["lanes", "scheme", "values", *heads], real),
        "worst": markdown_table(["case", "scheme", *heads], worst_cases(middle)),
        "borders": markdown_table(["each time that", *heads], borders(middle)),
    }, low


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.lab.gateware.decoder_rate", description=__doc__)
    lanes = (8, 16, 32)
    flags.add_some(parser, "lanes", "numbers of lanes (default: all)", lanes, lanes, type=int)
    flags.add_count(parser, "values", "use the first N values of each tensor", 1 << 17)
    flags.add_file(parser, "document", "update the tables of this Markdown file, print nothing")
    return parser


def _run(args: argparse.Namespace) -> int:
    tables, low = _tables(args)
    if args.document:
        fill_file(args.document, tables)
    else:
        print("\n\n".join(tables.values()))
    for line in low:
        print(line, file=sys.stderr)
    return int(bool(low))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; 1 if a rate of 16 lanes on real weights is too low, 2 for bad input."""
    return run_command(_parser, _run, argv)


if __name__ == "__main__":
    sys.exit(main())
