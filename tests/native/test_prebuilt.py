"""A prebuilt library is used while it matches its sources, and named in one line when not."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest

from cassandra_spec.native import build, prebuilt

TINY = {
    "common/isa.h": "#pragma once\n",
    "first.cpp": '#include "common/isa.h"\nextern "C" __attribute__((visibility("default"))) '
    "int first() { return 1; }\n",
}
NEWEST_GLIBC = (2, 34)
"""The version of the platform tag of the wheel, manylinux_2_34."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a prebuilt library of a few sources, on a machine that has no compiler afterwards."""
    sources = tmp_path / "src"
    for name, text in TINY.items():
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_text(text)
    monkeypatch.setattr(build, "SOURCES", sources)
    monkeypatch.setenv("CASSANDRA_NATIVE_CACHE", str(tmp_path / "cache"))
    made = tmp_path / "prebuilt"
    prebuilt.write_prebuilt(made)
    monkeypatch.setenv("CXX", "no-such-compiler")
    return made


def test_a_whole_library_of_these_sources_is_used(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = prebuilt.find_prebuilt(folder)
    assert found
    assert ctypes.CDLL(str(found)).first() == 1
    assert capsys.readouterr().err == ""


def test_a_checkout_has_none_and_says_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prebuilt.find_prebuilt(tmp_path / "missing") is None
    assert not prebuilt.FOLDER.exists()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("file", ["libcassandra.so", "libcassandra.so.sha256", "sources.sha256"])
@pytest.mark.parametrize("change", ["remove", "empty", "alter"])
def test_a_library_that_does_not_match_is_named_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], file: str, change: str
) -> None:
    octets = (folder / file).read_bytes()
    (folder / file).unlink()
    if change != "remove":
        (folder / file).write_bytes(b"" if change == "empty" else b"\xff" + octets[1:])
    assert prebuilt.find_prebuilt(folder) is None
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("libcassandra.so must match its sources, which are now compiled instead")


@pytest.mark.parametrize("name", ["common/isa.h", "first.cpp", "second.h"])
def test_a_library_of_other_sources_is_not_used(folder: Path, name: str) -> None:
    with (build.SOURCES / name).open("a") as file:
        file.write("// changed\n")
    assert prebuilt.find_prebuilt(folder) is None


def test_a_library_of_other_flags_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(build.ISA_FLAGS, "avx2", ("-mavx2",))
    assert prebuilt.find_prebuilt(folder) is None


def test_a_compiler_without_an_instruction_set_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(build.ISA_FLAGS, "avx512bf16", ("-mno-such-thing",))
    build._toolchain.cache_clear()
    try:
        with pytest.raises(build.NativeError, match=r"must support portable, .*'avx512bf16'"):
            prebuilt.write_prebuilt(tmp_path)
    finally:
        build._toolchain.cache_clear()


@pytest.mark.slow
def test_the_library_needs_no_newer_system_than_its_wheel_says(tmp_path: Path) -> None:
    prebuilt.write_prebuilt(tmp_path)
    command = ["objdump", "--private-headers", str(tmp_path / build.LIBRARY)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", said)
    assert max((int(major), int(minor)) for major, minor in versions) <= NEWEST_GLIBC
    assert "libstdc++" not in said
