"""The root of the repository has what a reader looks for there, and nothing that was left over."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from cassandra_spec import __version__

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"Makefile", "LICENSE", "pyproject.toml", "CITATION.cff"}


def test_files_of_the_root_are_documents_settings_or_requirements() -> None:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    run = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
    files = {name for name in run.stdout.splitlines() if "/" not in name and (ROOT / name).exists()}
    assert files >= NAMES
    others = {
        name
        for name in files - NAMES
        if not name.startswith(("requirements", ".")) and not name.endswith(".md")
    }
    assert others == set()


def test_the_citation_is_valid_and_of_this_version() -> None:
    """It has what the schema of Citation File Format 1.2.0 requires, here and of references."""
    citation: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation.keys() >= {"cff-version", "message", "title", "authors"}
    assert (citation["cff-version"], citation["type"]) == ("1.2.0", "software")
    assert citation["version"] == __version__
    [paper] = citation["references"]
    assert paper.keys() >= {"type", "title", "authors"}
    assert paper["type"] == "article"
    people = [f"{author['given-names']} {author['family-names']}" for author in paper["authors"]]
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert all(name in readme for name in (paper["title"], *people))
