"""Questions by category, such as Spec-Bench's."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence

from cassandra_spec.bench.study.prompts import Use, bundled_prompts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """User turns of one conversation."""

    category: str
    turns: tuple[str, ...]


def bundled_questions(*uses: Use) -> list[Question]:
    """Return the bundled prompts of some uses as questions of one turn."""
    return [Question(category=p.kind, turns=(p.text,)) for p in bundled_prompts(*uses)]


def places(questions: Sequence[Question]) -> Iterator[int]:
    """Yield each question's number within its category, from 1 on."""
    seen: dict[str, int] = {}
    for question in questions:
        seen[question.category] = seen.get(question.category, 0) + 1
        yield seen[question.category]


def in_turn(questions: Sequence[Question]) -> list[Question]:
    """Return the questions in another order: a first one of each category, then a second one."""
    pairs = sorted(zip(places(questions), questions, strict=True), key=lambda pair: pair[0])
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
