"""Export the gateware as Verilog."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cassandra_spec.golden.format import SCHEMES

if TYPE_CHECKING:
    from cassandra_spec.synth.export import Config

Top = Literal["decoder", "dma", "array", "encoder", "encoder-dma"]

DECODER_FIELDS = ("codebook", "target_rate", "coded", "truncated", "window", "superblock")
"""Options that all tops share, beside lanes and schemes."""


def export_gateware(
    destination: str | Path,
    top: Top | None = "decoder",
    *,
    lanes: int | Sequence[int] = 16,
    schemes: Sequence[str] = SCHEMES,
    period: float | None = None,
    reset: Literal["rst", "aresetn"] = "rst",
    initial: bool = True,
    **fields: Any,
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
        fields: the other options of ``casspec rtl`` for this top, such as ``bus=256``.

    Returns:
        The Verilog file of each module.

    Raises:
        CassandraError: an option is not as it must be, or the top does not have it.
    """
    from cassandra_spec.synth.export import DEFAULT_CONFIGS, PERIOD, Style, export_all

    sizes = [lanes] if isinstance(lanes, int) else list(lanes)
    configs = _configs(top, sizes, schemes, fields) if top else DEFAULT_CONFIGS
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

    shared = {name: fields.pop(name) for name in DECODER_FIELDS if name in fields}
    if "truncated" in shared:
        shared["truncated"] = tuple(shared["truncated"])
    shared["schemes"] = tuple(name for name in SCHEMES if name in schemes)
    decoders = (DecoderConfig(lanes=each, **shared) for each in dict.fromkeys(lanes))
    return [choose(top, decoder, **fields) for decoder in decoders]
