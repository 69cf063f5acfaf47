"""Rounds over the passes of sessions, one for each sequence.

Sessions may belong to any runtime; they return numpy arrays or CPU tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cassandra_spec.drafting.choice.chooser import Score
from cassandra_spec.drafting.choice.sampling import (
    Picker,
    draw,
    pick,
    probabilities,
    top_tokens,
)
from cassandra_spec.drafting.counters import Counters, KeyValueCounters, ReadBytes
from cassandra_spec.drafting.levels import Choice, LevelDrafter
from cassandra_spec.drafting.loop import Batch, Part, Result, reply_rounds
from cassandra_spec.drafting.low import BRANCHES, Candidates, LowDrafter
from cassandra_spec.drafting.policy import PassCosts, make_policy
from cassandra_spec.drafting.proposal import Drafter, Node, Outcome, Proposal
from cassandra_spec.drafting.replies import never
from cassandra_spec.drafting.settings import MAX_POSITIONS, Settings
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

    def __init__(self, passes: DraftPasses, settings: Settings, seed: int) -> None:
        self._passes, self._settings, self._seed = passes, settings, seed
        self._random = np.random.default_rng([seed, 1])  # draws drafted tokens (Eq. 1)

    def run(self, pending: int, nodes: Sequence[Node], position: int) -> None:
        """Run one pass over a token at ``position`` (row 0) and the nodes below it."""
        self._logits = np.asarray(self._passes.draft(pending, nodes, position))

    def choose(self, row: int, position: int) -> Choice:
        """Choose the token after a row of the last pass, which will be at ``position``."""
        logits, sampling = self._logits[row], self._settings.sampling
        if not self._settings.rejects:
            picked = pick(logits, sampling, self._seed, position)
            return Choice(picked.token, picked.second, self.margin(row, picked.margin))
        q = probabilities(logits[None], sampling)[0]
        best = top_tokens(logits, 2)
        token = draw(q, self._random)
        margin = self.margin(row, float(logits[best[0]]) - float(logits[best[1]]))
        return Choice(token, best[1] if best[0] == token else best[0], margin, q)

    def margin(self, row: int, apart: float) -> float:
        """Return the draft's margin of confidence where its top two logits differ by ``apart``."""
        return apart

    def keep(self, path: Sequence[int]) -> None:
        """Keep the keys and values of row 0 and of the rows on ``path``; drop all others."""
        self._passes.keep([row - 1 for row in path])


class _ReadCosts:
    """Price passes by the bytes that they read (:class:`cassandra_spec.drafting.PassCosts`)."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def draft(self, positions: Sequence[int], rows: int) -> float:
        """Return the bytes of the weights and of one row's KV reads; more rows add little."""
        return (self._session.reads(positions[0]) + self._session.weights).draft

    def verify(self, positions: Sequence[int], rows: int) -> float:
        """Return the bytes of a verification pass, counted like those of a draft pass."""
        return (self._session.reads(positions[0]) + self._session.weights).target

    def wants_plain(self, rows: int, recent: int) -> bool:
        """Return False: byte counts are known in advance."""
        return False

    def observe(
        self,
        positions: Sequence[int],
        outcomes: Sequence[Outcome],
        counts: Sequence[int] | None = None,
    ) -> None:
        """Do nothing: byte counts are known in advance."""


DrafterFactory = Callable[[Any, Settings, int, Candidates | None], Drafter]
"""Build the drafter of one reply from its session, settings, seed and optional table."""


def make_drafter(
    session: Session,
    settings: Settings,
    seed: int,
    table: Candidates | None = None,
    *,
    passes: DraftPasses | None = None,
    costs: PassCosts | None = None,
) -> Drafter:
    """Build the drafter of one reply from its settings; ``table`` serves its low drafter.

    ``passes`` replaces the session's draft passes with another draft; ``costs`` prices them.
    """
    view = PassView(passes or session, settings, seed) if settings.uses_draft_view else None
    policy = make_policy(settings, costs or _ReadCosts(session), max_nodes=MAX_PLANNED_NODES)
    low = LowDrafter(table) if settings.uses_low_drafter else None
    return LevelDrafter(low, view, policy, settings)


class SessionRuntime:
    """Sequences with a session each; their passes follow one another.

    ``open_session`` makes the session of a prompt and its settings, ``make`` the drafter of its
    reply. There are ``slots`` sequences at most. ``table`` serves the low drafters.
    """

    picker: Picker = staticmethod(pick)

    def __init__(
        self,
        open_session: Callable[[Sequence[int], Settings], Session],
        *,
        slots: int = 1,
        make: DrafterFactory = make_drafter,
        table: Candidates | None = None,
    ) -> None:
        self._open, self._make, self._table = open_session, make, table
        self._free = list(range(slots - 1, -1, -1))
        self._sessions: dict[int, Session] = {}
        self._drafters: dict[int, Drafter] = {}

    @property
    def free(self) -> int:
        """Number of free slots."""
        return len(self._free)

    def claim(
        self, prompt: Sequence[int], settings: Settings, running: Mapping[int, Sequence[int]]
    ) -> tuple[int, int]:
        """Open a session for a prompt; return its slot, and 0: nothing is cached."""
        if not self._free:
            raise CassandraError("a slot must be free, and none is")
        session = self._open(prompt, settings)
        slot = self._free.pop()
        self._sessions[slot] = session
        return slot, 0

    def release(self, slot: int, tokens: Sequence[int]) -> None:
        """Drop the session of a slot."""
        del self._sessions[slot]
        self._drafters.pop(slot, None)
        self._free.append(slot)

    def close(self) -> None:
        """Do nothing: sessions are dropped with their sequences."""

    def stored(self, slot: int) -> ReadBytes:
        """Return the memory of the keys and values of all committed positions."""
        return self._sessions[slot].stored()

    def share(self, waiting: Mapping[int, int]) -> tuple[dict[int, int], int]:
        """Grant each sequence all the rows that it can use; passes are not shared."""
        return dict(waiting), MAX_POSITIONS

    def round(self, parts: Sequence[Part]) -> list[Result]:
        """Run the passes of each part in turn."""
        return [self._round(part) for part in parts]

    def _round(self, part: Part) -> Result:
        try:
            return self._read(part) if part.prompt else self._verify(part)
        except CassandraError as error:
            return Result(error=error)

    def _read(self, part: Part) -> Result:
        """Run the target over a prompt; choose the token that follows it."""
        session, tokens = self._sessions[part.slot], part.tokens
        self._drafters[part.slot] = self._make(session, part.settings, part.seed, self._table)
        if not part.settings.prompt_logprobs:
            session.commit(len(tokens))
            logits = np.asarray(session.prompt(tokens))[-1]
            return Result(token=part.chooser.first(logits))
        for start in range(0, len(tokens), SCORED_ROWS):
            pending, *rest = tokens[start : start + SCORED_ROWS]
            chain = Proposal.chain(rest, [1.0] * len(rest), source="")
            session.commit(start)
            rows = np.asarray(session.target(pending, chain.nodes, start))
            session.keep(range(len(rest)))
            part.chooser.read_prompt(start, rows)
        return Result(token=part.chooser.first(rows[-1]))

    def _verify(self, part: Part) -> Result:
        """Draft, run the target over the drafted tokens, and choose among them."""
        session, chooser = self._sessions[part.slot], part.chooser
        drafter, pending = self._drafters[part.slot], part.tokens[-1]
        proposal = Proposal()
        if chooser.drafts(part.budget):
            proposal = _proposal(drafter, part.tokens, part.budget)
        proposal = chooser.guide(proposal, part.budget)
        logits = np.asarray(session.target(pending, proposal.nodes, part.position))
        path, token = chooser.choose(proposal, logits)
        session.keep(path)
        seen = _seen(pending, proposal, logits)
        outcome = Outcome(proposal=proposal, path=path, seen=seen)
        drafter.observe(outcome)
        return Result(outcome=outcome, token=token)

    def settle(self, part: Part, outcome: Outcome, tokens: int) -> KeyValueCounters | None:
        """Commit the tokens that a round emitted; return its KV cache traffic."""
        session, position = self._sessions[part.slot], part.position
        if part.prompt:
            session.commit(position + part.count)
            return None
        passes = outcome.proposal.passes
        draft = sum(session.reads(position + p.start + p.rows - 1).draft for p in passes)
        target = session.reads(position + outcome.drafted).target
        session.commit(position + tokens)  # plain decoding would have sealed these blocks by now
        alone = [session.reads(position + place) for place in range(tokens)]
        return KeyValueCounters(
            draft=draft,
            target=target,
            plain=sum(read.target for read in alone),
            bf16=sum(read.bf16 for read in alone),
        )


def _proposal(drafter: Drafter, context: Sequence[int], budget: int) -> Proposal:
    """Return a proposal within the budget, so that a reply never exceeds its token limit."""
    proposal = drafter.propose(context, budget)
    if len(proposal.nodes) > budget:
        raise CassandraError(
            f"a proposal must have at most {budget} nodes here, not {len(proposal.nodes)}"
        )
    return proposal


def _seen(
    pending: int, proposal: Proposal, logits: NDArray[np.float32]
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return the target's top tokens after each verified token."""
    best = (tuple(top_tokens(row, BRANCHES)) for row in logits)
    return tuple(zip([pending, *proposal.tokens], best, strict=True))


def decode(
    session: Session,
    prompt: Sequence[int],
    settings: Settings,
    counters: Counters,
    *,
    ends: Callable[[int], bool] = never,
    table: Candidates | None = None,
    make: DrafterFactory = make_drafter,
    scores: list[Score] | None = None,
) -> Iterator[list[int]]:
    """Yield the tokens of a reply over a session, as :func:`~.loop.reply_rounds` does.

    ``table`` serves the low drafter, ``make`` builds the drafter of the reply.
    """
    runtime = SessionRuntime(lambda *_: session, make=make, table=table)
    return reply_rounds(Batch(runtime, counters), prompt, settings, ends=ends, scores=scores)
