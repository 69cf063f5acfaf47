"""Drafts that are copied: what followed the last tokens where they occurred before.

Prompt lookup costs a table and no pass. It helps where a reply repeats its prompt or itself: code,
lists, quotations. :class:`Lookup` is the reference of the native engine's search.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cassandra_spec.drafting.proposal import COPIES, Outcome, Proposal
from cassandra_spec.drafting.settings import Settings, check_lengths


class Lookup:
    """The tokens of a sequence so far, with the latest place of each short run of them.

    ``longest`` and ``shortest`` are the lengths of runs to look for; :class:`CassandraError` says
    so if they are not 1 <= shortest <= longest. Adding a token has a constant cost.
    """

    def __init__(
        self,
        tokens: Iterable[int] = (),
        *,
        longest: int = Settings.longest,
        shortest: int = Settings.shortest,
    ) -> None:
        check_lengths(shortest, longest)
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

    def match(self) -> tuple[int, int]:
        """Length of the longest run of last tokens that occurred before, and where it went on.

        Of several places the latest counts. The length is 0 if there is none.
        """
        for length in self._lengths:
            if length <= len(self._tokens):
                start = self._after.get(tuple(self._tokens[-length:]))
                if start is not None:
                    return length, start
        return 0, 0

    def find(self, most: int) -> list[int]:
        """What may come next, ``most`` tokens; nothing if the last tokens are new.

        A copy that reaches the end of the sequence goes on with itself, so that a loop is
        continued.
        """
        length, start = self.match()
        period = len(self._tokens) - start
        return [self._tokens[start + step % period] for step in range(most)] if length else []


class CopyDrafter:
    """Copies up to the first stop token (:class:`cassandra_spec.drafting.Drafter`).

    The confidence of a node is the length of the match.
    """

    def __init__(self, settings: Settings) -> None:
        self._stops = settings.stop_tokens
        self._lookup = Lookup(longest=settings.longest, shortest=settings.shortest)

    def propose(self, context: Sequence[int], budget: int) -> Proposal:
        """A chain of at most ``budget`` copied tokens, or nothing."""
        if not budget:
            return Proposal()
        self._lookup.extend(context[len(self._lookup) :])
        found = self._lookup.find(budget)
        ends = [place for place, token in enumerate(found) if token in self._stops]
        found = found[: ends[0] + 1] if ends else found
        return Proposal.chain(found, [float(self._lookup.match()[0])] * len(found), COPIES)

    def observe(self, outcome: Outcome) -> None:
        """Nothing depends on it: the context has what was emitted."""

    def cost(self, position: int) -> float:
        """No pass."""
        return 0.0
