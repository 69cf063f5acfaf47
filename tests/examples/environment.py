"""Virtual environments with a wheel of the project, with what it asks for and nothing else.

Nothing is downloaded: the packages that the wheel's own metadata asks for are links to those of
this environment, which the lock pins. The checkout is not on any path.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
NO_COMPILER = ""
"""A ``PATH`` on which there is no program."""


def run(
    command: Sequence[object],
    folder: Path = ROOT,
    *,
    env: Mapping[str, str] | None = None,
    input: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a command that must succeed."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=env,
        input=input,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def wheel(project: Path, out: Path) -> Path:
    """Return the wheel of a project."""
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out], project)
    (found,) = out.glob("*.whl")
    return found


def requirements(found: importlib.metadata.Distribution, extra: str) -> Iterator[Requirement]:
    """Yield the requirements of a distribution, with one of its extras (empty: without)."""
    for requirement in map(Requirement, found.requires or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def closure(start: importlib.metadata.Distribution, extra: str) -> dict[str, Requirement]:
    """Return all direct and indirect requirements of a distribution."""
    needed: dict[str, Requirement] = {}
    left = [*requirements(start, extra), *requirements(start, "")]
    while left:
        requirement = left.pop()
        if str(requirement) not in needed:
            needed[str(requirement)] = requirement
            found = importlib.metadata.distribution(requirement.name)
            assert found.version in requirement.specifier, requirement
            for each in (*requirement.extras, ""):
                left += requirements(found, each)
    return needed


class Environment:
    """A virtual environment with a wheel and links to what it needs."""

    def __init__(self, folder: Path, archive: Path, extra: str = "") -> None:
        self.folder = folder
        run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"])
        self.python = folder / "venv" / "bin" / "python"
        (self.packages,) = (folder / "venv").glob("lib/python*/site-packages")
        self.install(archive)
        (info,) = self.packages.glob("cassandra_spec-*.dist-info")
        for needed in closure(importlib.metadata.PathDistribution(info), extra).values():
            found = importlib.metadata.distribution(needed.name)
            for top in {path.parts[0] for path in found.files or ()} - {"..", "__pycache__"}:
                if not (self.packages / top).exists():
                    (self.packages / top).symlink_to(str(found.locate_file(top)))

    def install(self, archive: Path) -> None:
        """Install a wheel alone."""
        pip = [sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet"]
        run([*pip, "--disable-pip-version-check", "--no-index", "--no-deps", archive])

    def run(
        self, *words: object, input: str = "", path: str = os.environ["PATH"]
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, in a folder of its own, with nothing inherited."""
        program = [self.python.with_name(str(words[0])), *words[1:]]
        switches = ("HF_HUB_OFFLINE", "OMP_NUM_THREADS", "PYTHONDONTWRITEBYTECODE")
        env = {"PATH": path, "HOME": str(self.folder)} | dict.fromkeys(switches, "1")
        return run(program, self.folder, env=env, input=input)

    def files(self) -> set[Path]:
        """Return the files of the packages that are not links."""
        return {path for path in self.packages.rglob("*") if not path.is_dir()}
