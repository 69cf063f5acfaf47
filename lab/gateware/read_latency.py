"""Measure the bus utilisation of the read master, by memory latency and outstanding reads.

``python -m cassandra_spec.lab.gateware.read_latency`` fetches one region with the read master,
accepts its words at once, and prints the utilisation and the cycles of the first and last word.
``--document`` updates the tables of a page, ``--plot`` draws the curves.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Mapping, Sequence

from cassandra_spec.rtl.dma.config import DmaConfig
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.documents import fill_file
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import markdown_table
from cassandra_spec.verif.dma.reading import Reading, read

LATENCIES = (8, 16, 32, 64, 128, 256, 512)
OUTSTANDING = (1, 2, 4, 8)
BURSTS = (256,)
BYTES = 4096
"""Twice what the largest buffer above holds."""

Key = tuple[int, int, int]
"""Bytes of a burst, outstanding reads, latency."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print or write."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.lab.gateware.read_latency", description=__doc__)
    sweeps = (
        ("latencies", LATENCIES, "latencies of the memory in cycles"),
        ("outstanding", OUTSTANDING, "numbers of outstanding reads"),
        ("bursts", BURSTS, "lengths of bursts in bytes"),
    )
    for name, usual, text in sweeps:
        text = f"{text} (default {' '.join(map(str, usual))})"
        parser.add_argument(f"--{name}", type=int, nargs="+", metavar="N", default=usual, help=text)
    flags.add_count(parser, "bytes", "bytes of the region, more than the buffers hold", BYTES)
    flags.add_file(parser, "document", "update the tables of this Markdown file, print nothing")
    flags.add_file(parser, "plot", "plot the curves of the first burst length (SVG)")
    return parser


def _run(args: argparse.Namespace) -> int:
    found = measure(args.bursts, args.outstanding, args.latencies, args.bytes)
    tables = {"read-share": share_table(found), "read-latency": latency_table(found)}
    if args.document:
        fill_file(args.document, tables)
    else:
        print("\n\n".join(tables.values()))
    if args.plot:
        args.plot.write_text(share_plot(found, args.bursts[0]))
    return 0


def measure(
    bursts: Sequence[int], outstanding: Sequence[int], latencies: Sequence[int], size: int
) -> dict[Key, Reading]:
    """Read ``size`` bytes for each combination; buffers have room for all outstanding bursts.

    Raises CassandraError if :class:`DmaConfig` refuses it, or if a buffer holds the whole region.
    """
    found = {}
    for burst, count, latency in itertools.product(bursts, outstanding, latencies):
        config = DmaConfig(burst=burst, buffer=burst * count)
        words = size // config.bus
        found[burst, count, latency] = read(config, latency=latency, words=words)
    return found


def share_table(found: Mapping[Key, Reading]) -> str:
    """Share of the bus that was used, by latency."""
    return _table(found, lambda reading: f"{reading.share:.0%}")


def latency_table(found: Mapping[Key, Reading]) -> str:
    """Format the cycles to the first and to the last word, by latency."""
    return _table(found, lambda reading: f"{reading.first}, {reading.last:,}")


def _table(found: Mapping[Key, Reading], cell: Callable[[Reading], str]) -> str:
    latencies = list(dict.fromkeys(latency for _, _, latency in found))
    rows = [
        [burst, count, *(cell(found[burst, count, latency]) for latency in latencies)]
        for burst, count in dict.fromkeys((burst, count) for burst, count, _ in found)
    ]
    return markdown_table(["bytes of a burst", "outstanding", *map(str, latencies)], rows)


def share_plot(found: Mapping[Key, Reading], burst: int) -> str:
    """Plot the utilisation of bursts of one size over the latency, one curve per number of
    reads.
    """
    from cassandra_spec.toolkit.plots import Plot, described_svg  # needs the extra `plots`

    counts = dict.fromkeys(count for size, count, _ in found if size == burst)
    curves = tuple((f"{count} outstanding", _curve(found, burst, count)) for count in counts)
    title = f"Share of the bus that reads use, bursts of {burst} bytes"
    plot = Plot(
        name="reads", title=title, axis="share", curves=curves, across="latency of memory, cycles"
    )
    text = "; ".join(
        f"{label}: {', '.join(f'{share:.0%} at {latency:.0f}' for latency, share in points)}"
        for label, points in curves
    )
    return described_svg(plot.figure(), title=title, text=text).decode()


def _curve(found: Mapping[Key, Reading], burst: int, count: int) -> tuple[tuple[float, float], ...]:
    return tuple(
        (float(latency), reading.share)
        for (size, reads, latency), reading in found.items()
        if (size, reads) == (burst, count)
    )


if __name__ == "__main__":
    raise SystemExit(main())
