"""Questions by category, and the conversations that they make.

Spec-Bench's questions are in this form, and the bundled prompts are questions of one turn.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.bench.study.prompts import Use, bundled_prompts
from cassandra_spec.drafting import encode_prompt
from cassandra_spec.golden.errors import FileError
from cassandra_spec.model.packing.calibration import read_text

ALL = "all"
"""The category that has every question."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """User turns of one conversation."""

    category: str
    turns: tuple[str, ...]


def read_questions(
    path: Path | None, each: int | None = None, *, uses: Sequence[Use] = ("bench",)
) -> list[Question]:
    """Read questions from a file in Spec-Bench's form, or the bundled prompts of some uses.

    ``each`` is the number of questions per category, the first ones. Raises :class:`FileError` for
    another file.
    """
    if path is None:
        every = [Question(category=p.kind, turns=(p.text,)) for p in bundled_prompts(*uses)]
    else:
        every = list(_questions(path))
    pairs = zip(every, _places(every), strict=True)
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


def _places(questions: Sequence[Question]) -> Iterator[int]:
    """Yield each question's number within its category, from 1 on."""
    seen: dict[str, int] = {}
    for question in questions:
        seen[question.category] = seen.get(question.category, 0) + 1
        yield seen[question.category]


def in_turn(questions: Sequence[Question]) -> list[Question]:
    """Return the questions in another order: a first one of each category, then a second one."""
    pairs = sorted(zip(_places(questions), questions, strict=True), key=lambda pair: pair[0])
    return [question for _, question in pairs]


def ask_all(
    questions: Sequence[Question],
    ask: Callable[[Question], object],
    say: Callable[[str], object],
) -> int:
    """Ask all questions, categories in turn (:func:`in_turn`).

    Ctrl-C ends with those so far. Returns how many were asked.
    """
    begin = time.monotonic()
    for number, question in enumerate(in_turn(questions), start=1):
        try:
            ask(question)
        except KeyboardInterrupt:
            return number - 1
        each = (time.monotonic() - begin) / number
        left = f"{each:.0f} s each, {each * (len(questions) - number) / 60:.0f} min left"
        say(f"{number} of {len(questions)} questions, {question.category} ({left})")
    return len(questions)


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
