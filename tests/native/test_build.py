"""The build: nothing at import, one library for the same sources, clear errors."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cassandra_spec import native
from cassandra_spec.golden.arrays import arithmetic
from cassandra_spec.native import build, constants, library

ROOT = Path(__file__).resolve().parents[2]
TINY = {
    "common/isa.h": '#pragma once\n#include "one.h"\n',
    "one.h": "#pragma once\nstatic inline int one() { return 1; }\n",
    "first.cpp": '#include "common/isa.h"\nextern "C" int first() { return one(); }\n',
    "room/second_avx2.cpp": 'extern "C" int second() { return 2; }\n',
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
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setattr(build, "SOURCES", folder)
    monkeypatch.setattr(build, "_on_terminal", lambda: True)
    return folder


def test_importing_compiles_nothing(tmp_path: Path) -> None:
    code = "from cassandra_spec.native import library; print(library.load.cache_info())"
    run = python(code, CASSANDRA_NATIVE_CACHE=str(tmp_path / "cache"), CXX="no-such-compiler")
    assert run.returncode == 0, run.stderr
    assert "currsize=0" in run.stdout
    assert not (tmp_path / "cache").exists()


def test_no_compiler_is_a_clear_error(tmp_path: Path) -> None:
    code = (
        "from cassandra_spec import native\n"
        "try:\n  native.load()\nexcept native.NativeError as e:\n  print(e)"
    )
    run = python(code, CASSANDRA_NATIVE_CACHE=str(tmp_path), CXX="no-such-compiler")
    assert "needs a C++ compiler, and no-such-compiler is not on PATH" in run.stdout
    assert run.stderr == ""


def test_an_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(native.NativeError, match=r"instruction set must be portable.*, not 'sse9'"):
        native.set_isa("sse9")


def test_every_instruction_set_can_be_chosen(every_isa: str) -> None:
    assert native.isa() == every_isa


@pytest.mark.parametrize(
    ("path", "isas"),
    [
        ("a.cpp", ("portable",)),
        ("room/a_b.cpp", ("portable",)),
        ("a_avx2.cpp", ("avx2",)),
        ("codec/avx512/a.cpp", ("avx512",)),
        ("linear/dots_avx512bf16.cpp", ("avx512bf16",)),
        ("engine/a_portable_avx2_avx512.cpp", ("portable", "avx2", "avx512")),
        ("linear/neon_neonbf16.cpp", ("neon", "neonbf16")),
    ],
)
def test_the_path_of_a_source_decides_its_flags(path: str, isas: tuple[str, ...]) -> None:
    assert build.isas_of(path) == isas


MACHINES = {
    "x86_64": ("portable", "avx2", "avx512", "avx512bf16"),
    "aarch64": ("portable", "neon", "neonbf16"),
    "riscv64": ("portable",),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_is_compiled_for_with_its_own_flags(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "ISA_FLAGS", build.flags_of(machine))
    compiler = build.Toolchain(command=("c++",), version="1", isas=tuple(build.ISA_FLAGS))
    assert compiler.isas == MACHINES[machine]
    units = build.compilations(build.read_sources(), compiler)
    for unit in units:
        macro = next(flag for flag in unit.flags if flag.startswith("-DCASSANDRA_ISA="))
        isa = macro.partition("=")[2]
        assert isa in build.isas_of(unit.source)
        own = unit.flags[unit.flags.index(macro) + 1 : -1]
        assert own == build.ISA_FLAGS[isa]
        has = [flag for flag in unit.flags if flag.startswith("-DCASSANDRA_HAVE_")]
        assert has == [f"-DCASSANDRA_HAVE_{each.upper()}" for each in MACHINES[machine]]
    kernels = [unit.source for unit in units if "neon_" in unit.source]
    assert len(kernels) == (2 if machine == "aarch64" else 0)


def test_libraries_of_two_machines_have_different_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = set()
    for machine in MACHINES:
        monkeypatch.setattr(build, "ISA_FLAGS", build.flags_of(machine))
        digests.add(build.sources_digest())
    assert len(digests) == len(MACHINES)


def test_a_source_is_compiled_for_each_instruction_set_of_its_path(
    sources: Path, tmp_path: Path
) -> None:
    text = (
        "#define J(a, b) a##b\n#define K(a, b) J(a, b)\n"
        'extern "C" __attribute__((visibility("default"))) '
        "int K(third_, CASSANDRA_ISA)() { return 3; }\n"
    )
    (sources / "third_portable_avx2.cpp").write_text(text)
    library = ctypes.CDLL(str(build.build_library(folder=tmp_path / "cache")))
    with pytest.raises(AttributeError):
        _ = library.third_avx512
    for isa in build.find_toolchain().isas[:2]:
        assert getattr(library, f"third_{isa}")() == 3


def test_a_second_build_compiles_nothing(
    sources: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    library = build.build_library(folder=tmp_path / "cache")
    said = capfd.readouterr().err
    names = {"first.cpp", "room/second_avx2.cpp", "format_tables.cpp"}
    assert set(said.partition("compiling ")[2].partition(" with")[0].split(", ")) == names
    assert re.search(
        r"\rnative: 1 of 3 compiled, \d+ s\rnative: 2 of 3 .*\rnative: 3 of 3 .* s\n", said
    )
    assert library.is_file()
    assert build.build_library(folder=tmp_path / "cache") == library
    assert capfd.readouterr().err == ""


def test_compiling_says_nothing_into_a_file(sources: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from cassandra_spec.native import build;"
        "build.SOURCES = Path(sys.argv[1]); build.build_library(folder=Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", program, str(sources), str(tmp_path / "cache")]
    run = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("", "")
    assert list((tmp_path / "cache").iterdir())


@pytest.mark.parametrize(
    ("name", "again"), [("one.h", "first.cpp"), ("room/second_avx2.cpp", None)]
)
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


def test_only_what_this_machine_runs_is_compiled_at_first_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everything = build.find_toolchain()
    own = build.for_this_machine(everything)
    assert library.available_isas() == own.isas
    no_avx512 = frozenset(
        name
        for name in build._macros(everything.command, everything_flags(everything)) or ()
        if not name.startswith("__AVX512")
    )
    known = build._macros
    monkeypatch.setattr(
        build,
        "_macros",
        lambda command, flags: no_avx512 if flags == ("-march=native",) else known(command, flags),
    )
    kept = tuple(isa for isa in everything.isas if not isa.startswith("avx512"))
    assert build.for_this_machine(everything).isas == kept
    monkeypatch.setattr(build, "_macros", lambda command, flags: None)
    assert build.for_this_machine(everything) == everything


def everything_flags(toolchain: build.Toolchain) -> tuple[str, ...]:
    return build.ISA_FLAGS[toolchain.isas[-1]]


def test_the_generated_tables_are_goldens() -> None:
    source = constants.generate()[constants.SOURCE]
    found = re.search(r"VALUE\[65536\] = \{([^}]*)\}", source)
    assert found
    assert list(map(int, found[1].split(","))) == arithmetic.VALUE.tolist()


def damage(path: Path, kind: str) -> None:
    octets = bytearray(path.read_bytes())
    octets[len(octets) // 2] ^= 1
    path.write_bytes(b"" if kind == "empty" else octets)


@pytest.mark.parametrize("kind", ["empty", "changed"])
def test_a_damaged_library_is_built_again(sources: Path, tmp_path: Path, kind: str) -> None:
    library = build.build_library(folder=tmp_path / "cache")
    good = library.read_bytes()
    damage(library, kind)
    assert build.build_library(folder=tmp_path / "cache") == library
    assert library.read_bytes() == good


@pytest.mark.parametrize("kind", ["empty", "changed"])
def test_a_damaged_object_is_compiled_again(
    sources: Path, tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    library = build.build_library(folder=tmp_path / "cache")
    damage(next((tmp_path / "cache" / "objects").glob("first*.o")), kind)
    library.unlink()
    capfd.readouterr()
    build.build_library(folder=tmp_path / "cache")
    assert "compiling first.cpp with" in capfd.readouterr().err


def test_a_library_without_its_digest_is_built_again(sources: Path, tmp_path: Path) -> None:
    library = build.build_library(folder=tmp_path / "cache")
    seal = library.with_name("libcassandra.so.sha256")
    seal.unlink()
    build.build_library(folder=tmp_path / "cache")
    assert seal.is_file()


@pytest.mark.parametrize("where", ["libcassandra.so", "."])
@pytest.mark.parametrize("mode", [0o775, 0o777])
def test_a_library_that_others_can_write_is_refused(
    sources: Path, tmp_path: Path, where: str, mode: int
) -> None:
    library = build.build_library(folder=tmp_path / "cache")
    (library.parent / where).chmod(mode)
    with pytest.raises(native.NativeError, match=r"must be yours .* and writable by nobody else"):
        build.build_library(folder=tmp_path / "cache")


def test_a_library_of_somebody_else_is_refused(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = build.build_library(folder=tmp_path / "cache")
    if os.geteuid() == 0:
        os.chown(library, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(native.NativeError, match="must be yours"):
        build.build_library(folder=tmp_path / "cache")


def test_a_library_is_private_whatever_the_umask(sources: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        library = build.build_library(folder=tmp_path / "cache")
        assert build.build_library(folder=tmp_path / "cache") == library
    finally:
        os.umask(before)


@pytest.mark.parametrize("command", ['"', "g++ 'x"])
def test_a_compiler_that_is_no_command_is_refused(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("CXX", command)
    with pytest.raises(native.NativeError, match="CXX must be a command, not"):
        build.find_toolchain()
