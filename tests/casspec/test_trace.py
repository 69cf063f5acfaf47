"""Traces of replies: every token has its source, and sums are those of the report."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from pathlib import Path

import pytest

from cassandra_spec.drafting import (
    GREEDY,
    TARGET,
    Backend,
    Counters,
    Sampling,
    Settings,
    SideBySide,
    Trace,
    TraceText,
)
from cassandra_spec.model.backends import BACKENDS, Opening

PROMPT = [5, 9, 23, 9, 23, 9]
HYBRID = Settings(gamma=4, draft="hybrid", max_tokens=40)
SAMPLED = Sampling(temperature=1.0)


def traced(backend: Backend, settings: Settings) -> tuple[list[list[int]], Trace]:
    trace = Trace(costs=backend.costs)
    return list(backend.rounds(PROMPT, settings, trace)), trace


@pytest.mark.parametrize("name", ["torch", "native"])
def test_sources_and_bytes_add_up_to_the_report(packed: Path, name: str) -> None:
    kinds = (HYBRID, Settings(gamma=3, max_tokens=40), Settings(gamma=0, max_tokens=40))
    sampled = dataclasses.replace(kinds[1], sampling=SAMPLED, seed=1)
    with BACKENDS[name](packed, Opening(threads=1), HYBRID) as backend:
        for settings in (*kinds, sampled):
            counters = Counters()
            expected = list(backend.rounds(PROMPT, settings, counters))
            rounds, trace = traced(backend, settings)
            if settings.sampling == GREEDY:
                tokens = traced(backend, kinds[2])[0]
                assert list(itertools.chain(*rounds)) == list(itertools.chain(*tokens))
            assert rounds == expected
            assert [len(each.sources) for each in trace.traced] == list(map(len, rounds))
            assert sum(each.drafted for each in trace.traced) == counters.drafted
            assert (settings.gamma == 0) == (counters.accepted == 0)
            made = Counter(itertools.chain(*(each.sources for each in trace.traced)))
            assert made.pop(TARGET) == 1 + counters.rounds
            assert made == {n: s.accepted for n, s in counters.sources.items() if s.accepted}
            report = backend.make_report(counters, settings).traffic["all"]
            last = trace.traced[-1]
            assert last.read == pytest.approx(report.speculative * counters.tokens, rel=1e-12)
            assert last.bf16 == pytest.approx(report.bf16 * counters.tokens, rel=1e-12)
            read = [each.read for each in trace.traced]
            assert read[0] == 0
            assert read == sorted(set(read))


def test_shared_passes_count_as_if_each_was_the_sequence_s_own(packed: Path) -> None:
    plain = dataclasses.replace(HYBRID, gamma=0)
    with BACKENDS["native"](packed, Opening(threads=1, sequences=2), HYBRID) as backend:
        alone = traced(backend, plain)[1]
        assert isinstance(backend, SideBySide)
        total = Counters()
        sequences = backend.sequences(total)
        traces = [Trace(costs=backend.costs, total=total) for _ in range(2)]
        for trace in traces:
            sequences.claim(PROMPT, plain, trace)
        while sequences.step():
            pass
    assert traces[0].traced == traces[1].traced == alone.traced
    assert total.tokens == 2 * alone.tokens


def test_texts_of_tokens_make_the_reply_up_to_a_stop_string(packed: Path) -> None:
    with BACKENDS["native"](packed, Opening(threads=1), HYBRID) as backend:
        rounds, trace = traced(backend, HYBRID)
        whole = backend.tokenizer.decode(list(itertools.chain(*rounds)), skip_special_tokens=True)
        stop = whole[len(whole) // 2 :][:9]
        for stops, expected in (((), whole), ((stop,), whole.partition(stop)[0])):
            text = TraceText(trace, backend.tokenizer, stops)
            for tokens in rounds:
                text.add(tokens)
            text.end()
            bodies = list(itertools.chain(*(each["tokens"] for each in text.rounds)))
            assert "".join(each["text"] for each in bodies) == expected
            assert [each["id"] for each in bodies] == list(itertools.chain(*rounds))
