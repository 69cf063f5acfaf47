"""Acceptance of a draft for every gamma at once, without decoding token by token.

The reply of plain greedy decoding is known, and speculative decoding gives the same. So which
rounds take place follows from what the draft would draw if a round began at each place of the
reply. :func:`follow` finds that for all places together; :func:`rounds` plays the rounds of any
gamma and any levels from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from cassandra_spec.bench.study.chains import ATTENTION, Chains, Rows, Sequences, run_rows
from cassandra_spec.drafting import (
    Candidates,
    Choice,
    Counters,
    FixedPolicy,
    LevelDrafter,
    LowDrafter,
    Node,
    Outcome,
    Policy,
    Settings,
    accept_greedy,
    fixed_plan,
)
from cassandra_spec.drafting.low import BRANCHES
from cassandra_spec.golden import CassandraError

_CHUNK = 384  # chains in one pass


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replies:
    """Prompts with the target's greedy replies, and the target's keys and values of both."""

    prompts: tuple[tuple[int, ...], ...]
    replies: tuple[tuple[int, ...], ...]  # the token that ended each included
    max_tokens: int
    stop_tokens: frozenset[int]
    sequences: Sequences
    likely: tuple[tuple[tuple[int, ...], ...], ...]  # the target's best after each token


@dataclasses.dataclass(frozen=True, kw_only=True)
class Round:
    """The result of a round whose pending token is at ``position``."""

    position: int
    outcome: Outcome
    tokens: int  # emitted

    def add_to(self, counters: Counters) -> None:
        """Count the round."""
        counters.add_round(self.outcome, position=self.position, tokens=self.tokens)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drafts:
    """A draft's tokens in one reply; row k is of a round whose pending token is token k."""

    tokens: NDArray[np.int64]  # [places, depth]
    seconds: NDArray[np.int64]  # [places, depth]: the next best ones
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
    likely: list[list[tuple[int, ...]]] = [[] for _ in prompts]
    for _ in tqdm(range(max_tokens - 1), "replies", disable=not progress):
        going = [n for n, reply in enumerate(replies) if reply[-1] not in stop_tokens]
        if not going:
            break
        positions = [len(prompts[n]) + len(replies[n]) - 1 for n in going]
        rows = Rows(sequence=torch.tensor(going), position=torch.tensor(positions))
        logits = run_rows(network, [replies[n][-1] for n in going], rows, sequences)
        best = logits.topk(min(BRANCHES, logits.shape[-1])).indices.tolist()
        for n, token, others in zip(going, logits.argmax(-1).tolist(), best, strict=True):
            replies[n].append(token)
            likely[n].append(tuple(others))
    return Replies(
        prompts=tuple(map(tuple, prompts)),
        replies=tuple(map(tuple, replies)),
        max_tokens=max_tokens,
        stop_tokens=stop_tokens,
        sequences=sequences,
        likely=tuple(map(tuple, likely)),
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
    """Draft ``depth`` tokens from each position of each reply.

    The network is the draft; ``sequences`` is what it reads of the target's keys and values, which
    need not be the target's own. Within a round it reads its own.
    """
    starts = [(n, k) for n, reply in enumerate(replies.replies) for k in range(len(reply) - 1)]
    found = [
        Drafts(
            tokens=np.zeros((len(reply) - 1, depth), np.int64),
            seconds=np.zeros((len(reply) - 1, depth), np.int64),
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
        pairs = best.indices.tolist()
        for (n, k), (token, second), margin in zip(starts, pairs, margins, strict=True):
            found[n].tokens[k, step], found[n].seconds[k, step] = token, second
            found[n].margins[k, step] = margin


def rounds(
    replies: Replies,
    drafts: Sequence[Drafts],
    settings: Settings,
    *,
    table: Candidates | None = None,
    policy: Policy | None = None,
    timed: Callable[[Outcome], Outcome] = lambda outcome: outcome,
) -> list[list[Round]]:
    """Emulate the rounds of each reply, as in :func:`cassandra_spec.drafting.decode`.

    The same code drafts them. Sizes of replies and stop tokens are those of ``replies``, not of
    ``settings``. ``drafts`` must have a depth of at least gamma. The target's probable tokens are
    known along the replies alone: a low drafter recycles no rejected rows.

    ``policy`` plans the rounds of all replies, one after the other; without one, gamma is fixed.
    ``timed`` gives an outcome the times that a policy observes.
    """
    asked = dataclasses.replace(
        settings, max_tokens=replies.max_tokens, stop_tokens=replies.stop_tokens
    )
    policy = policy or FixedPolicy(fixed_plan(asked, int(asked.gamma)))
    found = []
    for number, draft in enumerate(drafts):
        view = _FollowedView(draft)
        low = LowDrafter(table) if asked.uses_low_drafter else None
        drafter = LevelDrafter(low, view if asked.uses_draft_view else None, policy, asked)
        found.append(list(_play(replies, number, drafter, view, timed)))
    return found


class _FollowedView:
    """A draft view that draws what was followed (:class:`cassandra_spec.drafting.View`)."""

    def __init__(self, drafts: Drafts) -> None:
        self._drafts = drafts
        self._place = self._position = 0
        self._steps: list[int] = []

    def begin(self, place: int, position: int) -> None:
        """Begin the next round, at a place of the reply and a position of the sequence."""
        self._place, self._position = place, position

    def run(self, pending: int, nodes: Sequence[Node], position: int) -> None:
        self._steps = [position - self._position + depth for depth in _depths(nodes)]

    def choose(self, row: int, position: int) -> Choice:
        at = self._place, self._steps[row]
        drafts = self._drafts
        return Choice(int(drafts.tokens[at]), int(drafts.seconds[at]), float(drafts.margins[at]))

    def keep(self, path: Sequence[int]) -> None: ...


def _depths(nodes: Sequence[Node]) -> list[int]:
    """Return the depth of row 0 and of each node's row."""
    found = [0]
    for node in nodes:
        found.append(found[node.parent + 1] + 1)
    return found


def _play(
    replies: Replies,
    number: int,
    drafter: LevelDrafter,
    view: _FollowedView,
    timed: Callable[[Outcome], Outcome],
) -> Iterator[Round]:
    prompt, reply = replies.prompts[number], replies.replies[number]
    place = 0
    while place < len(reply) - 1:
        position = len(prompt) + place
        view.begin(place, position)
        context = [*prompt, *reply[: place + 1]]
        proposal = drafter.propose(context, replies.max_tokens - place - 2)
        ahead = reply[place + 1 :]
        best = [ahead[depth] if depth < len(ahead) else -1 for depth in _depths(proposal.nodes)]
        path = accept_greedy(proposal.nodes, best)
        likely = replies.likely[number][place:]
        seen = zip(reply[place:], likely[: len(path) + 1], strict=False)
        outcome = timed(Outcome(proposal=proposal, path=path, seen=tuple(seen)))
        drafter.observe(outcome)
        tokens = min(len(path) + 1, len(ahead))
        yield Round(position=position, outcome=outcome, tokens=tokens)
        place += tokens
