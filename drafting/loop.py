"""The decode loop of one sequence, over the passes of a session (section II.B of the paper).

Sessions may belong to any runtime; they return numpy arrays or CPU tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cassandra_spec.drafting.choice.chooser import Chooser, Score
from cassandra_spec.drafting.choice.sampling import draw, probabilities, top_tokens
from cassandra_spec.drafting.counters import Counters, KeyValueCounters, ReadBytes
from cassandra_spec.drafting.levels import Choice, LevelDrafter
from cassandra_spec.drafting.low import BRANCHES, Candidates, LowDrafter
from cassandra_spec.drafting.policy import PassCosts, make_policy
from cassandra_spec.drafting.proposal import Drafter, Node, Outcome, Proposal
from cassandra_spec.drafting.replies import cut_at_end
from cassandra_spec.drafting.settings import Settings
from cassandra_spec.golden import CassandraError

SCORED_ROWS = 8
"""Prompt tokens per pass when their log-probabilities are requested."""

MAX_PLANNED_NODES = 8
"""Maximum nodes that the adaptive policy plans."""


class DraftPasses(Protocol):
    """Run draft passes over trees of one sequence.

    A pass has row 0 for a token at ``position`` and one row per node below it. Each node's row
    attends to all earlier positions and to the nodes above it. :meth:`keep` selects the rows that
    stay in the KV cache.
    """

    def draft(self, pending: int, nodes: Sequence[Node], position: int) -> ArrayLike:
        """Return the draft's logits of a tree, float32 [1 + nodes, vocabulary]."""

    def keep(self, path: Sequence[int]) -> None:
        """Keep the keys and values of row 0 and of ``path`` from the last pass, contiguously."""


class Session(DraftPasses, Protocol):
    """Draft and target of one sequence, with their KV caches.

    Both write the keys and values of their own positions and read those of all earlier positions.
    ``weights`` is the bytes that a pass reads beside keys and values.
    """

    weights: ReadBytes

    def prompt(self, tokens: Sequence[int]) -> ArrayLike:
        """Return the target's logits of a prompt's last token, float32 [1, vocabulary]."""

    def target(self, pending: int, nodes: Sequence[Node], position: int) -> ArrayLike:
        """Return the target's logits of a tree, float32 [1 + nodes, vocabulary]."""

    def commit(self, position: int) -> None:
        """Commit all tokens before ``position``; they are never rolled back."""

    def reads(self, position: int) -> ReadBytes:
        """Return the KV cache bytes that a pass reads if its last token is at ``position``."""

    def stored(self) -> ReadBytes:
        """Return the memory of the keys and values of all committed positions."""


class PassView:
    """Choose tokens from draft passes of a session or of another network
    (:class:`cassandra_spec.drafting.View`).
    """

    def __init__(
        self, passes: DraftPasses, settings: Settings, random: np.random.Generator
    ) -> None:
        self._passes, self._settings, self._random = passes, settings, random

    def run(self, pending: int, nodes: Sequence[Node], position: int) -> None:
        """Run one pass over a token at ``position`` (row 0) and the nodes below it."""
        self._logits = np.asarray(self._passes.draft(pending, nodes, position))

    def choose(self, row: int) -> Choice:
        """Choose the token after a row of the last pass."""
        logits = self._logits[row]
        q = probabilities(logits[None], self._settings.sampling)[0]
        best = top_tokens(logits, 2)
        token = draw(q, self._random)
        margin = self.margin(row, float(logits[best[0]]) - float(logits[best[1]]))
        return Choice(token, _second(best, token), margin, q)

    def margin(self, row: int, apart: float) -> float:
        """Return the draft's margin of confidence where its top two logits differ by ``apart``."""
        return apart

    def keep(self, path: Sequence[int]) -> None:
        """Keep the keys and values of row 0 and of the rows on ``path``; drop all others."""
        self._passes.keep([row - 1 for row in path])


def _second(best: list[int], token: int) -> int:
    return best[1] if best[0] == token else best[0]


class _ReadCosts:
    """Price passes by the bytes that they read (:class:`cassandra_spec.drafting.PassCosts`)."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def draft(self, position: int, rows: int) -> float:
        """Return the bytes of the weights and of one row's KV reads; more rows add little."""
        return (self._session.reads(position) + self._session.weights).draft

    def verify(self, position: int, rows: int) -> float:
        """Return the bytes of a verification pass, counted like those of a draft pass."""
        return (self._session.reads(position) + self._session.weights).target

    def observe(self, outcome: Outcome) -> None:
        """Do nothing: byte counts are known in advance."""


DrafterFactory = Callable[
    [Any, Settings, np.random.Generator, Candidates | None],
    Drafter,
]
"""Build the drafter of one reply from its session, settings, randomness and optional table."""


def make_drafter(
    session: Session,
    settings: Settings,
    random: np.random.Generator,
    table: Candidates | None = None,
    *,
    passes: DraftPasses | None = None,
    costs: PassCosts | None = None,
) -> Drafter:
    """Build the drafter of one reply from its settings; ``table`` serves its low drafter.

    ``passes`` replaces the session's draft passes with another draft; ``costs`` prices them.
    """
    view = PassView(passes or session, settings, random) if settings.uses_draft_view else None
    policy = make_policy(settings, costs or _ReadCosts(session), max_nodes=MAX_PLANNED_NODES)
    low = LowDrafter(table) if settings.uses_low_drafter else None
    return LevelDrafter(low, view, policy, settings)


def decode(
    session: Session,
    prompt: Sequence[int],
    settings: Settings,
    counters: Counters,
    *,
    ends: Callable[[int], bool] = lambda token: False,
    table: Candidates | None = None,
    make: DrafterFactory = make_drafter,
    scores: list[Score] | None = None,
) -> Iterator[list[int]]:
    """Yield the emitted tokens of a reply: first the prompt's token, then each round's tokens.

    A round gets a proposal from a :class:`cassandra_spec.drafting.Drafter`, verifies it in one
    target pass, and emits the accepted tokens plus one. Rejected positions are overwritten by the
    next pass.

    ``ends`` is called once per token, in order, and returns True to end the reply there; stop
    tokens end it anyway. ``counters`` is updated. ``table`` serves the low drafter. ``make`` builds
    the drafter of the reply. ``scores`` receives log-probabilities if the settings ask for them.
    """
    random = np.random.default_rng(settings.seed)
    drafter = make(session, settings, random, table)
    chooser = Chooser(prompt, settings, random, scores)
    token = chooser.first(_read_prompt(session, prompt, settings, chooser))
    emitted, over = cut_at_end([token], settings.stop_tokens, ends)
    chooser.settle(1)
    session.commit(len(prompt))
    context, left = [*prompt, *emitted], settings.max_tokens - 1
    counters.add_reply(len(prompt))
    yield emitted
    while left and not over:
        position = len(context) - 1
        proposal = chooser.propose(partial(_proposal, drafter, context, left - 1), left - 1)
        logits = np.asarray(session.target(context[-1], proposal.nodes, position))
        path, last = chooser.choose(proposal, logits)
        session.keep(path)
        tokens = [*(proposal.nodes[at].token for at in path), last]
        emitted, over = cut_at_end(tokens, settings.stop_tokens, ends)
        chooser.settle(len(emitted))
        seen = _seen(context[-1], proposal, logits)
        outcome = Outcome(proposal=proposal, path=path, seen=seen)
        drafter.observe(outcome)
        kv = _commit(session, position, outcome, len(emitted))
        counters.add_round(outcome, position=position, tokens=len(emitted), kv=kv)
        context.extend(emitted)
        left -= len(emitted)
        yield emitted
    _count_memory(session, counters)


def _proposal(drafter: Drafter, context: Sequence[int], budget: int) -> Proposal:
    """Return a proposal within the budget, so that a reply never exceeds its token limit."""
    proposal = drafter.propose(context, budget)
    if len(proposal.nodes) > budget:
        raise CassandraError(
            f"a proposal must have at most {budget} nodes here, not {len(proposal.nodes)}"
        )
    return proposal


def _read_prompt(
    session: Session, prompt: Sequence[int], settings: Settings, chooser: Chooser
) -> NDArray[np.float32]:
    """Run the target over a prompt; return the logits [vocabulary] after its last token."""
    if not settings.prompt_logprobs:
        session.commit(len(prompt))
        return np.asarray(session.prompt(prompt))[0]
    for start in range(0, len(prompt), SCORED_ROWS):
        pending, *rest = prompt[start : start + SCORED_ROWS]
        chain = Proposal.chain(rest, [1.0] * len(rest), source="")
        session.commit(start)
        logits = np.asarray(session.target(pending, chain.nodes, start))
        session.keep(range(len(rest)))
        chooser.read_prompt(start, logits)
    return np.asarray(logits[-1])


def _seen(
    pending: int, proposal: Proposal, logits: NDArray[np.float32]
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return the target's top tokens after each verified token."""
    best = (tuple(top_tokens(row, BRANCHES)) for row in logits)
    return tuple(zip([pending, *proposal.tokens], best, strict=True))


def _commit(session: Session, position: int, outcome: Outcome, tokens: int) -> KeyValueCounters:
    """Commit the tokens of a round that began at ``position``; return its KV cache traffic."""
    passes = outcome.proposal.passes
    draft = sum(session.reads(position + p.start + p.rows - 1).draft for p in passes)
    target = session.reads(position + outcome.drafted).target
    session.commit(position + tokens)  # plain decoding would have sealed these blocks by this point
    alone = [session.reads(position + place) for place in range(tokens)]
    return KeyValueCounters(
        draft=draft,
        target=target,
        plain=sum(read.target for read in alone),
        bf16=sum(read.bf16 for read in alone),
    )


def _count_memory(session: Session, counters: Counters) -> None:
    stored = session.stored()
    kv = counters.kv = counters.kv or KeyValueCounters()
    kv.stored += stored.target
    kv.stored_bf16 += stored.bf16
