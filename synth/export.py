"""Verilog export: one module name per configuration, with a file list and a FuseSoC core.

Five tops: the decoder with its streams, the decoder behind registers and a read master (dma),
several decoders that share one (array), the encoder with its streams, and the encoder with
registers and a write master (encoder-dma). Those with registers come with them as SystemRDL and as
a C header. ``casspec rtl`` exports what its flags describe.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode import top as tops
from cassandra_spec.rtl.decode.top import DecoderTop, to_verilog
from cassandra_spec.rtl.dma.config import DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.rtl.dma.encoder_dma import CassandraEncoderDma
from cassandra_spec.rtl.dma.registers import registers_for
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encoder import EncoderTop
from cassandra_spec.synth import handoff
from cassandra_spec.synth.interface.assertions import assertions
from cassandra_spec.synth.interface.registers import c_header
from cassandra_spec.synth.interface.systemrdl import systemrdl

VERSION = "0.1.0"
PERIOD = 2.0
"""Period of the clock in ns where none is chosen."""
REGS = "regs"
"""The folder with the descriptions of registers."""
_WAIVERS = Path(__file__).with_name("lint.vlt")

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
    DmaConfig(decoder=DecoderConfig(lanes=8, target_rate="full")),
    DmaConfig(decoder=DecoderConfig(lanes=8, coded=True)),
    DmaConfig(decoders=2),
    DmaConfig(decoder=DecoderConfig(lanes=8), decoders=4),
    EncoderConfig(),
    EncoderConfig(lanes=8),
    EncoderConfig(lanes=32),
    EncoderConfig(values_per_cycle=4),
    StoreConfig(),
    StoreConfig(encoder=EncoderConfig(lanes=8), bus=32, address=40),
)
"""The configurations that ``make verilog`` writes and ``make lint`` checks."""

_HEADER = """\
// {name}: Cassandra {kind}, {lanes} lanes, schemes {schemes}, codebook of {codebook}.
// Generated from Amaranth; docs/hardware/{document}.md describes the ports. Apache-2.0.
"""


def _write(path: Path, text: str) -> None:
    """Write a whole file or nothing."""
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
    """Return direction (``input`` or ``output``) and width of every port of a top, by name."""
    ports = {"clk": ("input", 1), "rst": ("input", 1)}
    for name, member in top.signature.members.items():
        direction = "input" if member.flow.name == "In" else "output"
        ports[name] = (direction, 1 if member.shape == 1 else int(member.shape))
    return ports


def export(out: Path, config: Config, *, period: float = PERIOD, pages: bool = False) -> Path:
    """Write ``{module}.v`` with ``.f``, ``.core``, ``.vlt``, ``.sdc``, ``.ports.json``.

    ``{module}_assertions.sv`` is for simulations: ``{module}.sim.f`` adds it to ``.f``.
    ``period`` is that of the clock in ns. A configuration with a DMA also gets ``.h`` and
    ``regs/{module}.rdl``, with ``pages`` also what PeakRDL makes of that where it is installed.
    Files appear whole or not at all. Raises CassandraError if ``out`` is not a folder that can be
    written.
    """
    if not 0 < period < math.inf:
        raise CassandraError(f"period must be a number of ns above 0, not {period}")
    name, registers = config.module_name, isinstance(config, DmaConfig | StoreConfig)
    try:
        (out / REGS if registers else out).mkdir(parents=True, exist_ok=True)
        for file, text in _texts(config, period).items():
            _write(out / file, text)
        if registers and pages:
            handoff.register_pages(out / REGS, name)
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"out must be a folder that can be written, not {out}: {reason}"
        raise CassandraError(message) from error
    return out / f"{name}.v"


def _texts(config: Config, period: float) -> dict[str, str]:
    """Return the written texts by path."""
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
    ports = [
        {"name": port, "direction": direction, "width": width}
        for port, (direction, width) in ports_of(top).items()
    ]
    has_registers = isinstance(top, CassandraDma | CassandraEncoderDma)
    texts = {
        f"{name}.v": header + to_verilog(top),
        f"{name}.f": f"{name}.v\n",
        f"{name}.sim.f": f"{name}.v\n{name}_assertions.sv\n",
        f"{name}_assertions.sv": assertions(name, ports_of(top)),
        f"{name}.core": handoff.core(name, kind, VERSION, registers=has_registers),
        f"{name}.vlt": _WAIVERS.read_text(encoding="utf-8").replace("TOP", name),
        f"{name}.sdc": handoff.constraints(name, ports_of(top), period),
        f"{name}.ports.json": json.dumps(ports, indent=1) + "\n",
    }
    if isinstance(top, CassandraDma | CassandraEncoderDma):
        texts |= {f"{name}.h": c_header(top.config), f"{REGS}/{name}.rdl": describe(top)}
    return texts


def describe(top: CassandraDma | CassandraEncoderDma) -> str:
    """Write the registers of a top as SystemRDL, in an address map of the module's name."""
    return systemrdl(top.module_name, registers_for(top.top), top.built())


def _parts(config: Config) -> tuple[DecoderConfig | EncoderConfig, Top, str]:
    """Return the decoder or encoder inside, the top, and the name of its document."""
    if isinstance(config, DecoderConfig):
        return config, DecoderTop(config), "decoder"
    if isinstance(config, EncoderConfig):
        return config, EncoderTop(config), "encoder"
    if isinstance(config, StoreConfig):
        return config.encoder, CassandraEncoderDma(config), "encoder"
    return config.decoder, CassandraDma(config), "integration"


_DECODER_OPTIONS = ("target_rate", "coded", "truncated")
_ENCODER_SIZES = ("vector", "group", "segment", "values_per_cycle")


def _fields(config: type[DmaConfig | StoreConfig], inner: str) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(config) if field.name != inner)


_FLAGS: dict[str, tuple[str, ...]] = {
    "decoder": _DECODER_OPTIONS,
    "dma": (*_DECODER_OPTIONS, *_fields(DmaConfig, "decoder")),
    "array": (*_DECODER_OPTIONS, *_fields(DmaConfig, "decoder")),
    "encoder": _ENCODER_SIZES,
    "encoder-dma": (*_ENCODER_SIZES, *_fields(StoreConfig, "encoder")),
}
"""Flags of each top, beside those that all decoders and encoders have."""


def choose(top: str, decoder: DecoderConfig, **flags: int | None) -> Config:
    """Return the configuration that flags describe.

    ``flags`` are fields of the configuration of the top, the bus in bits; ``decoder`` has the
    fields that encoder and decoder share. Raises CassandraError for flags that the top does not
    have.
    """
    chosen = {name: value for name, value in flags.items() if value is not None}
    special = (
        name for name in _DECODER_OPTIONS if getattr(decoder, name) != getattr(DecoderConfig, name)
    )
    for name in (*special, *chosen):
        if name not in _FLAGS[top]:
            raise CassandraError(f"{name} must be left out for the top {top!r}")
    if "bus" in chosen:
        bits = chosen["bus"]
        if bits % 8 or not bits:
            raise CassandraError(f"bus must be a number of whole bytes, not {bits} bits")
        chosen["bus"] = bits // 8
    if top == "decoder":
        return decoder
    if top in ("encoder", "encoder-dma"):
        own: dict[str, Any] = {name: chosen.pop(name) for name in _ENCODER_SIZES if name in chosen}
        names = ("lanes", "schemes", "codebook", "window", "superblock")
        shared: dict[str, Any] = {name: getattr(decoder, name) for name in names}
        encoder = EncoderConfig(**shared, **own)
        return encoder if top == "encoder" else StoreConfig(encoder=encoder, **chosen)
    decoders = chosen.setdefault("decoders", 1 if top == "dma" else 4)
    if (decoders > 1) != (top == "array"):
        expected = "at least 2 for the top 'array'" if top == "array" else "1 for the top 'dma'"
        raise CassandraError(f"decoders must be {expected}, not {decoders}")
    return DmaConfig(decoder=decoder, **chosen)


def export_all(
    out: Path,
    configs: Sequence[Config] = DEFAULT_CONFIGS,
    *,
    period: float = PERIOD,
    pages: bool = False,
) -> Iterator[Path]:
    """Export several configurations, one on each core; yields the Verilog files in their order."""
    write = functools.partial(export, out, period=period, pages=pages)
    if len(configs) == 1:
        yield write(configs[0])
        return
    with ProcessPoolExecutor(min(len(configs), os.cpu_count() or 1)) as pool:
        yield from pool.map(write, configs)
