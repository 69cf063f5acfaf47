from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path

import pytest

from cassandra_spec.toolkit.documents import (
    DocumentError,
    block,
    block_names,
    fill,
    fill_file,
    provenance,
)

DOCUMENT = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n<!-- y -->\n<!-- /y -->\n"


def test_a_block_is_filled_and_nothing_else() -> None:
    filled = "a\n<!-- x -->\n\nnew\n\n<!-- /x -->\nb\n<!-- y -->\n<!-- /y -->\n"
    assert fill(DOCUMENT, {"x": "new\n"}) == filled
    assert fill(filled, {"x": "\nnew"}) == filled
    assert (block(DOCUMENT, "x"), block(filled, "x"), block(filled, "y")) == ("old", "new", "")
    assert block_names(DOCUMENT) == ["x", "y"]


def test_a_file_gets_all_blocks_or_none(tmp_path: Path) -> None:
    path = tmp_path / "d.md"
    path.write_text(DOCUMENT, encoding="utf-8")
    fill_file(path, {"x": "1", "y": "2"})
    once = path.read_text(encoding="utf-8")
    assert (block(once, "x"), block(once, "y")) == ("1", "2")
    with pytest.raises(DocumentError):
        fill_file(path, {"x": "3", "z": "4"})
    assert path.read_text(encoding="utf-8") == once


@pytest.mark.parametrize(
    "document",
    [
        "",
        "<!-- x -->",
        "<!-- /x -->",
        "<!-- /x --> <!-- x -->",
        "<!-- x --> <!-- /x --> <!-- /x -->",
        "<!-- x --> <!-- /x --> <!-- x --> <!-- /x -->",
    ],
)
def test_markers_must_be_there_once_and_in_order(document: str) -> None:
    expected = "document must have the markers <!-- x --> and <!-- /x --> once, in this order"
    for action in (lambda: block(document, "x"), lambda: fill(document, {"x": "new"})):
        with pytest.raises(DocumentError) as error:
            action()
        assert str(error.value) == expected


def test_a_label_names_the_blocks_of_one_run(tmp_path: Path) -> None:
    path = tmp_path / "d.md"
    path.write_text("<!-- x -->\n<!-- /x -->\n<!-- x amx -->\n<!-- /x amx -->\n", encoding="utf-8")
    fill_file(Path(f"{path}#amx"), {"x": "labelled"})
    text = path.read_text(encoding="utf-8")
    assert (block(text, "x"), block(text, "x amx")) == ("", "labelled")


def test_the_origin_of_a_table_has_command_machine_and_date(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(
        "from cassandra_spec.toolkit.documents import provenance\nprint(provenance())\n"
    )
    command = [sys.executable, "-m", "probe", "--threads", "2"]
    environment = {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("`python -m probe --threads 2` (")
    assert run.stdout.endswith(f"; {datetime.date.today()})\n")
    assert " processors; " in provenance()
