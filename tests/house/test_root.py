"""The root of the repository has what a reader looks for there, and nothing that was left over."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"Makefile", "LICENSE", "pyproject.toml"}


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
