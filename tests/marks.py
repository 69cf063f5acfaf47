"""Marks of parametrized tests."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet

__all__ = ["exhaustive", "slow"]


def slow(*values: object) -> ParameterSet:
    """Return a set of parameters that `make test-all` runs and `make test` leaves out."""
    return pytest.param(*values, marks=pytest.mark.slow)


def exhaustive(*values: object) -> ParameterSet:
    """Return a set of parameters that only `make test-exhaustive` runs."""
    return pytest.param(*values, marks=pytest.mark.exhaustive)
