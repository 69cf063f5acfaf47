"""Count the instructions of passes over one matrix, for this machine and for 64-bit Arm.

A small program (passes.cpp) makes the passes. QEMU logs each instruction of a program for Arm; one
of x86-64 runs step by step (steps.cpp). The difference of two numbers of passes is that of passes
alone.
"""

from __future__ import annotations

import dataclasses
import functools
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from cassandra_spec.bench.kernels import sample_values
from cassandra_spec.native.build import (
    NativeError,
    Toolchain,
    build_library,
    find_cross_toolchain,
    find_toolchain,
)
from cassandra_spec.native.forms import FORMS, FormName

ARM, X86 = "aarch64", "x86_64"
EMULATOR = "qemu-aarch64-static"
COUNTED = {ARM: ("portable", "neon", "neonbf16"), X86: ("avx2", "avx512")}
"""Instruction sets by machine. Kernels of their own run for ``avx512bf16`` on few processors."""

GROUP = 64
SHAPE = (64, 576)
"""Outputs of two pairs of tiles, and the inputs of SmolLM2-135M."""

_SOURCES = Path(__file__).parent
_FEW, _MANY = 1, 2  # passes
_BLOCK = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counter:
    """Counts instructions of one machine's library."""

    isas: Sequence[str]  # of the library, whose index is their number
    command: Sequence[str]  # followed by FORM and so on; writes a line for each instruction

    def per_weight(
        self, form: FormName, isa: str, rows: int, shape: tuple[int, int] = SHAPE
    ) -> float:
        """Return the instructions of a pass for each weight."""
        few, many = (self._lines(form, isa, rows, shape, passes) for passes in (_FEW, _MANY))
        return (many - few) / (_MANY - _FEW) / (shape[0] * shape[1])

    def _lines(
        self, form: FormName, isa: str, rows: int, shape: tuple[int, int], passes: int
    ) -> int:
        values = sample_values(form, shape, np.random.default_rng(1))
        numbers = (self.isas.index(isa), FORMS.index(form), GROUP, *shape, rows, passes)
        with tempfile.TemporaryFile() as file:
            file.write(values.tobytes())
            file.seek(0)
            return count_lines([*self.command, *map(str, numbers)], file.fileno())


def count_lines(command: Sequence[str], values: int) -> int:
    """Run a program with an open file as its input; count the lines that it writes as errors.

    Raises :class:`NativeError` if it fails.
    """
    with subprocess.Popen(command, stdin=values, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        blocks = iter(functools.partial(process.stderr.read, _BLOCK), b"")
        lines = sum(block.count(b"\n") for block in blocks)
    if process.returncode:
        raise NativeError(
            f"{command[0]} must count instructions, not end with {process.returncode}"
        )
    return lines


@contextmanager
def open_counter(machine: str) -> Iterator[Counter]:
    """Compile what counts the instructions of a machine.

    Raises :class:`NativeError` if a compiler or the emulator is missing.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = (*runner(machine, folder), compile_for(machine, "passes.cpp", folder))
        library = build_library(toolchain=_toolchain(machine))
        yield Counter(isas=_toolchain(machine).isas, command=(*command, str(library)))


def runner(machine: str, folder: Path) -> tuple[str, ...]:
    """Return the command that runs a program and writes a line for each instruction."""
    if machine == X86:
        return (compile_for(machine, "steps.cpp", folder),)
    if not shutil.which(EMULATOR):
        raise NativeError(f"instructions of {ARM} need {EMULATOR}, which is not on PATH")
    text = subprocess.run([EMULATOR, "-h"], capture_output=True, text=True, check=False).stdout
    single = next(flag for flag in ("-one-insn-per-tb", "-singlestep") if flag in text)
    return (EMULATOR, "-L", f"/usr/{ARM}-linux-gnu", single, "-d", "exec,nochain")


def compile_for(machine: str, source: str, folder: Path) -> str:
    """Compile a source of this folder, or at another path; return the path of the program."""
    program = str((folder / source).with_suffix(""))
    flags = ("-std=c++17", "-O1", "-rdynamic", str(_SOURCES / source), "-o", program, "-ldl")
    subprocess.run([*_toolchain(machine).command, *flags], check=True)
    return program


def _toolchain(machine: str) -> Toolchain:
    return find_cross_toolchain(machine) if machine == ARM else find_toolchain()


def machines() -> tuple[str, ...]:
    """Return the machines that can be counted here: 64-bit Arm, and x86-64 on itself."""
    return (ARM, X86) if platform.machine() == X86 else (ARM,)
