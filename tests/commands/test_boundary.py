"""A command never ends with a traceback, whatever a file, a flag or a terminal contains."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from cassandra_spec.commands.__main__ import main
from cassandra_spec.golden.checksums import Checksums
from cassandra_spec.model.speculative import causal_lm
from cassandra_spec.native.models import loaded
from cassandra_spec.toolkit.running import LONGEST_LINE
from tests.commands.status import status_of

Output = pytest.CaptureFixture[str]
COMMAND = [sys.executable, "-m", "cassandra_spec.commands"]
UNARY = ("--scheme", "unary", "--quiet")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def packed(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("packed") / "p"
    assert main(["pack", str(llama), str(where), *UNARY, "--jobs", "1"]) == 0
    return where


def assert_one_line(err: str) -> None:
    assert err.startswith("casspec: error: ")
    assert err.count("\n") == 1
    assert len(err) <= LONGEST_LINE + 1


def change_json(name: str, **values: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        body = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(body | values))

    return change


def write(name: str, text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_text(text)

    return change


@pytest.mark.parametrize(
    "change",
    [
        change_json("config.json", hidden_size="wide"),
        change_json("config.json", model_type=["llama"]),
        change_json("config.json", rope_scaling={"rope_type": "no such one"}),
        write("config.json", "[" * 5000),
        write("config.json", "{"),
        write("tokenizer.json", "{"),
        write("tokenizer.json", '{"version": 1}'),
        write("tokenizer.json", "x" * 10**6),
        write("chat_template.jinja", "{{ raise_exception('x' * 99999) }}"),
        write("chat_template.jinja", "{% for"),
        write("chat_template.jinja", "{{ messages[7].content }}"),
        lambda folder: (folder / "tokenizer.json").unlink(),
    ],
)
def test_a_broken_file_is_one_line(
    packed: Path, tmp_path: Path, change: Callable[[Path], None], capfd: Output
) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(packed, folder)
    change(folder)
    capfd.readouterr()
    for flags in ([], ["--debug"]):
        words = ["generate", str(folder), "--prompt", "word1", "--max-tokens", "2", *flags]
        assert main(words) == 2
        err = capfd.readouterr().err
        last = err.splitlines(keepends=True)[-1]
        assert_one_line(last)
        assert ("Traceback" in err) == bool(flags)
        assert flags or last == err


@pytest.mark.parametrize(
    "line",
    [
        "calibrate smollm2 OUT --samples 1" + "0" * 40,
        "calibrate smollm2 OUT --samples 0",
        "calibrate smollm2 OUT --length -1",
        "bench decode smollm2 --max-tokens 0",
        "bench decode smollm2 --max-tokens -1",
        "bench acceptance smollm2 --max-tokens 0",
        "bench acceptance smollm2 --max-tokens -1",
        "bench codec smollm2 --values 1" + "0" * 40,
        "bench pack smollm2 --jobs 0",
        "tune smollm2 OUT --max-tokens -1",
        "generate PACKED --prompt x --seed -1",
        "generate PACKED --prompt x --max-tokens 1" + "0" * 40,
        "generate PACKED --prompt x --max-tokens 0",
        "inspect " + "x" * 10**5,
        "rtl --top " + "x" * 10**6,
    ],
)
def test_a_number_out_of_bounds_or_a_long_word_is_one_line(line: str, capfd: Output) -> None:
    assert status_of(*line.split()) == 2
    err = capfd.readouterr().err
    assert_one_line(err)
    assert line.startswith(("inspect", "rtl")) or "must be an integer from" in err


@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize("part", ["speculation", "verification", "directory"])
def test_a_damaged_region_is_one_line(
    packed: Path, tmp_path: Path, backend: str, part: str, capfd: Output
) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(packed, folder)
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[:8], "little")
    name = f"model.layers.1.mlp.up_proj.weight.{part}"
    data[8 + size + json.loads(data[8 : 8 + size])[name]["data_offsets"][0]] ^= 4
    path.write_bytes(data)
    words = ["generate", str(folder), "--prompt", "word1", "--backend", backend, "--max-tokens=2"]
    assert main(words) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert_one_line(err)
    assert f"{name} must have the CRC-32 " in err


@pytest.mark.parametrize("backend", ["torch", "native"])
def test_verify_finds_what_has_changed_in_memory(
    packed: Path, backend: str, monkeypatch: pytest.MonkeyPatch, capfd: Output
) -> None:
    words = ["generate", str(packed), "--prompt", "word1", "--backend", backend, "--max-tokens=2"]
    words += ["--verify", "--json"]
    assert main(words) == 0
    whole = json.loads(capfd.readouterr().out)["tokens"]

    class Flipped(Checksums):
        """A bit of the first array flips once the checksums are there."""

        def __init__(self, arrays: Iterable[tuple[str, NDArray[np.uint8]]]) -> None:
            found = list(arrays)
            super().__init__(found)
            found[0][1][0] ^= 1

    owner = {"torch": causal_lm, "native": loaded}[backend]
    monkeypatch.setattr(owner, "Checksums", Flipped)
    assert main(words) == 2
    out, err = capfd.readouterr()
    assert json.loads(out)["tokens"] == whole
    assert_one_line(err)
    assert "model.embed_tokens.weight in memory must have the CRC-32 " in err


def run(words: list[str | bytes | Path], **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *words],
        cwd=ROOT,
        capture_output=True,
        check=False,
        **options,  # type: ignore[call-overload]
    )


def test_a_path_that_is_not_utf8(packed: Path, tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff\xfe"
    shutil.copytree(packed, os.fsdecode(name))
    done = run(["inspect", name])
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\udcff\udcfe" in done.stdout
    done = run(["inspect", name + b"x"])
    assert done.returncode == 2
    assert_one_line(done.stderr.decode())


def test_an_ascii_terminal_without_standard_input(packed: Path) -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = run(["inspect", packed], env=environment, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, b"")


def test_closed_standard_output(packed: Path) -> None:
    script = f'exec "$0" -m cassandra_spec.commands inspect "{packed}" >&-'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable], cwd=ROOT, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_prompt_that_is_not_utf8(packed: Path) -> None:
    done = run(["generate", packed, "--prompt", b"word1 \xff", "--max-tokens", "2"])
    assert done.returncode in (0, 2)
    assert b"Traceback" not in done.stderr
    if done.returncode:
        assert_one_line(done.stderr.decode())
