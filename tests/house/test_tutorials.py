"""The commands of the tutorial "Run a model", and Python of reference pages, on a tiny model."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path

import pytest

from cassandra_spec.commands.__main__ import main
from tests.model.tiny import write_model

PAGE = Path(__file__).resolve().parents[2] / "docs/tutorials/run-a-model.md"


def commands() -> list[list[str]]:
    """Return words of each ``casspec`` command in the page's blocks of code."""
    found = re.findall(r"^    casspec (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [shlex.split(words) for words in found]


def test_the_commands_of_the_tutorial_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_model(tmp_path / "tiny", max_position_embeddings=4096)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    replies = []
    for words in commands():
        given = ["tiny" if word == "smollm2" else word for word in words]
        assert main(given) == 0, words
        said = capsys.readouterr().out
        if words[0] == "generate":
            replies.append(said.partition("\n\n")[0])
    assert len(replies) == 4
    assert replies[0].strip()
    assert len(set(replies)) == 1, "drafts, their absence and a table give one reply"
    assert (tmp_path / "reply.html").is_file()


def test_the_engines_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (PAGE.parents[1] / "software/runtime.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^    from cassandra_spec.*\n(?:    .*\n|\n(?=    ))*", page, re.MULTILINE)
    assert len(blocks) == 2
    write_model(tmp_path / "tiny", max_position_embeddings=512)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CASSANDRA_HINTS", "0")
    assert main(["pack", "tiny", "packed", "--quiet", "--jobs", "1"]) == 0
    for block in blocks:
        exec(compile(textwrap.dedent(block), str(PAGE), "exec"), {})


@pytest.mark.parametrize("name", ["README.md", "docs/software/python.md", str(PAGE)])
def test_python_of_the_door_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (PAGE.parents[2] / name).read_text(encoding="utf-8")
    first = r"^    import cassandra_spec as cassandra\n(?:    .*\n|\n(?=    ))*"
    [block] = re.findall(first, text, re.MULTILINE)
    write_model(tmp_path / "tiny", max_position_embeddings=512)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CASSANDRA_HINTS", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if "pack(" not in block:
        assert main(["pack", "tiny", "packed", "--quiet", "--jobs", "1"]) == 0
    capsys.readouterr()
    exec(compile(textwrap.dedent(block).replace("smollm2", "tiny"), name, "exec"), {})
    assert capsys.readouterr().out.strip()
