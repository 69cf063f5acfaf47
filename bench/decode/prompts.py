"""Prompts as tokens, in a chat template and after as much other text as is asked for."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

from cassandra_spec.drafting import encode_prompt
from cassandra_spec.golden import CassandraError


def encode_after(tokenizer: Any, prompt: str, filler: str, positions: int) -> list[int]:
    """Encode the prompt of :func:`fill_up`."""
    return encode_prompt(tokenizer, fill_up(tokenizer, prompt, filler, positions))


def fill_up(tokenizer: Any, prompt: str, filler: str, positions: int) -> str:
    """Return a prompt after the beginning of a text, cut to give ``positions`` tokens in all.

    The result has a few tokens less if no cut gives exactly that number. Raises
    :class:`CassandraError` if the text is too short or the prompt alone is longer.
    """
    words = filler.split(" ")

    def cut(count: int) -> str:
        return f"{' '.join(words[:count])}\n\n{prompt}"

    def tokens(count: int) -> int:
        return len(encode_prompt(tokenizer, cut(count)))

    if not tokens(0) <= positions <= tokens(len(words)):
        raise CassandraError(
            f"context must be from {tokens(0)} to {tokens(len(words))} tokens for this"
            f" prompt and text, not {positions}"
        )
    return cut(bisect.bisect_right(range(1, len(words)), positions, key=tokens))


def in_rounds(prompts: Sequence[list[int]], rounds: int) -> list[list[list[int]]]:
    """Distribute the prompts over rounds; all rounds together have each prompt."""
    if not 1 <= rounds <= len(prompts):
        raise CassandraError(f"rounds must be from 1 to {len(prompts)} (prompts), not {rounds}")
    return [list(prompts[start::rounds]) for start in range(rounds)]
