"""The wheel with the native library in it, on a machine without a compiler."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from cassandra_spec.native.tools.wheel import write_wheel
from tests.examples.environment import NO_COMPILER, Environment, run
from tests.model.tiny import write_model

pytestmark = pytest.mark.slow  # compiles the whole library; `make wheel` runs it, too

REPLY = ["--prompt", "word5 word9", "--max-tokens", "24", "--backend", "native", "--json"]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of ``make wheel`` (``CASSANDRA_WHEEL``), or one that is built now."""
    if given := os.environ.get("CASSANDRA_WHEEL"):
        return Path(given)
    out = tmp_path_factory.mktemp("prebuilt")
    write_wheel(out)
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def prebuilt(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Return an environment with the extra ``runtime`` and a small model packed by native code."""
    made = Environment(tmp_path_factory.mktemp("prebuilt"), archive, "runtime")
    write_model(made.folder / "model", max_position_embeddings=512)
    flags = ["--scheme", "exact", "--codec", "native", "--jobs", 1]
    made.run("casspec", "pack", "model", "packed", *flags, path=NO_COMPILER)
    return made


def replies(outcome: str) -> list[object]:
    found: list[object] = json.loads(outcome)["texts"]
    return found


def test_replies_are_those_of_the_compiled_library(prebuilt: Environment, tmp_path: Path) -> None:
    asked = ["generate", prebuilt.folder / "packed", *REPLY]
    found = prebuilt.run("casspec", *asked, path=NO_COMPILER)
    assert "native" in json.loads(found.stdout)["report"]
    compiled = run([sys.executable, "-m", "cassandra_spec.commands", *asked])
    assert replies(found.stdout) == replies(compiled.stdout)


def test_nothing_is_compiled_where_there_is_a_compiler(prebuilt: Environment) -> None:
    before = prebuilt.files()
    done = prebuilt.run("casspec", "generate", "packed", *REPLY)
    assert "native" in json.loads(done.stdout)["report"]
    assert not list((prebuilt.folder / ".cache").rglob("*.so"))
    assert prebuilt.files() == before


def test_a_changed_source_is_not_run_with_the_old_library(prebuilt: Environment) -> None:
    (source,) = prebuilt.packages.glob("cassandra_spec/native/src/common/isa.h")
    before = source.read_text("utf-8")
    source.write_text(f"{before}// changed\n", "utf-8")
    try:
        asked = ["generate", "packed", *REPLY[:-3], "--json"]
        done = prebuilt.run("casspec", *asked, path=NO_COMPILER)
    finally:
        source.write_text(before, "utf-8")
    assert "native" not in json.loads(done.stdout)["report"]
    first, second = done.stderr.splitlines()
    assert first.endswith("must match its sources, which are now compiled instead")
    assert "the torch backend was chosen" in second
