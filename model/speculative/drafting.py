"""Where the drafted tokens of a round come from, and how many there are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, Protocol, get_args

import numpy as np
import torch

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.speculative.gamma import Choice, make_gamma
from cassandra_spec.model.speculative.key_values import ReadBytes
from cassandra_spec.model.speculative.lookup import Lookup
from cassandra_spec.model.speculative.sampling import Probabilities, Sampling, draw, probabilities

__all__ = ["DraftKind", "Drafted", "Drafter", "check_draft"]

DraftKind = Literal["model", "lookup", "hybrid"]
"""The model's own draft; copies of what was there before; copies where there are any."""


class _Session(Protocol):
    """What a drafter needs of a :class:`cassandra_spec.model.speculative.Session`."""

    weights: ReadBytes

    def draft(self, tokens: Sequence[int], position: int) -> torch.Tensor: ...

    def reads(self, position: int) -> ReadBytes: ...


class _Settings(Protocol):
    """What it needs of :class:`cassandra_spec.model.speculative.Settings`."""

    @property
    def draft(self) -> DraftKind: ...
    @property
    def gamma(self) -> Choice: ...
    @property
    def min_margin(self) -> float: ...
    @property
    def stop_tokens(self) -> frozenset[int]: ...
    @property
    def sampling(self) -> Sampling: ...


def check_draft(kind: str) -> None:
    """Refuse a kind of draft that is not known."""
    if kind not in get_args(DraftKind):
        known = ", ".join(map(repr, get_args(DraftKind)))
        raise CassandraError(f"draft must be one of {known}, not {kind!r}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drafted:
    """The drafted tokens of a round; ``copied`` if no pass was needed for them."""

    tokens: list[int]
    copied: bool
    model_q: Probabilities | None = None  # of the model's draft [tokens, vocabulary]

    def q(self, vocabulary: int) -> Probabilities:
        """The distribution that each token was drawn from [tokens, vocabulary].

        A copy is certain: all of its probability is on one token, and Eq. 1 then accepts the token
        with the target's probability of it, and draws another one from the rest of the target's.
        """
        if self.model_q is not None:
            return self.model_q
        q = np.zeros((len(self.tokens), vocabulary))
        q[np.arange(len(self.tokens)), self.tokens] = 1.0
        return q


class Drafter:
    """Drafts the rounds of one reply.

    A round is copied or drafted by the model, never both: the model's draft of a later token needs
    its own keys and values of the earlier ones. In ``hybrid`` a round is copied where the last
    tokens occurred before. With an adaptive gamma both ways have an estimate of what is accepted of
    theirs, and a copy is passed over when the model's draft promises more tokens per byte.
    """

    def __init__(
        self,
        session: _Session,
        settings: _Settings,
        prompt: Sequence[int],
        random: np.random.Generator,
    ) -> None:
        self._session, self._settings, self._random = session, settings, random
        self._model = make_gamma(settings.gamma)
        self._copies = make_gamma(settings.gamma)
        self._lookup = None if settings.draft == "model" else Lookup(prompt)
        self._passed_over = False

    def extend(self, tokens: Sequence[int]) -> None:
        """Take tokens that were put out."""
        if self._lookup is not None:
            self._lookup.extend(tokens)

    def draft(self, pending: int, position: int, left: int) -> Drafted:
        """The tokens of a round whose pending token is at ``position``, at most ``left``."""
        read = self._session.reads(position) + self._session.weights
        copy = self._copy(read, left)
        worse = self._copies.worth(0, read.target) < self._model.worth(read.draft, read.target)
        self._passed_over = bool(copy) and self._settings.draft == "hybrid" and worse
        if self._settings.draft == "lookup" or (copy and not self._passed_over):
            return Drafted(tokens=copy, copied=True)
        gamma = min(self._model.choose(read.draft, read.target), left)
        return self._by_model(pending, position, gamma)

    def count(self, drafted: Drafted, accepted: int) -> None:
        """What became of a round."""
        rule = self._copies if drafted.copied else self._model
        rule.count(accepted=accepted, drafted=len(drafted.tokens))
        if self._passed_over:  # so that copies are tried again
            self._copies.count(accepted=0, drafted=0)
        elif drafted.copied:
            self._model.count(accepted=0, drafted=0)

    def _copy(self, read: ReadBytes, left: int) -> list[int]:
        """A copy up to the first stop token; empty if there is none."""
        if self._lookup is None:
            return []
        found = self._lookup.find(min(self._copies.choose(0, read.target), left))
        ends = [place for place, token in enumerate(found) if token in self._settings.stop_tokens]
        return found[: ends[0] + 1] if ends else found

    def _by_model(self, pending: int, position: int, gamma: int) -> Drafted:
        """Up to gamma tokens. A stop token is the last, and so is one that is not sure."""
        drafted: list[int] = []
        q: list[Probabilities] = []
        sure = True
        while len(drafted) < gamma and sure:
            token = drafted[-1] if drafted else pending
            logits = self._session.draft([token], position + len(drafted))
            q.append(probabilities(logits, self._settings.sampling)[0])
            drafted.append(draw(q[-1], self._random))
            stops = drafted[-1] in self._settings.stop_tokens
            sure = not stops and _margin(logits[0]) >= self._settings.min_margin
        return Drafted(tokens=drafted, copied=False, model_q=np.array(q))


def _margin(logits: torch.Tensor) -> float:
    """How much the largest logit is larger than the next."""
    first, second = logits.topk(2).values.tolist()
    return float(first - second)
