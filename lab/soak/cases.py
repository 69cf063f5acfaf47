"""Define the cases of the regression, and the packing of their models."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from cassandra_spec.bench.decode.prompts import encode_after
from cassandra_spec.bench.study.prompts import bundled_prompts
from cassandra_spec.drafting import (
    Counters,
    DraftKind,
    Gamma,
    Levels,
    Sampling,
    Settings,
    encode_prompt,
)
from cassandra_spec.golden import Format
from cassandra_spec.model.packing.calibration import HELD_OUT, read_text
from cassandra_spec.model.packing.packer import Recipe
from cassandra_spec.model.pretrained import load_tokenizer

RECIPES = {
    "unary": Recipe(format=Format(scheme="unary", truncated=4), prune=0.4),
    "exact": Recipe(
        format=Format(scheme="exact", group=64, truncated=4, fill="midpoint"),
        group_exponents="weighted",
    ),
    "mx": Recipe(format=Format(scheme="mx", truncated=4, fill="midpoint")),
}
"""Recipe of the model, by scheme."""

CHAINS = Levels(branches=1, alternatives=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """Settings shared by all replies."""

    folder: Path  # of the packed models, one for each scheme
    max_tokens: int
    threads: int | None = None  # None: the backend's default
    table: Path | None = None  # of n-grams, for the low drafters


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One reply, and what its settings are."""

    scheme: str
    variant: str  # of the keys and values (torch) or of the target (native)
    prompt: int  # number
    draft: DraftKind = "model"
    gamma: Gamma = 0
    min_margin: float = 0.0
    levels: Levels = CHAINS
    context: int | None = None  # tokens of the prompt, text before it included; None: as it is
    temperature: float = 0.0  # the seed is the prompt's number
    beside: int = 0  # further prompts, the next ones, that are decoded beside it

    @property
    def key(self) -> str:
        """A name for the file of replies."""
        return " ".join(map(str, dataclasses.astuple(self)))

    def plain(self, variant: str) -> Case:
        """Plain decoding of the same prompt. Lossless schemes share theirs, mx has its own."""
        return Case(
            scheme="mx" if self.scheme == "mx" else "exact",
            variant=variant,
            prompt=self.prompt,
            draft="none",
            context=self.context,
            temperature=self.temperature,
        )

    def settings(self, max_tokens: int, stops: frozenset[int]) -> Settings:
        """Return the settings of the reply."""
        return Settings(
            draft=self.draft,
            gamma=self.gamma,
            min_margin=self.min_margin,
            levels=self.levels,
            max_tokens=max_tokens,
            stop_tokens=stops,
            sampling=Sampling(temperature=self.temperature),
            seed=self.prompt,
        )

    def company(self) -> list[Case]:
        """Return the cases that are decoded beside it."""
        number = len(bundled_prompts())
        return [
            dataclasses.replace(self, prompt=(self.prompt + at) % number, context=None, beside=0)
            for at in range(1, self.beside + 1)
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """The tokens of a reply, and the counts of its drafts."""

    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    copied: int  # drafted tokens that were copied from earlier ones

    @classmethod
    def of(cls, rounds: Iterable[Sequence[int]], counters: Counters) -> Answer:
        """Collect the tokens of a reply's rounds, and its counters."""
        tokens = tuple(token for emitted in rounds for token in emitted)
        drafted, copied = counters.drafted, counters.copies.drafted
        return cls(tokens=tokens, drafted=drafted, accepted=counters.accepted, copied=copied)

    @classmethod
    def of_json(cls, body: Mapping[str, Any]) -> Answer:
        """Invert ``dataclasses.asdict``, also after JSON."""
        return cls(**{**body, "tokens": tuple(body["tokens"])})


class Prompts:
    """The bundled prompts as tokens of a model."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer: Any = load_tokenizer(folder)
        self.stops = frozenset({int(self._tokenizer.eos_token_id)})

    @classmethod
    @cache
    def of(cls, folder: Path) -> Prompts:
        """Return the prompts of a folder, cached per process."""
        return cls(folder)

    def __call__(self, case: Case) -> list[int]:
        """Return the prompt of a case, after the text that it requires."""
        text = bundled_prompts()[case.prompt].text
        if case.context is None:
            return encode_prompt(self._tokenizer, text)
        return encode_after(self._tokenizer, text, read_text(None, HELD_OUT), case.context)


def with_plain(speculative: Sequence[tuple[Case, Case]]) -> Iterator[Case]:
    """Yield the cases and the plain cases to compare them with, the plain ones first."""
    yield from dict.fromkeys(plain for _, plain in speculative)
    yield from (case for case, _ in speculative)
