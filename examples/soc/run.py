"""Boot a LiteX SoC with a RISC-V core, whose firmware uses decoder and encoder by their DMAs.

    python -m examples.soc.run [--out build/soc] [--values 16384]

Packs weights, keys and values of SmolLM2's first layer, exports a decoder and an encoder of eight
lanes, makes the SoC with LiteX in an environment of its own (``requirements.txt`` beside this
file), compiles the firmware and runs it in LiteX's Verilator simulation. Exit status 0 if the
firmware prints PASS.

Debian: gcc-riscv64-unknown-elf, picolibc-riscv64-unknown-elf, libevent-dev, libjson-c-dev.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.model.weights.sources import open_source
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import DmaConfig, StoreConfig
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.synth.export import Config, export
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.programs import python_environment, run_program
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.verif.tools.preflight import RISC_V, missing
from cassandra_spec.verif.tools.toolchain import verilator_binary, verilator_environment
from examples.soc import values
from examples.soc.image import LANES, RAM, image, key_values, weights

HERE = Path(__file__).resolve().parent
DRIVERS = HERE.parents[1] / "drivers"
MACHINE = ("-march=rv32im", "-mabi=ilp32", "-misa-spec=2.2")  # 2.2: csr instructions included
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
QUICK = (2048, 1024)
"""Values and segment of a short run."""
_PACE = 4  # values per cycle into the encoder
_SECONDS = 3600
_TITLE = "Cassandra in a LiteX SoC\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Build and run the SoC."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="examples.soc", description=__doc__)
    flags.add_folder(parser, "out", "folder to build in", "build/soc")
    flags.add_count(parser, "values", "weights to decode", 16384)
    flags.add_count(parser, "segment", "values of a segment", 4096)
    quick = "a short run: --values {} --segment {}".format(*QUICK)
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def _run(args: argparse.Namespace) -> int:
    require_packages()
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    count, segment = QUICK if args.quick else (args.values, args.segment)
    memory, firmware = out / "memory.bin", out / "firmware.bin"
    memory.write_bytes(memory_of(count, segment))
    python = python_environment(out / "env", HERE / "requirements.txt", error=CassandraError)
    export_tops(out / "rtl", segment)
    soc = [python / "python", HERE / "soc.py", "--tops", out / "rtl", "--out", out, "--ram", RAM]
    print("Writing the SoC's headers, compiling the firmware ...", flush=True)
    run_program(soc, out, error=CassandraError)
    compile_firmware(out, firmware)
    print("Building and running the simulation ...", flush=True)
    text = simulate([*soc, "--firmware", firmware, "--memory", memory], out)
    print(text)
    return 0 if text.endswith("\nPASS") else 1


def require_packages() -> None:
    """Raise CassandraError with the command that installs the missing Debian packages."""
    if absent := missing("soc"):
        things, packages = zip(*absent, strict=True)
        install = " ".join(packages)
        raise CassandraError(f"{', '.join(things)} must be installed: apt install {install}")


def memory_of(count: int, segment: int) -> bytes:
    """Return the memory's image with ``count`` weights, and keys and values."""
    layer = values.read(open_source("smollm2"), count)
    tensors = weights(layer.weights, segment)
    return image([*tensors, *key_values(layer.keys, layer.values, values.HEAD, segment)])


def export_tops(folder: Path, segment: int) -> None:
    """Write the Verilog of decoder and encoder."""
    encoder = EncoderConfig(
        lanes=LANES, vector=values.HEAD, group=32, segment=segment, values_per_cycle=_PACE
    )
    tops: dict[str, Config] = {
        "decoder": DmaConfig(decoder=DecoderConfig(lanes=LANES), address=32),
        "encoder": StoreConfig(encoder=encoder, address=32),
    }
    shutil.rmtree(folder, ignore_errors=True)
    for name, config in tops.items():
        export(folder / name, config)


def compile_firmware(out: Path, binary: Path) -> None:
    """Compile driver and firmware for the SoC whose headers are in ``out``."""
    sources = [*sorted((HERE / "firmware").glob("*.[cS]")), DRIVERS / "cassandra.c"]
    [litex] = (out / "env").glob("lib/python*/site-packages/litex/soc")
    folders = [
        *(out / "software" / "include", litex / "software" / "include"),
        litex / "cores" / "cpu" / "vexriscv",
    ]
    include = [f"-I{DRIVERS}", *(word for path in folders for word in ("-isystem", path))]
    options = ["-std=gnu11", "-ffreestanding", "-Os", "-T", HERE / "firmware" / "firmware.ld"]
    library = ["--specs=picolibc.specs", "-nostartfiles"]
    elf = binary.with_suffix(".elf")
    command = [RISC_V, *MACHINE, *options, *WARNINGS, *include, *sources, *library, "-o", elf]
    run_program(command, out, error=CassandraError, log=out / "compiler.txt")
    objcopy = [RISC_V.replace("gcc", "objcopy"), "-O", "binary", elf, binary]
    run_program(objcopy, out, error=CassandraError)


def wrapped_verilator(folder: Path) -> Path:
    """Write a ``verilator`` that takes LiteX's flags, but traces no block and keeps no symbols.

    That halves the time of the build.
    """
    folder.mkdir(exist_ok=True)
    program = folder / "verilator"
    flags = "--trace-depth 1 -CFLAGS -g0"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(verilator_binary())} "$@" {flags}\n')
    program.chmod(0o755)
    return folder


def simulate(command: Sequence[object], out: Path) -> str:
    """Build and run the simulation; return what came over the serial port, up to the result.

    Raises CassandraError if the firmware printed nothing.
    """
    log, variables = out / "log.txt", verilator_environment()
    programs = wrapped_verilator(out / "bin")
    variables["PATH"] = f"{programs}{os.pathsep}{variables.get('PATH', os.environ['PATH'])}"
    text = run_program(
        command, out, error=CassandraError, variables=variables, log=log, limit=_SECONDS
    )
    _, found, table = text.partition(_TITLE)
    if not found:
        raise CassandraError(f"the firmware must print a table, not nothing (all output: {log})")
    lines = [line.rstrip() for line in table.splitlines() if not line.startswith("- ")]
    return "\n".join([_TITLE.rstrip(), *lines]).rstrip()


if __name__ == "__main__":
    sys.exit(main())
