"""Shared libraries around Verilated tops: what the bulk harnesses load.

A library is built once for each configuration, in a folder named after a hash of everything that
goes into it: the Verilog, the C++, the flags, the compiler and the processor that it compiles for.
"""

from __future__ import annotations

import dataclasses
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

BUILD = Path(__file__).resolve().parents[2] / "build" / "bulk"
"""Where libraries are built."""

_HERE = Path(__file__).resolve().parent
_PROGRAM, _PORTS = _HERE / "bulk.cpp", _HERE / "verilated_ports.h"
_VERILATOR_FLAGS = (
    *("--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast"),
    *("--no-assert", "--no-timing", "-Wno-fatal", "-Wno-lint"),
)
_ACTIVITY_FLAGS = ("--trace-saif", "--trace-underscore")  # Yosys names most nets _N_
_ACTIVITY_MACRO = "-DCASSANDRA_ACTIVITY"
_FAST = ("OPT_FAST=-O3", "OPT_SLOW=-O1", "OPT_GLOBAL=-O2")
_QUICK = ("OPT_FAST=-O0", "OPT_SLOW=-O0", "OPT_GLOBAL=-O0")  # to build: netlists are large
_CXX_FLAGS = ("-std=c++20", "-O3", "-fPIC")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Library:
    """The shared library around a Verilog module with the ports of a top.

    ``kind`` is the top: ``decoder`` or ``encoder``; with ``activity`` the transitions of its nets
    are counted.
    """

    verilog: str
    module: str
    lanes: int
    kind: str = "decoder"
    activity: bool = False

    def path(self, build: Path = BUILD) -> Path:
        """Where the library is, or will be: another place for other sources, tools or flags."""
        texts = [path.read_text() for path in (_PROGRAM, _PORTS, _top(self.kind))]
        sources = (self.verilog, self.module, *texts, str(self.lanes), *_tools(self.activity))
        digest = hashlib.sha256("\0".join(sources).encode()).hexdigest()[:16]
        return build / f"{self.module}-{digest}" / f"lib{self.kind}.so"

    def built(self, build: Path = BUILD) -> Path:
        """The library, which is built if it does not exist.

        Raises CassandraError with what the tool printed if a step of the build fails.
        """
        path = self.path(build)
        build.mkdir(parents=True, exist_ok=True)
        with exclusive(build / f"{self.module}.lock"):
            if not path.is_file():
                _build(self, path)
        return path


def _top(kind: str) -> Path:
    """What a kind of top adds to the program."""
    return _HERE.parent / kind / "bulk.h"


def _tools(activity: bool) -> list[str]:
    """What a build depends on beside its sources."""
    flags = [*_VERILATOR_FLAGS, *_cxx_flags(), *(_ACTIVITY_FLAGS if activity else ())]
    return [*flags, *_optimise(activity), str(verilator_version()), _compiler_identity()]


def _optimise(activity: bool) -> tuple[str, ...]:
    return _QUICK if activity else _FAST


def _build(library: Library, path: Path) -> None:
    """Build in a folder aside, which takes its place only when it is complete."""
    module, kind, activity = library.module, library.kind, library.activity
    folder = path.parent
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{module}-") as name:
        work, flags, prefix = Path(name), _cxx_flags(), f"V{kind}"
        source = work / f"{module}.v"
        source.write_text(library.verilog)
        translate = [verilator_binary(), *_VERILATOR_FLAGS, "--prefix", prefix]
        translate += ["--top-module", module, "--Mdir", str(work)]
        translate += _ACTIVITY_FLAGS if activity else ()
        _step([*translate, "-CFLAGS", " ".join(flags), str(source)])
        make = ["make", f"-j{os.cpu_count() or 1}", "-C", str(work), "-f", f"{prefix}.mk"]
        with shared_objects(work, _tools(activity)):
            _step([*make, *_optimise(activity)])
        include = [f"-I{path}" for path in (work, _HERE, _include(), _include() / "vltstd")]
        archives = [str(work / f"lib{prefix}.a"), str(work / "libverilated.a")]
        macros = [f"-DCASSANDRA_LANES={library.lanes}", f'-DCASSANDRA_TOP="{_top(kind)}"']
        macros += [_ACTIVITY_MACRO] if activity else []
        link = [compiler(), *flags, *macros, *include, str(_PROGRAM)]
        _step([*link, *archives, "-shared", "-pthread", "-o", str(work / path.name)])
        folder.mkdir(exist_ok=True)
        shutil.copy(source, folder)
        (work / path.name).replace(path)


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
