"""Prompts as tokens, in a chat template and behind as much other text as is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cassandra_spec.drafting import encode_prompt
from cassandra_spec.golden import CassandraError

__all__ = ["encode_behind"]


def encode_behind(tokenizer: Any, prompt: str, filler: str, positions: int) -> list[int]:
    """A prompt after the beginning of a text, so long that there are ``positions`` tokens.

    A few tokens fewer if no beginning makes exactly so many. :class:`CassandraError` if the text is
    too short or the prompt alone is longer.
    """
    words = filler.split(" ")

    def tokens(count: int) -> list[int]:
        return encode_prompt(tokenizer, f"{' '.join(words[:count])}\n\n{prompt}")

    if not len(tokens(0)) <= positions <= len(tokens(len(words))):
        raise CassandraError(
            f"context must be from {len(tokens(0))} to {len(tokens(len(words)))} tokens for this"
            f" prompt and text, not {positions}"
        )
    low, high = 0, len(words)
    while high - low > 1:  # tokens(low) fit, tokens(high) may not
        middle = (low + high) // 2
        low, high = (middle, high) if len(tokens(middle)) <= positions else (low, middle)
    return tokens(low)


def in_rounds(prompts: Sequence[list[int]], rounds: int) -> list[list[list[int]]]:
    """The prompts of each round: every so many of them, all of them in all."""
    if not 1 <= rounds <= len(prompts):
        raise CassandraError(f"rounds must be from 1 to {len(prompts)} (prompts), not {rounds}")
    return [list(prompts[start::rounds]) for start in range(rounds)]
