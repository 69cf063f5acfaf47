"""The native tests run on every instruction set that the machine has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cassandra_spec import native
from cassandra_spec.native.library import available_isas


@pytest.fixture(params=native.ISAS)
def every_isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Use each instruction set in turn; those that the machine lacks are skipped."""
    if request.param not in available_isas():
        pytest.skip(f"this machine does not have {request.param}")
    native.set_isa(request.param)
    yield request.param
    native.set_isa(None)
