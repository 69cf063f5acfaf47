"""Requirements: the ranges of pyproject.toml, the lock and what is installed agree."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import cassandra_spec
from cassandra_spec.toolkit.running import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([A-Za-z0-9_.]+)$")
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(PYPROJECT)
LOCKED_EXTRAS = ("runtime", "hardware", "registers", "plots", "serve", "grammar", "cluster", "dev")


def lock(file: str) -> dict[str, str]:
    lines = [line.split("#")[0].strip() for line in (ROOT / file).read_text().splitlines()]
    matches = {line: PIN.match(line) for line in lines if line}
    assert all(matches.values()), [line for line, match in matches.items() if not match]
    return {canonicalize_name(match[1]): match[2] for match in matches.values() if match}


def ranges(*extras: str) -> list[Requirement]:
    """Return the requirements of the project and these extras, without the project itself."""
    project = PROJECT["project"]
    lists = [project["dependencies"], *(project["optional-dependencies"][name] for name in extras)]
    every = [Requirement(text) for texts in lists for text in texts]
    return [requirement for requirement in every if requirement.name != project["name"]]


def test_the_lock_is_within_the_ranges() -> None:
    locked = lock("requirements.txt")
    wanted = ranges(*LOCKED_EXTRAS)
    assert [str(each) for each in wanted if canonicalize_name(each.name) not in locked] == []
    outside = [
        each for each in wanted if locked[canonicalize_name(each.name)] not in each.specifier
    ]
    assert outside == []


def test_every_range_has_two_ends_and_a_reason() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    for requirement in ranges(*extras):
        assert sorted(part.operator for part in requirement.specifier) == ["<", ">="], requirement
    lines = [line for line in PYPROJECT.splitlines() if re.match(r'^    "[a-z0-9\[\]-]+>=', line)]
    assert len(lines) == len(ranges(*extras))
    assert [line for line in lines if not re.search(r'",\s+# \w', line)] == []


def test_every_pin_of_a_package_that_the_project_asks_for_has_its_reason() -> None:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    wanted = {canonicalize_name(each.name) for each in ranges(*LOCKED_EXTRAS)}
    reasons = [line for line in lines if re.search(r"==\S+ +# \w", line)]
    explained = {canonicalize_name(line.split("==")[0]) for line in reasons}
    assert explained == wanted


def test_the_build_backend_is_the_locked_one() -> None:
    (backend,) = [Requirement(text) for text in PROJECT["build-system"]["requires"]]
    assert lock("requirements.txt")[backend.name] in backend.specifier


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-model.txt"])
def test_what_is_installed_is_what_is_locked(file: str) -> None:
    locked = lock(file)
    found = {name: importlib.metadata.version(name).split("+")[0] for name in locked}
    assert found == locked


def test_the_changelog_begins_with_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\S+)", text, re.MULTILINE)
    assert next(each for each in versions if each != "Unreleased") == cassandra_spec.__version__
    assert versions == sorted(versions, reverse=True)


def test_the_command_knows_the_extra_of_every_module() -> None:
    owners = {
        module: {canonicalize_name(name) for name in names}
        for module, names in importlib.metadata.packages_distributions().items()
    }
    for extra in ("runtime", "hardware", "registers", "plots", "serve", "cluster"):
        wanted = {canonicalize_name(each.name) for each in ranges(extra)}
        wanted -= {canonicalize_name(each.name) for each in ranges()}
        modules = {name for name, found in EXTRAS.items() if owners.get(name, set()) & wanted}
        assert {owner for name in modules for owner in owners[name]} >= wanted
        assert {name for name, found in EXTRAS.items() if found == extra} <= modules
