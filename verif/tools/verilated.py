"""Shared libraries around Verilated tops: what the bulk harnesses load.

A library is built once for each configuration, in a folder named after a hash of everything that
goes into it: the Verilog, the C++, the flags, the compiler and the processor that it compiles for.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.tools.locking import exclusive
from cassandra_spec.verif.tools.shared_objects import shared_objects
from cassandra_spec.verif.tools.toolchain import (
    compiler,
    compiler_macros,
    verilator_binary,
    verilator_environment,
    verilator_root,
    verilator_version,
)

__all__ = ["BUILD", "build_library", "library_path"]

BUILD = Path(__file__).resolve().parents[2] / "build" / "bulk"
"""Where libraries are built."""

_HERE = Path(__file__).resolve().parent
_SOURCES = {kind: _HERE.parent / kind / "bulk.cpp" for kind in ("decoder", "encoder")}
_VERILATOR_FLAGS = (
    *("--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast"),
    *("--no-assert", "--no-timing", "-Wno-fatal", "-Wno-lint"),
)
_ACTIVITY_FLAGS = ("--trace-saif", "--trace-underscore")  # Yosys names most nets _N_
_ACTIVITY_MACRO = "-DCASSANDRA_ACTIVITY"
_FAST = ("OPT_FAST=-O3", "OPT_SLOW=-O1", "OPT_GLOBAL=-O2")
_QUICK = ("OPT_FAST=-O0", "OPT_SLOW=-O0", "OPT_GLOBAL=-O0")  # to build: netlists are large
_CXX_FLAGS = ("-std=c++20", "-O3", "-fPIC")


def build_library(
    verilog: str,
    module: str,
    lanes: int,
    build: Path = BUILD,
    *,
    kind: str = "decoder",
    activity: bool = False,
) -> Path:
    """The shared library around a Verilog module with the ports of the top; built if need be.

    ``kind`` is the top: ``decoder`` or ``encoder``; with ``activity`` a decoder counts the
    transitions of its nets. Raises CassandraError with what the tool printed if a step of the
    build fails.
    """
    library = library_path(verilog, module, lanes, build, kind=kind, activity=activity)
    build.mkdir(parents=True, exist_ok=True)
    with exclusive(build / f"{module}.lock"):
        if not library.is_file():
            _build(verilog, module, lanes, library, activity)
    return library


def library_path(
    verilog: str,
    module: str,
    lanes: int,
    build: Path = BUILD,
    *,
    kind: str = "decoder",
    activity: bool = False,
) -> Path:
    """Where the library is, or will be: another place for other sources, tools or flags."""
    texts = [path.read_text() for path in (_SOURCES[kind], _HERE / "verilated_ports.h")]
    sources = (verilog, module, *texts, str(lanes), *_tools(activity))
    digest = hashlib.sha256("\0".join(sources).encode()).hexdigest()[:16]
    return build / f"{module}-{digest}" / f"lib{kind}.so"


def _tools(activity: bool) -> list[str]:
    """What a build depends on beside its sources."""
    flags = [*_VERILATOR_FLAGS, *_cxx_flags(), *(_ACTIVITY_FLAGS if activity else ())]
    return [*flags, *_optimise(activity), str(verilator_version()), _compiler_identity()]


def _optimise(activity: bool) -> tuple[str, ...]:
    return _QUICK if activity else _FAST


def _build(verilog: str, module: str, lanes: int, library: Path, activity: bool) -> None:
    """Build in a folder aside, which takes its place only when it is complete."""
    kind, folder = library.stem.removeprefix("lib"), library.parent
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{module}-") as name:
        work, flags, prefix = Path(name), _cxx_flags(), f"V{kind}"
        source = work / f"{module}.v"
        source.write_text(verilog)
        translate = [verilator_binary(), *_VERILATOR_FLAGS, "--prefix", prefix]
        translate += ["--top-module", module, "--Mdir", str(work)]
        translate += _ACTIVITY_FLAGS if activity else ()
        _step([*translate, "-CFLAGS", " ".join(flags), str(source)])
        make = ["make", f"-j{os.cpu_count() or 1}", "-C", str(work), "-f", f"{prefix}.mk"]
        with shared_objects(work, _tools(activity)):
            _step([*make, *_optimise(activity)])
        include = [f"-I{path}" for path in (work, _HERE, _include(), _include() / "vltstd")]
        archives = [str(work / f"lib{prefix}.a"), str(work / "libverilated.a")]
        program = str(_SOURCES[kind])
        macros = [f"-DCASSANDRA_LANES={lanes}", *([_ACTIVITY_MACRO] if activity else [])]
        link = [compiler(), *flags, *macros, *include, program]
        _step([*link, *archives, "-shared", "-pthread", "-o", str(work / library.name)])
        folder.mkdir(exist_ok=True)
        shutil.copy(source, folder)
        (work / library.name).replace(library)


def _include() -> Path:
    return verilator_root() / "include"


def _step(command: list[str]) -> None:
    done = subprocess.run(
        command,
        env=verilator_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CassandraError(f"{Path(command[0]).name} failed on the gateware:\n{done.stdout}")


@functools.cache
def _native_flags() -> tuple[str, ...]:
    """``-march=native`` where the compiler knows it."""
    return ("-march=native",) if compiler_macros("-march=native") is not None else ()


def _cxx_flags() -> tuple[str, ...]:
    return (*_CXX_FLAGS, *_native_flags())


@functools.cache
def _compiler_identity() -> str:
    """Changes with the compiler and with the processor that it compiles for."""
    return compiler_macros(*_native_flags()) or ""
