"""The wheel in clean environments, with what it asks for and nothing else; the examples run there.

Nothing is downloaded: the packages that the wheel's own metadata asks for are links to those of
this environment, which the lock pins. The checkout is not on any path.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from cassandra_spec import __version__
from cassandra_spec.native.build import build_library
from cassandra_spec.verif.tools.toolchain import verilator_environment
from tests.model.tiny import write_model

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


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
    """Return the requirements of a distribution, with one of its extras (empty: without)."""
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

    def run(self, *words: object, input: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, in a folder of its own, with nothing inherited."""
        program = [self.python.with_name(str(words[0])), *words[1:]]
        switches = ("HF_HUB_OFFLINE", "OMP_NUM_THREADS", "PYTHONDONTWRITEBYTECODE")
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder)} | dict.fromkeys(switches, "1")
        return run(program, self.folder, env=env, input=input)

    def files(self) -> set[Path]:
        """Return files of the packages that are not links."""
        return {path for path in self.packages.rglob("*") if not path.is_dir()}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def runtime(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Install the extra ``runtime``, with a small model and objects of the native library."""
    made = Environment(tmp_path_factory.mktemp("runtime"), archive, "runtime")
    native = made.folder / ".cache" / "cassandra-spec" / "native"
    native.mkdir(parents=True)
    (native / "objects").symlink_to(build_library().parents[1] / "objects")
    write_model(made.folder / "model", max_position_embeddings=512)
    made.run("casspec", "pack", "model", "packed", "--scheme", "exact", "--quiet", "--jobs", 1)
    return made


def test_golden_is_usable_alone(archive: Path, tmp_path: Path) -> None:
    alone = Environment(tmp_path, archive)
    page = (ROOT / "docs/software/runtime.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.S)
    program = f"{example}\nimport cassandra_spec; print(cassandra_spec.__file__)"
    said = alone.run("python", "-c", program).stdout
    assert str(alone.packages) in said
    assert "unary" not in said
    found = {path.name for path in alone.packages.iterdir() if path.is_symlink()}
    assert {"numpy", "safetensors"} <= found
    assert not {"torch", "amaranth", "transformers", "tqdm"} & found
    assert __version__ in alone.run("casspec", "--version").stdout


def test_native_code_is_built_into_the_user_s_cache(runtime: Environment) -> None:
    before = runtime.files()
    asked = ["generate", "packed", "--prompt", "word5 word9", "--max-tokens", 12, "--json"]
    body = json.loads(runtime.run("casspec", *asked, "--backend", "native").stdout)
    assert body["report"]["native"]["threads"] >= 1
    assert body["report"]["mean_acceptance_length"] >= 1
    assert len(list((runtime.folder / ".cache").rglob("libcassandra.so"))) == 1
    assert runtime.files() == before


def test_example_chat(runtime: Environment) -> None:
    command = ["python", EXAMPLES / "chat.py", "model", "chat-packed"]
    done = runtime.run(*command, input="word5 word9\nword7\n")
    assert len(done.stdout.splitlines()) == 2
    assert re.search(r"^native: \d+ tokens in \d+ verifications$", done.stderr, re.MULTILINE)
    assert (runtime.folder / "chat-packed" / "model.safetensors").is_file()


def test_example_draft_method(runtime: Environment, tmp_path: Path) -> None:
    runtime.install(wheel(EXAMPLES / "draft_method", tmp_path))
    text = "word5 word9 word7 word5 word9 word3 " * 9
    (runtime.folder / "text").write_text(text, encoding="utf-8")
    question = {"question_id": 1, "category": "one", "turns": ["word5 word9"]}
    (runtime.folder / "questions").write_text(json.dumps(question), encoding="utf-8")
    command = ["compare", "packed", "--methods", "bigram:text=text@2", "--quiet"]
    limits = ["--max-tokens", 12, "--questions", "questions", "--json", "out"]
    said = runtime.run("casspec", *command, *limits).stdout
    assert "bigram:text=text@2" in said
    assert said.endswith("PASS: 0 replies differ from the plain ones\n")


def test_example_fusesoc(tmp_path: Path) -> None:
    done = run([sys.executable, EXAMPLES / "fusesoc" / "take.py", tmp_path])
    assert done.stdout == "draft_reader: clean\n"
    lint = [Path(sys.executable).with_name("fusesoc"), "--cores-root", ".", "run", "--target=lint"]
    env = verilator_environment() | {"HOME": str(tmp_path)}
    said = run([*lint, "example:cassandra:draft_reader"], tmp_path, env=env).stderr
    assert "Preparing cassandra:decoder:" in said
    top = tmp_path / "draft_reader.v"
    top.write_text(top.read_text("utf-8").replace("{28'b0, taken}", "taken"), encoding="utf-8")
    with pytest.raises(AssertionError, match=r"%Warning-WIDTHEXPAND: .*draft_reader\.v"):
        run([*lint, "example:cassandra:draft_reader"], tmp_path, env=env)
