"""Define the cost of a value in each scheme: bits that a draft reads, and bits in all."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from cassandra_spec.lab.system.errors import SystemModelError, check_number, unknown
from cassandra_spec.lab.system.files import HERE, read_toml

FULL = 16.0
"""Bits of BF16, the format of embedding, norms and activations."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bits:
    """Bits per value of one kind of data."""

    draft: float  # read by a draft pass; at most ``whole``
    whole: float  # stored, and read by a target pass
    source: str  # where the figures are from

    def __post_init__(self) -> None:
        check_number("draft bits", self.draft)
        check_number("whole bits", self.whole)
        if self.draft > self.whole:
            raise SystemModelError(f"draft bits must be at most {self.whole}, not {self.draft}")
        if not self.source:
            raise SystemModelError("source of bits must say where they are from")

    def read(self, *, draft: bool) -> float:
        """Return the bits per value that a pass reads."""
        return self.draft if draft else self.whole


@dataclasses.dataclass(frozen=True, kw_only=True)
class FormatCost:
    """Bits of weights, cache and head in one scheme.

    ``acceptance`` is accepted over drafted tokens as measured, by gamma; empty where unknown.
    """

    name: str  # of the preset
    title: str
    weight: Bits  # linear weights
    kv: Bits  # keys and values
    head: Bits  # the language-model head
    decoder: str = "unary"  # scheme of decoders, and of encoders of the cache; empty without them
    dtype: str = "bf16"  # of the arithmetic
    acceptance: Mapping[int, float] = dataclasses.field(default_factory=dict)
    acceptance_source: str = ""  # where it was measured

    def __post_init__(self) -> None:
        if bool(self.acceptance) != bool(self.acceptance_source):
            raise SystemModelError(f"{self.name}: acceptance must have a source, and only then")
        object.__setattr__(self, "acceptance", MappingProxyType(dict(self.acceptance)))

    @property
    def coded(self) -> bool:
        """Return whether decoders decode the packed values."""
        return bool(self.decoder)

    def default_acceptance(self, gamma: int) -> float:
        """Return accepted over drafted tokens as measured at ``gamma``; 0 without speculation.

        Raises:
            SystemModelError: it was not measured.
        """
        if gamma == 0:
            return 0.0
        if gamma not in self.acceptance:
            known = ", ".join(map(str, self.acceptance)) or "no gamma"
            raise SystemModelError(
                f"acceptance must be given: {self.name} has been measured at {known}, not {gamma}"
            )
        return self.acceptance[gamma]

    def with_plain_head(self) -> FormatCost:
        """Return the same format with a BF16 head."""
        head = Bits(draft=FULL, whole=FULL, source="BF16")
        return dataclasses.replace(self, head=head)


@cache
def load_formats() -> Mapping[str, FormatCost]:
    """Return the presets of ``formats.toml``, by name."""
    tables = read_toml(HERE / "formats.toml")
    return MappingProxyType({name: _format(name, table) for name, table in tables.items()})


def load_format(name: str) -> FormatCost:
    """Return a preset by name; a :class:`SystemModelError` lists the known ones."""
    formats = load_formats()
    return formats[name] if name in formats else unknown("scheme", name, formats)


def _format(name: str, table: Mapping[str, Any]) -> FormatCost:
    bits = {kind: Bits(**table[kind]) for kind in ("weight", "kv", "head")}
    acceptance = {int(gamma): rate for gamma, rate in table.get("acceptance", {}).items()}
    return FormatCost(**{"decoder": "", **table, **bits, "name": name, "acceptance": acceptance})
