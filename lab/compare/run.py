"""Draft methods on the same prompts: replies compared, acceptance, traffic, operations.

Every turn of every question is answered by plain decoding and by each contender. Everything that is
counted does not depend on the machine's load. Traffic is that of runtime.md: a pass reads its
weights once, and the keys and values of the positions that it sees once; speed-ups are over plain
decoding in BF16.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from cassandra_spec.bench.answers import Answers
from cassandra_spec.bench.questions import Question, ask_all
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.compare.contenders import Ready
from cassandra_spec.lab.compare.sums import Sums
from cassandra_spec.lab.compare.turn import Turn
from cassandra_spec.lab.questions import ALL, Conversation
from cassandra_spec.model.speculative import CassandraForCausalLM


class AnyTurn(Protocol):
    """One prompt, on one model."""

    @property
    def plain(self) -> list[int]:
        """The reply of plain decoding."""

    def sums(self, ready: Ready) -> Sums:
        """Return the counts over the reply of a contender."""


MakeTurn = Callable[[CassandraForCausalLM, Sequence[int], int], AnyTurn]


class Run:
    """The answers of contenders to questions; the first contender is on the first model.

    ``turns`` makes a turn from a model, a prompt and a token limit; by default, the loop's. Stop
    tokens are masked in the first ``min_tokens`` tokens of all replies; ``answers`` has those of
    earlier runs.
    """

    def __init__(
        self,
        ready: Sequence[Ready],
        *,
        min_tokens: int = 0,
        answers: Answers | None = None,
        turns: MakeTurn | None = None,
    ) -> None:
        self.ready = ready
        self._turn = turns or functools.partial(
            Turn, min_tokens=min_tokens, answers=answers or Answers()
        )
        self._most = max((each.contender.settings.max_tokens for each in ready), default=0)
        self._room = ready[0].lm.positions - self._most if ready else 0
        self.sums: dict[tuple[str, str], Sums] = {}  # by label and category

    def run(self, questions: Sequence[Question], say: Callable[[str], object]) -> int:
        """Ask all questions (:func:`~cassandra_spec.bench.questions.ask_all`).

        Returns how many were answered by all contenders. Raises :class:`CassandraError` if no
        prompt fits the model with the longest reply.
        """
        if self._room < 1:
            limit = f"less than the model's {self._room + self._most} positions"
            raise CassandraError(f"max-tokens must be {limit}, not {self._most}")

        def ask(question: Question) -> None:
            for label, sums in list(self._answers(question, say)):
                self.add(label, question.category, sums)

        asked = ask_all(questions, ask, say)
        if asked and not self.sums:
            raise CassandraError(f"questions must have a prompt of at most {self._room} tokens")
        return asked

    def add(self, label: str, category: str, sums: Sums) -> None:
        """Count a contender's reply to a question of a category."""
        for name in (ALL, category):
            self.sums.setdefault((label, name), Sums()).add(sums)

    def _answers(
        self, question: Question, say: Callable[[str], object]
    ) -> Iterator[tuple[str, Sums]]:
        """Yield the replies of all contenders to each turn; the next turn follows the plain
        reply.
        """
        first = self.ready[0].lm
        talk = Conversation(question, first.tokenizer)
        for prompt in talk.prompts(self._room):
            turns = {id(each.lm): self._turn(each.lm, prompt, self._most) for each in self.ready}
            for each in self.ready:
                yield each.label, turns[id(each.lm)].sums(each)
                say(f"  {each.label}")
            talk.reply(turns[id(first)].plain)

    def figures(self) -> list[Figures]:
        """Return figures per contender: total, then by category."""
        categories = dict.fromkeys(category for _, category in self.sums)
        return [
            figures(each.label, category, self.sums[each.label, category], each)
            for category in categories
            for each in self.ready
            if (each.label, category) in self.sums
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of a contender in a category, or in all."""

    label: str
    category: str
    turns: int
    looped: int  # replies that the loop has made
    identical: int
    drafted: int
    accepted: int
    acceptance: float | None  # accepted / drafted
    conditional: float | None  # accepted / drafted tokens whose predecessors were accepted
    tokens: int
    tokens_per_verification: float
    tokens_per_whole_round: float | None  # over rounds that the end of the reply did not cut
    bytes_per_token: float  # drafts and verifications, keys and values included
    draft_bytes_per_token: float
    flops_per_token: float
    flops_of_plain: float  # the same over plain decoding
    weights_speedup: float  # traffic of weights alone
    speedup: float  # keys and values included
    memory: int  # bytes beside those of the target
    training_seconds: float
    forced: int  # replies that a teacher-forced pass was taken of
    forced_equal: int
    claim: str  # of the paper
    about: str  # notes of the method's preparation


def figures(label: str, category: str, sums: Sums, ready: Ready) -> Figures:
    """Return the figures of one contender."""
    counters, prepared = sums.counters, ready.prepared
    spent, tokens = sums.draft + sums.verify, max(counters.tokens, 1)
    return Figures(
        label=label,
        category=category,
        turns=sums.turns,
        looped=sums.looped,
        identical=sums.identical,
        drafted=counters.drafted,
        accepted=counters.accepted,
        acceptance=counters.accepted / counters.drafted if counters.drafted else None,
        conditional=counters.accepted / counters.tested if counters.tested else None,
        tokens=counters.tokens,
        tokens_per_verification=counters.tokens / max(counters.rounds, 1),
        tokens_per_whole_round=(
            sums.whole_tokens / sums.whole_rounds if sums.whole_rounds else None
        ),
        bytes_per_token=spent.bytes / tokens,
        draft_bytes_per_token=sums.draft.bytes / tokens,
        flops_per_token=spent.flops / tokens,
        flops_of_plain=spent.flops / sums.plain.flops,
        weights_speedup=sums.plain.weights / spent.weights,
        speedup=sums.plain.bytes / spent.bytes,
        memory=prepared.memory,
        training_seconds=prepared.training_seconds,
        forced=sums.forced,
        forced_equal=sums.forced_equal,
        claim=ready.contender.method.claim,
        about=prepared.about,
    )
