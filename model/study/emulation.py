"""Acceptance of a draft for every gamma at once, without decoding token by token.

The reply of plain greedy decoding is known, and speculative decoding gives the same. So which
rounds take place follows from what the draft would draw if a round began at each place of the
reply. :func:`follow` finds that for all places together; :func:`rounds` plays the rounds of any
gamma from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from cassandra_spec.drafting import DRAFT_VIEW, Counters, DraftPass, Outcome, Proposal
from cassandra_spec.golden import CassandraError
from cassandra_spec.model.study.chains import ATTENTION, Chains, Rows, Sequences, run_rows

_CHUNK = 384  # chains in one pass


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replies:
    """Prompts with the target's greedy replies, and the target's keys and values of both."""

    prompts: tuple[tuple[int, ...], ...]
    replies: tuple[tuple[int, ...], ...]  # the token that ended each included
    max_tokens: int
    stop_tokens: frozenset[int]
    sequences: Sequences


@dataclasses.dataclass(frozen=True, kw_only=True)
class Round:
    """Tokens drafted, accepted and emitted in a round whose pending token is at ``position``."""

    position: int
    drafted: int
    accepted: int
    tokens: int

    def add_to(self, counters: Counters) -> None:
        """Count the round."""
        chain = Proposal.chain([0] * self.drafted, [0.0] * self.drafted, DRAFT_VIEW)
        passes = tuple(DraftPass(start, rows=1) for start in range(self.drafted))
        proposal = dataclasses.replace(chain, passes=passes)
        outcome = Outcome(proposal=proposal, path=tuple(range(self.accepted)))
        counters.add_round(outcome, position=self.position, tokens=self.tokens)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drafts:
    """What a draft draws in one reply; row k is of a round whose pending token is token k."""

    tokens: NDArray[np.int64]  # [places, depth]
    margins: NDArray[np.float32]  # [places, depth]: the logit of the token over the next best one


def greedy_replies(
    network: Any,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    stop_tokens: frozenset[int],
    progress: bool = False,
) -> Replies:
    """Decode all prompts greedily, in step; the network is the target."""
    if not prompts or not all(prompts):
        raise CassandraError("prompts must be at least one, of at least one token each")
    network.config._attn_implementation = ATTENTION
    sequences = Sequences(len(prompts))
    replies = [[_prefill(network, p, n, sequences)] for n, p in enumerate(prompts)]
    for _ in tqdm(range(max_tokens - 1), "replies", disable=not progress):
        going = [n for n, reply in enumerate(replies) if reply[-1] not in stop_tokens]
        if not going:
            break
        positions = [len(prompts[n]) + len(replies[n]) - 1 for n in going]
        rows = Rows(sequence=torch.tensor(going), position=torch.tensor(positions))
        logits = run_rows(network, [replies[n][-1] for n in going], rows, sequences)
        for n, token in zip(going, logits.argmax(-1).tolist(), strict=True):
            replies[n].append(token)
    return Replies(
        prompts=tuple(map(tuple, prompts)),
        replies=tuple(map(tuple, replies)),
        max_tokens=max_tokens,
        stop_tokens=stop_tokens,
        sequences=sequences,
    )


def _prefill(network: Any, prompt: Sequence[int], number: int, sequences: Sequences) -> int:
    position = torch.arange(len(prompt))
    rows = Rows(sequence=torch.full_like(position, number), position=position)
    logits = run_rows(network, prompt, rows, sequences, wanted=slice(-1, None))
    return int(logits[0].argmax())


def follow(
    network: Any,
    replies: Replies,
    sequences: Sequences,
    *,
    depth: int,
    progress: bool = False,
) -> tuple[Drafts, ...]:
    """What the draft draws from each place of each reply, ``depth`` tokens.

    The network is the draft; ``sequences`` is what it reads of the target's keys and values, which
    need not be the target's own. Within a round it reads its own.
    """
    starts = [(n, k) for n, reply in enumerate(replies.replies) for k in range(len(reply) - 1)]
    found = [
        Drafts(
            tokens=np.zeros((len(reply) - 1, depth), np.int64),
            margins=np.zeros((len(reply) - 1, depth), np.float32),
        )
        for reply in replies.replies
    ]
    with tqdm(total=len(starts), desc="drafts", disable=not progress) as bar:
        for first in range(0, len(starts), _CHUNK):
            chunk = starts[first : first + _CHUNK]
            _follow_some(network, replies, sequences, chunk, found, depth)
            bar.update(len(chunk))
    return tuple(found)


def _follow_some(
    network: Any,
    replies: Replies,
    sequences: Sequences,
    starts: list[tuple[int, int]],
    found: list[Drafts],
    depth: int,
) -> None:
    """Fill in the rows of some places."""
    chains = Chains()
    tokens = torch.tensor([replies.replies[n][k] for n, k in starts])
    place = torch.tensor([len(replies.prompts[n]) + k for n, k in starts])
    number = torch.tensor([n for n, _ in starts])
    for step in range(depth):
        rows = Rows(sequence=number, position=place + step)
        best = run_rows(network, tokens, rows, sequences, chains).topk(2)
        tokens = best.indices[:, 0]
        margins = (best.values[:, 0] - best.values[:, 1]).tolist()
        for (n, k), token, margin in zip(starts, tokens.tolist(), margins, strict=True):
            found[n].tokens[k, step], found[n].margins[k, step] = token, margin


def rounds(
    replies: Replies, drafts: Sequence[Drafts], gamma: int, *, min_margin: float = 0.0
) -> list[list[Round]]:
    """The rounds of each reply, as :func:`cassandra_spec.model.speculative.decode` would have them.

    ``drafts`` must have been followed to a depth of gamma or more; ``min_margin`` as in
    :class:`cassandra_spec.model.speculative.Settings`.
    """
    found = []
    for prompt, reply, draft in zip(replies.prompts, replies.replies, drafts, strict=True):
        places, k = [], 0
        while k < len(reply) - 1:
            limit = min(gamma, replies.max_tokens - k - 2)
            drafted = _drafted(draft, k, limit, replies.stop_tokens, min_margin)
            accepted = _accepted(draft.tokens[k, :drafted].tolist(), reply[k + 1 :])
            tokens = min(accepted + 1, len(reply) - 1 - k)
            places.append(
                Round(position=len(prompt) + k, drafted=drafted, accepted=accepted, tokens=tokens)
            )
            k += tokens
        found.append(places)
    return found


def _drafted(
    draft: Drafts, k: int, limit: int, stop_tokens: frozenset[int], min_margin: float
) -> int:
    """Tokens drafted in a round from token k of a reply on."""
    for step in range(limit):
        if int(draft.tokens[k, step]) in stop_tokens or draft.margins[k, step] < min_margin:
            return step + 1
    return limit


def _accepted(drafted: Sequence[int], reply: Sequence[int]) -> int:
    """How many tokens agree from the first on."""
    agree = [ours == theirs for ours, theirs in zip(drafted, reply, strict=False)]
    return agree.index(False) if False in agree else len(agree)
