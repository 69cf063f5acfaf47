"""The codebooks loaded in a decoder, and the words to send before a segment."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from cassandra_spec.golden.format import Format


class _Request(Protocol):
    """The fields of a :class:`~cassandra_spec.verif.decoder.bulk.Request` that matter here."""

    @property
    def format(self) -> Format: ...
    @property
    def target(self) -> bool: ...
    @property
    def codebook(self) -> tuple[int, ...]: ...
    @property
    def pruned_codebook(self) -> tuple[int, ...]: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class BookWord:
    """A word of the codebook stream (docs/hardware/decoder.md)."""

    exponent: int
    last: bool
    user: int = 0  # bit 0: of the codebook of pruned values; bit 1: no entry

    @property
    def number(self) -> int:
        """``tdata``, ``tlast`` and ``tuser``, from bit 0 up."""
        return self.exponent | self.last << 8 | self.user << 9

    @property
    def fields(self) -> dict[str, int]:
        """The fields of a word by name."""
        return {"tdata": self.exponent, "tlast": int(self.last), "tuser": self.user}


class LoadedBooks:
    """The codebooks loaded since the reset, which leaves them empty."""

    def __init__(self) -> None:
        self._kept: tuple[int, ...] = ()
        self._pruned: tuple[int, ...] = ()

    def words(self, request: _Request) -> list[BookWord]:
        """Return the words to send before a request; they count as sent."""
        words: list[BookWord] = []
        book = request.codebook
        if book and book != self._kept:
            self._kept = book
            words += _packet(book, 0)
        pruned = request.pruned_codebook
        coded = request.format.pruned_exponent == "coded"
        if coded and request.target and pruned != self._pruned:
            self._pruned = pruned
            words += _packet(pruned, 1) or [BookWord(exponent=0, last=True, user=3)]
        return words


def _packet(book: Sequence[int], user: int) -> list[BookWord]:
    last = len(book) - 1
    return [
        BookWord(exponent=exponent, last=place == last, user=user)
        for place, exponent in enumerate(book)
    ]
