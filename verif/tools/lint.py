"""``verilator --lint-only -Wall`` on every exported top, with the waivers beside it (``.vlt``)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.tools.toolchain import verilator_binary, verilator_environment


def lint(file_list: Path) -> str:
    """Return Verilator's warnings and errors for the top that ``file_list`` (a ``.f``) describes.

    The top module is named after the file. Sources may have waivers beside them. The text is empty
    if there are no warnings.
    """
    sources = file_list.read_text(encoding="utf-8").split()
    waivers = ((file_list.parent / source).with_suffix(".vlt") for source in sources)
    command = [
        str(verilator_binary()),
        "--lint-only",
        "-Wall",
        "--top-module",
        file_list.stem,
        *(str(path) for path in waivers if path.is_file()),
        "-F",
        str(file_list),
    ]
    run = subprocess.run(
        command, env=verilator_environment(), capture_output=True, text=True, check=False
    )
    if run.returncode and not run.stderr:
        return f"verilator ended with status {run.returncode}"
    return run.stderr


def main(argv: Sequence[str] | None = None) -> int:
    """Lint every top's ``.f`` in a folder; return 1 if any top has a warning."""
    folder = Path((sys.argv[1:] if argv is None else list(argv))[0])
    lists = sorted(path for path in folder.glob("*.f") if "." not in path.stem)
    if not lists:
        raise CassandraError(f"folder must hold exported file lists (*.f), not {folder}")
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for file_list, report in zip(lists, pool.map(lint, lists), strict=True):
            print(f"{file_list.stem}: {'clean' if not report else 'warnings'}")
            if report:
                failed = 1
                print(report, file=sys.stderr)
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
