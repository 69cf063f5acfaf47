"""Prompts as tokens, in a chat template and after as much other text as is asked for."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

from cassandra_spec.drafting import encode_prompt
from cassandra_spec.golden import CassandraError


def encode_after(tokenizer: Any, prompt: str, filler: str, positions: int) -> list[int]:
    """Encode a prompt after the beginning of a text, cut to give ``positions`` tokens in all.

    The result is a few tokens shorter if no cut gives exactly that number. Raises
    :class:`CassandraError` if the text is too short or the prompt alone is longer.
    """
    words = filler.split(" ")

    def tokens(count: int) -> list[int]:
        return encode_prompt(tokenizer, f"{' '.join(words[:count])}\n\n{prompt}")

    if not len(tokens(0)) <= positions <= len(tokens(len(words))):
        raise CassandraError(
            f"context must be from {len(tokens(0))} to {len(tokens(len(words)))} tokens for this"
            f" prompt and text, not {positions}"
        )
    counts = range(1, len(words))
    return tokens(bisect.bisect_right(counts, positions, key=lambda count: len(tokens(count))))


def in_rounds(prompts: Sequence[list[int]], rounds: int) -> list[list[list[int]]]:
    """Distribute the prompts over rounds; all rounds together have each prompt."""
    if not 1 <= rounds <= len(prompts):
        raise CassandraError(f"rounds must be from 1 to {len(prompts)} (prompts), not {rounds}")
    return [list(prompts[start::rounds]) for start in range(rounds)]
