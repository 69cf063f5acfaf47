"""Verilog export: one module name per configuration, with a file list and a FuseSoC core.

Five tops: the decoder with its streams, the decoder behind registers and a read master (dma),
several decoders that share one (array), the encoder with its streams, and the encoder with
registers and a write master (encoder-dma). Those with registers come with them as SystemRDL and as
a C header. Memories are modules of a file of their own. ``casspec rtl`` exports what its flags
describe.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Literal

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.rtl.common import ram
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode import top as tops
from cassandra_spec.rtl.decode.top import DecoderTop, to_verilog
from cassandra_spec.rtl.dma.config import DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.rtl.dma.encoder_dma import CassandraEncoderDma
from cassandra_spec.rtl.dma.registers import Register, described_for
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encoder import EncoderTop
from cassandra_spec.synth import handoff
from cassandra_spec.synth.interface import identity
from cassandra_spec.synth.interface.assertions import assertions
from cassandra_spec.synth.interface.ipxact import ip_xact, is_testable
from cassandra_spec.synth.interface.names import plain_names
from cassandra_spec.synth.interface.registers import c_header
from cassandra_spec.synth.interface.systemrdl import systemrdl
from cassandra_spec.synth.interface.vivado import with_attributes

PERIOD = 2.0
"""Period of the clock in ns where none is chosen."""
REGS = "regs"
"""The folder with the descriptions of registers."""
_WAIVERS = {
    "": Path(__file__).with_name("lint.vlt"),
    "_v5006": Path(__file__).with_name("lint_v5006.vlt"),
}
"""Waivers for Verilator: by what their file's name ends with; older versions know other rules."""

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
{identity}// Generated from Amaranth; docs/hardware/{document}.md describes the ports. Apache-2.0.
"""
_MEMORIES = """\
// {name}: behavioural memories, for simulation and FPGAs; docs/hardware/integration.md tells how
// compiled memories take their place. Version {version}. Apache-2.0.

"""
_INITIAL = re.compile(r"^(  reg (?:\[\d+:0\] )?\w+) = [\w']+;$", re.MULTILINE)
_INIT = re.compile(r"^  \(\* init = .* \*\)\n", re.MULTILINE)
_RESET = re.compile(r"^  input rst;\n  wire rst;\n", re.MULTILINE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Style:
    """Style in which a top is written.

    Attributes:
        reset: the reset port: ``rst``, active high, or ``aresetn``, active low. Both are
            synchronous.
        initial: if True, registers have initial values beside their reset, as FPGAs take them.
    """

    reset: Literal["rst", "aresetn"] = "rst"
    initial: bool = True

    def name_of(self, config: Config) -> str:
        """Return the module's name, which tells the style where it is not the usual one."""
        marks = [self.reset] if self.reset != "rst" else []
        return "_".join([config.module_name, *marks, *([] if self.initial else ["noinit"])])


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


def ports_of(top: tops.Top, reset: str = "rst") -> dict[str, tuple[str, int]]:
    """Return direction (``input`` or ``output``) and width of every port of a top, by name."""
    ports = {"clk": ("input", 1), reset: ("input", 1)}
    for name, member in top.signature.members.items():
        direction = "input" if member.flow.name == "In" else "output"
        ports[name] = (direction, 1 if member.shape == 1 else int(member.shape))
    return ports


def export(
    out: Path,
    config: Config,
    *,
    period: float = PERIOD,
    pages: bool = False,
    style: Style | None = None,
) -> Path:
    """Write ``{module}.v`` with ``.f``, ``.core``, ``.vlt``, ``.sdc``, ``.json`` and ``.xml``.

    ``{module}_memories.v`` has the modules of memories, where there are any.
    ``{module}_assertions.sv`` is for simulations: ``{module}.sim.f`` adds it to ``.f``.
    ``period`` is that of the clock in ns. A configuration with a DMA also gets ``.h`` and
    ``regs/{module}.rdl``, with ``pages`` also what PeakRDL makes of that where it is installed.
    Files appear whole or not at all. Raises CassandraError if ``out`` is not a folder that can be
    written.
    """
    if not 0 < period < math.inf:
        raise CassandraError(f"period must be a number of ns above 0, not {period}")
    style = style or Style()
    name, (engine, top, document) = style.name_of(config), _parts(config)
    registers = isinstance(top, CassandraDma | CassandraEncoderDma)
    kind = "decoder" if isinstance(engine, DecoderConfig) else "encoder"
    header = _HEADER.format(
        name=name,
        kind=kind,
        lanes=engine.lanes,
        schemes=", ".join(engine.schemes),
        codebook=engine.codebook,
        document=document,
        identity=identity.comment(identity.options_of(config, style)),
    )
    try:
        (out / REGS if registers else out).mkdir(parents=True, exist_ok=True)
        for file, text in _texts(config, top, kind, header, period, style).items():
            _write(out / file, text)
        if registers and pages:
            handoff.register_pages(out / REGS, name, _untested(top))
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"out must be a folder that can be written, not {out}: {reason}"
        raise CassandraError(message) from error
    return out / f"{name}.v"


def _texts(
    config: Config, top: Top, kind: str, header: str, period: float, style: Style
) -> dict[str, str]:
    """Return the written texts by path."""
    name, version = style.name_of(config), identity.VERSION_TEXT
    ports = ports_of(top, style.reset)
    verilog = header + _verilog(top, name, style)
    memories = ram.shapes_in(verilog)
    sources = [f"{name}.v", *([f"{name}_memories.v"] if memories else [])]
    listed = "".join(f"{source}\n" for source in sources)
    has_registers = isinstance(top, CassandraDma | CassandraEncoderDma)
    core = handoff.core(name, kind, version, registers=has_registers, memories=bool(memories))
    texts = {
        f"{name}.v": verilog,
        f"{name}.f": listed,
        f"{name}.sim.f": f"{listed}{name}_assertions.sv\n",
        f"{name}_assertions.sv": assertions(name, ports),
        f"{name}.core": core,
        f"{name}.sdc": handoff.constraints(name, ports, period),
        f"{name}.json": _description(config, style, ports, sources, verilog),
        **{
            f"{name}{end}.vlt": path.read_text(encoding="utf-8").replace("TOP", name)
            for end, path in _WAIVERS.items()
        },
    }
    if memories:
        head = _MEMORIES.format(name=name, version=version)
        texts[f"{name}_memories.v"] = head + ram.modules(memories)
    registers: Sequence[Register] = ()
    built: Mapping[str, int] = {}
    if isinstance(top, CassandraDma | CassandraEncoderDma):
        registers, built = described_for(top.top), top.built()
        texts |= {f"{name}.h": c_header(top.config), f"{REGS}/{name}.rdl": describe(top, name)}
        sources.append(f"{name}.h")
    component = ip_xact(name, version, ports=ports, registers=registers, built=built, files=sources)
    return {**texts, f"{name}.xml": component}


def _verilog(top: Top, name: str, style: Style) -> str:
    """Return the Verilog of a top, with plain names and without the modules of memories."""
    text = plain_names(to_verilog(top, wrapped=True))
    text = re.sub(rf"\b{top.module_name}(?=\b|__)", name, text)
    if style.reset != "rst":
        text = _active_low(text, style.reset)
    if not style.initial:
        text = _INITIAL.sub(r"\1;", _INIT.sub("", text))
    return with_attributes(text, ports_of(top, style.reset))


def _active_low(text: str, reset: str) -> str:
    """Give the top, the first module, a reset port that is active low."""
    first = text.index("endmodule")
    top, rest = text[:first], text[first:]
    top = re.sub(r"(?m)^(module .*)\brst\b", rf"\1{reset}", top, count=1)
    port = f"  input {reset};\n  wire {reset};\n  wire rst = ~{reset};\n"
    return _RESET.sub(port, top, count=1) + rest


def _description(
    config: Config,
    style: Style,
    ports: Mapping[str, tuple[str, int]],
    sources: Sequence[str],
    verilog: str,
) -> str:
    """Describe an export as JSON: identity, options, ports, memories."""
    paths: dict[ram.Shape, list[str]] = {}
    for path, shape in ram.instances(verilog):
        paths.setdefault(shape, []).append(path)
    described = {
        "name": style.name_of(config),
        "version": identity.VERSION_TEXT,
        "generator": identity.generator(),
        "sources_sha256": identity.sources_hash(),
        "options": identity.options_of(config, style),
        "files": list(sources),
        "ports": [
            {"name": port, "direction": direction, "width": width}
            for port, (direction, width) in ports.items()
        ],
        "memory_bits": sum(shape.bits * len(found) for shape, found in paths.items()),
        "memories": [
            {**shape.describe(), "instances": found} for shape, found in sorted(paths.items())
        ],
    }
    return json.dumps(described, indent=1) + "\n"


def _untested(top: CassandraDma | CassandraEncoderDma) -> dict[str, bool]:
    """Return the registers that register tests leave out; True if they cannot read them either."""
    built, found = top.built(), {}
    for register in described_for(top.top):
        fields = {field: built.get(f"{register.name}_{field.name}") for field in register.fields}
        if not all(is_testable(field, constant) for field, constant in fields.items()):
            found[register.name] = any(field.access == "wo" or not field.known for field in fields)
    return found


def describe(top: CassandraDma | CassandraEncoderDma, name: str = "") -> str:
    """Write the registers of a top as SystemRDL, in an address map of the module's name."""
    return systemrdl(name or top.module_name, described_for(top.top), top.built())


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
    chosen: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
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
    style: Style | None = None,
) -> Iterator[Path]:
    """Export several configurations, one on each core; yields the Verilog files in their order."""
    write = functools.partial(export, out, period=period, pages=pages, style=style)
    if len(configs) == 1:
        yield write(configs[0])
        return
    with ProcessPoolExecutor(min(len(configs), os.cpu_count() or 1)) as pool:
        yield from pool.map(write, configs)
