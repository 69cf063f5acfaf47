"""Slots of an engine, and the tokens whose keys and values each holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cassandra_spec.golden import CassandraError
from cassandra_spec.native.passes import Passes


class OneSlot:
    """Slot 0, which has no other sequences to share prefixes with."""

    def __init__(self) -> None:
        self.free = 1

    def claim(self, prompt: Sequence[int], running: Mapping[int, Sequence[int]]) -> tuple[int, int]:
        """Claim the slot; nothing is cached in it."""
        if not self.free:
            raise CassandraError("a slot must be free, and none is")
        self.free = 0
        return 0, 0

    def release(self, slot: int, tokens: Sequence[int]) -> None:
        """Free the slot."""
        self.free = 1

    def close(self) -> None:
        """Do nothing: the engine keeps slot 0."""


class Slots:
    """Claim slots for sequences, and reuse cached prefixes.

    Keys and values depend only on the tokens up to their own, so a sequence copies those of the
    longest prefix that it shares with another. With ``keep``, free slots stay claimed until the
    end, and their contents are reused too.
    """

    def __init__(self, engine: Passes, *, keep: bool) -> None:
        self._engine, self._keep = engine, keep
        self._free: dict[int, Sequence[int]] = {}  # used slots, longest free first

    @property
    def free(self) -> int:
        """Number of slots that can be claimed."""
        return len(self._free) + self._engine.free_slots

    def claim(self, prompt: Sequence[int], running: Mapping[int, Sequence[int]]) -> tuple[int, int]:
        """Claim a slot for a prompt; return it and the number of prompt tokens cached in it.

        At least one token is left to read. ``running`` holds the tokens that other slots have read.
        Raises :class:`CassandraError` if no slot is free.
        """
        common = {
            slot: _common(tokens, prompt[:-1]) for slot, tokens in {**self._free, **running}.items()
        }
        source = max(common, key=lambda slot: common[slot], default=0)
        count = common.get(source, 0)
        slot = self._choose(source, count)
        self._engine.copy_positions(source, slot, count)
        return slot, count

    def _choose(self, source: int, count: int) -> int:
        """Return the slot to extend in place, else an unused one, else the longest free."""
        if count and count == len(self._free.get(source, ())):
            del self._free[source]
            return source
        if self._engine.free_slots or not self._free:
            return self._engine.claim_slot()
        slot = next(iter(self._free))
        del self._free[slot]
        return slot

    def release(self, slot: int, tokens: Sequence[int]) -> None:
        """Release a slot but remember its tokens, so a prompt with the same prefix can reuse it."""
        if self._keep:
            self._free[slot] = tokens
        else:
            self._engine.release_slot(slot)

    def close(self) -> None:
        """Return all free slots to the engine."""
        for slot in self._free:
            self._engine.release_slot(slot)
        self._free.clear()


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """Count the leading elements that are equal."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count
