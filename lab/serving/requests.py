"""Draw the requests of the soak: every kind, greedy and sampled, repeatable by a seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

_PREFIX = 2000  # characters of a long prompt before its question
_PREFIXES = 3
_SEEDS = 2**31
_TEMPERATURES = (0.3, 0.7, 1.0)

_SCHEMA = {
    "type": "object",
    "properties": {
        "topic": {"type": "string", "maxLength": 20},
        "hard": {"type": "boolean"},
        "level": {"enum": ["low", "middle", "high"]},
    },
    "required": ["topic", "hard", "level"],
    "additionalProperties": False,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoakRequest:
    """A request whose reply does not depend on when it is asked."""

    number: int
    kind: str  # of KINDS
    body: Mapping[str, Any]  # of a chat completion, without model and stream

    @property
    def name(self) -> str:
        """A name for messages."""
        how = "sampled" if self.body["temperature"] else "greedy"
        return f"request {self.number} ({self.kind}, {how})"


def _several(random: Random) -> dict[str, Any]:
    return {"n": random.choice((2, 3))}


def _penalties(random: Random) -> dict[str, Any]:
    return {
        "repetition_penalty": random.choice((1.0, 1.2)),
        "frequency_penalty": random.choice((0.3, 0.8)),
        "presence_penalty": random.choice((0.0, 0.5)),
        "logit_bias": {str(random.randrange(90)): random.choice((-5.0, 2.0))},
    }


def _scored(random: Random) -> dict[str, Any]:
    return {"logprobs": True, "top_logprobs": random.choice((0, 2, 5))}


def _stopped(random: Random) -> dict[str, Any]:
    return {"stop": random.sample([" the", " a", ".", ",", "\n", "es", "1"], random.choice((1, 3)))}


def _schema(_: Random) -> dict[str, Any]:
    schema = {"name": "answer", "schema": _SCHEMA}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _grammar(random: Random) -> dict[str, Any]:
    text = random.choice(("(yes|no), [a-z ]{3,30}[.]", "([a-z]{1,8} ){2,9}end"))
    return {"response_format": {"type": "grammar", "syntax": "regex", "definition": text}}


KINDS: Mapping[str, Callable[[Random], dict[str, Any]]] = {
    "ordinary": lambda random: {},
    "prefix": lambda random: {},
    "several": _several,
    "penalties": _penalties,
    "logprobs": _scored,
    "stop": _stopped,
    "schema": _schema,
    "grammar": _grammar,
}
"""Fields of each kind of request; prompts of the kind ``prefix`` share long beginnings."""


def draw_requests(
    kinds: Sequence[str], *, count: int, max_tokens: int, seed: int
) -> list[SoakRequest]:
    """Draw requests, each kind in turn, half of each sampled with seeds."""
    from cassandra_spec.bench.study.prompts import bundled_prompts
    from cassandra_spec.model.packing.calibration import HELD_OUT, read_text

    random = Random(seed)
    prompts = [each.text for each in bundled_prompts()]
    filler = read_text(None, HELD_OUT)
    found = []
    for number in range(count):
        kind = kinds[number % len(kinds)]
        prompt = random.choice(prompts)
        if kind == "prefix":
            start = _PREFIX * random.randrange(_PREFIXES)
            prompt = f"{filler[start : start + _PREFIX]}\n\n{prompt}"
        body = {
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": random.randint(1, max_tokens),
            **KINDS[kind](random),
            **_sampling(random, sampled=number // len(kinds) % 2 == 1),
        }
        found.append(SoakRequest(number=number, kind=kind, body=body))
    return found


def _sampling(random: Random, *, sampled: bool) -> dict[str, Any]:
    if not sampled:
        return {"temperature": 0.0}
    filters = random.choice(({}, {"top_p": 0.9}, {"min_p": 0.05}))
    temperature = random.choice(_TEMPERATURES)
    return {"temperature": temperature, "seed": random.randrange(_SEEDS), **filters}
