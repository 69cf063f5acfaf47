"""A small packed model that is served, and the replies that it gives alone."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.drafting import Backend, Counters, ReplyText, Sampling, Settings
from cassandra_spec.model.backends import BACKENDS, Opening
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.serve.app import Served
from cassandra_spec.serve.server import Server, open_server
from tests.commands.conftest import packed

__all__ = ["packed"]

STOPS = frozenset({0})
SPECULATION = Settings(gamma=4, draft="hybrid", stop_tokens=STOPS)
SLOTS = 8

CONTEXT, MOST, BODY = 1 << 15, 20_000, 1 << 18

Alone = Callable[[Sequence[int], Settings], tuple[str, int]]


def reply_alone(backend: Backend, prompt: Sequence[int], settings: Settings) -> tuple[str, int]:
    """Return the text and the number of tokens of a reply that is decoded plainly, by itself."""
    text = ReplyText(backend.tokenizer, settings.stop_strings)
    plain = dataclasses.replace(settings, gamma=0, stop_tokens=STOPS)
    tokens = list(itertools.chain(*backend.rounds(prompt, plain, Counters(), ends=text.add)))
    return text.text, len(tokens)


@pytest.fixture(scope="session")
def alone(packed: Path) -> Iterator[Alone]:
    """Yield the replies of an engine of its own."""
    with BACKENDS["native"](packed, Opening(threads=1), SPECULATION) as backend:
        yield partial(reply_alone, backend)


def requests(count: int) -> list[tuple[list[int], Settings]]:
    """Return prompts and settings of many kinds."""
    sampled = Sampling(temperature=1.0, top_p=0.9)
    kinds: tuple[dict[str, Any], ...] = (
        {},
        {"stop_strings": ("word1", "word7 word")},
        {"sampling": sampled},
        {"sampling": Sampling(temperature=0.7), "stop_strings": ("5 word",)},
    )
    made = []
    for number in range(count):
        prompt = [(number * 7 + at * at) % 94 + 2 for at in range(1 + number * 11 % 60)]
        fields = {"max_tokens": 5 + number * 13 % 50, "seed": number, **kinds[number % 4]}
        made.append((prompt, dataclasses.replace(SPECULATION, **fields)))
    return made


@contextlib.contextmanager
def opened(
    packed: Path, *, slots: int, waiting: int, backend: str = "native", **fields: Any
) -> Iterator[Server]:
    """Yield a server of the small model."""
    opening = Opening(threads=1, sequences=slots)
    with BACKENDS[backend](packed, opening, SPECULATION) as made:
        limits = {"vocabulary": 96, "context": CONTEXT, "max_tokens": MOST, "max_body": BODY}
        served = Served(
            name="tiny",
            fingerprint="f",
            created=1,
            tokenizer=load_tokenizer(packed),
            settings=dataclasses.replace(SPECULATION, stop_tokens=made.stop_tokens()),
            temperature=0.0,
            **limits | fields,
        )
        with open_server(served, made, "127.0.0.1", 0, waiting=waiting) as server:
            yield server
