"""Put each fault into a copy of the gateware and see what finds it (``make mutants``).

``python -m cassandra_spec.verif.mutation [--out build/mutation] [PATTERN...]`` continues a run that
was interrupted: a result stays good while the fault and all sources, those of the checks included,
are what they were. A table is printed and written to ``results.json`` in the folder of ``--out``.
With ``--cluster`` the folder of ``--out`` is on a disk that all machines share, each worker takes
faults of its own checkout, and all checkouts must have the same sources.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.report import flags
from cassandra_spec.report.commands import CommandParser, run_command
from cassandra_spec.report.tables import text_table
from cassandra_spec.verif.mutation.catalogue import ROOT, Mutation, mutations
from cassandra_spec.workers.pool import Workers

TREE = ("cassandra_spec", "golden", "report", "rtl", "verif", "workers", "tests")
SETTINGS = "pyproject.toml"  # of pytest
SCRATCH, LOG = "scratch", "log.txt"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a fault: the check that failed (empty: none did), and the time it took."""

    name: str
    caught_by: str
    seconds: float
    digest: str


def digest_of(mutation: Mutation, sources: str) -> str:
    """Changes with the fault, and with the digest of :func:`sources_of`."""
    return hashlib.sha256(f"{mutation} {sources}".encode()).hexdigest()[:16]


def sources_of(root: Path) -> str:
    """A digest of the files that :func:`tried` copies, the checks among them."""
    files = [path for name in TREE for path in (root / name).rglob("*") if path.is_file()]
    digest = hashlib.sha256()
    for path in sorted([*files, root / SETTINGS]):
        if path.parent.name != "__pycache__":
            digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def tried(mutation: Mutation, folder: Path) -> Result:
    """Copy the tree into a new folder, put the fault in, and run the checks until one fails.

    Raises CassandraError if a check cannot be run, or fails without the fault, too.
    """
    tree = folder / "tree"
    for name in TREE:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=ignore)
    shutil.copy(ROOT / SETTINGS, tree)
    sources = sources_of(tree)
    place = tree / mutation.file
    place.write_text(mutation.applied(place.read_text(encoding="utf-8")), encoding="utf-8")
    start = time.perf_counter()
    failed = (check for check in mutation.checks if not _passes(check, tree, folder))
    caught_by = next(failed, "")
    seconds = time.perf_counter() - start
    shutil.rmtree(tree)
    if caught_by and not _sound(caught_by, sources):
        raise CassandraError(f"{caught_by} must pass without a fault, not fail as it does")
    digest = digest_of(mutation, sources)
    return Result(name=mutation.name, caught_by=caught_by, seconds=seconds, digest=digest)


@functools.cache
def _sound(check: str, sources: str) -> bool:
    """Whether a check passes on the gateware as it is; asked once in a process."""
    with tempfile.TemporaryDirectory() as folder:
        return _passes(check, ROOT, Path(folder))


def _passes(check: str, tree: Path, folder: Path) -> bool:
    build = folder / re.sub(r"\W+", "_", check)
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "cassandra_spec.verif.mutation.check", check, str(build)]
    run = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    (folder / LOG).write_text(run.stdout + run.stderr)
    shutil.rmtree(build, ignore_errors=True)
    if run.returncode in (0, 3):
        return run.returncode == 0
    if not check.startswith("claim:") and _of_the_design(run.stderr):
        return False  # it cannot even be made
    raise CassandraError(f"{check} must run, not end with:\n{run.stderr[-2000:]}")


def _of_the_design(stderr: str) -> bool:
    """Whether a run that broke says that the design is wrong, not that something is missing."""
    missing = ("CassandraError", "ImportError", "ModuleNotFoundError", "FileNotFoundError")
    return "Error" in stderr and not any(name in stderr for name in missing)


def table(results: Sequence[Result]) -> str:
    """A line for each fault: the check that found it, and seconds."""
    rows = [(each.name, each.caught_by or "NOTHING", f"{each.seconds:.0f}") for each in results]
    return text_table(("fault", "found by", "s"), rows, left=2)


def main(argv: Sequence[str] | None = None) -> int:
    """Try; 0 if every fault is found, 1 if one is not, 2 if something cannot be tried."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.verif.mutation", description=__doc__)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="names of mutations")
    parser.add_argument("--out", type=Path, default=Path("build/mutation"), help="results and logs")
    flags.add_jobs(parser, "processes (default 1)")
    flags.add_cluster(parser)
    return parser


def _run(options: argparse.Namespace) -> int:
    out, sources = options.out.resolve(), sources_of(ROOT)
    chosen, results = mutations(options.patterns), []
    with Workers(options.jobs, cluster=options.cluster, default=1) as workers:
        shutil.rmtree(out / SCRATCH, ignore_errors=True)
        (out / SCRATCH).mkdir(parents=True)
        for result in workers.map(partial(_result, out=out, sources=sources), chosen):
            results.append(result)
            line = f"{result.seconds:6.0f} s  {result.name}: {result.caught_by or 'NOT FOUND'}"
            print(f"{len(results)} of {len(chosen)}: {line}", file=sys.stderr, flush=True)
    shutil.rmtree(out / SCRATCH, ignore_errors=True)
    print(table(results))
    rows = [dataclasses.asdict(result) for result in results]
    (out / "results.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return int(any(not result.caught_by for result in results))


def _result(mutation: Mutation, *, out: Path, sources: str) -> Result:
    """The result of an earlier run if it is still good, else a new one, which is kept.

    Raises CassandraError if the sources here are others than those that the run began with.
    """
    file, digest = out / f"{mutation.name}.json", digest_of(mutation, sources)
    if file.exists():
        earlier = Result(**json.loads(file.read_text()))
        if earlier.caught_by and earlier.digest == digest:
            return earlier
    with tempfile.TemporaryDirectory(
        dir=out / SCRATCH
    ) as name:  # its own: checks of a dead worker run on
        folder = Path(name)
        result = tried(mutation, folder)
        if result.digest != digest:
            raise CassandraError(
                f"{ROOT} must have the sources that the run began with, and has others"
            )
        shutil.move(folder / LOG, out / f"{mutation.name}.log")
        whole = folder / file.name
        whole.write_text(json.dumps(dataclasses.asdict(result)))
        whole.replace(file)
    return result


if __name__ == "__main__":
    raise SystemExit(main())
