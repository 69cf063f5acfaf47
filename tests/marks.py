"""Marks of parametrized tests."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet

__all__ = ["slow"]


def slow(*values: object) -> ParameterSet:
    """Return a set of parameters that only `make test-all` runs."""
    return pytest.param(*values, marks=pytest.mark.slow)
