"""The same figures of prefix-only drafts without the loop, for many prompts at once.

All prompts are answered by plain decoding in step, and each draft says its token in every place of
every reply in one pass. Rounds and their costs follow. Nothing is drafted token by token, so
replies are not compared, and near ties may fall the other way than in the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cassandra_spec.bench.compare.contenders import Ready
from cassandra_spec.bench.compare.questions import Question
from cassandra_spec.bench.compare.run import Run
from cassandra_spec.bench.compare.sums import Sums
from cassandra_spec.drafting import ADAPTIVE, DraftPass
from cassandra_spec.golden import CassandraError
from cassandra_spec.model.drafters import NetworkSize, PreparedNetwork, clone
from cassandra_spec.model.drafters.teacher_forced import played, predicted_together
from cassandra_spec.model.speculative import CassandraForCausalLM
from cassandra_spec.model.study.emulation import Replies, greedy_replies


def run_forced(
    run: Run, questions: Sequence[Question], say: Callable[[str], object], *, max_tokens: int
) -> None:
    """Count the rounds of all contenders on the first turns of all questions.

    Raises :class:`CassandraError` if a contender is not prefix-only at a fixed gamma.
    """
    for each in run.ready:
        _check(each)
    replies: dict[int, Replies] = {}
    for each in run.ready:
        if id(each.lm) not in replies:
            replies[id(each.lm)] = _plain(each.lm, questions, max_tokens)
            say("plain replies")
        for question, sums in zip(questions, _of_replies(each, replies[id(each.lm)]), strict=True):
            run.add(each.label, question.category, sums)
        say(f"  {each.label}")


def _check(ready: Ready) -> None:
    settings, prepared = ready.contender.settings, ready.prepared
    if not (isinstance(prepared, PreparedNetwork) and prepared.own):
        raise CassandraError(f"methods must have own=yes for a forced pass, not {ready.label}")
    if settings.draft != "model" or settings.gamma == ADAPTIVE:
        raise CassandraError(f"methods must have a number as gamma, no +low, not {ready.label}")


def _plain(lm: CassandraForCausalLM, questions: Sequence[Question], most: int) -> Replies:
    return greedy_replies(
        clone(lm),
        [lm.encode_prompt(question.turns[0]) for question in questions],
        max_tokens=most,
        stop_tokens=lm.stop_tokens(),
    )


def _of_replies(ready: Ready, replies: Replies) -> list[Sums]:
    """The rounds of each reply, with their costs."""
    assert isinstance(ready.prepared, PreparedNetwork), "checked before"
    found = predicted_together(ready.prepared.network, replies)
    sequences = zip(replies.prompts, replies.replies, found, strict=True)
    return [
        _of_reply(ready, len(prompt), reply, predicted[1:])
        for prompt, reply, predicted in sequences
    ]


def _of_reply(ready: Ready, start: int, reply: Sequence[int], predicted: Sequence[int]) -> Sums:
    gamma, most = int(ready.contender.settings.gamma), ready.contender.settings.max_tokens
    sums, size = Sums(turns=1), NetworkSize.of(ready.lm.network)
    counters, place = sums.counters, 0
    right = [ours == theirs for ours, theirs in zip(predicted, reply[1:], strict=True)]
    for accepted in played(right, gamma=gamma, max_tokens=most):
        drafted, position = min(gamma, most - place - 2), start + place
        counters.rounds += 1
        counters.drafted += drafted
        counters.accepted += accepted
        counters.tested += min(accepted + 1, drafted)
        whole = drafted == gamma
        sums.whole_rounds += whole
        sums.whole_tokens += whole * (accepted + 1)
        for step in range(drafted):
            sums.draft += ready.prepared.draft_cost(position, DraftPass(step, 1))
        sums.verify += ready.prepared.verify_cost(position, drafted)
        place += accepted + 1
    counters.tokens = len(reply) - 1
    for place in range(len(reply) - 1):
        sums.plain += size.cost(start + place, 1)
    return sums
