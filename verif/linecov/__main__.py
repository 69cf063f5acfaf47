"""Measure line, branch and toggle coverage of the exported tops by the suites.

``python -m cassandra_spec.verif.linecov [--out build/linecov] [SUITES...]`` (``make coverage``)

The command runs suites with counting on, merges the counts (including earlier runs in the folder),
and prints a line for each module. A hole is proved unreachable, waived in ``waivers.toml``, or
open. Annotated sources are in the folder of ``--out``. The command exits with 1 if a hole is open,
or a waiver for a design of the run covers none.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import text_table
from cassandra_spec.verif.linecov.points import KINDS, Design, Point, designs
from cassandra_spec.verif.linecov.subjects import subject_of
from cassandra_spec.verif.linecov.unreachable import unreachable
from cassandra_spec.verif.linecov.waivers import Waiver, load, waived

_ROOT = Path(__file__).resolve().parents[2]
_TESTS = "tests/verif/test_"
_HALF = "not full and not one_scheme"  # decoders of one scheme get good segments only
SUITES: dict[str, tuple[str, ...]] = {
    **{
        f"decoder_l{lanes}": (
            f"{_TESTS}decoder_bulk.py",
            f"{_TESTS}decoder.py",
            "-k",
            f"{lanes} and {_HALF}",
        )
        for lanes in (8, 16, 32)
    },
    **{
        f"full_rate_l{lanes}": (f"{_TESTS}decoder_bulk.py", "-k", f"full_{lanes}")
        for lanes in (8, 16, 32)
    },
    "coded": (f"{_TESTS}decoder_bulk.py", "-k", "coded and not without_them"),
    **{
        f"encoder_l{lanes}": (f"{_TESTS}encoder_bulk.py", f"{_TESTS}encoder.py", "-k", f"l{lanes}")
        for lanes in (8, 16, 32)
    },
    "dma": (f"{_TESTS}dma.py", "-k", "l8"),
    "array": (f"{_TESTS}array.py", "-k", "n4"),
    "store": (f"{_TESTS}store.py", "-k", "l8"),
    "encoder_dma": (f"{_TESTS}encoder_dma.py",),
}
"""Arguments for pytest, by suite."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run and report; return 0 if no hole is open, 1 if one is, 2 if the run is impossible."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.verif.linecov", description=__doc__)
    text = f"suites to run (default: all): {', '.join(SUITES)}"
    parser.add_argument("suites", nargs="*", metavar="SUITES", help=text)
    text = "folder for counts and annotated sources"
    flags.add_folder(parser, "out", text, "build/linecov")
    flags.add_switch(parser, "no-run", "report the counts in the folder, without a run")
    flags.add_count(parser, "seconds", "time limit of a proof", 10)
    flags.add_switch(parser, "alone", "prove holes of each module alone, not of the whole design")
    return parser


def _run(options: argparse.Namespace) -> int:
    out = options.out.resolve()
    for name in options.suites:
        if name not in SUITES:
            raise CassandraError(f"SUITES must be of {', '.join(SUITES)}, not {name!r}")
    for name in [] if options.no_run else options.suites or SUITES:
        _count(name, out)
    found = designs(out)
    if not found:
        raise CassandraError(f"--out must have the counts of a run, not none ({out})")
    return report(found, load(), out, options.seconds, whole=not options.alone)


def _count(name: str, out: Path) -> None:
    """Run a suite with counting on. Raises CassandraError if it fails."""
    environment = {**os.environ, "COUNTS_DIR": str(out)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITES[name]]
    if subprocess.run(command, cwd=_ROOT, env=environment, check=False).returncode:
        raise CassandraError(f"suite {name} must pass, not fail as it does")


def report(
    found: Sequence[Design],
    waivers: Sequence[Waiver],
    out: Path,
    seconds: int,
    *,
    whole: bool = True,
) -> int:
    """Print and write the coverage; return 1 if a hole is open or a waiver covers none."""
    holes = [(design, hole) for design in found for hole in design.holes]
    covered, unused = waived(waivers, holes)
    left = 0
    for design in found:
        excused = {hole for name, hole in covered if name == design.source.name}
        rest = [hole for hole in design.holes if hole not in excused]
        work = out / "proofs" / design.source.stem
        proved: set[Point] = set()
        for limit in sorted({0, seconds}):  # quick proofs first, also of the whole design
            left_over = [hole for hole in rest if hole not in proved]
            proved |= unreachable(design, left_over, work, limit, whole=whole)
        open_ = [hole for hole in rest if hole not in proved]
        left += len(open_)
        print(_table(design, excused, proved))
        print("".join(f"  open: {_where(design, hole)}\n" for hole in open_), end="")
        annotate(design, out / f"{design.source.stem}.annotated.txt")
    stale = [waiver for waiver in unused if any(map(waiver.about, found))]
    for waiver in stale:
        print(f"waiver covers nothing: {waiver}")
    return int(left > 0 or bool(stale))


def _where(design: Design, hole: Point) -> str:
    text = design.lines[hole.line - 1].strip()
    return f"{hole.module or design.name}, line {hole.line}: {hole.kind} {hole.what}: {text[:80]}"


def _table(design: Design, waived: set[Point], proved: set[Point]) -> str:
    """Format one line per module: hits and points of each kind, and the fate of the holes."""
    modules = sorted({point.module for point in design.counts})
    rows = [_row(module or "(top)", design, module, waived, proved) for module in modules]
    rows.append(_row("all", design, None, waived, proved))
    header = (f"{design.name}", *KINDS, "out of reach", "waived", "open")
    return text_table(header, rows, left=1) + _elsewhere(design)


def _elsewhere(design: Design) -> str:
    """Name the parts of a design that other suites count."""
    suite = subject_of(design.name).suite
    return "".join(f"\n{engine} and all in it: suite {suite}" for engine in sorted(design.engines))


def _row(
    title: str, design: Design, module: str | None, waived: set[Point], proved: set[Point]
) -> tuple[str, ...]:
    mine = {p: n for p, n in design.counts.items() if module in (None, p.module)}
    shares = []
    for kind in KINDS:
        counts = [count for point, count in mine.items() if point.kind == kind]
        shares.append(f"{sum(map(bool, counts))}/{len(counts)}")
    holes = {point for point, count in mine.items() if not count}
    rest = (holes & proved, holes & waived, holes - proved - waived)
    return title, *shares, *(str(len(each)) for each in rest)


def annotate(design: Design, path: Path) -> None:
    """Write the source, each line with the lowest count of its points."""
    least: dict[int, int] = {}
    for point, count in design.counts.items():
        least[point.line] = min(count, least.get(point.line, count))
    lines = enumerate(design.lines, 1)
    text = "".join(f"{least.get(n, ''):>10} {line}\n" for n, line in lines)
    path.write_text(text)


if __name__ == "__main__":
    raise SystemExit(main())
