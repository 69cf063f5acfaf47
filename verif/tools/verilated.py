"""Shared libraries around Verilated tops, for the bulk harnesses.

A library is built once per configuration, in a folder named after a hash of all its inputs: the
Verilog, the C++, the flags, the compiler and its target processor.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.tools.counting import COUNT_FLAGS, counts_folder
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
"""Folder of the built libraries."""

_HERE = Path(__file__).resolve().parent
_VERIF = _HERE.parent
_PORTS = _HERE / "verilated_ports.h"
_SOFT_ERRORS = _VERIF / "dma" / "soft_errors"
_BULK, _FLIPS = _HERE / "bulk.cpp", _SOFT_ERRORS / "flips.cpp"
_TOPS = {
    "decoder": (_BULK, _VERIF / "decoder" / "bulk.h"),
    "encoder": (_BULK, _VERIF / "encoder" / "bulk.h"),
    "dma": (_FLIPS, _SOFT_ERRORS / "reads.h"),
    "encoder_dma": (_FLIPS, _SOFT_ERRORS / "writes.h"),
}  # program of each kind, and the part for its top
_VERILATOR_FLAGS = (
    *("--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast"),
    *("--no-assert", "--no-timing", "-Wno-fatal", "-Wno-lint"),
)
_ACTIVITY_FLAGS = ("--trace-saif", "--trace-underscore")  # Yosys names most nets _N_
_ACTIVITY_MACRO = "-DCASSANDRA_ACTIVITY"
_STATE_FLAGS = ("--vpi",)  # a table of the public signals
# -O3 builds longer, and runs as fast; one file reads its headers once.
_FAST = ("OPT_FAST=-O1", "OPT_GLOBAL=-O2", "VM_PARALLEL_BUILDS=0")
_NETLIST = ("OPT_FAST=-O0", "OPT_SLOW=-O0", "OPT_GLOBAL=-O0")  # too large for one file
_CXX_FLAGS = ("-std=c++20", "-fPIC")  # no -O: it would beat those above
_PROGRAM_FLAGS = ("-O2",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Library:
    """The shared library around a Verilog module with the ports of a top.

    ``kind`` is the top: ``decoder`` or ``encoder``, or one behind its registers, ``dma`` or
    ``encoder_dma``, whose state the program may change (``verif/dma/soft_errors/flips.cpp``). With
    ``activity`` the transitions of the nets are counted.
    """

    verilog: str
    module: str
    lanes: int
    kind: str = "decoder"
    activity: bool = False

    @property
    def sources(self) -> tuple[Path, Path]:
        """The program, and the part for its top."""
        return _TOPS[self.kind]

    @property
    def options(self) -> tuple[str, ...]:
        """Options of Verilator."""
        more = (*(_ACTIVITY_FLAGS if self.activity else ()), *(COUNT_FLAGS if self.counted else ()))
        return (*_VERILATOR_FLAGS, *more, *(_STATE_FLAGS if self.sources[0] == _FLIPS else ()))

    @property
    def counted(self) -> bool:
        """True if coverage is counted (``verif/tools/counting.py``)."""
        return counts_folder() is not None and self.sources[0] == _BULK

    def path(self, build: Path = BUILD) -> Path:
        """Return the library's path, which depends on sources, tools and flags."""
        texts = [path.read_text() for path in (*self.sources, _PORTS)]
        sources = (self.verilog, self.module, *texts, str(self.lanes), *_tools(self))
        digest = hashlib.sha256("\0".join(sources).encode()).hexdigest()[:16]
        return build / f"{self.module}-{digest}" / f"lib{self.kind}.so"

    def built(self, build: Path = BUILD) -> Path:
        """Build the library unless it exists; return its path.

        Raises CassandraError with the tool's output if a step of the build fails.
        """
        path = self.path(build)
        build.mkdir(parents=True, exist_ok=True)
        with exclusive(build / f"{self.module}.lock"):
            if not path.is_file():
                _build(self, path)
        return path


def _tools(library: Library) -> list[str]:
    """Return the inputs of a build beside its sources."""
    flags = [*library.options, *_cxx_flags(), *_optimise(library), *_PROGRAM_FLAGS]
    return [*flags, str(verilator_version()), _compiler_identity()]


_REGISTER = re.compile(
    r"^(  reg (?:\[\d+:0\] )?)(\\\S+ |\w+)( *\[\d+:0\])?( *= [^;]*)?;", re.MULTILINE
)
_ASSIGNMENT = re.compile(r"^ +(\\\S+ |\w+) *(?:\[.*\])? <= ", re.MULTILINE)


def with_public_state(verilog: str) -> str:
    """Make every register and memory of Yosys's Verilog visible to programs, and no net."""
    public = " /*verilator public_flat_rw*/"
    return with_state(
        verilog, lambda head, name, depth, start: f"{head}{name}{depth}{public}{start};"
    )


def with_state(verilog: str, declared: Callable[[str, str, str, str], str]) -> str:
    """Replace the declarations of registers and memories in Yosys's Verilog.

    ``declared`` gets type, name, depth and initial value of each, as in the Verilog.
    """
    modules = re.split(r"(?<=endmodule\n)", verilog)
    return "".join(_with_state(module, declared) for module in modules)


def _with_state(module: str, declared: Callable[[str, str, str, str], str]) -> str:
    state = {name.strip() for name in _ASSIGNMENT.findall(module)}

    def one(found: re.Match[str]) -> str:
        head, name, depth, start = found.groups(default="")
        return declared(head, name, depth, start) if name.strip() in state else found[0]

    return _REGISTER.sub(one, module)


def _optimise(library: Library) -> tuple[str, ...]:
    return _NETLIST if library.activity else _FAST


def _build(library: Library, path: Path) -> None:
    """Build in a temporary folder, which is renamed only when it is complete."""
    module, kind = library.module, library.kind
    program, top = library.sources
    folder = path.parent
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{module}-") as name:
        work, flags, prefix = Path(name), _cxx_flags(), f"V{kind}"
        source = work / f"{module}.v"
        text = library.verilog
        source.write_text(with_public_state(text) if program == _FLIPS else text)
        translate = [verilator_binary(), *library.options, "--prefix", prefix]
        translate += ["--top-module", module, "--Mdir", str(work)]
        _step([*translate, "-CFLAGS", " ".join(flags), str(source)])
        make = ["make", f"-j{os.cpu_count() or 1}", "-C", str(work), "-f", f"{prefix}.mk"]
        with shared_objects(work, _tools(library)):
            _step([*make, *_optimise(library)])
        include = [f"-I{path}" for path in (work, _HERE, _include(), _include() / "vltstd")]
        archives = [str(work / f"lib{prefix}.a"), str(work / "libverilated.a")]
        macros = [f"-DCASSANDRA_LANES={library.lanes}", f'-DCASSANDRA_TOP="{top}"']
        macros += [_ACTIVITY_MACRO] if library.activity else []
        macros += ["-DVM_COVERAGE=1"] if library.counted else []
        link = [compiler(), *flags, *_PROGRAM_FLAGS, *macros, *include, str(program)]
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
    """Return ``-march=native`` if the compiler supports it."""
    return ("-march=native",) if compiler_macros("-march=native") is not None else ()


def _cxx_flags() -> tuple[str, ...]:
    return (*_CXX_FLAGS, *_native_flags())


@functools.cache
def _compiler_identity() -> str:
    """Return a text that changes with the compiler and its target processor."""
    return compiler_macros(*_native_flags()) or ""
