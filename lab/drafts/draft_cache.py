"""Measure agreement of drafts with the target, by the part of the KV cache that they read."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cassandra_spec.bench.questions import Question
from cassandra_spec.drafting import DraftCache, encode_prompt
from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.key_values import SealedFormat
from cassandra_spec.native.passes import WHOLE_CACHE
from cassandra_spec.toolkit.tables import text_table

REQUEST = "Summarize the text above in a few sentences."
"""Request after the joined questions."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agreement:
    """Positions at which the draft's best token is the target's."""

    context: int  # tokens of the prompts, at most
    reading: str
    agreed: int
    positions: int

    @property
    def rate(self) -> float:
        """The share of positions."""
        return self.agreed / self.positions

    @property
    def error(self) -> float:
        """The standard error of the share, with positions taken as independent."""
        return float(np.sqrt(self.rate * (1 - self.rate) / self.positions))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """A draft's reading of the cache: positions, and the parts of committed chunks."""

    cache: DraftCache = WHOLE_CACHE
    bits: int | None = None  # bits of each value, including the sign; None: all
    keep: int | None = None  # largest values of each vector; None: all

    @property
    def name(self) -> str:
        """Name the reading in a table."""
        window = self.cache.window
        parts = ["everything"] if window is None else [f"window {window:,}"]
        parts += [] if window is None else [f"{self.cache.sinks} sinks"]
        parts += [f"{self.bits} bits"] if self.bits else []
        return ", ".join([*parts, *([f"{self.keep} values kept"] if self.keep else [])])

    @property
    def format(self) -> SealedFormat | None:
        """Return the format of sealed chunks; None: they stay in BF16."""
        if self.bits is None and self.keep is None:
            return None
        dropped = 0 if self.bits is None else 9 - self.bits
        format = Format(scheme="exact", truncated=dropped, fill="midpoint" if dropped else "zero")
        return SealedFormat(format=format, order="token", keep=self.keep)


def readings(
    windows: Sequence[int], sinks: Sequence[int], bits: Sequence[int], keep: Sequence[int]
) -> list[Reading]:
    """Return windows of BF16 values, and fewer bits or values of the whole cache and by default.

    In groups of one format, the whole cache in BF16 first.
    """
    caches = [DraftCache(window=window, sinks=number) for window in windows for number in sinks]
    fewer = [*({"bits": each} for each in bits), *({"keep": each} for each in keep)]
    return [
        *(Reading(cache=cache) for cache in (WHOLE_CACHE, *caches)),
        *(Reading(cache=cache, **each) for each in fewer for cache in (WHOLE_CACHE, DraftCache())),
    ]


def prompts(
    questions: Sequence[Question], tokenizer: Any, context: int, count: int
) -> Iterator[list[int]]:
    """Yield ``count`` prompts of up to ``context`` tokens: questions joined, then a request.

    No question is in two prompts. Raises :class:`CassandraError` if there are too few.
    """
    waiting = [question.turns[0] for question in questions]
    for _ in range(count):
        texts: list[str] = []
        found: list[int] = []
        while waiting:
            longer = encode_prompt(tokenizer, "\n\n".join([*texts, waiting[0], REQUEST]))
            if len(longer) > context:
                break
            texts.append(waiting.pop(0))
            found = longer
        if not waiting or not found:
            raise CassandraError(
                f"questions must fill {count} prompts of {context} tokens, not fewer"
            )
        yield found


def measure(
    packed: Path,
    questions: Sequence[Question],
    *,
    contexts: Sequence[int],
    views: Sequence[Reading],
    texts: int,
    tokens: int,
    threads: int,
    say: Callable[[str], object],
) -> list[Agreement]:
    """Force drafts along the target's own greedy continuation of ``tokens`` behind each prompt.

    A draft reads the target's keys and values of all positions before its own.
    """
    tokenizer = load_tokenizer(packed)
    longest = max(contexts) + tokens
    agreed = {(context, view): 0 for context in contexts for view in views}
    with Engine.from_packed(packed, threads=threads, context=longest, slots=1) as engine:
        for context in contexts:
            for number, prompt in enumerate(prompts(questions, tokenizer, context, texts), 1):
                for view, found in _agreements(engine, prompt, views, tokens).items():
                    agreed[context, view] += found
                say(f"{context} tokens: text {number} of {texts}")
    return [
        Agreement(context=context, reading=view.name, agreed=found, positions=texts * tokens)
        for (context, view), found in agreed.items()
    ]


def _agreements(
    engine: Engine, prompt: Sequence[int], views: Sequence[Reading], tokens: int
) -> dict[Reading, int]:
    """Count the positions at which each draft names the target's next token."""
    engine.use_key_values(None)
    first = int(engine.forward(prompt, last=1)[0].argmax())
    engine.copy_positions(0, 1, len(prompt))
    agreed: dict[Reading, int] = {}
    for format, group in itertools.groupby(views, key=lambda view: view.format):
        engine.copy_positions(1, 0, len(prompt))  # back in BF16
        engine.use_key_values(format)
        agreed |= _count(engine, first, len(prompt), list(group), tokens)
    return agreed


def _count(
    engine: Engine, token: int, start: int, views: Sequence[Reading], tokens: int
) -> dict[Reading, int]:
    agreed = dict.fromkeys(views, 0)
    for position in range(start, start + tokens):
        drafted = {
            view: int(
                engine.forward([token], position, draft=True, draft_cache=view.cache)[0].argmax()
            )
            for view in views
        }
        token = int(engine.forward([token], position)[0].argmax())  # overwrites the draft's
        for view, found in drafted.items():
            agreed[view] += found == token
    return agreed


def lines(found: Sequence[Agreement]) -> str:
    """Return a table: a row for each reading, a column for each context."""
    contexts = list(dict.fromkeys(each.context for each in found))
    names = list(dict.fromkeys(each.reading for each in found))
    cells = {(each.context, each.reading): each for each in found}
    rows = []
    for name in names:
        row = [name]
        for context in contexts:
            one = cells[context, name]
            row.append(f"{one.rate:.3f} +- {one.error:.3f} ({one.agreed}/{one.positions})")
        rows.append(row)
    return text_table(("the draft reads", *(f"{context:,} tokens" for context in contexts)), rows)
