"""Hostile files that once caused more than one line and exit code 2."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.commands.__main__ import main
from tests.commands.status import status_of
from tests.commands.test_boundary import assert_one_line, change_json, write
from tests.model.test_file import rewrite
from tests.model.test_gguf import small_gguf

Output = pytest.CaptureFixture[str]
Change = Callable[[Path], object]
LAYER = "model.layers.1.mlp.up_proj.weight"
TORCH, NATIVE = (
    f"generate packed --prompt word1 --max-tokens 2 --backend {backend}"
    for backend in ("torch", "native")
)


@dataclasses.dataclass(frozen=True)
class Finding:
    """A change of a folder with a model (`plain`) and its packed form (`packed`), and a command."""

    name: str
    change: Change
    command: str
    message: str


def in_packed(change: Change) -> Change:
    return lambda folder: change(folder / "packed")


def described(change: Callable[[dict[str, Any], dict[str, Any]], object]) -> Change:
    """Return the description of the packed file changed, its checksum made right."""
    return lambda folder: rewrite(folder / "packed/model.safetensors", change)


def config(**entries: object) -> Change:
    return in_packed(change_json("config.json", **entries))


def template(text: str) -> Change:
    return in_packed(write("chat_template.jinja", text))


def both(header: dict[str, Any]) -> dict[str, Any]:
    """Return an entry that declares a part of a packed tensor as plain."""
    return {"dtype": "U32", "shape": header[f"{LAYER}.directory"]["shape"], "crc32": 0}


def loop_of_links(folder: Path) -> None:
    (folder / "a").symlink_to(folder / "b")
    (folder / "b").symlink_to(folder / "a")


def hostile_gguf(folder: Path) -> None:
    (folder / "m.gguf").write_bytes(small_gguf(tensors=1 << 40))


FINDINGS = [
    Finding("3: a text for a number", config(hidden_size="48"), TORCH, "hidden_size must be an"),
    Finding("3: a list for a name", config(model_type=["llama"]), TORCH, "model_type must be"),
    Finding(
        "3: no tokenizer",
        in_packed(lambda path: (path / "tokenizer.json").unlink()),
        TORCH,
        "tokenizer",
    ),
    Finding("3: a template that raises", template("{{ 1 / 0 }}"), TORCH, "ZeroDivisionError"),
    Finding("4: a list as config", in_packed(write("config.json", "[]")), NATIVE, "config.json"),
    Finding(
        "4: no rotary base",
        config(rope_theta=None, rope_parameters=None),
        NATIVE,
        "rope_theta must be",
    ),
    Finding("4: a stop token of 2^40", config(eos_token_id=1 << 40), NATIVE, "eos_token_id must"),
    Finding("5: layers, torch", config(num_hidden_layers=10**6), TORCH, "num_hidden_layers must"),
    Finding("5: layers, native", config(num_hidden_layers=10**6), NATIVE, "num_hidden_layers must"),
    Finding("5: labels", config(num_labels=10**12), TORCH, "num_labels must be an integer"),
    Finding("5: a size of the config alone", config(vocab_size=1 << 26), TORCH, "have the shape"),
    Finding("5: the same, native", config(vocab_size=1 << 26), NATIVE, "have the shape"),
    Finding(
        "5: a template without end",
        template("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"),
        TORCH,
        "the chat template must be done in",
    ),
    Finding("5: a large template", template("{{ 'x' * 10**7 }}"), TORCH, "bytes of text"),
    Finding("5: counts of GGUF", hostile_gguf, "pack m.gguf out", "tensors are more than"),
    Finding("6: no layers", config(num_hidden_layers=0), TORCH, "num_hidden_layers must be"),
    Finding("6: -1 layers", config(num_hidden_layers=-1), NATIVE, "num_hidden_layers must be"),
    Finding(
        "12: bits of a stream",
        described(lambda h, b: b["tensors"][LAYER]["stream_bits"].update(values=10**400)),
        "inspect packed",
        "stream_bits must be",
    ),
    Finding(
        "12: packed and plain",
        described(lambda h, b: b["others"].update({f"{LAYER}.directory": both(h)})),
        "inspect packed",
        "must be packed or plain",
    ),
    *(
        Finding(
            f"12: a transposed shape, {name}",
            described(lambda h, b: b["tensors"][LAYER]["shape"].reverse()),
            command,
            f"{LAYER} must have the shape [80, 48], as the config says, not [48, 80]",
        )
        for name, command in (("torch", TORCH), ("native", NATIVE))
    ),
    Finding("12: a long name", config(model_type="x" * 10**6), TORCH, "model_type must be"),
    Finding("12: a loop as destination", loop_of_links, "unpack packed a", "leads nowhere"),
    Finding("12: a loop as source", loop_of_links, "inspect a", "is missing"),
]


@pytest.fixture(scope="module")
def folder(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("hostile")
    shutil.copytree(llama, where / "plain")
    words = ["pack", f"{where / 'plain'}", f"{where / 'packed'}", "--quiet", "--jobs", "1"]
    assert main(words) == 0
    return where


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.name)
def test_a_finding_is_one_line(
    finding: Finding,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: Output,
) -> None:
    room = tmp_path / "room"
    shutil.copytree(folder, room)
    finding.change(room)
    monkeypatch.chdir(room)
    monkeypatch.setattr("cassandra_spec.text.reply.TEMPLATE_SECONDS", 3.0)
    capfd.readouterr()
    assert status_of(*finding.command.split()) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert_one_line(err)
    assert finding.message in err
