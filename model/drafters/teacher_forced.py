"""Acceptance of a prefix-only drafter from one teacher-forced pass over a reply.

If each drafted token depends on the tokens before it alone, the draft's token after every prefix of
a reply says how each round ends: a round accepts as many tokens as the draft predicts in a row.
"""

from __future__ import annotations

from collections.abc import Sequence

from cassandra_spec.model.drafters.method import Prepared


def accepted_lengths(
    prepared: Prepared, prompt: Sequence[int], reply: Sequence[int], *, gamma: int, max_tokens: int
) -> list[int] | None:
    """Accepted tokens of each round, as the loop has them at a fixed gamma without levels.

    ``reply`` is the target's, up to ``max_tokens``. None if the drafter is not prefix-only.
    """
    tokens = [*prompt, *reply]
    predicted = prepared.predictions(tokens[:-1])
    if predicted is None:
        return None
    right = [a == b for a, b in zip(predicted, tokens[1:], strict=True)][len(prompt) :]
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
