"""The registers of a design as systemrdl-compiler reads them from the exported SystemRDL."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from systemrdl import RDLCompiler
from systemrdl.node import FieldNode, RegNode


@dataclasses.dataclass(frozen=True, kw_only=True)
class DescribedField:
    """Bits of a register, and what software may do with them."""

    mask: int
    access: str  # r, rw, w
    clears: bool  # writing ones clears
    reset: int | None  # in place; None: it may read anything after a reset


@dataclasses.dataclass(frozen=True, kw_only=True)
class Described:
    """A register of the description."""

    name: str
    address: int
    fields: tuple[DescribedField, ...]
    whole: bool  # a write without all byte strobes does nothing

    @property
    def reset(self) -> int:
        """The value of the bits in :attr:`known` after a reset."""
        return sum(field.reset or 0 for field in self.fields)

    @property
    def known(self) -> int:
        """All bits but those of fields that may read anything after a reset."""
        return 0xFFFF_FFFF - sum(field.mask for field in self.fields if field.reset is None)

    @property
    def acting(self) -> int:
        """The bits that act when they are written."""
        return sum(field.mask for field in self.fields if field.access == "w")

    @property
    def clears(self) -> bool:
        """True if writing ones to a field clears it."""
        return any(field.clears for field in self.fields)

    def written(self, value: int, data: int, strobes: int) -> int:
        """Predict what it reads after a write.

        ``strobes`` are byte strobes; ``value`` is what it read before.
        """
        bits = sum(0xFF << 8 * byte for byte in range(4) if strobes >> byte & 1)
        if self.whole and strobes != 0b1111:
            return value
        for field in self.fields:
            mask = field.mask & bits
            if field.clears:
                value &= ~(data & mask)
            elif field.access == "rw":
                value = value & ~mask | data & mask
        return value


def read_description(path: Path) -> tuple[Described, ...]:
    """Compile a SystemRDL file and return its registers; RDLCompileError if it is not legal."""
    compiler = RDLCompiler()
    compiler.compile_file(str(path))
    return tuple(_register(node) for node in compiler.elaborate().top.registers())


def _register(node: RegNode) -> Described:
    return Described(
        name=node.inst_name,
        address=node.absolute_address,
        fields=tuple(_field(field) for field in node.fields()),
        whole=bool(node.get_property("whole")),
    )


def _field(node: FieldNode) -> DescribedField:
    clears = node.get_property("onwrite")
    assert clears is None or clears.name == "woclr", node.inst_name
    reset = node.get_property("reset")
    assert reset is None or isinstance(reset, int), node.inst_name
    return DescribedField(
        mask=((1 << node.width) - 1) << node.low,
        access=node.get_property("sw").name,
        clears=clears is not None,
        reset=None if reset is None else reset << node.low,
    )
