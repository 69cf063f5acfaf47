"""The small models of the tests of models, and a cache of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cassandra_spec.native import NativeError
from cassandra_spec.native.build import build_library
from tests.model.conftest import llama, own_llama

__all__ = ["llama", "own_llama"]


@pytest.fixture(autouse=True, scope="session")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep out of the user's cache, in processes too."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True, scope="session")
def _native_library() -> None:
    """Compile it now: no test is to see the message, and be different from the next."""
    with contextlib.suppress(NativeError):
        build_library()
