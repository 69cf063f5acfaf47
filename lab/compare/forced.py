"""Measure prefix-only drafts without the loop, in one pass over each reply of the target.

The native engine replies by plain decoding, and each draft predicts its token at every position of
the reply in one pass. The rounds of the loop and their costs follow from that, without drafting
token by token. A draft's tokens behind its first wrong token in a round are not known; a round
counts as drafted up to gamma or to a stop token. Products are larger than in the loop, so near ties
may differ. With torch, replies, products and all figures are those of the loop.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence

from cassandra_spec.bench.answers import Answers
from cassandra_spec.drafting import ADAPTIVE, DraftPass
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines import NetworkSize, Prepared, PreparedNetwork
from cassandra_spec.lab.baselines.teacher_forced import played
from cassandra_spec.lab.compare.contenders import Contender, Ready
from cassandra_spec.lab.compare.known_replies import NativeReplies
from cassandra_spec.lab.compare.run import MakeTurn
from cassandra_spec.lab.compare.sums import Sums
from cassandra_spec.lab.compare.turn import Turn, reply_key
from cassandra_spec.model.speculative import CassandraForCausalLM


def _check(ready: Sequence[Ready]) -> None:
    """Refuse contenders that are not prefix-only at a fixed gamma, in one line."""
    for each in ready:
        settings = each.contender.settings
        if not each.prepared.prefix_only:
            raise CassandraError(
                f"methods must draft from the tokens before alone (own=yes, an exit, a table"
                f" without copies) for a forced pass, not {each.label}"
            )
        if settings.draft != "model" or settings.gamma == ADAPTIVE:
            raise CassandraError(f"methods must have a number as gamma, no +low, not {each.label}")


@contextlib.contextmanager
def forced_turns(
    ready: Sequence[Ready], answers: Answers, *, torch: bool = False
) -> Iterator[MakeTurn]:
    """Make the turns of a :class:`cassandra_spec.lab.compare.run.Run`; close engines at the end.

    ``torch`` replies as the loop does, and passes have its products, for figures equal to its own.
    Raises :class:`CassandraError` if a contender is not prefix-only at a fixed gamma.
    """
    _check(ready)
    with contextlib.ExitStack() as stack:
        native = dict[int, NativeReplies]()
        for each in ready:
            if not torch and id(each.lm) not in native:
                most = max(one.contender.settings.max_tokens for one in ready)
                made = NativeReplies(each.lm.folder, max_tokens=most)
                native[id(each.lm)] = stack.enter_context(made)
        yield functools.partial(ForcedTurn, native=native, answers=answers)


class ForcedTurn:
    """The rounds of contenders on one reply of the native engine, or of torch as a fallback (see
    :class:`cassandra_spec.lab.compare.turn.Turn`).
    """

    def __init__(
        self,
        lm: CassandraForCausalLM,
        prompt: Sequence[int],
        most: int,
        *,
        native: Mapping[int, NativeReplies],
        answers: Answers,
    ) -> None:
        self._prompt, self._native, self._answers = prompt, native.get(id(lm)), answers
        self._loop = Turn(lm, prompt, most, min_tokens=0, answers=answers)
        self._key = [*reply_key(lm, prompt, most), "native" if self._native else "torch"]
        self._said: dict[str, list[int]] = {}

    @functools.cached_property
    def plain(self) -> list[int]:
        """The reply of plain decoding."""
        native = self._native
        if native is None:
            return self._loop.plain
        found: list[int] = self._answers.get(self._key, lambda: native.reply(self._prompt))
        return found

    def sums(self, ready: Ready) -> Sums:
        """Return the loop's counts over the reply of a contender."""
        if len(self.plain) < 2:  # no round
            return Sums(turns=1)
        predicted = self._predicted(ready.contender, ready.prepared)
        return _rounds(ready, self._prompt, self.plain, predicted)

    def _predicted(self, contender: Contender, prepared: Prepared) -> list[int]:
        """Return the draft's token after each token of the reply but the last, for every gamma."""
        key = [*self._key, "predicted", contender.method_key()]
        tokens, last = [*self._prompt, *self.plain[:-1]], len(self.plain) - 1
        say = prepared.predicted if self._native else prepared.predictions
        if repr(key) not in self._said:
            made = self._answers.get(key, lambda: say(tokens, last))
            self._said[repr(key)] = made
        return self._said[repr(key)]


def _rounds(
    ready: Ready, prompt: Sequence[int], reply: Sequence[int], predicted: Sequence[int]
) -> Sums:
    """Compute the rounds of a reply, with their costs."""
    gamma, most = int(ready.contender.settings.gamma), ready.contender.settings.max_tokens
    stops, prepared, sums = ready.lm.stop_tokens(), ready.prepared, Sums(turns=1)
    start, tokens = len(prompt), [*prompt, *reply]
    own = isinstance(prepared, PreparedNetwork) and prepared.own
    place, unseen = 0, start if own else 0  # tokens that the draft has not run over yet
    right = [ours == theirs for ours, theirs in zip(predicted, reply[1:], strict=True)]
    for accepted in played(right, gamma=gamma, max_tokens=most):
        budget, position = most - place - 2, start + place
        drafted = prepared.chain_length(tokens[: position + 1], min(gamma, budget))
        if drafted is None:
            known = predicted[place : place + min(accepted + 1, gamma, budget)]
            drafted = len(known) if stops.intersection(known[-1:]) else min(gamma, budget)
        sums.add(_round(prepared, position, drafted, accepted, unseen))
        sums.whole_rounds += drafted < budget
        sums.whole_tokens += (drafted < budget) * (accepted + 1)
        place += accepted + 1
        unseen = int(own and accepted == drafted)  # the last one, if it was accepted
    sums.counters.tokens = len(reply) - 1
    size = NetworkSize.of(ready.lm.network)
    for place in range(len(reply) - 1):
        sums.plain += size.cost(start + place, 1)
    return sums


def _round(prepared: Prepared, position: int, drafted: int, accepted: int, unseen: int) -> Sums:
    sums = Sums(verify=prepared.verify_cost(position, drafted))
    counters = sums.counters
    counters.rounds, counters.drafted, counters.accepted = 1, drafted, accepted
    counters.tested = min(accepted + 1, drafted)
    for step in range(drafted if isinstance(prepared, PreparedNetwork) else 0):
        late = 0 if step else unseen
        sums.draft += prepared.draft_cost(position, DraftPass(step - late, 1 + late))
    return sums
