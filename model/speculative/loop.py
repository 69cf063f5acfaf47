"""Self-speculative decoding of one sequence (section II.B of the paper)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol

import numpy as np
import torch

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.speculative.drafting import Drafted, Drafter, DraftKind, check_draft
from cassandra_spec.model.speculative.gamma import check_gamma
from cassandra_spec.model.speculative.key_values import ReadBytes
from cassandra_spec.model.speculative.report import KeyValueTally, Tally
from cassandra_spec.model.speculative.sampling import GREEDY, Sampling, draw, probabilities, verify
from cassandra_spec.model.speculative.text import check_stop_strings

__all__ = ["Session", "Settings", "decode"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How a reply is generated."""

    gamma: int | Literal["adaptive"] = 3  # most tokens drafted in a round; 0: plain decoding
    draft: DraftKind = "model"  # who drafts; a copy costs no pass
    min_margin: float = 0.0  # a drafted token with a smaller margin is the round's last
    max_tokens: int = 128  # generated, the first included
    stop_tokens: frozenset[int] = frozenset()  # each ends the reply, as its last token
    stop_strings: tuple[str, ...] = ()  # the token that completes one is the last, too
    sampling: Sampling = GREEDY
    seed: int | None = None  # of the sampling; None: another one each time

    def __post_init__(self) -> None:
        check_gamma(self.gamma)
        check_draft(self.draft)
        check_stop_strings(self.stop_strings)
        if self.max_tokens < 1:
            raise CassandraError(f"max_tokens must be at least 1, not {self.max_tokens}")
        if not self.min_margin >= 0:
            raise CassandraError(f"min_margin must be a number from 0 on, not {self.min_margin}")


class Session(Protocol):
    """Draft and target of one sequence, with the keys and values of what they have seen.

    Both write the keys and values of their own positions and read those of all earlier ones.
    ``weights`` is what a pass reads beside keys and values.
    """

    weights: ReadBytes

    def target(self, tokens: Sequence[int], position: int, *, last: int) -> torch.Tensor:
        """The target's logits, float32 [last, vocabulary], of the last of ``tokens``."""
        ...

    def draft(self, tokens: Sequence[int], position: int) -> torch.Tensor:
        """The draft's logits, float32 [1, vocabulary], of the last of ``tokens``."""
        ...

    def settle(self, position: int) -> None:
        """Say that the tokens before ``position`` are final."""
        ...

    def reads(self, position: int) -> ReadBytes:
        """Keys and values that a pass reads whose last token is at ``position``."""
        ...

    def stored(self) -> ReadBytes:
        """Memory of the keys and values of all settled positions."""
        ...


def decode(
    session: Session,
    prompt: Sequence[int],
    settings: Settings,
    tally: Tally,
    *,
    ends: Callable[[int], bool] = lambda token: False,
) -> Iterator[list[int]]:
    """Yield the tokens of a reply as they are settled: one by the prompt, then each round's.

    A round drafts up to gamma tokens (:class:`Drafter`), verifies them in one pass of the target
    and puts out those that are accepted and one more. Rejected positions are forgotten by going
    on before them.
    ``ends`` is asked once about each token, in order, whether the reply ends with it for another
    reason than a stop token. ``tally`` counts what happens.
    """
    random = np.random.default_rng(settings.seed)
    drafter = Drafter(session, settings, prompt, random)
    session.settle(len(prompt))
    p = probabilities(session.target(prompt, 0, last=1), settings.sampling)
    pending = draw(p[0], random)  # put out, and not yet seen by the target
    position, left = len(prompt), settings.max_tokens - 1
    session.settle(position)
    drafter.extend([pending])
    over = ends(pending) or pending in settings.stop_tokens
    yield [pending]
    while left and not over:
        drafted = drafter.draft(pending, position, left - 1)
        tokens = drafted.tokens
        logits = session.target([pending, *tokens], position, last=len(tokens) + 1)
        p, q = probabilities(logits, settings.sampling), drafted.q(logits.shape[-1])
        n, last = verify(p, q, tokens, random)
        settled, over = _until_end([*tokens[:n], last], settings.stop_tokens, ends)
        drafter.count(drafted, n)
        drafter.extend(settled)
        tally.add_round(
            position=position,
            drafted=len(tokens),
            accepted=n,
            tokens=len(settled),
            copied=drafted.copied,
        )
        _count_reads(session, tally, position, drafted, len(settled))
        position, left, pending = position + n + 1, left - len(settled), settled[-1]
        yield settled
    _count_memory(session, tally)


def _count_reads(
    session: Session, tally: Tally, position: int, drafted: Drafted, tokens: int
) -> None:
    """Settle the tokens of a round that began at ``position``, and count what its passes read."""
    kv = tally.kv = tally.kv or KeyValueTally()
    count = len(drafted.tokens)
    if not drafted.copied:
        kv.draft += sum(session.reads(position + place).draft for place in range(count))
    kv.target += session.reads(position + count).target
    session.settle(position + tokens)  # plain decoding would have sealed what is settled now
    alone = [session.reads(position + place) for place in range(tokens)]
    kv.plain += sum(read.target for read in alone)
    kv.bf16 += sum(read.bf16 for read in alone)


def _count_memory(session: Session, tally: Tally) -> None:
    stored = session.stored()
    kv = tally.kv = tally.kv or KeyValueTally()
    kv.stored += stored.target
    kv.stored_bf16 += stored.bf16


def _until_end(
    tokens: list[int], stops: frozenset[int], ends: Callable[[int], bool]
) -> tuple[list[int], bool]:
    """The tokens up to the one that ends the reply, and whether there is such a one."""
    for place, token in enumerate(tokens):
        if ends(token) or token in stops:
            return tokens[: place + 1], True
    return tokens, False
