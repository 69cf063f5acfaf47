"""Part of ``make lint``: run clang-tidy's bug checks on each source with the build's flags."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cassandra_spec.native.build import (
    SOURCES,
    Unit,
    compilations,
    find_toolchain,
    read_sources,
    write_sources,
)


def main() -> int:
    """Check all sources; print findings and return 1 if any."""
    program = Path(sys.executable).with_name("clang-tidy")
    rules = SOURCES.parents[1] / ".clang-tidy"

    def check(unit: Unit, folder: str) -> str:
        command = [
            str(program),
            "--quiet",
            f"--config-file={rules}",
            unit.source,
            "--",
            *unit.flags,
        ]
        run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        return run.stdout if run.returncode else ""

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        texts = read_sources()
        write_sources(texts, Path(folder))
        units = compilations(texts, find_toolchain())
        jobs = [pool.submit(check, unit, folder) for unit in units]
        findings = [job.result() for job in jobs]
    print("".join(findings), end="")
    return int(any(findings))


if __name__ == "__main__":
    raise SystemExit(main())
