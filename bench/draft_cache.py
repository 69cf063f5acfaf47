"""How often drafts agree with the target by the part of the KV cache that they read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cassandra_spec.bench.compare.questions import Question
from cassandra_spec.drafting import DraftCache, encode_prompt
from cassandra_spec.golden import CassandraError
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.native.engine import WHOLE_CACHE, Engine
from cassandra_spec.report.tables import text_table

REQUEST = "Summarize the text above in a few sentences."
"""What stands behind the joined questions."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agreement:
    """Positions at which the draft's best token is the target's."""

    context: int  # tokens of the prompts, at most
    cache: DraftCache
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


def caches(windows: Sequence[int], sinks: Sequence[int]) -> list[DraftCache]:
    """Return the whole cache, and each window with each number of sinks."""
    return [
        WHOLE_CACHE,
        *(DraftCache(window=window, sinks=number) for window in windows for number in sinks),
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
    views: Sequence[DraftCache],
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
    with Engine.from_packed(packed, threads=threads, context=longest) as engine:
        for context in contexts:
            for number, prompt in enumerate(prompts(questions, tokenizer, context, texts), 1):
                for view, found in _agreements(engine, prompt, views, tokens).items():
                    agreed[context, view] += found
                say(f"{context} tokens: text {number} of {texts}")
    return [
        Agreement(context=context, cache=view, agreed=found, positions=texts * tokens)
        for (context, view), found in agreed.items()
    ]


def _agreements(
    engine: Engine, prompt: Sequence[int], views: Sequence[DraftCache], tokens: int
) -> dict[DraftCache, int]:
    """Count the positions at which each draft names the target's next token."""
    agreed = dict.fromkeys(views, 0)
    token = int(engine.forward(prompt, last=1)[0].argmax())
    for position in range(len(prompt), len(prompt) + tokens):
        drafted = {
            view: int(engine.forward([token], position, draft=True, draft_cache=view)[0].argmax())
            for view in views
        }
        token = int(engine.forward([token], position)[0].argmax())  # overwrites the draft's
        for view, found in drafted.items():
            agreed[view] += found == token
    return agreed


def lines(found: Sequence[Agreement]) -> str:
    """Return a table: a row for each view, a column for each context."""
    contexts = list(dict.fromkeys(each.context for each in found))
    views = list(dict.fromkeys(each.cache for each in found))
    cells = {(each.context, each.cache): each for each in found}
    rows = []
    for view in views:
        row = [_name(view)]
        for context in contexts:
            one = cells[context, view]
            row.append(f"{one.rate:.3f} +- {one.error:.3f} ({one.agreed}/{one.positions})")
        rows.append(row)
    return text_table(("the draft reads", *(f"{context:,} tokens" for context in contexts)), rows)


def _name(view: DraftCache) -> str:
    if view.window is None:
        return "everything"
    return f"window {view.window:,}, {view.sinks} sinks"
