"""Drafts that are copied: what followed the last tokens where they occurred before.

Prompt lookup costs a table and no pass. It helps where a reply repeats its prompt or itself: code,
lists, quotations.
"""

from __future__ import annotations

from collections.abc import Iterable

from cassandra_spec.golden import CassandraError

__all__ = ["LONGEST", "SHORTEST", "Lookup"]

LONGEST = 4
"""Tokens of a context that are looked for first; the shorter ones follow."""

SHORTEST = 2
"""Tokens that have to be the same at least; by the development prompts (docs/acceptance.md)."""


class Lookup:
    """The tokens of a sequence so far, with where each short run of them occurred last.

    ``longest`` and ``shortest`` are the lengths of runs that are looked for; if they are not
    1 <= shortest <= longest, :class:`CassandraError` says so. Adding a token costs the
    same however many there are.
    """

    def __init__(
        self, tokens: Iterable[int] = (), *, longest: int = LONGEST, shortest: int = SHORTEST
    ) -> None:
        if not 1 <= shortest <= longest:
            raise CassandraError(f"shortest must be from 1 to {longest} (longest), not {shortest}")
        self._lengths = range(longest, shortest - 1, -1)
        self._tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}  # where what followed a run last begins
        self.extend(tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """Take the next tokens of the sequence."""
        for token in tokens:
            for length in self._lengths:
                if length <= len(self._tokens):
                    self._after[tuple(self._tokens[-length:])] = len(self._tokens)
            self._tokens.append(token)

    def find(self, most: int) -> list[int]:
        """What may come next, ``most`` tokens; nothing if the last tokens are new.

        The longest run of last tokens counts, at its latest earlier occurrence. A copy that reaches
        the end of the sequence goes on with itself, so that a loop is continued.
        """
        for length in self._lengths:
            if length > len(self._tokens):
                continue
            start = self._after.get(tuple(self._tokens[-length:]))
            if start is not None:
                period = len(self._tokens) - start
                return [self._tokens[start + step % period] for step in range(most)]
        return []
