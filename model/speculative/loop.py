"""Self-speculative decoding of one sequence (section II.B of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from cassandra_spec.drafting import (
    Counters,
    KeyValueCounters,
    Outcome,
    Proposal,
    Settings,
    cut_at_end,
    draw,
    probabilities,
    verify,
)
from cassandra_spec.golden import CassandraError
from cassandra_spec.model.speculative.drafters import Session, make_drafter


def decode(
    session: Session,
    prompt: Sequence[int],
    settings: Settings,
    counters: Counters,
    *,
    ends: Callable[[int], bool] = lambda token: False,
) -> Iterator[list[int]]:
    """Yield the emitted tokens of a reply: one by the prompt, then each round's.

    A round takes a proposal of a :class:`cassandra_spec.drafting.Drafter`, verifies it in one pass
    of the target and emits the accepted tokens and one more. Rejected positions are forgotten: the
    next pass overwrites them.
    ``ends`` is asked once about each token, in order, whether the reply ends with it for another
    reason than a stop token. ``counters`` count what happens.
    """
    random = np.random.default_rng(settings.seed)
    drafter = make_drafter(session, settings, random)
    session.commit(len(prompt))
    p = probabilities(session.target(prompt, 0, last=1), settings.sampling)
    emitted, over = cut_at_end([draw(p[0], random)], settings.stop_tokens, ends)
    session.commit(len(prompt))
    context, left = [*prompt, *emitted], settings.max_tokens - 1
    counters.replies += 1
    counters.prompt_tokens += len(prompt)
    yield emitted
    while left and not over:
        position = len(context) - 1
        proposal = drafter.propose(context, left - 1)
        tokens = _chain(proposal)
        logits = session.target([context[-1], *tokens], position, last=len(tokens) + 1)
        p, q = probabilities(logits, settings.sampling), proposal.q(logits.shape[-1])
        n, last = verify(p, q, tokens, random)
        emitted, over = cut_at_end([*tokens[:n], last], settings.stop_tokens, ends)
        outcome = _outcome(proposal, n)
        drafter.observe(outcome)
        counters.add_round(outcome, position=position, tokens=len(emitted))
        _commit(session, counters, position, outcome, len(emitted))
        context.extend(emitted)
        left -= len(emitted)
        yield emitted
    _count_memory(session, counters)


def _chain(proposal: Proposal) -> list[int]:
    if not proposal.is_chain:
        raise CassandraError("a proposal must be a chain: trees of tokens cannot be verified yet")
    return proposal.tokens


def _outcome(proposal: Proposal, accepted: int) -> Outcome:
    return Outcome(
        drafted=len(proposal.nodes),
        accepted=accepted,
        source=proposal.source,
        passes=proposal.passes,
        stopped=proposal.stopped,
    )


def _commit(
    session: Session, counters: Counters, position: int, outcome: Outcome, tokens: int
) -> None:
    """Commit the tokens of a round that began at ``position``, and count what its passes read."""
    kv = counters.kv = counters.kv or KeyValueCounters()
    kv.draft += sum(session.reads(position + place).draft for place in range(outcome.passes))
    kv.target += session.reads(position + outcome.drafted).target
    session.commit(position + tokens)  # plain decoding would have sealed these blocks by now
    alone = [session.reads(position + place) for place in range(tokens)]
    kv.plain += sum(read.target for read in alone)
    kv.bf16 += sum(read.bf16 for read in alone)


def _count_memory(session: Session, counters: Counters) -> None:
    stored = session.stored()
    kv = counters.kv = counters.kv or KeyValueCounters()
    kv.stored += stored.target
    kv.stored_bf16 += stored.bf16
