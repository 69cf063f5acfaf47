"""Run one check in the tree at hand: ``python -m cassandra_spec.verif.mutation.check CHECK
FOLDER``.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from amaranth.hdl import UnusedElaboratable

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.formal.prover import prove
from cassandra_spec.verif.formal.registry import claims
from cassandra_spec.verif.tools.runner import SuiteError, run_suite
from cassandra_spec.verif.tools.simulated import run_simulated

_ROOT = Path(__file__).resolve().parents[2]


def module_of(block: str) -> str:
    """Return the module with the suite of a block: its design and its tests.

    Raises CassandraError if it does not exist.
    """
    for package in ("cassandra_spec.verif.blocks", "cassandra_spec.verif"):
        name = f"{package}.{block}"
        if (_ROOT / f"{name.replace('.', '/')}.py").is_file():
            return name
    raise CassandraError(f"suite must be a module of verif.blocks or verif, not {block!r}")


def file_of(name: str) -> Path:
    """Return the test file of a name such as ``rtl.test_read_master``.

    Raises CassandraError if it does not exist.
    """
    path = _ROOT / "tests" / f"{name.replace('.', '/')}.py"
    if not path.is_file():
        raise CassandraError(f"test must be a file of tests, not {name!r}")
    return path


def passes(check: str, folder: Path) -> bool:
    """Return True if the check passes.

    Raises CassandraError if the check does not exist or cannot run.
    """
    kind, _, name = check.partition(":")
    if kind == "claim":
        (claim,) = [claim for claim in claims() if claim.name == name]
        return prove(claim, folder).verdict == "proved"
    if kind not in ("suite", "sim", "test"):
        raise CassandraError(f"check must begin with claim:, test:, suite: or sim:, not {check!r}")
    block, _, testcase = name.partition("/")
    if kind == "test":
        return _tests_pass(file_of(block), testcase)
    module = importlib.import_module(module_of(block))
    try:
        if kind == "sim":
            run_simulated(module, testcase or None)
        else:
            top = f"{block.replace('.', '_')}_bench"
            design = module.design()
            run_suite(design, module.__name__, top, build_dir=folder, testcase=testcase or None)
    except (AssertionError, SuiteError) as error:
        print(str(error)[-2000:])
        return False
    return True


def _tests_pass(path: Path, expression: str) -> bool:
    """Return True if pytest passes on the tests of a file that ``-k`` selects."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-k", expression]
    command = [sys.executable, "-m", "pytest", *options, str(path)]
    run = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):
        raise CassandraError(f"{path.name} must run, not end with:\n{run.stdout[-2000:]}")
    print(run.stdout[-2000:])
    return run.returncode == 0


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if the check passes, 3 if it does not."""
    check, folder = sys.argv[1:] if argv is None else argv
    warnings.simplefilter("ignore", UnusedElaboratable)  # blocks that a test does not use
    return 0 if passes(check, Path(folder)) else 3


if __name__ == "__main__":
    raise SystemExit(main())
