"""Acceptance of a draft for every gamma at once, without decoding token by token.

The reply of plain greedy decoding is known, and speculative decoding gives the same. So which
rounds take place follows from one number for each place of the reply: how many tokens in a row the
draft would get right if a round began there. :func:`run_lengths` measures that number for all
places together; :func:`rounds` plays the rounds of any gamma from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from golden import CassandraError
from model.speculative import Tally
from model.study.chains import ATTENTION, Chains, Rows, Sequences, run_rows

__all__ = ["Lengths", "Replies", "Round", "greedy_replies", "rounds", "run_lengths"]

_CHUNK = 384  # chains in one pass


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replies:
    """Prompts with the target's greedy replies, and the target's keys and values of both."""

    prompts: tuple[tuple[int, ...], ...]
    replies: tuple[tuple[int, ...], ...]  # the token that ended each included
    max_tokens: int
    stop_tokens: frozenset[int]
    sequences: Sequences

    @property
    def tokens(self) -> int:
        """Tokens of all replies."""
        return sum(map(len, self.replies))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Round:
    """Tokens drafted, accepted and put out in a round whose pending token is at ``position``."""

    position: int
    drafted: int
    accepted: int
    tokens: int

    def add_to(self, tally: Tally) -> None:
        """Count the round."""
        tally.add_round(
            position=self.position,
            drafted=self.drafted,
            accepted=self.accepted,
            tokens=self.tokens,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lengths:
    """What a draft does in one reply; entry k is a round whose pending token is token k."""

    right: NDArray[np.int64]  # tokens that it gets right in a row, up to the depth measured
    stops: NDArray[np.bool_]  # the first wrong one is a stop token: the draft goes no further


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


def run_lengths(
    network: Any,
    replies: Replies,
    sequences: Sequences,
    *,
    depth: int,
    update: Callable[[int], object] = lambda rows: None,
) -> tuple[Lengths, ...]:
    """How far the draft gets from each place of each reply, up to ``depth`` tokens.

    The network is the draft; ``sequences`` is what it reads of the target's keys and values, which
    need not be the target's own. Within a chain it reads its own. ``update`` is told of the number
    of places that are done.
    """
    starts = [(n, k) for n, reply in enumerate(replies.replies) for k in range(len(reply) - 1)]
    found = [
        Lengths(right=np.zeros(len(r) - 1, np.int64), stops=np.zeros(len(r) - 1, np.bool_))
        for r in replies.replies
    ]
    for first in range(0, len(starts), _CHUNK):
        chunk = starts[first : first + _CHUNK]
        _follow(network, replies, sequences, chunk, found, depth)
        update(len(chunk))
    return tuple(found)


def _follow(
    network: Any,
    replies: Replies,
    sequences: Sequences,
    starts: list[tuple[int, int]],
    found: list[Lengths],
    depth: int,
) -> None:
    """Fill in the lengths of some places: follow each chain until its first wrong token."""
    chains = Chains()
    for step in range(depth):
        ends = [k + step + 1 == len(replies.replies[n]) for n, k in starts]
        going = ~torch.tensor(ends, dtype=torch.bool)
        chains.keep(going)
        starts = [start for start, goes in zip(starts, going.tolist(), strict=True) if goes]
        if not starts:
            return
        right = torch.zeros(len(starts), dtype=torch.bool)
        drafted = _chain_step(network, replies, sequences, starts, step, chains)
        for row, ((n, k), token) in enumerate(zip(starts, drafted, strict=True)):
            right[row] = token == replies.replies[n][k + step + 1]
            found[n].right[k] += int(right[row])
            found[n].stops[k] = not right[row] and token in replies.stop_tokens
        chains.keep(right)
        starts = [start for start, goes in zip(starts, right.tolist(), strict=True) if goes]


def _chain_step(
    network: Any,
    replies: Replies,
    sequences: Sequences,
    starts: list[tuple[int, int]],
    step: int,
    chains: Chains,
) -> list[int]:
    """The draft's next token of each chain."""
    tokens = [replies.replies[n][k + step] for n, k in starts]
    positions = [len(replies.prompts[n]) + k + step for n, k in starts]
    rows = Rows(sequence=torch.tensor([n for n, _ in starts]), position=torch.tensor(positions))
    drafted: list[int] = run_rows(network, tokens, rows, sequences, chains).argmax(-1).tolist()
    return drafted


def rounds(replies: Replies, lengths: Sequence[Lengths], gamma: int) -> list[list[Round]]:
    """The rounds of each reply, as :func:`model.speculative.decode` would have them.

    ``lengths`` must have been measured to a depth of gamma or more. One thing is not followed: a
    draft that would draw a stop token later than its first wrong token counts as full.
    """
    found = []
    for prompt, reply, length in zip(replies.prompts, replies.replies, lengths, strict=True):
        places, k = [], 0
        while k < len(reply) - 1:
            limit = min(gamma, replies.max_tokens - k - 2)
            accepted = min(int(length.right[k]), limit)
            drafted = _drafted(reply, k, accepted, limit, length, replies.stop_tokens)
            tokens = min(accepted + 1, len(reply) - 1 - k)
            places.append(
                Round(position=len(prompt) + k, drafted=drafted, accepted=accepted, tokens=tokens)
            )
            k += tokens
        found.append(places)
    return found


def _drafted(
    reply: Sequence[int],
    k: int,
    accepted: int,
    limit: int,
    length: Lengths,
    stop_tokens: frozenset[int],
) -> int:
    """Tokens drafted in a round from token k of a reply on."""
    if accepted and reply[k + accepted] in stop_tokens:
        return accepted
    wrong = accepted < limit
    return accepted + 1 if wrong and length.stops[k] else limit
