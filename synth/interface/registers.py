"""Write the register map as Markdown and as a C header, from the table of the gateware.

``python -m cassandra_spec.synth.interface.registers`` writes registers.md and the driver's header;
a test compares them with the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.registers import REGISTERS, TOPS, VERSION, Field, Register, check
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.toolkit.running import CommandParser, run_command

_ACCESS = {
    "ro": "read only",
    "rw": "read and write, zero after reset",
    "w1c": "set by the hardware, cleared by writing ones",
    "wo": "acts when it is written, reads as zero",
}

_INTRODUCTION = """\
# Registers

Of CassandraDma (decoders; `decode` below) and of CassandraEncoderDma (`encode`): one map, of which
each has a part.

Generated from `rtl/dma/registers.py` by `python -m cassandra_spec.synth.interface.registers`;
version {version} of the map. [dma.md](dma.md#programming) says how to program them.

Registers are 32 bits wide, on AXI4-Lite. Bits that are not listed read as zero; addresses that are
not listed are answered with SLVERR. Byte strobes are obeyed: bytes without a strobe keep their
value, and a write without any strobe does nothing. CODEBOOK acts only if all four are set.

One rule for all 64-bit numbers that are read only: the upper half reads what it was when the lower
half of the same number was last read (zero before that), whatever else was read in between. So read
the lower half first.
"""

_GUARD = """\
#ifndef {guard}
#define {guard}

#include <stdint.h>

/* Offsets in bytes; FIELD_SHIFT and FIELD_MASK (in place) for each field; FIELD(x) puts a number in
   its place. Registers without named fields are one number. */

"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def markdown(registers: Sequence[Register] = REGISTERS) -> str:
    """Return the register map as a document."""
    version = ".".join(map(str, VERSION))
    lines = [_INTRODUCTION.format(version=version), "| access | |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in _ACCESS.items()]
    lines += ["", "| offset | register | of | access | |", "|---|---|---|---|---|"]
    for register in registers:
        name, kinds = register.name.upper(), dict.fromkeys(f.access for f in register.fields)
        access = ", ".join(f"`{kind}`" for kind in kinds)
        meaning = _cell(register.meaning)
        tops = "both" if register.tops == TOPS else ", ".join(register.tops)
        lines.append(f"| `0x{register.offset:02x}` | `{name}` | {tops} | {access} | {meaning} |")
    for register in registers:
        if not _is_number(register):
            lines += ["", *_section(register)]
    return "\n".join(lines) + "\n"


def _is_number(register: Register) -> bool:
    return register.fields[0].width == 32


def _section(register: Register) -> Iterator[str]:
    yield f"## `{register.name.upper()}` (0x{register.offset:02x})"
    yield ""
    yield f"{register.meaning[0].upper()}{register.meaning[1:]}."
    yield ""
    yield "| bits | field | access | |"
    yield "|---|---|---|---|"
    for field, low in register.places():
        bits = f"{low}" if field.width == 1 else f"{low + field.width - 1}:{low}"
        yield f"| {bits} | `{field.name}` | `{field.access}` | {_cell(field.meaning)} |"


def c_header(config: DmaConfig | StoreConfig | None = None) -> str:
    """Write the map as macros, with the sizes of a configuration if one is given.

    The names of sizes begin with the module's, so a C file can include the headers of two devices.

    PeakRDL's header has packed structures instead. Compilers for RISC-V access these byte by byte,
    which CODEBOOK does not take, and read the halves of a number in any order.
    """
    name = config.module_name if config else "cassandra_registers"
    guard = f"{name.upper()}_H"
    lines = [
        f"/* {name}: registers, version {'.'.join(map(str, VERSION))} of the map.",
        "   Generated from the table that makes the gateware. Apache-2.0. */",
        _GUARD.format(guard=guard),
    ]
    sizes = _sizes(config) if config else {}
    lines += [f"#define {name.upper()}_{size} {value}u" for size, value in sizes.items()]
    lines += [f"#define CASSANDRA_MAP_MAJOR {VERSION[0]}u"]
    for register in REGISTERS:
        lines += ["", *_macros(register)]
    lines += ["", f"#endif /* {guard} */"]
    return "\n".join(lines) + "\n"


def _sizes(config: DmaConfig | StoreConfig) -> dict[str, int]:
    """Return the sizes of a configuration, by macro name."""
    if isinstance(config, StoreConfig):
        engine: DecoderConfig | EncoderConfig = config.encoder
        own = {"RESULTS_DEPTH": config.results}
    else:
        engine, own = config.decoder, {"DECODERS": config.decoders}
    return {
        "LANES": engine.lanes,
        **own,
        "CODEBOOK_ENTRIES": engine.codebook,
        "BUS_BYTES": config.bus,
        "QUEUE_DEPTH": config.queue,
        "BOOK_SLOTS": config.books,
    }


def _macros(register: Register) -> Iterator[str]:
    name = f"CASSANDRA_{register.name.upper()}"
    yield f"/* {register.meaning} */"
    yield f"#define {name} 0x{register.offset:02x}u"
    if _is_number(register):
        return
    for field, low in register.places():
        yield from _field_macros(f"{name}_{field.name.upper()}", field, low)


def _field_macros(name: str, field: Field, low: int) -> Iterator[str]:
    mask = ((1 << field.width) - 1) << low
    yield f"#define {name}_SHIFT {low}u"
    yield f"#define {name}_MASK 0x{mask:08x}u /* {field.access}: {field.meaning} */"
    yield f"#define {name}(x) (((uint32_t)(x) << {name}_SHIFT) & {name}_MASK)"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the document."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.synth.interface.registers", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("docs/hardware/registers.md"), help="document to write"
    )
    parser.add_argument(
        "--header",
        type=Path,
        default=Path("drivers/cassandra_registers.h"),
        help="C header to write",
    )
    return parser


def _run(args: argparse.Namespace) -> int:
    check()
    for path, text in ((args.out, markdown()), (args.header, c_header())):
        path.write_text(text, encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
