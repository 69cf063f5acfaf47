"""README and docs: links lead somewhere, commands exist, code runs."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_lead_to_files(document: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", document.read_text(encoding="utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_that_are_named_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    quoted = re.findall(r"`make ([a-z]+)", text) + re.findall(r"^    make ([a-z]+)", text, re.M)
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(quoted) <= set(targets)


def test_the_code_in_the_readme_runs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert blocks
    for block in blocks:
        run = subprocess.run(
            [sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr


def test_the_transcript_of_the_main_job_has_one_place() -> None:
    text = (ROOT / "docs/simulation.md").read_text(encoding="utf-8")
    assert len(re.findall(r"<!-- transcript: begin .*?<!-- transcript: end -->", text, re.S)) == 1


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150


@pytest.mark.parametrize("picture", sorted(ROOT.glob("docs/*.svg")), ids=lambda path: path.name)
def test_pictures_are_well_formed_and_described(picture: Path) -> None:
    root = ET.parse(picture).getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    assert root.find(f"{space}title") is not None
    assert root.find(f"{space}desc") is not None
