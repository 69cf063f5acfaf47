"""Replies under a grammar, by both backends: with drafts and in batches the same as without."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cassandra_spec.drafting import (
    GRAMMAR,
    Bias,
    Counters,
    Levels,
    Penalties,
    Sampling,
    Settings,
)
from cassandra_spec.model.backends import CheckedBackend
from cassandra_spec.text.grammar import Grammar
from tests.drafting.processors import naive_reply
from tests.model.byte_model import compiled, logits_after, opened, pack_byte_model
from tests.text.byte_tokens import END

STOPS = frozenset({END})
SHORT = 48  # tokens; the naive reply reads all again for each
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "kind": {"enum": ["banana", "bandana"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 999},
        "list": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
    },
    "required": ["name", "kind", "count", "list"],
    "additionalProperties": False,
}
GRAMMARS = {
    "schema": compiled("json_schema", json.dumps(SCHEMA)),
    "regex": compiled("regex", "(abc|abd|nana){4,9}[a-f]{3}"),
    "lark": compiled("lark", 'start: "[" start "]" start | "ab" | "c"'),
}
PROMPTS = [np.random.default_rng(at).integers(1, 270, 4 + 7 * at).tolist() for at in range(2)]
DRAFTS: tuple[dict[str, Any], ...] = (
    {"gamma": 4, "draft": "hybrid"},
    {"gamma": 3, "draft": "model"},
    {"gamma": "adaptive", "draft": "lookup"},
    {"gamma": 4, "draft": "hybrid", "levels": Levels(grammar=False)},
    {"gamma": 0},
)


@pytest.fixture(scope="module", params=["native", "torch"])
def backend(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CheckedBackend]:
    packed = pack_byte_model(tmp_path_factory.mktemp("bytes"))
    with opened(packed, request.param, sequences=4) as made:
        yield made


def of(grammar: Grammar, **fields: Any) -> Settings:
    known = {"max_tokens": 120, "stop_tokens": STOPS, "processors": (grammar,), "seed": 5}
    return Settings(**{**known, **fields})


def reply(backend: CheckedBackend, prompt: list[int], settings: Settings) -> list[int]:
    return list(itertools.chain(*backend.rounds(prompt, settings, Counters())))


@pytest.mark.parametrize("kind", GRAMMARS)
def test_drafts_do_not_change_a_reply(backend: CheckedBackend, kind: str) -> None:
    short = {"max_tokens": SHORT}
    for prompt in PROMPTS:
        expected, _ = naive_reply(logits_after(backend), prompt, of(GRAMMARS[kind], **short))
        for drafts in DRAFTS:
            assert reply(backend, prompt, of(GRAMMARS[kind], **short, **drafts)) == expected


def test_with_other_processors(backend: CheckedBackend) -> None:
    processors = (Penalties(frequency=0.8), Bias(((70, 5.0),)), GRAMMARS["schema"])
    fields = {"processors": processors, "max_tokens": SHORT}
    for prompt in PROMPTS:
        expected, _ = naive_reply(logits_after(backend), prompt, of(GRAMMARS["schema"], **fields))
        for drafts in DRAFTS:
            assert reply(backend, prompt, of(GRAMMARS["schema"], **fields, **drafts)) == expected


def test_a_sampled_reply_matches(backend: CheckedBackend) -> None:
    for seed in range(5):
        sampled = of(
            GRAMMARS["schema"],
            sampling=Sampling(temperature=1.2),
            seed=seed,
            max_tokens=200,
            gamma=3,
            levels=Levels(branches=1, alternatives=0),
        )
        tokens = reply(backend, PROMPTS[0], sampled)
        assert tokens[-1] == END
        body = json.loads(backend.tokenizer.decode(tokens[:-1]))
        assert list(body) == SCHEMA["required"]
        assert body["kind"] in ("banana", "bandana")


def test_certain_text_raises_the_tokens_of_a_verification(backend: CheckedBackend) -> None:
    figures = {}
    for grammar in (True, False):
        counters, levels = Counters(), Levels(grammar=grammar)
        settings = of(GRAMMARS["schema"], gamma=4, draft="lookup", levels=levels)
        for prompt in PROMPTS:
            tokens = list(itertools.chain(*backend.rounds(prompt, settings, counters)))
            assert json.loads(backend.tokenizer.decode(tokens[:-1])).keys() == set(
                SCHEMA["required"]
            )
        figures[grammar] = counters
    certain = figures[True].sources[GRAMMAR]
    assert certain.accepted > 20
    assert GRAMMAR not in figures[False].sources
    assert figures[True].rounds < figures[False].rounds / 1.5


def test_replies_of_a_batch_are_those_alone(backend: CheckedBackend) -> None:
    asked = [
        (prompt, of(GRAMMARS[kind], max_tokens=20 + 9 * at, **DRAFTS[at % len(DRAFTS)]))
        for at, (kind, prompt) in enumerate(itertools.product(GRAMMARS, PROMPTS))
    ]
    asked.append((PROMPTS[1], Settings(gamma=4, max_tokens=30, stop_tokens=STOPS)))
    alone = [reply(backend, *each) for each in asked]
    found: dict[int, list[int]] = {}
    sequences = backend.sequences()
    waiting, running = list(enumerate(asked)), dict[int, int]()
    while waiting or running:
        while waiting and sequences.free:
            number, (prompt, settings) = waiting.pop(0)
            running[sequences.claim(prompt, settings)] = number
        for each in sequences.step():
            found.setdefault(running[each.slot], []).append(each.token)
            if each.ended:
                del running[each.slot]
    assert [found[number] for number in range(len(asked))] == alone
