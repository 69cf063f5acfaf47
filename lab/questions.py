"""Read questions in Spec-Bench's form, and build the conversations that they make."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.bench.questions import Question, bundled_questions, places
from cassandra_spec.bench.study.prompts import Use
from cassandra_spec.drafting import encode_prompt
from cassandra_spec.golden.errors import FileError
from cassandra_spec.model.packing.calibration import read_text

ALL = "all"
"""The category that has every question."""


def read_questions(
    path: Path | None, each: int | None = None, *, uses: Sequence[Use] = ("bench",)
) -> list[Question]:
    """Read questions from a file in Spec-Bench's form, or the bundled prompts of some uses.

    ``each`` is the number of questions per category, the first ones. Raises :class:`FileError` for
    another file.
    """
    every = bundled_questions(*uses) if path is None else list(_questions(path))
    pairs = zip(every, places(every), strict=True)
    return [question for question, place in pairs if each is None or place <= each]


def _questions(path: Path) -> Iterator[Question]:
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        try:
            body = json.loads(line)
            category, turns = body["category"], tuple(body["turns"])
        except (ValueError, KeyError, TypeError) as error:
            raise FileError(f"{path}:{number} must be a question of Spec-Bench: {error}") from error
        if not (isinstance(category, str) and turns and all(isinstance(t, str) for t in turns)):
            raise FileError(f"{path}:{number}: category and turns must be text, not {line[:80]}")
        yield Question(category=category, turns=turns)


class Conversation:
    """The turns of a question, each on the replies before it."""

    def __init__(self, question: Question, tokenizer: Any) -> None:
        self._question, self._tokenizer = question, tokenizer
        self._chat: list[dict[str, str]] = []

    def prompts(self, room: int) -> Iterator[list[int]]:
        """Yield the prompt of each turn, in tokens, until one has more than ``room``.

        Give the reply to :meth:`reply` before the next one.
        """
        for text in self._question.turns:
            self._chat.append({"role": "user", "content": text})
            prompt = encode_prompt(self._tokenizer, self._chat)
            if len(prompt) > room:
                return
            yield prompt

    def reply(self, tokens: Sequence[int]) -> None:
        """Take the model's answer."""
        text = self._tokenizer.decode(tokens, skip_special_tokens=True)
        self._chat.append({"role": "assistant", "content": text})
