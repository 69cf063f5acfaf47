"""Count lines, branches and toggles of the exported tops that the suites see (``make coverage``).

``python -m cassandra_spec.verif.tools.linecov [--out build/linecov] [SUITES...]``

The command runs suites with counting on. ``verilator_coverage`` merges the counts, including those
of earlier runs in the folder, and writes an lcov file, ``TOP.info``, and an annotated source below
``TOP.annotated``. The printed table has a line for each top: points that were seen, of all.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.programs import run_program
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import text_table

TOOL = "verilator_coverage"
KINDS = {"line": "lines", "branch": "branches", "toggle": "toggles"}

_ROOT = Path(__file__).resolve().parents[2]
_TESTS = "tests/verif/test_"
_BULK = f"{_TESTS}decoder_bulk.py"
_HALF = "not full and not one_scheme"
_LANES = (8, 16, 32)
SUITES: dict[str, tuple[str, ...]] = {
    **{f"decoder_l{n}": (_BULK, f"{_TESTS}decoder.py", "-k", f"{n} and {_HALF}") for n in _LANES},
    **{f"full_rate_l{n}": (_BULK, "-k", f"full_{n}") for n in _LANES},
    "coded": (_BULK, "-k", "coded and not without_them"),
    **{
        f"encoder_l{n}": (f"{_TESTS}encoder_bulk.py", f"{_TESTS}encoder.py", "-k", f"l{n}")
        for n in _LANES
    },
    "dma": (f"{_TESTS}dma.py", "-k", "l8"),
    "array": (f"{_TESTS}array.py", "-k", "n4"),
    "store": (f"{_TESTS}store.py", "-k", "l8"),
    "encoder_dma": (f"{_TESTS}encoder_dma.py",),
}
"""Arguments for pytest, by suite."""

# Cocotb and the bulk harness build the same source in folders of their own; the second adds a root.
_FILE = re.compile(r"(?<=\x01f\x02)[^\x01]*")
_HARNESS = "\x01h\x02TOP."
_KIND = re.compile(r"\x01page\x02v_(\w+)/.* (\d+)$")


def main(argv: Sequence[str] | None = None) -> int:
    """Run and report; return 2 if the run is impossible."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.verif.tools.linecov", description=__doc__)
    text = f"suites to run (default: all): {', '.join(SUITES)}"
    parser.add_argument("suites", nargs="*", metavar="SUITES", help=text)
    flags.add_folder(parser, "out", "folder for counts and annotated sources", "build/linecov")
    return parser


def _run(options: argparse.Namespace) -> int:
    for name in options.suites:
        if name not in SUITES:
            raise CassandraError(f"SUITES must be of {', '.join(SUITES)}, not {name!r}")
    if shutil.which(TOOL) is None:
        raise CassandraError(f"{TOOL} must be on PATH, not absent (Debian: apt install verilator)")
    out = options.out.resolve()
    for name in options.suites or SUITES:
        _count(name, out)
    print(report(out))
    return 0


def _count(name: str, out: Path) -> None:
    """Run a suite with counting on. Raises CassandraError if it fails."""
    environment = {**os.environ, "COUNTS_DIR": str(out)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITES[name]]
    if subprocess.run(command, cwd=_ROOT, env=environment, check=False).returncode:
        raise CassandraError(f"suite {name} must pass, not fail as it does")


def report(folder: Path) -> str:
    """Merge the counts of each source in a folder (:mod:`.counting`); return a table of all."""
    rows = []
    for source in sorted(folder.glob("*.v")):
        seen, points = totals(merged(source))
        rows.append((source.stem, *(f"{seen[kind]}/{points[kind]}" for kind in KINDS)))
    return text_table(("top", *KINDS.values()), rows, left=1)


def merged(source: Path) -> str:
    """Merge the counts of a source, and write its lcov file and annotation; return the sums."""
    folder, stem = source.parent, source.stem
    with tempfile.TemporaryDirectory(dir=folder) as name:
        sums = Path(name) / "sums"
        for counts in folder.glob(f"{stem}.*.dat"):
            (Path(name) / counts.name).write_text(_comparable(counts, source.name), "latin1")
        written = ("--write", sums, "--write-info", f"{stem}.info", "--annotate-min", "1")
        annotated = ("--annotate-all", "--annotate", f"{stem}.annotated")
        command = (TOOL, *written, *annotated, *Path(name).glob("*.dat"))
        run_program(command, folder, error=CassandraError)
        return sums.read_text("latin1")


def _comparable(counts: Path, source: str) -> str:
    """Return counts whose points have the same names in each harness."""
    return _FILE.sub(source, counts.read_text("latin1")).replace(_HARNESS, "\x01h\x02")


def totals(sums: str) -> tuple[collections.Counter[str], collections.Counter[str]]:
    """Count the points of each kind: those that were seen, and all."""
    found = [match for line in sums.splitlines() if (match := _KIND.search(line))]
    seen = (match[1] for match in found if int(match[2]))
    return collections.Counter(seen), collections.Counter(match[1] for match in found)


if __name__ == "__main__":
    raise SystemExit(main())
