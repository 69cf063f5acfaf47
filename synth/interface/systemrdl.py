"""The register map as SystemRDL 2.0, from the table that makes the gateware.

The table is the source: it takes the fields of command words and the causes of errors from golden's
format. ``tests/synth/test_systemrdl.py`` compiles this text with systemrdl-compiler, and the DMA
suites test the gateware against what the compiler reads.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from cassandra_spec.rtl.dma.registers import Field, Register
from cassandra_spec.synth.interface.identity import VERSION_TEXT
from cassandra_spec.synth.interface.ipxact import is_testable

_PROPERTIES = """\
// Properties beyond SystemRDL's own.
property latched_by { component = reg; type = reg; };
    // an upper half reads what it was when its lower half, named here, was last read; zero before
property whole { component = reg; type = boolean; default = false; };
    // a write without all byte strobes does nothing
property guarded { component = reg; type = boolean; default = false; };
    // the gateware detects bits that change by themselves
"""

_ACCESS = {
    "ro": "sw = r; hw = w;",
    "rw": "sw = rw; hw = r;",
    "w1c": "sw = rw; hw = na; onwrite = woclr; hwset;",
    "wo": "sw = w; hw = r; swmod;",
}


def systemrdl(name: str, registers: Sequence[Register], built: Mapping[str, int]) -> str:
    """Write registers as an address map, with the version of the map in its description.

    ``built`` has the value of each field that is a constant of the configuration, by
    ``REGISTER_FIELD``.
    """
    latches = [
        f"    {register.name} -> latched_by = {lower.name};"
        for lower, register in itertools.pairwise(registers)
        if register.latched
    ]
    lines = [
        *(_PROPERTIES, f"addrmap {name} {{"),
        '    name = "Cassandra registers";',
        f'    desc = "Version {VERSION_TEXT}. AXI4-Lite.'
        " An address without a register is answered with SLVERR."
        ' Fields that act when they are written read as zero.";',
        "    littleendian; lsb0; errextbus;",
        "    default regwidth = 32; default accesswidth = 32;",
        *(line for register in registers for line in _register(register, built)),
        *latches,
        "};",
    ]
    return "\n".join(lines) + "\n"


def _register(register: Register, built: Mapping[str, int]) -> Iterator[str]:
    latched = "; reads what it was when the lower half was last read" if register.latched else ""
    yield "    reg {"
    yield f'        name = "{register.name.upper()}"; desc = {_text(register.meaning + latched)};'
    flags = {"whole": register.whole, "guarded": register.guarded}
    yield from (f"        {name} = true;" for name, is_set in flags.items() if is_set)
    for field, low in register.places():
        yield from _field(field, low, built.get(f"{register.name}_{field.name}"))
    yield f"    }} {register.name} @ 0x{register.offset:02x};"


def _field(field: Field, low: int, constant: int | None) -> Iterator[str]:
    """Write a field; a read-only one may be a ``constant``.

    Register tests of other tools leave out what they cannot predict (``donttest``).
    """
    access = _ACCESS[field.access] if constant is None else "sw = r; hw = na;"
    yield "        field {"
    yield f"            {access} desc = {_text(field.meaning)};"
    if not is_testable(field, constant):
        yield "            donttest;"
    reset = f" = 0x{constant or 0:x}" if field.known else ""
    yield f"        }} {field.name}[{low + field.width - 1}:{low}]{reset};"


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
