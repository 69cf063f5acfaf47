"""The small models of the tests of models, and a cache of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.native import NativeError
from cassandra_spec.native.build import build_library
from tests.model.conftest import llama, own_llama
from tests.model.tiny import write_model

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


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a packed model that has room for a long reply, and nothing that ends it."""
    place = tmp_path_factory.mktemp("roomy")
    size = {"max_position_embeddings": 1 << 15, "eos_token_id": None, "bos_token_id": None}
    source = write_model(place / "plain", **size)  # type: ignore[arg-type]
    flags = ["--scheme", "exact", "--fill", "midpoint", "--quiet", "--jobs", "1"]
    assert main(["pack", str(source), str(place / "packed"), *flags]) == 0
    return place / "packed"
