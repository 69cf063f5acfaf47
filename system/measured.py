"""Acceptance that the runtime measured, from the file that it wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from system.acceptance import MAX_GAMMA, Acceptance
from system.errors import SystemModelError, check_count
from system.files import read_json

__all__ = ["load_measured"]


def load_measured(path: Path) -> tuple[Acceptance, int]:
    """Acceptance (accepted over drafted) and gamma of ``casspec generate --json``.

    Raises:
        SystemModelError: the file has no such report, or nothing was drafted.
        OSError: the file cannot be read.
    """
    report: Any = read_json(path).get("report")
    if not isinstance(report, dict) or not {"acceptance_rate", "gamma"} <= set(report):
        raise SystemModelError(f"{path} must have a report with acceptance_rate and gamma")
    gamma, rate = report["gamma"], report["acceptance_rate"]
    if rate is None:
        raise SystemModelError(f"{path} must be of a run that drafted tokens")
    try:
        check_count("gamma", gamma, 1, MAX_GAMMA)
        return Acceptance(rate=rate), gamma
    except SystemModelError as error:
        raise SystemModelError(f"{path}: {error}") from None
