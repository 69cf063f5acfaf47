"""Export the gateware as Verilog."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from cassandra_spec.golden.format import SCHEMES, Scheme

if TYPE_CHECKING:
    from cassandra_spec.synth.export import Config

Top = Literal["decoder", "dma", "array", "encoder", "encoder-dma"]


class GatewareOptions(TypedDict, total=False):
    """Options of the tops, by the names of `casspec rtl` (docs/hardware/integration.md)."""

    codebook: int  # entries of a codebook: 16 or 32
    target_rate: Literal["half", "full"]  # target beats per cycle: a half or one (decoders)
    coded: bool  # decode coded pruned exponents, too (unary; decoders)
    truncated: Sequence[int]  # smallest and largest supported `truncated` (decoders)
    window: int  # rows of a unary-coded stream that are read per cycle
    superblock: int  # bytes
    decoders: int  # that share a read master (array)
    bus: int  # width of the AXI data bus, in bits
    burst: int  # longest burst, in bytes
    buffer: int  # prefetch buffer of each region of a decoder, in bytes
    queue: int  # depth of the queue of descriptors
    books: int  # codebooks that descriptors can refer to
    reorder: int  # reorder buffer of each decoder, in values (array)
    address: int  # width of addresses, in bits
    attributes: bool  # AxCACHE and AxPROT are inputs
    vector: int  # longest vector of an encoder, in values
    group: int  # largest group of an encoder, in values
    segment: int  # longest segment of an encoder, in values
    values_per_cycle: int  # input values of an encoder
    results: int  # depth of the result queue (encoder-dma)
    outstanding: int  # write bursts per region that may be outstanding (encoder-dma)


_ENGINE = ("codebook", "target_rate", "coded", "truncated", "window", "superblock")
"""Options of decoders and encoders, not of what is around them."""


def export_gateware(
    destination: str | Path,
    top: Top | None = "decoder",
    *,
    lanes: int | Sequence[int] = 16,
    schemes: Sequence[Scheme] = SCHEMES,
    period: float | None = None,
    reset: Literal["rst", "aresetn"] = "rst",
    initial: bool = True,
    **fields: Unpack[GatewareOptions],
) -> list[Path]:
    """Write Verilog of a top, its memories and descriptions, as ``casspec rtl`` does.

    Args:
        destination: the directory to write to.
        top: the module to export; None: all configurations that the project tests, as they are.
        lanes: values per cycle; several numbers export several modules.
        schemes: schemes that the module supports.
        period: clock period of the constraints in ns; None: 2.
        reset: the reset port, synchronous: ``rst``, active high, or ``aresetn``, active low.
        initial: give registers initial values beside those of the reset.
        fields: :class:`GatewareOptions`, such as ``bus=256``.

    Returns:
        The Verilog file of each module.

    Raises:
        CassandraError: an option is not as it must be, or the top does not have it.
    """
    from cassandra_spec.synth.export import DEFAULT_CONFIGS, PERIOD, Style, export_all

    sizes = [lanes] if isinstance(lanes, int) else list(lanes)
    configs = _configs(top, sizes, schemes, dict(fields)) if top else DEFAULT_CONFIGS
    style = Style(reset=reset, initial=initial)
    chosen = PERIOD if period is None else period
    pages = top is not None
    made = export_all(Path(destination), configs, period=chosen, pages=pages, style=style)
    return list(made)


def _configs(
    top: str, lanes: Sequence[int], schemes: Sequence[str], fields: dict[str, Any]
) -> list[Config]:
    """Return the configuration for each number of lanes."""
    from cassandra_spec.rtl.common.command import DecoderConfig
    from cassandra_spec.synth.export import choose

    shared = {name: fields.pop(name) for name in _ENGINE if name in fields}
    if "truncated" in shared:
        shared["truncated"] = tuple(shared["truncated"])
    shared["schemes"] = tuple(name for name in SCHEMES if name in schemes)
    decoders = (DecoderConfig(lanes=each, **shared) for each in dict.fromkeys(lanes))
    return [choose(top, decoder, **fields) for decoder in decoders]
