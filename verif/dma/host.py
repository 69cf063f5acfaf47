"""Software on the register port: registers by name, descriptors, codebooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cassandra_spec.rtl.dma.config import REGIONS
from cassandra_spec.rtl.dma.registers import field_of, register_of
from cassandra_spec.verif.dma.axi_models import Registers, Response


class Host:
    """Reads and writes registers over AXI4-Lite."""

    def __init__(self, dut: Any) -> None:
        self._port = Registers(dut, "s_axil")
        self._written: dict[str, int] = {}  # current values of rw registers

    def pace(self, patterns: Iterable[Iterator[bool] | None]) -> None:
        """Set when the channels AW, W, B, AR and R move; None: always."""
        self._port.pace(patterns)

    def reset(self) -> None:
        """Forget the values written before a reset."""
        self._written.clear()

    async def read(self, register: str) -> int:
        """Read a register."""
        return (await self._port.read(register_of(register).offset))[0]

    async def read_pair(self, name: str) -> int:
        """Read a 64-bit number; the lower half first, which latches the upper half."""
        low = await self.read(f"{name}_low")
        return low | await self.read(f"{name}_high") << 32

    async def write(self, register: str, value: int) -> None:
        """Write a whole register."""
        await self._port.write(register_of(register).offset, value.to_bytes(4, "little"))

    async def raw_read(self, offset: int) -> tuple[int, Response]:
        """Read four bytes at an offset; return them with the response."""
        return await self._port.read(offset)

    async def raw_write(self, offset: int, data: bytes) -> Response:
        """Write bytes at an offset; byte strobes select them. Return the response."""
        return await self._port.write(offset, data)

    async def keep(self, register: str, value: int) -> None:
        """Write a register that keeps its value, unless it has this value already."""
        if self._written.get(register) != value:
            await self.write(register, value)
            self._written[register] = value

    async def field(self, register: str, field: str) -> int:
        """Read a field."""
        found, low = field_of(register, field)
        return await self.read(register) >> low & ((1 << found.width) - 1)

    async def load_codebook(self, slot: int, entries: tuple[int, ...]) -> None:
        """Write a codebook into a slot."""
        for word in codebook_words(slot, entries):
            await self.write("codebook", word)

    async def describe(
        self,
        commands: Mapping[str, int],
        book: int,
        bases: Sequence[int],
        lengths: Sequence[int],
    ) -> None:
        """Write the registers of a descriptor.

        ``commands`` are those with the command word; ``book`` is the value of BOOK.
        """
        for register, word in commands.items():
            await self.keep(register, word)
        await self.keep("book", book)
        for name, base, length in zip(REGIONS, bases, lengths, strict=True):
            await self.keep(f"{name}_base_low", base & 0xFFFF_FFFF)
            await self.keep(f"{name}_base_high", base >> 32)
            await self.keep(f"{name}_length", length)

    async def start(self) -> None:
        """Queue the segment that the registers describe, when the queue has room."""
        while await self.field("status", "full"):
            pass
        await self.write("start", compose("start", push=1))

    async def causes(self) -> set[str]:
        """Return the set bits of ERROR, by name."""
        return names_of("error", await self.read("error"))


def compose(register: str, **fields: int) -> int:
    """Return a register's word; fields that are not named are zero."""
    word = 0
    for name, value in fields.items():
        field, low = field_of(register, name)
        assert 0 <= value < 1 << field.width, f"{register}.{name} does not hold {value}"
        word |= value << low
    return word


def codebook_words(slot: int, entries: Sequence[int]) -> list[int]:
    """Return the words for CODEBOOK that load a codebook, which may be empty."""
    if not entries:
        return [compose("codebook", slot=slot, last=1, empty=1)]
    ends = len(entries) - 1
    return [
        compose("codebook", exponent=exponent, entry=place, slot=slot, last=int(place == ends))
        for place, exponent in enumerate(entries)
    ]


def names_of(register: str, word: int) -> set[str]:
    """Return the names of the nonzero fields."""
    places = register_of(register).places()
    return {field.name for field, low in places if word >> low & ((1 << field.width) - 1)}
