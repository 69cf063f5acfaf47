"""The library of 64-bit Arm, emulated: the tests of the kernels, and the bits of other processors.

The tests are skipped without the cross compiler and the emulator
(``apt install g++-aarch64-linux-gnu qemu-user-static``).
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from cassandra_spec.native import build
from cassandra_spec.native.arrays import CheckedStructure, pointer
from tests.marks import exhaustive
from tests.native.emulated import library
from tests.native.emulated.answers import Answers, answers

ROOT = Path(__file__).resolve().parents[3]
REFERENCES = {"portable": "portable", "neon": "avx512", "neonbf16": "avx512"}
"""Instruction sets of Arm, and those of x86-64 whose answers have the same bits."""

SANITIZERS = ("LD_PRELOAD", "CASSANDRA_NATIVE_SANITIZE")
"""Variables of ``make sanitize``, whose libraries are for this machine's processor."""

CHOSEN = [
    ("test_linear.py", "not (the_others and 576)"),
    ("test_attention.py", "not qwen2 and not (bits_of_a_row and (-1- or -5-))"),
    ("test_codec.py", ""),
    exhaustive("test_linear.py", ""),
    exhaustive("test_attention.py", ""),
]
"""Files of tests, and which of them run: every kernel and size.

The rest crosses them with shapes, models and numbers of threads, around the same kernels.
"""

absent = library.missing_program()
needs_emulator = pytest.mark.skipif(absent is not None, reason=f"{absent} is not installed")


def emulate(*arguments: str) -> None:
    command = [sys.executable, "-m", "tests.native.emulated", *arguments]
    env = {name: value for name, value in os.environ.items() if name not in SANITIZERS}
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]


@pytest.mark.slow
@needs_emulator
@pytest.mark.parametrize(("file", "chosen"), CHOSEN)
def test_kernels_pass_their_tests(file: str, chosen: str) -> None:
    emulate("-q", "-x", f"tests/native/{file}", "-k", chosen)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Return the answers of 64-bit Arm."""
    path = tmp_path_factory.mktemp("answers") / "arm.npz"
    emulate("--answers", str(path))
    with np.load(path) as found:
        return dict(found)


@pytest.fixture(scope="module")
def own() -> Answers:
    """Return the answers of this machine's processor."""
    return answers()


@pytest.mark.slow
@needs_emulator
@pytest.mark.parametrize("isa", REFERENCES)
@pytest.mark.parametrize("part", ["codec", "linear", "model"])
def test_answers_have_the_bits_of_x86(isa: str, part: str, emulated: Answers, own: Answers) -> None:
    names = [name.removeprefix(f"{isa}: ") for name in emulated if f"{isa}: {part}" in name]
    assert names
    reference = REFERENCES[isa]
    if f"{reference}: {names[0]}" not in own:
        pytest.skip(f"this machine does not have {reference}")
    for name in names:
        np.testing.assert_array_equal(
            emulated[f"{isa}: {name}"], own[f"{reference}: {name}"], err_msg=name
        )


ECHO = """
#include <cstdint>
#include <cstring>
#define API extern "C" __attribute__((visibility("default")))
struct Inner { int32_t count; const int32_t* numbers; };
API int twice(const Inner* inner, int32_t* out) {
    for (int i = 0; i < inner->count; ++i) out[i] = 2 * inner->numbers[i];
    return -inner->count;
}
API int64_t last(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                 int64_t tenth) { return tenth; }
API double half() { return 0.5; }
API const char* text() { return "text"; }
API void* nothing() { return nullptr; }
"""


class Inner(CheckedStructure):
    """A structure with a pointer, as ``RoundRequest`` has one."""

    _fields_ = (("count", ctypes.c_int32), ("numbers", ctypes.c_void_p))


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[library.EmulatedLibrary]:
    """Provide a small library for this machine's processor, in a process of its own."""
    (tmp_path / "echo.cpp").write_text(ECHO)
    compiler = build.find_toolchain().command
    out = str(tmp_path / "echo.so")
    command = [*compiler, "-shared", "-fPIC", str(tmp_path / "echo.cpp"), "-o", out]
    subprocess.run(command, check=True)
    monkeypatch.setattr("cassandra_spec.native.arrays.Pointer", library.KnownPointer)
    made = library.EmulatedLibrary(out, compiler, ())
    yield made
    made.close()


def integers(*values: int) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def test_calls_reach_the_other_process(echo: library.EmulatedLibrary) -> None:
    number, address = ctypes.c_int, ctypes.c_void_p
    long, ten = ctypes.c_int64, (ctypes.c_int64,) * 10
    signatures = {
        "twice": (number, (ctypes.POINTER(Inner), address)),
        "last": (long, ten),
        "half": (ctypes.c_double, ()),
        "text": (ctypes.c_char_p, ()),
        "nothing": (address, ()),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(echo, name)
        function.restype, function.argtypes = result, arguments
    numbers, found = integers(3, -4, 5), integers(0, 0, 0)
    inner = Inner(count=3, numbers=pointer("numbers", numbers, np.int32, 3).address)
    place = pointer("found", found, np.int32, 3, writable=True)
    assert echo.twice(ctypes.byref(inner), place) == -3
    assert found.tolist() == [6, -8, 10]
    assert echo.last(*range(-10, 0)) == -1
    assert (echo.half(), echo.text(), echo.nothing()) == (0.5, b"text", None)
