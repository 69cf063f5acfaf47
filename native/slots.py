"""Slots of an engine, and the tokens whose keys and values lie in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cassandra_spec.native.engine import Engine


class Slots:
    """Slots that are claimed for sequences.

    Keys and values depend on the tokens up to their own alone, so a sequence takes over those of
    the longest beginning that it has in common with another. With ``keep``, slots that are free
    stay claimed until the end, and what is in them serves, too.
    """

    def __init__(self, engine: Engine, *, keep: bool) -> None:
        self._engine, self._keep = engine, keep
        self._free: dict[int, Sequence[int]] = {}  # that were used, the one longest free first

    @property
    def free(self) -> int:
        """Slots that can be claimed."""
        return len(self._free) + self._engine.free_slots

    def claim(self, prompt: Sequence[int], running: Mapping[int, Sequence[int]]) -> tuple[int, int]:
        """A slot for a prompt, and how many of its tokens have keys and values there.

        At least one token is left to read. ``running`` are the tokens that other slots have read.
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
        """The slot that the prompt goes on in, else one that is unused, else longest free."""
        if count and count == len(self._free.get(source, ())):
            del self._free[source]
            return source
        if self._engine.free_slots or not self._free:
            return self._engine.claim_slot()
        slot = next(iter(self._free))
        del self._free[slot]
        return slot

    def release(self, slot: int, tokens: Sequence[int]) -> None:
        """Let a slot be free, whose keys and values are those of some tokens."""
        if self._keep:
            self._free[slot] = tokens
        else:
            self._engine.release_slot(slot)

    def close(self) -> None:
        """Give the slots that are free back to the engine."""
        for slot in self._free:
            self._engine.release_slot(slot)
        self._free.clear()


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """How many first elements are the same."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count
