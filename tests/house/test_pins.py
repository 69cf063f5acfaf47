"""Pins: pyproject.toml, the lock and what is installed agree."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([A-Za-z0-9_.]+)$")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def lock(file: str) -> dict[str, str]:
    lines = [line.split("#")[0].strip() for line in (ROOT / file).read_text().splitlines()]
    matches = {line: PIN.match(line) for line in lines if line}
    assert all(matches.values()), [line for line, match in matches.items() if not match]
    return {normal(match[1]): match[2] for match in matches.values() if match}


def asked() -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["project"]["optional-dependencies"]["dev"]
    matches = [PIN.match(text) for text in wanted]
    assert all(matches), wanted
    return {normal(match[1]): match[2] for match in matches if match}


def test_the_lock_holds_what_the_project_asks_for() -> None:
    locked = lock("requirements.txt")
    assert {name: locked.get(name) for name in asked()} == asked()


def test_the_build_backend_is_the_locked_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["build-system"]["requires"] == [f"hatchling=={asked()['hatchling']}"]


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-model.txt"])
def test_what_is_installed_is_what_is_locked(file: str) -> None:
    locked = lock(file)
    found = {name: importlib.metadata.version(name).split("+")[0] for name in locked}
    assert found == locked


def test_every_pin_that_the_project_asks_for_has_its_reason() -> None:
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    pins = [line for line in lines if re.match(r'^    "[a-z0-9-]+==', line)]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(pins) == len(asked()) + len(project["optional-dependencies"]["bench"])
    assert [line for line in pins if not re.search(r'",\s+# \w', line)] == []
