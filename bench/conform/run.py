"""Run two ways to decode on the same prompts, and report the differences."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from cassandra_spec.bench.answers import Answers
from cassandra_spec.bench.conform.local import MAX_DRAFTED
from cassandra_spec.bench.conform.replies import Difference, Reply, Way, find_difference
from cassandra_spec.bench.questions import Question, ask_all
from cassandra_spec.toolkit.tables import text_table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
    """Passes over k+1 rows beside k+1 passes over one row, of one way."""

    way: str
    prompts: int
    unequal: dict[int, list[int]]  # numbers k with other logits, by prompt


class Run:
    """Replies of two ways to prompts; ``answers`` has those of earlier runs."""

    def __init__(self, ways: tuple[Way, Way], answers: Answers) -> None:
        self.ways, self._answers = ways, answers
        self.compared = 0
        self.differences: list[Difference] = []
        self.rows: dict[str, Rows] = {}

    def run(self, questions: Sequence[Question], say: Callable[[str], object]) -> int:
        """Ask the first turns of questions; Ctrl-C ends with those so far. How many were asked."""
        return ask_all(questions, lambda question: self._compare(question.turns[0]), say)

    def _compare(self, prompt: str) -> None:
        one, other = (self._reply(way, prompt) for way in self.ways)
        number = self.compared + 1
        difference = find_difference(number, prompt, self.ways, (one, other))
        pairs = zip(self.ways, (one, other), strict=True)
        rows = {way.name: self._unequal_rows(way, prompt, reply) for way, reply in pairs}
        self.compared = number
        if difference:
            self.differences.append(difference)
        for name, unequal in rows.items():
            if unequal is not None:
                self._count(name, unequal)

    def _count(self, name: str, unequal: list[int]) -> None:
        before = self.rows.get(name) or Rows(way=name, prompts=0, unequal={})
        found = {**before.unequal, **({self.compared: unequal} if unequal else {})}
        self.rows[name] = Rows(way=name, prompts=before.prompts + 1, unequal=found)

    def _reply(self, way: Way, prompt: str) -> Reply:
        key = ["reply", *way.key, prompt]
        return Reply.of(self._answers.get(key, lambda: dataclasses.asdict(way.reply(prompt))))

    def _unequal_rows(self, way: Way, prompt: str, reply: Reply) -> list[int] | None:
        found: list[int] | None = self._answers.get(
            ["rows", *way.key, prompt], lambda: way.unequal_rows(prompt, reply)
        )
        return found

    @property
    def differs(self) -> bool:
        """Return whether a reply or a row differs."""
        return bool(self.differences) or any(each.unequal for each in self.rows.values())

    def to_dict(self) -> dict[str, object]:
        """Return the report, for JSON."""
        return {
            "ways": [way.name for way in self.ways],
            "prompts": self.compared,
            "identical": self.compared - len(self.differences),
            "differences": [dataclasses.asdict(each) for each in self.differences],
            "rows": [dataclasses.asdict(each) for each in self.rows.values()],
        }


_HEADER = (
    *("prompt", "character", "token", "of the other", "one", "the other"),
    *("margin", "of the other"),
)


def lines(run: Run) -> str:
    """Format both ways, the differing replies and the rows."""
    one, other = run.ways
    same = run.compared - len(run.differences)
    parts = [
        f"one: {one.name}\nthe other: {other.name}",
        f"identical: {same} of {run.compared} replies",
    ]
    if run.differences:
        parts.append(text_table(_HEADER, [_cells(each) for each in run.differences]))
    parts += [_rows_line(each) for each in run.rows.values()]
    return "\n\n".join(parts)


def _cells(one: Difference) -> list[str]:
    return [
        str(one.prompt),
        str(one.character),
        *("-" if place is None else str(place) for place in one.tokens),
        *map(repr, one.pieces),
        *("-" if margin is None else f"{margin:.4f}" for margin in one.margins),
    ]


def _rows_line(one: Rows) -> str:
    head = f"{one.way}: verifications of 1 to {MAX_DRAFTED} drafted tokens beside single passes"
    if not one.unequal:
        return f"{head}: the same logits, bit for bit, on {one.prompts} of {one.prompts} prompts"
    found = "; ".join(
        f"prompt {prompt}: {', '.join(map(str, drafted))}"
        for prompt, drafted in one.unequal.items()
    )
    return f"{head}: other logits on {len(one.unequal)} of {one.prompts} prompts ({found})"
