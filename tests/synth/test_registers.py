"""The register map: the document and the C header agree with the table."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

import pytest

from cassandra_spec.golden import CassandraError
from cassandra_spec.rtl.dma.config import DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.registers import REGISTERS, VERSION, Field, Register, check
from cassandra_spec.synth.interface import registers

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """\
#include <stdio.h>
#include "{header}"
int main(void) {{
{prints}
  return 0;
}}
"""


def test_document_and_header_are_those_of_the_table() -> None:
    assert (ROOT / "docs/hardware/registers.md").read_text() == registers.markdown()
    assert (ROOT / "drivers/cassandra_registers.h").read_text() == registers.c_header()


def test_writing_document_and_header(tmp_path: Path) -> None:
    files = ["--out", str(tmp_path / "map.md"), "--header", str(tmp_path / "map.h")]
    assert registers.main(files) == 0
    assert (tmp_path / "map.md").read_text() == registers.markdown()
    assert (tmp_path / "map.h").read_text() == registers.c_header()


def test_the_document_names_every_register_and_every_field() -> None:
    text = registers.markdown()
    for register in REGISTERS:
        assert f"| `0x{register.offset:02x}` | `{register.name.upper()}` |" in text
        if register.fields[0].width < 32:
            section = text.split(f"## `{register.name.upper()}` (")[1].split("\n## ")[0]
            rows = re.findall(r"^\| ([\d:]+) \| `(\w+)` \| `(\w+)` \|", section, re.M)
            places = [(field.name, field.access) for field in register.fields]
            assert [(name, access) for _, name, access in rows] == places


def expected_macros() -> dict[str, int]:
    found = {}
    for register in REGISTERS:
        name = f"CASSANDRA_{register.name.upper()}"
        found[name] = register.offset
        if register.fields[0].width == 32:
            continue
        for field, low in register.places():
            top = (1 << field.width) - 1
            found[f"{name}_{field.name.upper()}_SHIFT"] = low
            found[f"{name}_{field.name.upper()}_MASK"] = top << low
            found[f"{name}_{field.name.upper()}(1)"] = 1 << low
            found[f"{name}_{field.name.upper()}(~0u)"] = top << low
    return found


@pytest.mark.parametrize(("compiler", "dialect"), [("gcc", "-std=c99"), ("g++", "-std=c++11")])
def test_the_header_compiles_and_has_the_numbers_of_the_table(
    compiler: str, dialect: str, tmp_path: Path
) -> None:
    array, encoder = DmaConfig(decoders=2, queue=16), StoreConfig(bus=64)
    for name, config in (("array.h", array), ("encoder.h", encoder)):
        (tmp_path / name).write_text(registers.c_header(config))
    (tmp_path / "map.h").write_text('#include "array.h"\n#include "encoder.h"\n')
    first, second = array.module_name.upper(), encoder.module_name.upper()
    sizes = {
        f"{first}_LANES": array.decoder.lanes,
        f"{first}_DECODERS": 2,
        f"{first}_QUEUE_DEPTH": 16,
        f"{first}_BUS_BYTES": array.bus,
        f"{second}_LANES": encoder.encoder.lanes,
        f"{second}_QUEUE_DEPTH": encoder.queue,
        f"{second}_BUS_BYTES": 64,
        f"{second}_RESULTS_DEPTH": encoder.results,
        "CASSANDRA_MAP_MAJOR": VERSION[0],
    }
    expected = expected_macros() | sizes
    prints = "\n".join(f'  printf("%lu\\n", (unsigned long)({name}));' for name in expected)
    source = tmp_path / ("main.c" if compiler == "gcc" else "main.cpp")
    source.write_text(PROGRAM.format(header="map.h", prints=prints))
    flags = [dialect, "-Wall", "-Wextra", "-pedantic", "-Werror"]
    command = [compiler, *flags, str(source), "-o", str(tmp_path / "main")]
    subprocess.run(command, check=True, capture_output=True)
    printed = subprocess.run([tmp_path / "main"], check=True, capture_output=True, text=True)
    assert dict(zip(expected, map(int, printed.stdout.split()), strict=True)) == expected


def number(name: str, offset: int, **fields: int) -> Register:
    members = tuple(
        Field(name=field, width=width, access="rw", meaning="") for field, width in fields.items()
    )
    return Register(name=name, offset=offset, meaning="", fields=members)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ((number("a", 4, x=1), number("b", 4, x=1)), "offset of b must be above 0x4"),
        ((number("a", 2, x=1),), "offset of a must be a multiple of 4, in range"),
        ((number("a", 256, x=1),), "offset of a must be a multiple of 4, in range"),
        ((number("a", 0, x=30, y=3),), "fields of a must fit in 32 bits"),
        ((number("a", 0, x=1), number("a", 4, x=1)), "names of registers must be distinct"),
    ],
)
def test_a_table_that_is_wrong_is_refused(table: tuple[Register, ...], message: str) -> None:
    with pytest.raises(CassandraError, match=message):
        check(table)


def test_a_name_that_two_fields_share_is_refused() -> None:
    register = number("a", 0, x=1)
    twice = dataclasses.replace(register, fields=register.fields * 2)
    with pytest.raises(CassandraError, match="names distinct"):
        check((twice,))


def test_a_field_that_no_register_holds_is_refused() -> None:
    with pytest.raises(CassandraError, match="width of x must be 1 to 32, not 33"):
        number("a", 0, x=33)
