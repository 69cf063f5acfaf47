"""Verilog export: one module name for each configuration, with a file list and a FuseSoC core.

Five tops: the decoder with its streams, the decoder behind registers and a read master (dma),
several decoders that share one (array), the encoder with its streams, and the encoder with
registers and a write master (encoder-dma). Those with registers come with them as Markdown and as a
C header. ``python -m cassandra_spec.synth.export --out build/rtl`` writes the configurations that
are linted and tested; flags choose others.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import get_args

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import SCHEMES, Scheme
from cassandra_spec.rtl.common.command import DecoderConfig, TargetRate
from cassandra_spec.rtl.decode import top as tops
from cassandra_spec.rtl.decode.top import DecoderTop, to_verilog
from cassandra_spec.rtl.dma.config import DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.rtl.dma.encoder_dma import CassandraEncoderDma
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encoder import EncoderTop
from cassandra_spec.synth.registers import c_header, markdown

__all__ = [
    "DEFAULT_CONFIGS",
    "DMA_FLAGS",
    "ENCODER_FLAGS",
    "TOPS",
    "choose",
    "export",
    "export_all",
    "main",
    "ports_of",
]

VERSION = "0.1.0"

TOPS = ("decoder", "dma", "array", "encoder", "encoder-dma")
"""What can be exported."""

DMA_FLAGS: dict[str, str] = {
    "decoders": "decoders that share the read master, a power of two (array; default 4)",
    "bus": "bits of the AXI data bus (default: what the decoders take in a cycle)",
    "burst": "bytes of the longest burst, a power of two",
    "buffer": "bytes of read data that each region of each decoder may have ahead, a power of two",
    "queue": "descriptors in the queue",
    "books": "codebooks that are kept",
    "reorder": "values that each decoder may be ahead of the output (array)",
    "address": "bits of an address",
}
"""Flags of the dma and the array, beside those of the decoder."""

ENCODER_FLAGS: dict[str, str] = {
    "vector": "most values in a vector (encoder, encoder-dma)",
    "group": "most values in a group (encoder, encoder-dma)",
    "segment": "most values in a segment (encoder, encoder-dma)",
    "results": "results that may wait for software (encoder-dma)",
    "outstanding": "bursts of each region that may wait for their response (encoder-dma)",
}
"""Flags of the encoder, beside those of the decoder; the encoder-dma has some of the dma's, too."""

Config = DecoderConfig | DmaConfig | EncoderConfig | StoreConfig
Top = DecoderTop | CassandraDma | EncoderTop | CassandraEncoderDma

DEFAULT_CONFIGS: tuple[Config, ...] = (
    DecoderConfig(),
    DecoderConfig(lanes=8),
    DecoderConfig(lanes=32),
    DecoderConfig(codebook=32),
    DecoderConfig(schemes=("unary",)),
    DecoderConfig(schemes=("mx", "exact")),
    DecoderConfig(target_rate="full"),
    DecoderConfig(coded=True),
    DmaConfig(),
    DmaConfig(decoder=DecoderConfig(lanes=8), bus=32, address=40),
    DmaConfig(decoders=2),
    DmaConfig(decoder=DecoderConfig(lanes=8), decoders=4),
    EncoderConfig(),
    EncoderConfig(lanes=8),
    EncoderConfig(lanes=32),
    StoreConfig(),
    StoreConfig(encoder=EncoderConfig(lanes=8), bus=32, address=40),
)
"""What ``make verilog`` writes and ``make lint`` checks."""

_HEADER = """\
// {name}: Cassandra {kind}, {lanes} lanes, schemes {schemes}, codebook of {codebook}.
// Generated from Amaranth; docs/{document}.md describes the ports. Apache-2.0.
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


def ports_of(top: tops.Top) -> dict[str, tuple[str, int]]:
    """Direction (``input`` or ``output``) and width of every port of a top, by name."""
    ports = {"clk": ("input", 1), "rst": ("input", 1)}
    for name, member in top.signature.members.items():
        direction = "input" if member.flow.name == "In" else "output"
        ports[name] = (direction, 1 if member.shape == 1 else int(member.shape))
    return ports


def _ports(top: Top) -> list[dict[str, object]]:
    return [
        {"name": name, "direction": direction, "width": width}
        for name, (direction, width) in ports_of(top).items()
    ]


def _core(name: str, kind: str) -> str:
    """A FuseSoC core description (CAPI 2)."""
    return f"""\
CAPI=2:
name: cassandra:{kind}:{name}:{VERSION}
description: {kind.capitalize()} of the Cassandra format for self-speculative decoding
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


def export(out: Path, config: Config) -> Path:
    """Write ``{module}.v``, ``.f``, ``.core`` and ``.ports.json`` into ``out``; returns the first.

    A configuration with a DMA also gets ``.h`` and ``.registers.md``. Files appear whole or not at
    all. Raises CassandraError if ``out`` is not a folder that can be written.
    """
    name = config.module_name
    texts = {f"{name}{suffix}": text for suffix, text in _texts(config).items()}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            _write(out / file, text)
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"out must be a folder that can be written, not {out}: {reason}"
        raise CassandraError(message) from error
    return out / f"{name}.v"


def _texts(config: Config) -> dict[str, str]:
    """What is written, by suffix."""
    engine, top, document = _parts(config)
    kind = "decoder" if isinstance(engine, DecoderConfig) else "encoder"
    name = config.module_name
    header = _HEADER.format(
        name=name,
        kind=kind,
        lanes=engine.lanes,
        schemes=", ".join(engine.schemes),
        codebook=engine.codebook,
        document=document,
    )
    texts = {
        ".v": header + to_verilog(top),
        ".f": f"{name}.v\n",
        ".core": _core(name, kind),
        ".ports.json": json.dumps(_ports(top), indent=1) + "\n",
    }
    if isinstance(config, DmaConfig | StoreConfig):
        texts |= {".h": c_header(config), ".registers.md": markdown()}
    return texts


def _parts(config: Config) -> tuple[DecoderConfig | EncoderConfig, Top, str]:
    """The decoder or encoder inside, the top, and the name of its document."""
    if isinstance(config, DecoderConfig):
        return config, DecoderTop(config), "microarchitecture"
    if isinstance(config, EncoderConfig):
        return config, EncoderTop(config), "encoder"
    if isinstance(config, StoreConfig):
        return config.encoder, CassandraEncoderDma(config), "encoder"
    return config.decoder, CassandraDma(config), "integration"


def choose(top: str, decoder: DecoderConfig, **flags: int | None) -> Config:
    """The configuration that flags describe.

    ``flags`` are those of :data:`DMA_FLAGS` and :data:`ENCODER_FLAGS`; ``decoder`` has what encoder
    and decoder share. Raises CassandraError for flags that the top does not have.
    """
    chosen = {name: value for name, value in flags.items() if value is not None}
    if top in ("encoder", "encoder-dma"):
        return _choose_encoder(top, decoder, chosen)
    for name in ENCODER_FLAGS:
        if name in chosen:
            raise CassandraError(f"{name} must be left out for the top {top!r}")
    if top == "decoder":
        for name in chosen:
            raise CassandraError(f"{name} must be left out for the top 'decoder'")
        return decoder
    _bus_in_bytes(chosen)
    decoders = chosen.setdefault("decoders", 1 if top == "dma" else 4)
    if (decoders > 1) != (top == "array"):
        expected = "at least 2 for the top 'array'" if top == "array" else "1 for the top 'dma'"
        raise CassandraError(f"decoders must be {expected}, not {decoders}")
    return DmaConfig(decoder=decoder, **chosen)


def _bus_in_bytes(chosen: dict[str, int]) -> None:
    if "bus" in chosen:
        bits = chosen["bus"]
        if bits % 8 or not bits:
            raise CassandraError(f"bus must be a number of whole bytes, not {bits} bits")
        chosen["bus"] = bits // 8


def _choose_encoder(top: str, like: DecoderConfig, chosen: dict[str, int]) -> Config:
    if like.target_rate != "half":
        raise CassandraError(f"target_rate must be left out for the top {top!r}")
    if like.coded:
        raise CassandraError(f"coded must be left out for the top {top!r}")
    names = [name for name in ("vector", "group", "segment") if name in chosen]
    encoder = EncoderConfig(**like.shared | {name: chosen.pop(name) for name in names})
    fields = {field.name for field in dataclasses.fields(StoreConfig)} - {"encoder"}
    for name in chosen:
        if top == "encoder" or name not in fields:
            raise CassandraError(f"{name} must be left out for the top {top!r}")
    if top == "encoder":
        return encoder
    _bus_in_bytes(chosen)
    return StoreConfig(encoder=encoder, **chosen)


def export_all(out: Path, configs: Sequence[Config] = DEFAULT_CONFIGS) -> Iterator[Path]:
    """Export several configurations, one on each core; yields the Verilog files in their order."""
    if len(configs) == 1:
        yield export(out, configs[0])
        return
    with ProcessPoolExecutor(min(len(configs), os.cpu_count() or 1)) as pool:
        yield from pool.map(functools.partial(export, out), configs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cassandra_spec.synth.export", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/rtl"), help="folder to write to")
    parser.add_argument("--lanes", type=int, help="values in a cycle: 8, 16 or 32")
    parser.add_argument("--schemes", nargs="+", choices=get_args(Scheme), help="schemes to hold")
    parser.add_argument("--codebook", type=int, help="entries of the codebook: 16 or 32")
    parser.add_argument("--window", type=int, help="rows of unary codes in a cycle, 1 to 4")
    parser.add_argument("--superblock", type=int, help="bytes, a multiple of 128")
    parser.add_argument(
        "--target-rate", choices=get_args(TargetRate), help="beats of a target in a cycle (decoder)"
    )
    parser.add_argument(
        "--coded", action="store_true", default=None, help="decoders of coded pruned exponents"
    )
    parser.add_argument("--top", choices=TOPS, help="what to export (default decoder)")
    for name, text in {**DMA_FLAGS, **ENCODER_FLAGS}.items():
        parser.add_argument(f"--{name}", type=int, help=text)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Write the default configurations, or the one that the flags describe."""
    args = vars(_parser().parse_args(argv))
    out = args.pop("out")
    chosen = {name: value for name, value in args.items() if value is not None}
    if "schemes" in chosen:
        chosen["schemes"] = tuple(name for name in SCHEMES if name in chosen["schemes"])
    configs: Sequence[Config] = DEFAULT_CONFIGS
    if chosen:
        top = chosen.pop("top", "decoder")
        names = (*DMA_FLAGS, *ENCODER_FLAGS)
        flags = {name: chosen.pop(name) for name in names if name in chosen}
        configs = [choose(top, DecoderConfig(**chosen), **flags)]
    for path in export_all(out, configs):
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
