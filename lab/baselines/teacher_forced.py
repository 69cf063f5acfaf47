"""Acceptance of a prefix-only drafter from one teacher-forced pass over a reply.

If each drafted token depends on the tokens before it alone, the draft's token after every prefix of
a reply says how each round ends: a round accepts as many tokens as the draft predicts in a row.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from cassandra_spec.bench.study.chains import ATTENTION, Chains, Rows, Sequences, run_rows
from cassandra_spec.lab.baselines.method import Prepared


def accepted_lengths(
    prepared: Prepared, prompt: Sequence[int], reply: Sequence[int], *, gamma: int, max_tokens: int
) -> list[int] | None:
    """Accepted tokens of each round, as the loop has them at a fixed gamma without levels.

    ``reply`` is the target's, up to ``max_tokens``. None if the drafter is not prefix-only.
    """
    if not prepared.prefix_only:
        return None
    predicted = prepared.predictions([*prompt, *reply[:-1]], max(len(reply) - 1, 1))
    right = [a == b for a, b in zip(predicted, reply[1:], strict=False)]
    return played(right, gamma=gamma, max_tokens=max_tokens)


def played(right: Sequence[bool], *, gamma: int, max_tokens: int) -> list[int]:
    """Accepted tokens of each round, if the draft after token k of a reply is right or not."""
    found, place = [], 0  # the pending token of a round
    while place < len(right):
        most = min(gamma, max_tokens - place - 2)
        run = next((n for n, each in enumerate(right[place:]) if not each), len(right) - place)
        found.append(min(run, most))
        place += found[-1] + 1
    return found


Tails = Sequence[tuple[Sequence[int], int]]
"""Sequences of tokens, each with the number of last tokens to evaluate."""


def predicted_together(
    network: Any, tails: Tails, *, target: Sequences | None = None
) -> list[list[int]]:
    """Predict the token after each of the last tokens of each sequence, in one pass over all.

    It reads keys and values of its own; or those of the ``target`` before each of these tokens, as
    the first draft pass of a round does. Big products make it fast; the price is that near ties may
    fall the other way than in the loop (:mod:`cassandra_spec.bench.study.chains`).
    """
    tokens, rows, last = _rows(tails)
    if target is None:
        logits = _run(network, tokens, rows, Sequences(len(tails)), wanted=last)
    else:
        logits = _run(network, tokens[last], rows[last], target, Chains())
    best = iter(logits.argmax(-1).tolist())
    return [list(itertools.islice(best, count)) for _, count in tails]


def keys_and_values(network: Any, tails: Tails) -> Sequences:
    """Compute a network's keys and values for all tokens of all sequences."""
    tokens, rows, last = _rows(tails)
    found = Sequences(len(tails))
    _run(network, tokens, rows, found, wanted=last[:1])
    return found


def _rows(tails: Tails) -> tuple[torch.Tensor, Rows, torch.Tensor]:
    """Return tokens, their positions, and the indices of the last ones; all int64."""
    tokens, numbers, positions, last = list[int](), list[int](), list[int](), list[int]()
    for number, (known, count) in enumerate(tails):
        tokens += known
        last += range(len(tokens) - count, len(tokens))
        numbers += [number] * len(known)
        positions += range(len(known))
    rows = Rows(sequence=torch.tensor(numbers), position=torch.tensor(positions))
    return torch.tensor(tokens), rows, torch.tensor(last)


def _run(network: Any, *arguments: Any, **options: Any) -> torch.Tensor:
    before = network.config._attn_implementation
    network.config._attn_implementation = ATTENTION
    try:
        return run_rows(network, *arguments, **options)
    finally:
        network.config._attn_implementation = before
