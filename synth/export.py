"""Verilog export: one module name for each configuration, with a file list and a FuseSoC core.

``python -m synth.export --out build/rtl`` writes the configurations that are linted and tested;
flags choose others.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from golden.errors import CassandraError
from golden.format import SCHEMES, Scheme
from rtl.command import DecoderConfig
from rtl.top import DecoderTop, to_verilog

__all__ = ["DEFAULT_CONFIGS", "export", "export_all", "main"]

VERSION = "0.1.0"

DEFAULT_CONFIGS = (
    DecoderConfig(),
    DecoderConfig(lanes=8),
    DecoderConfig(lanes=32),
    DecoderConfig(codebook=32),
    DecoderConfig(schemes=("unary",)),
    DecoderConfig(schemes=("mx", "exact")),
)
"""What ``make verilog`` writes and ``make lint`` checks."""

_HEADER = """\
// {name}: Cassandra decoder, {lanes} lanes, schemes {schemes}, codebook of {codebook}.
// Generated from Amaranth; docs/microarchitecture.md describes the ports. Apache-2.0.
"""


def _write(path: Path, text: str) -> None:
    """Write a whole file or none."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise


def _ports(top: DecoderTop) -> list[dict[str, object]]:
    ports: list[dict[str, object]] = [
        {"name": "clk", "direction": "input", "width": 1},
        {"name": "rst", "direction": "input", "width": 1},
    ]
    for name, member in top.signature.members.items():
        direction = "input" if member.flow.name == "In" else "output"
        width = 1 if member.shape == 1 else int(member.shape)
        ports.append({"name": name, "direction": direction, "width": width})
    return ports


def _core(name: str) -> str:
    """A FuseSoC core description (CAPI 2)."""
    return f"""\
CAPI=2:
name: cassandra:decoder:{name}:{VERSION}
description: Decoder of the Cassandra format for self-speculative decoding
filesets:
  rtl:
    files:
      - {name}.v
    file_type: verilogSource
targets:
  default: &default
    filesets: [rtl]
    toplevel: {name}
  lint:
    <<: *default
    default_tool: verilator
    tools:
      verilator:
        mode: lint-only
"""


def export(out: Path, config: DecoderConfig) -> Path:
    """Write ``{module}.v``, ``.f``, ``.core`` and ``.ports.json`` into ``out``; returns the first.

    Files appear whole or not at all. Raises CassandraError if ``out`` is not a folder that can be
    written.
    """
    top = DecoderTop.of(config)
    name = top.module_name
    header = _HEADER.format(
        name=name,
        lanes=config.lanes,
        schemes=", ".join(config.schemes),
        codebook=config.codebook,
    )
    texts = {
        f"{name}.v": header + to_verilog(top),
        f"{name}.f": f"{name}.v\n",
        f"{name}.core": _core(name),
        f"{name}.ports.json": json.dumps(_ports(top), indent=1) + "\n",
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            _write(out / file, text)
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"out must be a folder that can be written, not {out}: {reason}"
        raise CassandraError(message) from error
    return out / f"{name}.v"


def export_all(out: Path, configs: Sequence[DecoderConfig] = DEFAULT_CONFIGS) -> list[Path]:
    """Export several configurations; returns the Verilog files."""
    return [export(out, config) for config in configs]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="synth.export", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/rtl"), help="folder to write to")
    parser.add_argument("--lanes", type=int, help="values in a cycle: 8, 16 or 32")
    parser.add_argument("--schemes", nargs="+", choices=get_args(Scheme), help="schemes to hold")
    parser.add_argument("--codebook", type=int, help="entries of the codebook: 16 or 32")
    parser.add_argument("--window", type=int, help="rows of unary codes in a cycle, 1 to 4")
    parser.add_argument("--superblock", type=int, help="bytes, a multiple of 128")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Write the default configurations, or the one that the flags describe."""
    args = vars(_parser().parse_args(argv))
    out = args.pop("out")
    chosen = {name: value for name, value in args.items() if value is not None}
    if "schemes" in chosen:
        chosen["schemes"] = tuple(name for name in SCHEMES if name in chosen["schemes"])
    configs = [DecoderConfig(**chosen)] if chosen else DEFAULT_CONFIGS
    for path in export_all(out, configs):
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
