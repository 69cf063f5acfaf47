"""Compile the native library at first use: sources in ``native/src``, one shared library.

A source is compiled once for each instruction set in its path: ``codec/avx512/masked.cpp`` for
AVX-512, ``linear/neon_neonbf16.cpp`` twice, and any other for every processor. Objects are
cached by a hash of their inputs, so only changed files are compiled again. Processes that need the
library at the same time wait for the first one. A library appears under its name only when it is
complete.

If a function is compiled twice under one name, the linker keeps one body, whatever its flags. A
header's shared functions are therefore ``static`` or in the namespace ``cassandra::CASSANDRA_ISA``,
a macro of the build, and files for an instruction set use no standard templates that may not be
inlined.

Built files run as code. Each has its digest beside it and is built again if the digest differs. A
file that others own or can write is rejected.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.native import constants


class NativeError(CassandraError):
    """The native library cannot be compiled or loaded, or lacks the requested feature."""


SOURCES = Path(__file__).resolve().parent / "src"
LIBRARY = "libcassandra.so"
_CHECKOUT = SOURCES.parents[1]
_NAMED = 4  # sources that a line names, more are counted

_COMMON = (
    "-std=c++17 -fPIC -fvisibility=hidden -ffp-contract=off -pthread -Wall -Wextra -Werror=vla"
)
_OPTIMISED = "-O3 -g1"
_PORTABLE = "-static-libstdc++ -Wl,--exclude-libs,ALL -Wl,--gc-sections -Wl,-Bsymbolic -Wl,-S"
_SANITISED = "-O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all"

_AVX2 = "-mavx2 -mfma -mbmi -mbmi2 -mlzcnt -mpopcnt -mf16c"
_AVX512 = (
    f"{_AVX2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512cd -mavx512vbmi -mavx512vbmi2"
    " -mavx512vnni -mavx512bitalg -mavx512vpopcntdq -mgfni -mprefer-vector-width=512"
)
_NEON = "-fno-schedule-insns -march=armv8.2-a+dotprod"  # scheduled first, sums leave registers

Flags = dict[str, tuple[str, ...]]
"""Compiler flags of each instruction set, least capable first."""

MACHINE_FLAGS: dict[str, Flags] = {
    "x86_64": {
        "portable": (),
        "avx2": tuple(_AVX2.split()),
        "avx512": tuple(_AVX512.split()),
        "avx512bf16": (*_AVX512.split(), "-mavx512bf16", "-mamx-tile", "-mamx-bf16"),
    },
    "aarch64": {
        "portable": (),
        "neon": tuple(_NEON.split()),
        "neonbf16": tuple(f"{_NEON}+i8mm+bf16".split()),
    },
}
"""Flags by the name of the machine, as ``platform.machine`` returns it."""


def flags_of(machine: str) -> Flags:
    """Return the flags of a machine; machines without kernels of their own have ``portable``."""
    return MACHINE_FLAGS.get(machine, {"portable": ()})


ISA_FLAGS = flags_of(platform.machine())
"""Flags of this machine."""

CROSS_COMPILER = "{machine}-linux-gnu-g++"


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """A C++ compiler, and the instruction sets that it supports."""

    command: tuple[str, ...]
    version: str
    isas: tuple[str, ...]


def cache_folder() -> Path:
    """Return the cache folder of objects and libraries.

    ``CASSANDRA_NATIVE_CACHE`` if set, ``build/native`` inside a checkout, otherwise the user's
    cache folder.
    """
    chosen = os.environ.get("CASSANDRA_NATIVE_CACHE")
    if chosen:
        return Path(chosen)
    if (_CHECKOUT / "pyproject.toml").is_file():
        return _CHECKOUT / "build" / "native"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "cassandra-spec" / "native"


def isas_of(name: str) -> tuple[str, ...]:
    """Return the instruction sets to compile a source for: those in its path, or portable.

    Those of other machines are among them.
    """
    words = re.split(r"[/_]", name.removesuffix(".cpp"))
    known = dict.fromkeys(isa for flags in MACHINE_FLAGS.values() for isa in flags)
    return tuple(isa for isa in known if isa in words) or ("portable",)


def _run(command: Sequence[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def _takes(command: tuple[str, ...], flags: tuple[str, ...]) -> bool:
    test = [*command, *flags, "-x", "c++", "-fsyntax-only", os.devnull]
    return _run(test).returncode == 0


@cache
def _toolchain(command: tuple[str, ...], machine: str | None = None) -> Toolchain:
    version = _run([*command, "--version"])
    if version.returncode:
        raise NativeError(f"{shlex.join(command)} must be a C++ compiler: {version.stderr.strip()}")
    known = ISA_FLAGS if machine is None else flags_of(machine)
    isas = tuple(name for name, flags in known.items() if _takes(command, flags))
    return Toolchain(command=command, version=version.stdout, isas=isas)


def find_toolchain() -> Toolchain:
    """Return the compiler of ``$CXX``, else g++, c++ or clang++ of PATH.

    Raises :class:`NativeError` if no compiler is found.
    """
    try:
        chosen = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise NativeError(f"CXX must be a command, not {os.environ['CXX']!r}") from error
    for candidate in [chosen] if chosen else [["g++"], ["c++"], ["clang++"]]:
        if shutil.which(candidate[0]):
            return _toolchain(tuple(candidate))
    wanted = shlex.join(chosen) if chosen else "g++"
    raise NativeError(
        f"the native library needs a C++ compiler, and {wanted} is not on PATH: install g++, or set"
        " CXX"
    )


@cache
def _macros(command: tuple[str, ...], flags: tuple[str, ...]) -> frozenset[str] | None:
    """Return the names of the macros that a compiler defines; None if it refuses the flags."""
    run = _run([*command, *flags, "-dM", "-E", "-x", "c++", os.devnull])
    return None if run.returncode else frozenset(re.findall(r"^#define (\w+)", run.stdout, re.M))


def for_this_machine(toolchain: Toolchain) -> Toolchain:
    """Return the toolchain with only the instruction sets that this machine has.

    A library that is compiled at its first use runs here, and half of its compile time may be for
    other processors. A compiler that does not know the machine keeps all. AMX is looked for when
    the library runs.
    """
    here = _macros(toolchain.command, ("-march=native",))
    if here is None:
        return toolchain
    plain = _macros(toolchain.command, ()) or frozenset()
    lacking = {
        isa: (_macros(toolchain.command, ISA_FLAGS[isa]) or frozenset()) - plain - here
        for isa in toolchain.isas
    }
    has = [isa for isa, names in lacking.items() if all(name.startswith("__AMX") for name in names)]
    return replace(toolchain, isas=tuple(has))


def find_cross_toolchain(machine: str) -> Toolchain:
    """Return the compiler for another machine, by Debian's name.

    Raises :class:`NativeError` if it is not found.
    """
    command = CROSS_COMPILER.format(machine=machine)
    if not shutil.which(command):
        raise NativeError(f"a library for {machine} needs {command}, which is not on PATH")
    return _toolchain((command,), machine)


def _digest(*parts: str) -> str:
    total = hashlib.sha256()
    for part in parts:
        octets = part.encode()
        total.update(len(octets).to_bytes(8, "little") + octets)
    return total.hexdigest()[:20]


_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def _closure(name: str, texts: dict[str, str]) -> list[str]:
    """Return a file and the known files that it includes, directly or not, by quotes."""
    found, left = [name], [name]
    while left:
        for included in _INCLUDE.findall(texts[left.pop()]):
            if included in texts and included not in found:
                found.append(included)
                left.append(included)
    return sorted(found)


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A source to compile, its flags, and the name of its object."""

    source: str
    flags: tuple[str, ...]
    object: str


def read_sources() -> dict[str, str]:
    """Return the text of all sources, including generated ones, by path in ``src``."""
    paths = sorted(path for path in SOURCES.rglob("*.*") if path.suffix in (".cpp", ".h"))
    texts = {path.relative_to(SOURCES).as_posix(): path.read_text("utf-8") for path in paths}
    return texts | constants.generate()


def _flags(toolchain: Toolchain, isa: str, sanitize: bool) -> tuple[str, ...]:
    has = [f"-DCASSANDRA_HAVE_{name.upper()}" for name in toolchain.isas]
    mode = (_SANITISED if sanitize else _OPTIMISED).split()
    own = next(flags[isa] for flags in MACHINE_FLAGS.values() if isa in flags)
    return (*_COMMON.split(), *mode, *has, f"-DCASSANDRA_ISA={isa}", *own)


def write_sources(texts: dict[str, str], folder: Path) -> None:
    """Write the sources to the folder where the compiler runs."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def compilations(texts: dict[str, str], toolchain: Toolchain, sanitize: bool = False) -> list[Unit]:
    """Return the units to compile: each source for each of its supported instruction sets."""
    units = []
    for name in texts:
        if not name.endswith(".cpp"):
            continue
        parts = [part for file in _closure(name, texts) for part in (file, texts[file])]
        for isa in isas_of(name):
            if isa in toolchain.isas:
                flags = (*_flags(toolchain, isa, sanitize), "-I.")
                key = _digest(toolchain.version, *toolchain.command, *flags, *parts)
                object = f"{name.removesuffix('.cpp').replace('/', '-')}-{key}.o"
                units.append(Unit(source=name, flags=flags, object=object))
    return units


def _check(run: subprocess.CompletedProcess[str], what: str) -> None:
    if run.returncode:
        raise NativeError(f"{what} failed: {run.stderr.strip() or f'status {run.returncode}'}")


def _compile(unit: Unit, folder: Path, toolchain: Toolchain, sources: Path) -> None:
    target = folder / unit.object
    partial = target.with_suffix(f".{os.getpid()}.partial")
    command = [*toolchain.command, *unit.flags, "-c", unit.source, "-o", str(partial)]
    try:
        _check(_run(command, sources), f"compiling {unit.source}")
        _keep(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def is_own(path: Path) -> bool:
    """Return True if no other user (but root) owns the file or can change it."""
    status = path.stat()
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & 0o022


def _require_own(path: Path) -> None:
    if not is_own(path):
        raise NativeError(
            f"{path} must be yours (or root's) and writable by nobody else: remove it, or set "
            "CASSANDRA_NATIVE_CACHE to a folder of your own"
        )


def seal_of(path: Path) -> Path:
    """Return the path of the digest of a built file."""
    return path.with_name(f"{path.name}.sha256")


def _is_whole(path: Path) -> bool:
    """Return True if a built file exists and matches its digest."""
    if not path.exists():
        return False
    for each in (path.parent, path):
        _require_own(each)
    return is_sealed(path)


def is_sealed(path: Path) -> bool:
    """Return True if a file matches the digest beside it."""
    try:
        return seal_of(path).read_text("ascii") == hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return False


def _keep(partial: Path, path: Path) -> None:
    """Rename a complete file to its final name, after writing its digest."""
    partial.chmod(0o755)
    seal_of(path).write_text(hashlib.sha256(partial.read_bytes()).hexdigest(), "ascii")
    partial.replace(path)


def _on_terminal() -> bool:
    """Return True if a person is waiting at a terminal and should see progress."""
    return sys.stderr.isatty()


def tell(text: str) -> None:
    """Print a text on standard error if a person is waiting there."""
    if _on_terminal():
        print(text, end="", file=sys.stderr, flush=True)


def _compile_missing(
    units: list[Unit], texts: dict[str, str], objects: Path, toolchain: Toolchain
) -> None:
    missing = [unit for unit in units if not _is_whole(objects / unit.object)]
    if not missing:
        return
    missing.sort(key=lambda unit: _work(unit, texts), reverse=True)
    progress = _Progress(missing, toolchain, objects.parent)
    with tempfile.TemporaryDirectory(dir=objects) as folder:
        write_sources(texts, Path(folder))
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            jobs = [pool.submit(_compile, u, objects, toolchain, Path(folder)) for u in missing]
            for job in as_completed(jobs):
                job.result()
                progress.count()


def _work(unit: Unit, texts: dict[str, str]) -> int:
    """Estimate the time to compile a unit: kernels for more capable processors take longer."""
    size = sum(len(texts[name]) for name in _closure(unit.source, texts))
    return size * len(unit.flags)


class _Progress:
    """Lines on a terminal: what is compiled, and how many units are done after how long."""

    def __init__(self, units: list[Unit], toolchain: Toolchain, folder: Path) -> None:
        self._done, self._all, self._begun = 0, len(units), time.monotonic()
        sources = list(dict.fromkeys(unit.source for unit in units))
        names = ", ".join(sources) if len(sources) <= _NAMED else f"{len(sources)} files"
        command = shlex.join(toolchain.command)
        tell(f"native: compiling {names} with {command} (once; kept in {folder})\n")

    def count(self) -> None:
        """Count one unit as compiled."""
        self._done += 1
        seconds = time.monotonic() - self._begun
        end = "\n" if self._done == self._all else ""
        tell(f"\rnative: {self._done} of {self._all} compiled, {seconds:.0f} s{end}")


def _link(
    units: list[Unit], objects: Path, library: Path, flags: tuple[str, ...], cxx: Toolchain
) -> None:
    partial = library.with_suffix(f".{os.getpid()}.partial")
    inputs = [str(objects / unit.object) for unit in units]
    run = _run([*cxx.command, *flags, "-shared", "-Wl,-z,defs", *inputs, "-o", str(partial)])
    try:
        _check(run, "linking the native library")
        _keep(partial, library)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build_library(
    *, sanitize: bool = False, folder: Path | None = None, toolchain: Toolchain | None = None
) -> Path:
    """Return the path of the shared library for the current sources; compile it if needed.

    Args:
        sanitize: build with AddressSanitizer and UndefinedBehaviorSanitizer.
        folder: cache of objects and libraries; by default :func:`cache_folder`.
        toolchain: compiler, also for another machine; by default :func:`find_toolchain` with the
            instruction sets of this one.

    Raises:
        NativeError: no compiler is found, it rejects the sources, or others can write the library.
        OSError: the folder cannot be written.
    """
    toolchain = toolchain or for_this_machine(find_toolchain())
    texts = read_sources()
    units = compilations(texts, toolchain, sanitize)
    root = cache_folder() if folder is None else folder
    library = root / _digest(*(unit.object for unit in units)) / LIBRARY
    if not _is_whole(library):
        flags = _flags(toolchain, "portable", sanitize)
        _build(library, units, texts, toolchain, root, flags)
    return library


def build_portable(library: Path) -> None:
    """Compile a library for other machines: it brings its C++ runtime, without symbols to debug.

    Raises :class:`NativeError` also if the compiler does not support all instruction sets.
    """
    toolchain = find_toolchain()
    if lacking := ISA_FLAGS.keys() - set(toolchain.isas):
        command = shlex.join(toolchain.command)
        raise NativeError(f"{command} must support {', '.join(ISA_FLAGS)}, not {sorted(lacking)}")
    texts = read_sources()
    units = compilations(texts, toolchain)
    flags = (*_flags(toolchain, "portable", sanitize=False), *_PORTABLE.split())
    _build(library, units, texts, toolchain, cache_folder(), flags)


def _build(
    library: Path,
    units: list[Unit],
    texts: dict[str, str],
    toolchain: Toolchain,
    root: Path,
    flags: tuple[str, ...],
) -> None:
    objects = root / "objects"
    for path in (objects, library.parent):
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o755)
    with _locked(root):
        if not _is_whole(library):
            _compile_missing(units, texts, objects, toolchain)
            _link(units, objects, library, flags, toolchain)


def sources_digest() -> str:
    """Return a hash of the sources and of the flags of an optimised build."""
    texts = read_sources()
    sets = (flag for flags in ISA_FLAGS.values() for flag in flags)
    return _digest(_COMMON, _OPTIMISED, *sets, *(part for item in texts.items() for part in item))
