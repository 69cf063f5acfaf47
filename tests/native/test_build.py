"""The build: nothing at import, one library for the same sources, clear errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cassandra_spec import native
from cassandra_spec.golden.arrays import arithmetic
from cassandra_spec.native import build, constants

ROOT = Path(__file__).resolve().parents[2]
TINY = {
    "isa.h": '#pragma once\n#include "one.h"\n',
    "one.h": "#pragma once\nstatic inline int one() { return 1; }\n",
    "first.cpp": '#include "isa.h"\nextern "C" int first() { return one(); }\n',
    "second_avx2.cpp": 'extern "C" int second() { return 2; }\n',
}


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "src"
    folder.mkdir()
    for name, text in TINY.items():
        (folder / name).write_text(text)
    monkeypatch.setattr(build, "SOURCES", folder)
    return folder


def test_importing_compiles_nothing(tmp_path: Path) -> None:
    code = "import native, golden; from native import library; print(library.load.cache_info())"
    run = python(code, CASSANDRA_NATIVE_CACHE=str(tmp_path / "cache"), CXX="no-such-compiler")
    assert run.returncode == 0, run.stderr
    assert "currsize=0" in run.stdout
    assert not (tmp_path / "cache").exists()


def test_no_compiler_is_a_clear_error(tmp_path: Path) -> None:
    code = "import native\ntry:\n  native.load()\nexcept native.NativeError as e:\n  print(e)"
    run = python(code, CASSANDRA_NATIVE_CACHE=str(tmp_path), CXX="no-such-compiler")
    assert "needs a C++ compiler, and no-such-compiler is not on PATH" in run.stdout
    assert run.stderr == ""


def test_an_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(native.NativeError, match=r"instruction set must be portable.*, not 'sse9'"):
        native.set_isa("sse9")


def test_every_instruction_set_can_be_chosen(every_isa: str) -> None:
    assert native.isa() == every_isa


def test_the_name_of_a_file_decides_its_flags() -> None:
    names = ["a.cpp", "a_avx2.cpp", "linear_avx512.cpp", "x_avx512bf16.cpp", "a_b.cpp"]
    expected = ["portable", "avx2", "avx512", "avx512bf16", "portable"]
    assert [build.isa_of(name) for name in names] == expected


def test_a_second_build_compiles_nothing(
    sources: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    library = build.build_library(folder=tmp_path / "cache")
    assert "compiling first.cpp, second_avx2.cpp, format_tables.cpp" in capfd.readouterr().err
    assert library.is_file()
    assert build.build_library(folder=tmp_path / "cache") == library
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("name", "again"), [("one.h", "first.cpp"), ("second_avx2.cpp", None)])
def test_a_changed_file_is_compiled_again_and_no_other(
    sources: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, again: str | None
) -> None:
    library = build.build_library(folder=tmp_path / "cache")
    capfd.readouterr()
    (sources / name).write_text(TINY[name] + "// changed\n")
    assert build.build_library(folder=tmp_path / "cache") != library
    said = capfd.readouterr().err
    assert f"compiling {again or name} with" in said


def test_a_source_that_does_not_compile_is_named(sources: Path, tmp_path: Path) -> None:
    (sources / "first.cpp").write_text("int f( {\n")
    with pytest.raises(native.NativeError, match=r"compiling first.cpp failed: .*error"):
        build.build_library(folder=tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.partial"))


def test_two_builds_at_once_compile_once(
    sources: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(build.build_library, folder=tmp_path / "cache") for _ in range(2)]
        assert jobs[0].result() == jobs[1].result()
    assert capfd.readouterr().err.count("compiling") == 1


def test_the_generated_tables_are_goldens() -> None:
    source = constants.generate()[constants.SOURCE]
    found = re.search(r"VALUE\[65536\] = \{([^}]*)\}", source)
    assert found
    assert list(map(int, found[1].split(","))) == arithmetic.value_table().tolist()
