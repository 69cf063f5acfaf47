"""Measure the rate of decoders that share a read master, on real weights.

``python -m cassandra_spec.lab.gateware.array_rate`` runs segments of SmolLM2 through arrays of 2
and 4 decoders under Verilator, compares every value with golden, and prints the values per cycle.
``--document`` also writes the table into the block ``array-half`` or ``array-full`` of a page.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.model.packing.masks import kept_by_magnitude
from cassandra_spec.model.packing.packer import Recipe
from cassandra_spec.model.weights.sources import BUNDLED, Source, open_source, packed_tensors
from cassandra_spec.rtl.common.command import DecoderConfig, TargetRate
from cassandra_spec.rtl.dma.config import DmaConfig
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.documents import fill_file
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import markdown_table, text_table
from cassandra_spec.verif.dma.rate import Rate, measure
from cassandra_spec.verif.end_to_end.weights import RECIPES
from cassandra_spec.verif.library.payloads import Payload

BUILD = Path(__file__).resolve().parents[2] / "build" / "cocotb"
_HEAD = [
    *("decoders", "scheme", "mode", "values/cycle", "bytes/cycle"),
    *("of what the lanes could give", "from START"),
]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a rate is more than 3 % below what the decoders take in a cycle.

    Targets at half rate are not looked at.
    """
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.lab.gateware.array_rate", description=__doc__)
    text = "decoders of each array (default 2 4)"
    parser.add_argument("--decoders", type=int, nargs="+", metavar="N", default=[2, 4], help=text)
    flags.add_count(parser, "segments", "segments per decoder and run, at least 2", 4, low=2)
    text = "target beats per cycle: `half` (one in two cycles) or `full` (one per cycle)"
    flags.add_choice(parser, "target-rate", get_args(TargetRate), text)
    text = "tensor to decode, by a part of its name (default: the middle one)"
    parser.add_argument("--tensor", default="", metavar="NAME", help=text)
    flags.add_file(parser, "document", "also update the table of this Markdown file")
    return parser


def _run(args: argparse.Namespace) -> int:
    rows, slow = [], False
    for decoders in args.decoders:
        config = DmaConfig(decoder=DecoderConfig(target_rate=args.target_rate), decoders=decoders)
        for scheme, usual in RECIPES.items():
            segments = args.segments * decoders
            fmt = dataclasses.replace(usual.format, lead=config.decoder.lead)
            recipe = dataclasses.replace(usual, format=fmt)
            payload = weights_of(open_source(BUNDLED), args.tensor, recipe, segments)
            build = BUILD / f"rate_{args.target_rate}_n{decoders}"
            for target in (False, True):
                rate = measure(config, payload, target=target, build=build)
                rows.append(_row(config, scheme, target, rate))
                whole = not target or args.target_rate == "full"
                slow |= whole and rate.steady < 0.97 * config.beat_values
    print(f"\nSegments of {payload.name}:\n\n{text_table(_HEAD, rows)}")
    if args.document:
        fill_file(args.document, {f"array-{args.target_rate}": markdown_table(_HEAD, rows, left=3)})
    print(
        "\nvalues/cycle once every decoder is at work; from START with the first segments filling."
    )
    return int(slow)


def weights_of(source: Source, part: str, recipe: Recipe, segments: int) -> Payload:
    """Return the first segments of a tensor whose name contains ``part``, pruned by the recipe.

    Takes the middle one of several tensors. Raises CassandraError if no tensor is large enough.
    """
    wanted = segments * recipe.format.segment
    tensors = [
        tensor
        for tensor in packed_tensors(source)
        if part in tensor.name and tensor.count >= wanted
    ]
    if not tensors:
        raise CassandraError(f"tensor must name one of at least {wanted} values, not {part!r}")
    chosen = tensors[len(tensors) // 2]
    columns = chosen.shape[-1]
    rows = source.read(chosen.name, 0, chosen.count).reshape(-1, columns)
    kept = kept_by_magnitude(rows, recipe.prune).ravel()[:wanted] if recipe.prune else None
    values = rows.ravel()[:wanted]
    return Payload(name=chosen.name, format=recipe.format, values=values, kept=kept)


def _row(config: DmaConfig, scheme: str, target: bool, rate: Rate) -> list[str]:
    most = config.beat_values
    return [
        str(config.decoders),
        scheme,
        "target" if target else "draft",
        f"{rate.steady:.2f}",
        f"{2 * rate.steady:.1f}",
        f"{rate.steady / most:.1%}",
        f"{rate.whole:.2f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
