"""Boot a LiteX SoC with a RISC-V core, whose firmware decodes weights through the decoder's DMA.

    python -m examples.soc.run [--out build/soc] [--values 16384]

Packs values of SmolLM2's first layer by every scheme, exports a decoder of eight lanes, makes the
SoC with LiteX in an environment of its own (``requirements.txt`` beside this file), compiles the
firmware and runs it in LiteX's Verilator simulation. Exit status 0 if the firmware prints PASS.

Debian: gcc-riscv64-unknown-elf, picolibc-riscv64-unknown-elf, libevent-dev, libjson-c-dev.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.model.weights.sources import open_source
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import DmaConfig
from cassandra_spec.synth.export import export
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.verif.tools.toolchain import verilator_binary, verilator_environment
from examples.soc.image import LANES, image, tensors

HERE = Path(__file__).resolve().parent
DRIVERS = HERE.parents[1] / "drivers"
TENSOR = "model.layers.0.self_attn.k_proj.weight"
COMPILER = "riscv64-unknown-elf-gcc"
MACHINE = ("-march=rv32im", "-mabi=ilp32", "-misa-spec=2.2")  # 2.2: csr instructions included
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
_SECONDS = 3600


def main(argv: Sequence[str] | None = None) -> int:
    """Build and run the SoC."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="examples.soc", description=__doc__)
    flags.add_folder(parser, "out", "folder to build in", "build/soc")
    flags.add_count(parser, "values", "values of the tensor to decode", 16384)
    flags.add_count(parser, "segment", "values of a segment", 4096)
    return parser


def _run(args: argparse.Namespace) -> int:
    if shutil.which(COMPILER) is None:
        message = f"PATH must have {COMPILER} (Debian: gcc-riscv64-unknown-elf)"
        raise CassandraError(message)
    out = args.out.resolve()
    (out / "bin").mkdir(parents=True, exist_ok=True)
    python = environment(out / "env")
    shutil.rmtree(out / "rtl", ignore_errors=True)
    export(out / "rtl", DmaConfig(decoder=DecoderConfig(lanes=LANES), address=32))
    values = open_source("smollm2").read(TENSOR, 0, args.values)
    (out / "memory.bin").write_bytes(image(tensors(values, args.segment)))
    soc = [str(python), str(HERE / "soc.py"), "--decoder", str(out / "rtl"), "--out", str(out)]
    step(soc, out)
    compile_firmware(out)
    images = ["--firmware", str(out / "firmware.bin"), "--memory", str(out / "memory.bin")]
    return 0 if simulate([*soc, *images], out) else 1


def environment(folder: Path) -> Path:
    """Create the environment with LiteX, if it does not exist; returns its Python."""
    python, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "-r", str(HERE / "requirements.txt")]
        subprocess.run(pip, check=True)
        ready.touch()
    return python


def compile_firmware(out: Path) -> None:
    """Compile driver and firmware for the SoC whose headers are in ``out``."""
    sources = [HERE / "start.S", HERE / "firmware.c", DRIVERS / "cassandra.c"]
    [litex] = (out / "env").glob("lib/python*/site-packages/litex/soc")
    folders = [
        *(out / "software" / "include", litex / "software" / "include"),
        litex / "cores" / "cpu" / "vexriscv",
    ]
    include = [f"-I{DRIVERS}", *(word for path in folders for word in ("-isystem", str(path)))]
    options = ["-std=gnu11", "-ffreestanding", "-Os", "-T", str(HERE / "firmware.ld")]
    library = ["--specs=picolibc.specs", "-nostartfiles"]
    elf = out / "firmware.elf"
    command = [COMPILER, *MACHINE, *options, *WARNINGS, *include, *map(str, sources)]
    step([*command, *library, "-o", str(elf)], out)
    objcopy = COMPILER.replace("gcc", "objcopy")
    step([objcopy, "-O", "binary", str(elf), str(out / "firmware.bin")], out)


def step(command: list[str], out: Path) -> None:
    """Run a program; CassandraError with the end of what it printed if it fails."""
    run = subprocess.run(command, cwd=out, capture_output=True, text=True, check=False)
    if run.returncode:
        lines = (run.stdout + run.stderr).strip().splitlines()[-8:]
        raise CassandraError("\n".join([f"{Path(command[0]).name} must end well, not:", *lines]))


def simulate(command: list[str], out: Path) -> bool:
    """Build and run the simulation, printing what comes over the serial port."""
    link = out / "bin" / "verilator"
    link.unlink(missing_ok=True)
    link.symlink_to(verilator_binary())
    environment = verilator_environment()
    environment["PATH"] = f"{link.parent}{os.pathsep}{environment.get('PATH', os.environ['PATH'])}"
    log = out / "log.txt"
    with log.open("w") as file:
        subprocess.run(
            command,
            cwd=out,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            check=False,
        )
    text = log.read_text(errors="replace")
    print(text[text.rfind("Cassandra in a LiteX SoC") :] if "LiteX SoC\n" in text else text[-2000:])
    return "\nPASS" in text


if __name__ == "__main__":
    sys.exit(main())
