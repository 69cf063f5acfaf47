"""Checks of the machine before ``make setup``, before anything is downloaded.

Runs as a script with nothing installed, so it imports only the standard library. ``--packages``
prints the missing Debian packages for a script to install (with ``--waves`` also those for FST
waves, with ``--tools`` those whose tests are skipped without them, with ``--soc`` those of ``make
soc``).
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence

MINIMUM_PYTHON = (3, 11)


def has_venv() -> bool:
    """Return True if the interpreter can create virtual environments with pip."""
    return all(importlib.util.find_spec(name) for name in ("venv", "ensurepip"))


def has_compiler() -> bool:
    """Return True if ``$CXX`` or g++ exists."""
    return shutil.which(_compiler()) is not None


def has_shared_python() -> bool:
    """Return True if the interpreter exists as a shared library, which cocotb loads."""
    name = sysconfig.get_config_var("INSTSONAME")
    if not name or ".so" not in name:
        return False
    beside = os.path.join(sysconfig.get_config_var("LIBDIR"), name)  # noqa: PTH118 (as given)
    try:
        ctypes.CDLL(beside if os.path.exists(beside) else name)  # noqa: PTH110
    except OSError:
        return False
    return True


def has_header(name: str) -> bool:
    """Return True if the compiler finds the header."""
    command = [_compiler(), "-fsyntax-only", "-x", "c++", "-"]
    code = f"#include <{name}>\n"
    try:
        run = subprocess.run(command, input=code, capture_output=True, text=True, check=False)
    except OSError:
        return False
    return run.returncode == 0


def has_program(name: str) -> bool:
    """Return True if a program is on the search path."""
    return shutil.which(name) is not None


def has_specs(compiler: str, specs: str) -> bool:
    """Return True if a compiler finds the specs of a C library."""
    try:
        command = [compiler, f"--specs={specs}", "-E", "-x", "c", os.devnull]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


RISC_V = "riscv64-unknown-elf-gcc"
"""The compiler of the SoC's firmware."""

_Checks = tuple[tuple[str, str, Callable[[], bool]], ...]

_NEEDED: _Checks = (
    ("a C++ compiler", "g++", has_compiler),
    ("make", "make", lambda: has_program("make")),
    ("Python's venv module", "python3-venv", has_venv),
    ("Python as a shared library", "libpython3-dev", has_shared_python),
)
_GROUPS: dict[str, _Checks] = {
    "waves": (
        ("lz4.h", "liblz4-dev", lambda: has_header("lz4.h")),
        ("zlib.h", "zlib1g-dev", lambda: has_header("zlib.h")),
    ),
    "tools": (
        ("Yosys", "yosys", lambda: has_program("yosys")),
        ("Icarus Verilog", "iverilog", lambda: has_program("iverilog")),
        ("Chromium", "chromium", lambda: has_program("chromium")),
        (
            "g++ for 64-bit Arm",
            "g++-aarch64-linux-gnu",
            lambda: has_program("aarch64-linux-gnu-g++"),
        ),
        (
            "QEMU for programs of 64-bit Arm",
            "qemu-user-static",
            lambda: has_program("qemu-aarch64-static"),
        ),
    ),
    "soc": (
        ("GCC for RISC-V", "gcc-riscv64-unknown-elf", lambda: has_program(RISC_V)),
        (
            "picolibc for RISC-V",
            "picolibc-riscv64-unknown-elf",
            lambda: has_specs(RISC_V, "picolibc.specs"),
        ),
        ("event2/event.h", "libevent-dev", lambda: has_header("event2/event.h")),
        ("json-c/json.h", "libjson-c-dev", lambda: has_header("json-c/json.h")),
    ),
}


def missing(*groups: str) -> list[tuple[str, str]]:
    """Return missing things, those of ``groups`` included, as (thing, Debian package)."""
    checks = sum((_GROUPS[group] for group in groups), _NEEDED)
    return [(thing, package) for thing, package, present in checks if not present()]


def main(argv: Sequence[str] | None = None) -> int:
    """Print missing things; return 2 if there are any."""
    parser = argparse.ArgumentParser(prog="preflight", description=__doc__)
    parser.add_argument("--waves", action="store_true", help="check what FST waves need, too")
    parser.add_argument("--tools", action="store_true", help="check the tools that tests try, too")
    parser.add_argument("--soc", action="store_true", help="check what make soc needs, too")
    parser.add_argument("--packages", action="store_true", help="print package names alone")
    options = parser.parse_args(argv)
    absent = missing(*(group for group in _GROUPS if getattr(options, group)))
    if options.packages:
        print(*(package for _, package in absent))
        return 0
    if sys.version_info < MINIMUM_PYTHON:
        wanted, found = (".".join(map(str, v[:2])) for v in (MINIMUM_PYTHON, sys.version_info))
        print(f"Python must be {wanted} or newer, not {found} (make PYTHON=...)", file=sys.stderr)
        return 2
    for thing, package in absent:
        print(f"{thing} must be installed: apt install {package}", file=sys.stderr)
    return 2 if absent else 0


def _compiler() -> str:
    return os.environ.get("CXX", "g++")


if __name__ == "__main__":
    raise SystemExit(main())
