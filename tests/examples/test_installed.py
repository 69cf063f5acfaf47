"""The wheel in clean environments; the examples run there."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from cassandra_spec import __version__
from cassandra_spec.native.build import build_library
from cassandra_spec.verif.tools.toolchain import verilator_environment
from tests.examples.environment import NO_COMPILER, ROOT, Environment, run, wheel
from tests.model.tiny import write_model

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def runtime(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Return an environment with the extra ``runtime``, a small model and objects to link."""
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


def test_without_a_compiler_packing_gives_the_same_bytes(runtime: Environment) -> None:
    flags = ["--scheme", "exact", "--jobs", 1]
    done = runtime.run("casspec", "pack", "model", "golden-packed", *flags, path=NO_COMPILER)
    (line,) = [line for line in done.stderr.splitlines() if "compiler" in line]
    assert re.match(r"casspec: the reference codec is used, .* slower: .* install g\+\+", line)
    golden, native = (runtime.folder / name for name in ("golden-packed", "packed"))
    name = "model.safetensors"
    assert (golden / name).read_bytes() == (native / name).read_bytes()


def test_without_a_compiler_torch_decodes(runtime: Environment) -> None:
    asked = ["generate", "packed", "--prompt", "word5 word9", "--max-tokens", 5, "--json"]
    done = runtime.run("casspec", *asked, path=NO_COMPILER)
    assert "native" not in json.loads(done.stdout)["report"]
    (line,) = done.stderr.splitlines()
    assert re.match(r"casspec: the torch backend was chosen, .* slower: .* install g\+\+", line)
    done = runtime.run("casspec", "chat", "packed", input="word5\n", path=NO_COMPILER)
    assert done.stderr.splitlines()[0].endswith(line)  # behind the prompt of the first message


def test_example_chat(runtime: Environment) -> None:
    command = ["python", EXAMPLES / "chat.py", "model", "chat-packed"]
    done = runtime.run(*command, input="word5 word9\nword7\n")
    assert len(done.stdout.splitlines()) == 2
    assert re.search(r"^native: \d+ tokens in \d+ verifications$", done.stderr, re.MULTILINE)
    assert (runtime.folder / "chat-packed" / "model.safetensors").is_file()


def test_example_draft_method(runtime: Environment, tmp_path: Path) -> None:
    """In the checkout: the wheel has no draft methods but the product's."""
    built = wheel(EXAMPLES / "draft_method", tmp_path)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--no-index", "--no-deps", "--target", tmp_path / "packages", built])
    text = "word5 word9 word7 word5 word9 word3 " * 9
    (tmp_path / "text").write_text(text, encoding="utf-8")
    question = {"question_id": 1, "category": "one", "turns": ["word5 word9"]}
    (tmp_path / "questions").write_text(json.dumps(question), encoding="utf-8")
    packed = runtime.folder / "packed"
    command = ["compare", packed, "--methods", "bigram:text=text@2", "--quiet"]
    limits = ["--max-tokens", 12, "--questions", "questions", "--json", "out"]
    env = os.environ | {"PYTHONPATH": str(tmp_path / "packages")}
    casspec = [sys.executable, "-m", "cassandra_spec.commands"]
    said = run([*casspec, *command, *limits], tmp_path, env=env).stdout
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
