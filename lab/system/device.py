"""Devices: what their memory, arithmetic, decoders and encoders deliver."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cassandra_spec.lab.system.errors import SystemModelError, check_number, unknown
from cassandra_spec.lab.system.files import HERE, constant, read_toml
from cassandra_spec.lab.system.systolic import Array, Product

UNITS: Mapping[str, str] = MappingProxyType(
    {
        "bandwidth": "bytes/s",
        "bandwidth_efficiency": "fraction",
        "compute_efficiency": "fraction",
        "memory": "bytes",
        "reserved": "bytes",
        "clock": "Hz",
        "layer_overhead": "s",
        "decoders": "count",
        "draft_rate": "values/cycle",
        "target_rate": "values/cycle",
        "encoders": "count",
        "encoder_rate": "values/cycle",
    }
)
"""Every constant of a device file, with its unit; ``compute.<dtype>`` is in ``flop/s``."""

ARRAY_UNITS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("rows", "columns", "count"), "count")
)
"""Every constant of the table ``array``, which devices without a systolic array leave out."""

_PEAKS_AGREE = 0.01  # the stated peak and that of array and clock


@dataclasses.dataclass(frozen=True, kw_only=True)
class Device:
    """A device with decoders beside its memory (paper sections V.B and VI.A)."""

    name: str  # for people
    bandwidth: float  # peak bytes/s of the memory; a pass gets ``bandwidth_efficiency`` of it
    compute: Mapping[str, float]  # peak flop/s by dtype; a pass gets ``compute_efficiency`` of it
    memory: float  # bytes in all; ``reserved`` ones are not for the model
    reserved: float
    clock: float  # Hz of decoders and encoders, and of the array
    layer_overhead: float  # seconds that a pass spends on each layer beside the roofline
    decoders: float  # number; each makes ``draft_rate`` or ``target_rate`` values in a cycle
    draft_rate: float
    target_rate: float
    encoders: float  # of the key-value cache; each takes ``encoder_rate`` values in a cycle
    encoder_rate: float
    bandwidth_efficiency: float = 1.0
    compute_efficiency: float = 1.0
    array: Array | None = None  # systolic arrays, or None: then products reach the peak

    def __post_init__(self) -> None:
        for name in UNITS:
            zero = name in ("layer_overhead", "reserved")
            check_number(name, getattr(self, name), zero=zero)
        for name in ("bandwidth_efficiency", "compute_efficiency"):
            if getattr(self, name) > 1:
                raise SystemModelError(f"{name} must be at most 1, not {getattr(self, name)!r}")
        if "bf16" not in self.compute:
            raise SystemModelError(f"compute must have bf16, not only {sorted(self.compute)}")
        for dtype, value in self.compute.items():
            check_number(f"compute.{dtype}", value)
        if self.reserved >= self.memory:
            raise SystemModelError(f"reserved must be below memory, not {self.reserved!r}")
        object.__setattr__(self, "compute", MappingProxyType(dict(self.compute)))

    @property
    def usable(self) -> float:
        """Bytes of memory for weights and the key-value cache."""
        return self.memory - self.reserved

    def flops(self, dtype: str = "bf16") -> float:
        """Return the flop/s that a pass gets in ``dtype``."""
        if dtype not in self.compute:
            unknown(f"dtype of a scheme on {self.name}", dtype, self.compute)
        return self.compute[dtype] * self.compute_efficiency

    def computed(self, products: Iterable[Product], dtype: str = "bf16") -> float:
        """Return the seconds of some products, computed in sequence.

        With an array its folds are counted: the peak is reached by full folds alone.
        """
        work = list(products)
        used = self.array.utilisation(work) if self.array else 1.0
        return sum(product.flops for product in work) / (self.flops(dtype) * used)

    def decoded(self, *, draft: bool) -> float:
        """Return the values per second of all decoders together."""
        return self.decoders * self.clock * (self.draft_rate if draft else self.target_rate)

    def encoded(self) -> float:
        """Return the values per second of all encoders together."""
        return self.encoders * self.clock * self.encoder_rate


def known_devices() -> dict[str, Path]:
    """Return the bundled devices, by name."""
    return {path.stem: path for path in sorted((HERE / "devices").glob("*.toml"))}


def load_device(name: str | Path) -> Device:
    """Load a device by name (see :func:`known_devices`), or from a ``.toml`` file.

    Raises:
        SystemModelError: the name is unknown, or the file does not describe a device.
        OSError: the file cannot be read.
    """
    known = known_devices()
    path = known.get(str(name), Path(name))
    if path.suffix != ".toml":
        unknown("device", str(name), [*known, "a .toml file"])
    table = read_toml(path)
    wanted = {"name", "compute", *UNITS}
    if set(table) - {"array"} != wanted:
        raise SystemModelError(
            f"{path}: fields must be {', '.join(sorted(wanted))};"
            f" missing {sorted(wanted - set(table))}, unknown"
            f" {sorted(set(table) - wanted - {'array'})}"
        )
    if not isinstance(table["compute"], Mapping) or not isinstance(table["name"], str):
        raise SystemModelError(f"{path}: name must be text and compute a table")
    values = {name: constant(str(path), name, table[name], unit) for name, unit in UNITS.items()}
    compute = {
        dtype: constant(str(path), f"compute.{dtype}", entry, "flop/s")
        for dtype, entry in table["compute"].items()
    }
    try:
        array = _array(path, table["array"]) if "array" in table else None
        device = Device(name=table["name"], compute=compute, array=array, **values)
        _check_peak(device)
    except SystemModelError as error:
        where = "" if str(error).startswith(str(path)) else f"{path}: "
        raise SystemModelError(f"{where}{error}") from None
    return device


def _array(path: Path, table: Any) -> Array:
    if not isinstance(table, Mapping) or set(table) != set(ARRAY_UNITS):
        raise SystemModelError(f"array must be a table of {', '.join(ARRAY_UNITS)}, not {table!r}")
    sizes: dict[str, Any] = {}
    for name, unit in ARRAY_UNITS.items():
        size = constant(str(path), f"array.{name}", table[name], unit)
        sizes[name] = int(size) if size.is_integer() else size
    return Array(**sizes)


def _check_peak(device: Device) -> None:
    if device.array is None:
        return
    peak = 2 * device.array.multipliers * device.clock
    if abs(peak / device.compute["bf16"] - 1) > _PEAKS_AGREE:
        raise SystemModelError(
            f"compute.bf16 must be the peak of array and clock, {peak:.4g},"
            f" not {device.compute['bf16']!r}"
        )
