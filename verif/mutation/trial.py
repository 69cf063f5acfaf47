"""Trial of a fault in a copy of the gateware, and cached results.

Worker processes run this module, not the command: Python does not let them import ``__main__``.
"""

from __future__ import annotations

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
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.mutation.catalogue import ROOT, Mutation

TREE = ("cassandra_spec", "drivers", "golden", "rtl", "toolkit", "verif", "tests")
SETTINGS = "pyproject.toml"  # settings of pytest
SCRATCH, LOG = "scratch", "log.txt"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of a fault: the check that failed (empty: none), and the time it took."""

    name: str
    caught_by: str
    seconds: float
    digest: str


def digest_of(mutation: Mutation, sources: str) -> str:
    """Return a digest of the fault and of :func:`sources_of`."""
    return hashlib.sha256(f"{mutation} {sources}".encode()).hexdigest()[:16]


def sources_of(root: Path) -> str:
    """Return a digest of the files that :func:`tried` copies, including the checks."""
    files = [path for name in TREE for path in (root / name).rglob("*") if path.is_file()]
    digest = hashlib.sha256()
    for path in sorted([*files, root / SETTINGS]):
        if path.parent.name != "__pycache__":
            digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def copied(folder: Path) -> Path:
    """Copy the tree into a new folder ``tree`` of ``folder``; return it."""
    tree = folder / "tree"
    for name in TREE:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=ignore)
    shutil.copy(ROOT / SETTINGS, tree)
    return tree


def plant(mutation: Mutation, tree: Path) -> None:
    """Apply a fault to a copy of the tree."""
    place = tree / mutation.file
    place.write_text(mutation.applied(place.read_text(encoding="utf-8")), encoding="utf-8")


def tried(mutation: Mutation, folder: Path) -> Result:
    """Copy the tree into a new folder, apply the fault, and run the checks until one fails.

    Raises CassandraError if a check cannot run, or also fails without the fault.
    """
    tree = copied(folder)
    sources = sources_of(tree)
    plant(mutation, tree)
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
    """Return True if a check passes on the unchanged gateware; cached per process."""
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
        return False  # the design cannot be built
    raise CassandraError(f"{check} must run, not end with:\n{run.stderr[-2000:]}")


def _of_the_design(stderr: str) -> bool:
    """Return True if a failed run reports a fault of the design, not a missing tool."""
    missing = ("CassandraError", "ImportError", "ModuleNotFoundError", "FileNotFoundError")
    return "Error" in stderr and not any(name in stderr for name in missing)


def kept(mutation: Mutation, *, out: Path, sources: str) -> Result:
    """Return the cached result if it is still valid, else a new one, which is cached.

    Raises CassandraError if the sources differ from those at the start of the run.
    """
    file, digest = out / f"{mutation.name}.json", digest_of(mutation, sources)
    if file.exists():
        earlier = Result(**json.loads(file.read_text()))
        if earlier.caught_by and earlier.digest == digest:
            return earlier
    # A new folder, because the checks of a dead worker may still run.
    with tempfile.TemporaryDirectory(dir=out / SCRATCH) as name:
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
