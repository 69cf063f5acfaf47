"""The native engine: lossless speculative decoding in C++.

Draft and target share one KV cache. A round drafts up to gamma tokens one after another. The target
then runs over all of them in one pass, which overwrites the draft's keys and values. The round
emits the drafted tokens up to the first one that differs from the target's choice, and then the
target's choice (section II.B of the paper). The result of a row does not depend on the other rows
of its pass, so the reply equals plain decoding token for token (docs/software/lossless.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cassandra_spec.drafting import (
    ADAPTIVE,
    Batch,
    Counters,
    Ends,
    Report,
    Score,
    Settings,
    make_report,
    native_figures,
    never,
    reply_rounds,
)
from cassandra_spec.native.library import isa
from cassandra_spec.native.passes import Passes
from cassandra_spec.native.rounds.runtime import EngineRuntime
from cassandra_spec.native.rounds.slots import OneSlot, Slots


class Engine(Passes):
    """A model with the KV caches of sequences, which decodes them in rounds.

    Slot 0 serves :meth:`rounds`, which run one sequence at a time. Further ``slots`` serve the
    sequences of :meth:`sequences`.
    """

    def rounds(
        self,
        prompt: Sequence[int],
        settings: Settings,
        counters: Counters,
        *,
        ends: Ends = never,
        scores: list[Score] | None = None,
    ) -> Iterator[list[int]]:
        """Yield the emitted tokens of a reply: first the prompt's token, then each round's tokens.

        ``ends`` is called once per token, in order, and returns True to end the reply there; stop
        tokens end it anyway, stop strings are ignored. ``counters`` is updated. ``scores`` receives
        the log-probabilities of tokens if the settings ask for them. Ctrl-C takes effect between
        two passes, while no thread runs.
        """
        batch = Batch(EngineRuntime(self, OneSlot()), counters)
        return reply_rounds(batch, prompt, settings, ends=ends, scores=scores)

    def sequences(self, counters: Counters | None = None, *, keep: bool = False) -> Batch:
        """Return the sequences of the other slots.

        A prompt that begins with tokens of another running sequence copies their keys and values,
        which depend only on these tokens. With ``keep``, ended sequences are sources too: the batch
        then owns its slots until it is closed.
        """
        return Batch(EngineRuntime(self, Slots(self, keep=keep)), counters)

    def make_report(self, counters: Counters, settings: Settings) -> Report:
        """Return the metrics of ``counters`` with these settings, with times, forms and memory."""
        plans = self.planning.planner(settings).plans if settings.gamma == ADAPTIVE else {}
        native = native_figures(
            counters,
            settings,
            threads=self.threads,
            isa=isa(),
            forms=self.forms,
            memory=self.memory(),
            plans=plans,
        )
        return make_report(counters, settings, costs=self.costs, native=native)
