"""Small models that tests of models and of the command share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.model.tiny import write_model


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an untied Llama in BF16; not to be changed."""
    return write_model(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture
def own_llama(llama: Path, tmp_path: Path) -> Path:
    """Return a copy that a test may change."""
    return Path(shutil.copytree(llama, tmp_path / "own-llama"))
