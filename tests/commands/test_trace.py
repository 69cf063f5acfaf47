"""Traces of replies: every token has its source, and sums are those of the report."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.drafting import (
    TARGET,
    Backend,
    Counters,
    Sampling,
    Settings,
    Trace,
    TraceText,
)
from cassandra_spec.model.backends import BACKENDS, Opening
from tests.commands.status import error_of

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
            tokens = traced(backend, dataclasses.replace(settings, gamma=0))[0]
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


@pytest.mark.parametrize(
    "settings",
    [
        dataclasses.replace(HYBRID, gamma=0),
        HYBRID,
        dataclasses.replace(HYBRID, sampling=SAMPLED, seed=1),
    ],
)
def test_shared_passes_count_as_if_each_was_the_sequence_s_own(
    packed: Path, settings: Settings
) -> None:
    with BACKENDS["native"](packed, Opening(threads=1, sequences=2), HYBRID) as backend:
        alone = traced(backend, settings)[1]
        total = Counters()
        sequences = backend.sequences(total)
        traces = [Trace(costs=backend.costs, total=total) for _ in range(2)]
        for trace in traces:
            sequences.claim(PROMPT, settings, trace)
        while sequences.step():
            pass
    assert traces[0].traced == traces[1].traced == alone.traced
    assert (total.tokens, total.accepted) == (2 * alone.tokens, 2 * alone.accepted)
    assert total.prompt_seconds == sum(each.prompt_seconds for each in traces) > 0


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


# --- casspec generate --trace --------------------------------------------------------------------


PROMPTS = ("--prompt", "word5 word9 word5", "--prompt", "word7", "--max-tokens", "20")


def generate(packed: Path, *flags: str) -> int:
    return main(["generate", str(packed), *PROMPTS, *flags])


def replies_of(page: Path) -> Any:
    [data] = re.findall(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    return json.loads(data)["replies"]


@pytest.mark.parametrize("sampled", [(), ("--temperature", "1", "--seed", "1")])
@pytest.mark.parametrize(
    ("backend", "batch"), [("torch", ()), ("native", ()), ("native", ("--batch", "2"))]
)
def test_a_page_has_the_replies_beside_plain_ones(
    packed: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    backend: str,
    batch: tuple[str, ...],
    sampled: tuple[str, ...],
) -> None:
    page = tmp_path / "page.html"
    chosen = ("--backend", backend, "--draft", "hybrid", "--gamma", "4", "--json", *sampled)
    assert generate(packed, *chosen) == 0
    expected = json.loads(capsys.readouterr().out)
    assert generate(packed, *chosen, *batch, "--trace", str(page)) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tokens"] == expected["tokens"]
    assert found["report"]["accepted"] == expected["report"]["accepted"]
    for place, each in enumerate(replies_of(page)):
        for kind in ("reply", "plain"):
            tokens = list(itertools.chain(*(round["tokens"] for round in each[kind])))
            assert [token["id"] for token in tokens] == expected["tokens"][place]
            assert "".join(token["text"] for token in tokens) == expected["texts"][place]
        assert len(each["plain"]) == 20 >= len(each["reply"])
        assert each["prompt"] == expected["prompts"][place]


@pytest.mark.parametrize("more", [(), ("--seed", "1", "--acceptance", "rejection")])
def test_samples_that_plain_decoding_does_not_repeat_stand_alone(
    packed: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    page = tmp_path / "page.html"
    sampled = ("--temperature", "1", "--stop", "word", "--system", "word3", *more)
    levels = ("--backend", "native", "--draft", "model", "--gamma", "2")
    assert generate(packed, *levels, "--trace", str(page), *sampled) == 0
    first, second = replies_of(page)
    assert first["plain"] is second["plain"] is None
    assert [message["role"] for message in first["prompt"]] == ["system", "user"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--trace", "."), "must be a file to write, not a directory"),
        (("--trace", "no/such/page.html"), "must be a directory to write page.html into"),
    ],
)
def test_what_cannot_be_traced_is_refused_before_anything_runs(
    packed: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], message: str
) -> None:
    words = ("generate", str(packed), *PROMPTS, "--backend", "native", *flags)
    assert message in error_of(capsys, *words)
