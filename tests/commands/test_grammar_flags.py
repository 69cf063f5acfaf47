"""``casspec generate --json-schema``, ``--regex`` and ``--grammar``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.commands.__main__ import main
from tests.commands.status import error_of
from tests.model.byte_model import pack_byte_model

SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["man", "dog"]}, "count": {"type": "integer", "maximum": 9}},
    "required": ["kind", "count"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_byte_model(tmp_path_factory.mktemp("bytes"))


def run(model: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    command = ["generate", str(model), "--prompt", "ab", "--json", "--max-tokens", "80"]
    assert main([*command, "--context", "256", *flags]) == 0
    body: dict[str, Any] = json.loads(capsys.readouterr().out)
    return body


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_a_reply_that_a_schema_describes(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    flags = ["--backend", backend, "--json-schema", str(tmp_path / "s.json")]
    found, plain = (run(model, capsys, *flags, *more) for more in ([], ["--plain"]))
    assert found["tokens"] == plain["tokens"]
    assert found["stop_reasons"] == ["stop_token"]
    body = json.loads(found["texts"][0])
    assert body["kind"] in ("man", "dog")
    assert body["count"] <= 9
    assert found["report"]["sources"]["grammar"]["accepted"] > 0
    assert "grammar" not in plain["report"]["sources"]


def test_other_grammars(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "g.lark").write_text('start: "x" ("ab" | "cd")')
    (tmp_path / "g.gbnf").write_text('root ::= "x" ("ab" | "cd")')
    asked = [
        ["--regex", "x(ab|cd)"],
        *(["--grammar", str(tmp_path / f"g.{kind}")] for kind in ("lark", "gbnf")),
    ]
    for flags in asked:
        [text] = run(model, capsys, *flags)["texts"]
        assert re.fullmatch("x(ab|cd)", text)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--regex", "("], "regex must be a grammar to compile: .*unclosed group"),
        (
            ["--regex", "a", "--grammar", "x.lark"],
            "one of grammar and regex must be given, not both",
        ),
        (["--grammar", "x.txt"], "grammar must be a file NAME.lark or NAME.gbnf, not x.txt"),
        (["--json-schema", "missing.json"], "missing.json"),
    ],
)
def test_flags_that_are_refused(
    model: Path, capsys: pytest.CaptureFixture[str], flags: list[str], line: str
) -> None:
    assert re.search(line, error_of(capsys, "generate", str(model), "--prompt", "ab", *flags))
