"""AXI4-Stream packets for the tops, word by word: codebooks, values, regions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def codebook_packet(book: Sequence[int]) -> Iterator[dict[str, int]]:
    """Yield exponents in rank order."""
    for place, entry in enumerate(book):
        yield {"tdata": entry, "tlast": int(place == len(book) - 1)}


def values_packet(values: Sequence[int], lanes: int) -> Iterator[dict[str, int]]:
    """Yield words of as many BF16 patterns as lanes; absent lanes carry the first value."""
    for start in range(0, len(values), lanes):
        part = [int(value) for value in values[start : start + lanes]]
        every = part + [int(values[0])] * (lanes - len(part))
        yield {
            "tdata": sum(value << 16 * lane for lane, value in enumerate(every)),
            "tkeep": (1 << 2 * len(part)) - 1,
            "tlast": int(start + lanes >= len(values)),
        }


def region_packet(region: bytes, word: int) -> Iterator[dict[str, int]]:
    """Yield a region in words of ``word`` bytes; the last may have fewer."""
    for start in range(0, len(region), word):
        yield {
            "tdata": int.from_bytes(region[start : start + word], "little"),
            "tlast": int(start + word >= len(region)),
        }
