"""A way to decode, its replies, and where two replies differ first."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cassandra_spec.bench.equal import first_difference

END = "(end)"
"""Placeholder of the token after the end of a text."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """A reply to a prompt, as far as the way that made it tells."""

    text: str
    ends: tuple[int, ...] = ()  # characters of the text up to each token and with it; () unknown
    tokens: tuple[int, ...] = ()  # () unknown
    vocabulary: str = ""  # identifies the vocabulary; tokens of equal ones can be compared
    margins: tuple[float | None, ...] = ()  # of each token, the best one over the second

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Reply:
        """Invert ``dataclasses.asdict``, also after JSON."""
        names = ("ends", "tokens", "margins")
        return cls(**{**body, **{name: tuple(body[name]) for name in names}})

    def place_of(self, character: int) -> int | None:
        """Return the token at a character, or the end of the text; None if unknown."""
        if not self.ends:
            return None
        return next((n for n, end in enumerate(self.ends) if end > character), len(self.ends))

    def piece(self, place: int | None, character: int) -> str:
        """Return the text of a token, or some characters if tokens are unknown."""
        if place is None:
            return self.text[character : character + _SHOWN] or END
        start, *stop = [0, *self.ends][place : place + 2]
        return self.text[start : stop[0]] or END if stop else END


_SHOWN = 20  # characters


class Way(Protocol):
    """One way to decode."""

    name: str

    @property
    def key(self) -> Sequence[object]:
        """Return, as JSON, all besides the prompt that replies depend on."""

    def reply(self, prompt: str) -> Reply:
        """Reply to a user's prompt. Raises :class:`CassandraError` on failure."""

    def margin(self, prompt: str, reply: Reply, place: int) -> float | None:
        """Return the margin of the best logit over the second at a token; None if unknown."""

    def unequal_rows(self, prompt: str, reply: Reply) -> list[int] | None:
        """Return the numbers k of drafted tokens for which a pass over k+1 rows and k+1 passes
        over one row have different logits; None if unknown.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """The first difference of two replies to a prompt."""

    prompt: int  # from 1 on
    character: int  # of the text, from 0 on
    tokens: tuple[int | None, int | None]  # the place in each reply, from 0 on; None: unknown
    pieces: tuple[str, str]
    margins: tuple[float | None, float | None]


def find_difference(
    number: int, prompt: str, ways: tuple[Way, Way], replies: tuple[Reply, Reply]
) -> Difference | None:
    """None if the replies are identical: by tokens of one vocabulary, else by text."""
    one, other = replies
    if one.vocabulary and one.vocabulary == other.vocabulary:
        place = first_difference(one.tokens, other.tokens)
        if place is None:
            return None
        places: list[int | None] = [place, place]
        character = one.ends[place - 1] if place else 0
    else:
        differing = first_difference(one.text, other.text)
        if differing is None:
            return None
        character = differing
        places = [reply.place_of(character) for reply in replies]
    pairs = list(zip(ways, replies, places, strict=True))
    margins = [None if p is None else way.margin(prompt, reply, p) for way, reply, p in pairs]
    pieces = [reply.piece(place, character) for _, reply, place in pairs]
    return Difference(
        prompt=number,
        character=character,
        tokens=(places[0], places[1]),
        pieces=(pieces[0], pieces[1]),
        margins=(margins[0], margins[1]),
    )
