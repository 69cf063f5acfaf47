"""Part of ``make lint``: run clang-tidy's bug checks on each source with the build's flags.

Sources for 64-bit Arm are checked where its cross compiler is installed, whose headers they need.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from cassandra_spec.native.build import (
    CROSS_COMPILER,
    ISA_FLAGS,
    SOURCES,
    Unit,
    compilations,
    find_cross_toolchain,
    find_toolchain,
    read_sources,
    write_sources,
)

ARM = "aarch64"


def _arm_units(texts: dict[str, str]) -> list[Unit]:
    """Return the compilations of sources that this machine does not compile but 64-bit Arm does."""
    if not shutil.which(CROSS_COMPILER.format(machine=ARM)):
        return []
    cross = find_cross_toolchain(ARM)
    others = tuple(isa for isa in cross.isas if isa not in ISA_FLAGS)
    units = compilations(texts, replace(cross, isas=others))
    return [replace(unit, flags=(f"--target={ARM}-linux-gnu", *unit.flags)) for unit in units]


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
        units = compilations(texts, find_toolchain()) + _arm_units(texts)
        jobs = [pool.submit(check, unit, folder) for unit in units]
        findings = [job.result() for job in jobs]
    print("".join(findings), end="")
    return int(any(findings))


if __name__ == "__main__":
    raise SystemExit(main())
