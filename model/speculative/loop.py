"""Self-speculative decoding of one sequence (section II.B of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from cassandra_spec.drafting import (
    GREEDY,
    Candidates,
    Counters,
    KeyValueCounters,
    Outcome,
    Proposal,
    Sampling,
    Settings,
    accept_greedy,
    cut_at_end,
    draw,
    probabilities,
    verify,
)
from cassandra_spec.drafting.low import BRANCHES
from cassandra_spec.golden import CassandraError
from cassandra_spec.model.speculative.drafters import DrafterFactory, Session, make_drafter


def decode(
    session: Session,
    prompt: Sequence[int],
    settings: Settings,
    counters: Counters,
    *,
    ends: Callable[[int], bool] = lambda token: False,
    table: Candidates | None = None,
    make: DrafterFactory = make_drafter,
) -> Iterator[list[int]]:
    """Yield the emitted tokens of a reply: one by the prompt, then each round's.

    A round takes a proposal of a :class:`cassandra_spec.drafting.Drafter`, verifies it in one pass
    of the target and emits the accepted tokens and one more. Rejected positions are forgotten: the
    next pass overwrites them.
    ``ends`` is asked once about each token, in order, whether the reply ends with it for another
    reason than a stop token. ``counters`` count what happens. ``table`` is for the low drafter.
    ``make`` makes the drafter of the reply.
    """
    random = np.random.default_rng(settings.seed)
    drafter = make(session, settings, random, table)
    session.commit(len(prompt))
    p = probabilities(session.prompt(prompt), settings.sampling)
    emitted, over = cut_at_end([draw(p[0], random)], settings.stop_tokens, ends)
    session.commit(len(prompt))
    context, left = [*prompt, *emitted], settings.max_tokens - 1
    counters.replies += 1
    counters.prompt_tokens += len(prompt)
    yield emitted
    while left and not over:
        position = len(context) - 1
        proposal = drafter.propose(context, left - 1)
        logits = session.target(context[-1], proposal.nodes, position)
        path, last = _accept(proposal, logits, settings.sampling, random)
        session.keep(path)
        tokens = [*(proposal.nodes[at].token for at in path), last]
        emitted, over = cut_at_end(tokens, settings.stop_tokens, ends)
        seen = _seen(context[-1], proposal, logits)
        outcome = Outcome(proposal=proposal, path=path, seen=seen)
        drafter.observe(outcome)
        counters.add_round(outcome, position=position, tokens=len(emitted))
        _commit(session, counters, position, outcome, len(emitted))
        context.extend(emitted)
        left -= len(emitted)
        yield emitted
    _count_memory(session, counters)


def _accept(
    proposal: Proposal, logits: torch.Tensor, sampling: Sampling, random: np.random.Generator
) -> tuple[tuple[int, ...], int]:
    """The nodes that are accepted, and the token to emit after them."""
    p = probabilities(logits, sampling)
    if sampling == GREEDY:
        best = p.argmax(-1).tolist()
        path = accept_greedy(proposal.nodes, best)
        return path, best[path[-1] + 1 if path else 0]
    if not proposal.is_chain:
        raise CassandraError("a proposal must be a chain under sampling, not a tree")
    n, last = verify(p, proposal.q(p.shape[-1]), proposal.tokens, random)
    return tuple(range(n)), last


def _seen(
    pending: int, proposal: Proposal, logits: torch.Tensor
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """The target's best tokens after each verified one."""
    best = logits.topk(min(BRANCHES, logits.shape[-1])).indices.tolist()
    return tuple(zip([pending, *proposal.tokens], map(tuple, best), strict=True))


def _commit(
    session: Session, counters: Counters, position: int, outcome: Outcome, tokens: int
) -> None:
    """Commit the tokens of a round that began at ``position``, and count what its passes read."""
    kv = counters.kv = counters.kv or KeyValueCounters()
    kv.draft += sum(
        session.reads(position + each.start + each.rows - 1).draft
        for each in outcome.proposal.passes
    )
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
