"""Structures of C++ and their mirrors in ctypes: the compiler compares sizes and offsets."""

from __future__ import annotations

import ctypes
import inspect
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.native import build, codec, constants, engine_binding, key_values, limits
from cassandra_spec.native.arrays import CheckedStructure
from cassandra_spec.native.models import streaming

HEADERS = ("codec/codec.h", "engine/engine.h", "stream/source.h")
CPP_NAMES = {
    "Params": "codec::Params",
    "Figures": "stream::Figures",
    "SealedFormatStructure": "SealedFormat",
}
MEMBERS = {"sinks": "range.sinks", "start": "range.start"}
"""Members of a member, which the mirror has as fields of its own."""

PRELUDE = """
#include <cstddef>
#include <type_traits>
#include <utility>
using namespace cassandra;
template <class T> using element = std::remove_all_extents_t<std::remove_reference_t<T>>;
"""

Structure = type[ctypes.Structure]


class PassRow(ctypes.Structure):
    """A row of the array that ``engine_binding.pass_rows`` makes."""

    _fields_ = tuple((name, ctypes.c_int32) for name in engine_binding.Row._fields)


def mirrors() -> list[Structure]:
    modules = (codec, engine_binding, streaming)
    classes = [each for module in modules for each in vars(module).values()]
    found = {each for each in classes if isinstance(each, type)}
    own = {each for each in found if issubclass(each, CheckedStructure)} - {CheckedStructure}
    return [PassRow, *sorted(own, key=lambda each: each.__name__)]


def kind(field: Any) -> str:
    while issubclass(field, ctypes.Array):
        field = field._type_
    if field is ctypes.c_void_p:
        return "std::is_pointer_v"
    floating = field in (ctypes.c_float, ctypes.c_double)
    return "std::is_floating_point_v" if floating else "!std::is_floating_point_v"


def assertions(structure: Structure) -> Iterator[str]:
    name = CPP_NAMES.get(structure.__name__, structure.__name__)
    yield f"sizeof({name}) == {ctypes.sizeof(structure)}"
    for field, *rest in structure._fields_:
        member = MEMBERS.get(field, field)
        place = getattr(structure, field)
        value = f"std::declval<{name}&>().{member}"
        yield f"offsetof({name}, {member}) == {place.offset}"
        yield f"sizeof({value}) == {place.size}"
        yield f"{kind(rest[0])}<element<decltype({value})>>"


def differences(structures: Sequence[Structure], folder: Path) -> str:
    """Return what the compiler objects to; nothing if all structures are as in C++."""
    for name, text in constants.generate().items():
        (folder / name).write_text(text)
    lines = [f'#include "{name}"' for name in HEADERS] + [PRELUDE]
    lines += [f'static_assert({each}, "");' for one in structures for each in assertions(one)]
    (folder / "check.cpp").write_text("\n".join(lines))
    places = [f"-I{build.SOURCES}", f"-I{folder}", "-DCASSANDRA_ISA=portable"]
    command = [*build.find_toolchain().command, "-std=c++17", *places, "-fsyntax-only"]
    run = subprocess.run(
        [*command, str(folder / "check.cpp")], capture_output=True, text=True, check=False
    )
    return "" if run.returncode == 0 else run.stderr


def test_mirrors_are_as_in_cpp(tmp_path: Path) -> None:
    structures = mirrors()
    assert {"ModelShape", "RoundResult", "Params", "Figures"} <= {s.__name__ for s in structures}
    assert differences(structures, tmp_path) == ""


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ([("token", "f"), ("parent", "i"), ("confidence", "d"), ("source", "i")], "floating_point"),
        ([("parent", "i"), ("token", "i"), ("confidence", "d"), ("source", "i")], "offsetof"),
        ([("token", "i"), ("parent", "i"), ("confidence", "d")], "sizeof"),
        ([("token", "i"), ("parent", "i"), ("confidence", "d"), ("sort", "i")], "sort"),
    ],
)
def test_a_mirror_that_differs_is_found(
    fields: list[tuple[str, str]], line: str, tmp_path: Path
) -> None:
    types = {"i": ctypes.c_int32, "f": ctypes.c_float, "d": ctypes.c_double}
    wrong = type("TreeNode", (ctypes.Structure,), {"_fields_": [(n, types[t]) for n, t in fields]})
    assert line in differences([wrong], tmp_path)


def test_a_shared_constant_has_one_definition() -> None:
    """Python defines it, the generated header gives it to C++, and C++ uses it."""
    sources = build.read_sources()
    del sources[constants.ENGINE_HEADER]
    for name in limits.SHARED:
        defined = re.compile(rf"(?:constexpr|const|enum)[^;(]*\b{name} = ")
        using = [path for path, text in sources.items() if re.search(rf"\b{name}\b", text)]
        assert using, name
        again = [path for path in using if defined.search(sources[path])]
        assert [path for path in again if not path.startswith("codec/")] == [], name
    for module in (engine_binding, key_values, streaming):
        source = inspect.getsource(module)
        assert not re.search(rf"^(?:{'|'.join(limits.SHARED)}) = ", source, re.MULTILINE)


def test_the_header_has_the_values_of_python() -> None:
    header = constants.generate()[constants.ENGINE_HEADER]
    found = re.findall(r"constexpr int (\w+) = (-?\d+);", header)
    assert {name: int(value) for name, value in found} == limits.SHARED
    assert limits.MAX_ROWS == 1 + limits.SHARED["MAX_NODES"]
