"""The Makefile: help, the dependency on the set-up, and what an interrupted set-up leaves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DAILY = [
    "setup",
    "sim",
    "test",
    "test-all",
    "lint",
    "verilog",
    "docs",
    "native",
    "wheel",
    "clean",
]
MORE = [
    "test-exhaustive",
    "figures",
    "waves",
    "bench",
    "sanitize",
    "fuzz",
    "soak",
    "regression",
    "synth",
    "energy",
    "fpga",
    "equivalence",
    "soc",
    "soc-fpga",
    "formal",
    "axi-rules",
    "coverage",
    "soft-errors",
    "mutants",
    "clients",
]
TARGETS = [*DAILY, *MORE]


def make(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MAKE") and name != "MFLAGS"
    }
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Copy the files that the set-up depends on to a folder with a space in its name."""
    folder = tmp_path / "a house"
    (folder / "verif" / "tools").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", *(f.name for f in ROOT.glob("requirements*.txt"))):
        shutil.copy(ROOT / name, folder / name)
    shutil.copy(ROOT / "verif" / "tools" / "preflight.py", folder / "verif" / "tools")
    return folder


def pretend_ready(folder: Path) -> None:
    environments = (folder / "build" / name for name in ("docs-env", "wheel-env"))
    for place in (folder / ".venv", *environments):
        place.mkdir(parents=True)
        (place / ".ready").touch()


def test_help_has_one_line_for_each_target_and_those_of_every_day_first() -> None:
    run = make("help")
    assert run.returncode == 0
    lines = [
        re.sub(r"^  make ([a-z-]+) +[A-Z].*\.$", r"\1", text) for text in run.stdout.splitlines()
    ]
    assert lines == ["Every day:", "help", *DAILY, "More:", *MORE]


def test_help_is_what_make_alone_prints() -> None:
    assert make().stdout == make("help").stdout


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "clean"])
def test_a_target_sets_up_first(house: Path, target: str) -> None:
    before = make("-n", target, folder=house)
    assert before.returncode == 0, before.stderr
    assert "pip install" in before.stdout
    pretend_ready(house)
    assert "pip install" not in make("-n", target, folder=house).stdout


def test_a_current_setup_runs_nothing(house: Path) -> None:
    pretend_ready(house)
    assert make("-q", "setup", folder=house).returncode == 0


@pytest.mark.parametrize("file", ["pyproject.toml", "requirements.txt", "requirements-model.txt"])
def test_a_changed_pin_sets_up_again(house: Path, file: str) -> None:
    pretend_ready(house)
    newer = (house / ".venv" / ".ready").stat().st_mtime_ns + 1_000_000_000
    os.utime(house / file, ns=(newer, newer))
    assert make("-q", "setup", folder=house).returncode == 1


def test_a_setup_that_fails_leaves_no_stamp(house: Path) -> None:
    pretend_ready(house)
    newer = (house / ".venv" / ".ready").stat().st_mtime_ns + 1_000_000_000
    os.utime(house / "requirements.txt", ns=(newer, newer))
    run = make("setup", "PYTHON=false", folder=house)
    assert run.returncode != 0
    assert not (house / ".venv" / ".ready").exists()


def test_an_old_python_is_refused_in_one_line(house: Path) -> None:
    old = house / "python-old"
    old.write_text(
        "#!/bin/sh\nexec python3 -c '"
        "import runpy, sys; sys.version_info = (3, 9, 2); sys.argv = sys.argv[1:];"
        'runpy.run_path(sys.argv[0], run_name="__main__")\' "$@"\n'
    )
    old.chmod(0o755)
    run = make("setup", "PYTHON=./python-old", folder=house)
    assert run.returncode == 2
    assert run.stderr.splitlines()[0] == "Python must be 3.11 or newer, not 3.9 (make PYTHON=...)"


def test_sim_runs_the_suites_and_takes_the_quick_flag(house: Path) -> None:
    pretend_ready(house)
    for argument in ("QUICK=", "QUICK=0", "QUICK=1"):
        lines = make("-n", "sim", argument, folder=house).stdout.splitlines()
        suites, job = lines[0], lines[-1]
        assert "pytest" in suites
        assert "cassandra_spec.verif.end_to_end" in job
        assert ("--quick" in job) == ("-k" in suites) == (argument == "QUICK=1")


def test_each_target_leaves_out_tests_by_their_mark(house: Path) -> None:
    pretend_ready(house)
    left_out = {"test": "slow", "test-all": "exhaustive"}
    lines = {name: make("-n", name, folder=house).stdout for name in left_out}
    everything = make("-n", "test-exhaustive", folder=house).stdout
    for name, mark in left_out.items():
        assert f'-m "not {mark}"' in lines[name]
        assert lines[name].replace(f'-m "not {mark}" ', "") == everything


def test_ci_runs_targets_that_exist() -> None:
    text = (ROOT / ".ci" / "run").read_text()
    lines = re.findall(r"^make (.*)", text, re.MULTILINE)
    found = {word for line in lines for word in line.split() if re.fullmatch(r"[a-z][a-z-]*", word)}
    assert {"lint", "docs", "test", "sim", "sanitize", "fuzz"} <= found <= set(TARGETS)


def test_the_suites_exist() -> None:
    listed = re.search(r"^SUITES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert listed
    assert [name for name in listed[1].split() if not (ROOT / name).is_file()] == []


def test_clean_keeps_the_environment_and_the_sources(house: Path) -> None:
    pretend_ready(house)
    cache = house / "verif" / "__pycache__"
    for folder in (house / "build" / "rtl", cache, house / ".pytest_cache"):
        folder.mkdir(parents=True)
    assert make("clean", folder=house).returncode == 0
    assert sorted(path.name for path in house.iterdir()) == [
        ".venv",
        "Makefile",
        "pyproject.toml",
        "requirements-docs.txt",
        "requirements-model.txt",
        "requirements-wheel.txt",
        "requirements.txt",
        "verif",
    ]
    assert not cache.exists()
    assert (house / ".venv" / ".ready").exists()
